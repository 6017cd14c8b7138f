"""SGLang's command line, as far as the emulated engine heeds or reports it, resolved as SGLang resolves it. Pure.

Any `--name value` is accepted and reported; only what `setup_of` and the server read has an effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from farm.engines.emulated.model import EXPERT_KERNELS, Setup, Speculation
from farm.text import is_on

VERSION: Final = "0.5.23"
SPEED: Final = "emulation_speed"
START_SPEED: Final = "emulation_start_speed"
CHUNK_GAP_MS: Final = "emulation_chunk_gap_ms"

# What SGLang resolves for this model when nothing is said, for the arguments that the farm reads or sets.
_DEFAULTS: Final[Mapping[str, Any]] = {
    "host": "127.0.0.1",
    "port": 30000,
    "api_key": None,
    "dtype": "auto",
    "device": "cuda",
    "tp_size": 1,
    "ep_size": 1,
    "dp_size": 1,
    "load_format": "auto",
    "trust_remote_code": False,
    "context_length": 262_144,
    "random_seed": 42,
    "page_size": 64,
    "max_running_requests": 1,
    "max_total_tokens": None,
    "chunked_prefill_size": 8192,
    "mem_fraction_static": 0.68,
    "disable_radix_cache": False,
    "attention_backend": "flashinfer",
    "moe_runner_backend": "auto",
    "enable_fp32_lm_head": False,
    "kv_cache_dtype": "auto",
    "reasoning_parser": None,
    "incremental_streaming_output": False,
    "stream_interval": 1,
    "enable_metrics": False,
    "skip_server_warmup": False,
    "weight_version": "default",
    "speculative_algorithm": None,
    "speculative_draft_model_path": None,
    "speculative_num_steps": None,
    "speculative_eagle_topk": None,
    "speculative_num_draft_tokens": None,
}
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")


def resolve(argv: Sequence[str]) -> dict[str, Any]:
    """Resolved server arguments by SGLang's names.

    Raises:
        ValueError: the arguments are not such that SGLang would start, or ask for what is not emulated.
    """
    given = _parse(argv)
    if "model_path" not in given:
        raise ValueError("the following arguments are required: --model-path")
    args = {**_DEFAULTS, "tokenizer_path": given["model_path"], "served_model_name": given["model_path"], **given}
    args.setdefault(SPEED, 1.0)
    args.setdefault(START_SPEED, args[SPEED])
    # An event loop cannot keep appointments closer than this.
    args.setdefault(CHUNK_GAP_MS, 2.0)
    if args["moe_runner_backend"] == "auto":
        args["moe_runner_backend"] = "flashinfer_mxfp4"
    if args["moe_runner_backend"] not in EXPERT_KERNELS:
        raise ValueError(
            f"--moe-runner-backend {args['moe_runner_backend']}: emulated are {', '.join(sorted(EXPERT_KERNELS))}"
        )
    if args["speculative_algorithm"] is not None:
        if args["speculative_algorithm"] not in ("NEXTN", "EAGLE"):
            raise ValueError(f"--speculative-algorithm {args['speculative_algorithm']}: emulated is NEXTN")
        args["speculative_algorithm"] = "EAGLE"
        args["speculative_draft_model_path"] = args["speculative_draft_model_path"] or args["model_path"]
        for name, value in (("num_steps", 3), ("eagle_topk", 1), ("num_draft_tokens", 4)):
            if args[f"speculative_{name}"] is None:
                args[f"speculative_{name}"] = value
    for name in ("page_size", "max_running_requests", "context_length", SPEED, START_SPEED, CHUNK_GAP_MS):
        if not isinstance(args[name], int | float) or args[name] <= 0:
            raise ValueError(f"--{name.replace('_', '-')}: must be above 0, not {args[name]!r}")
    return args


def setup_of(args: Mapping[str, Any], environment: Mapping[str, str]) -> Setup:
    """What of the resolved arguments and the environment decides the speed."""
    fp8_head = is_on(environment, "SGLANG_ENABLE_FP8_LM_HEAD")
    speculation = None
    if args["speculative_algorithm"] is not None:
        speculation = Speculation(args["speculative_num_steps"], args["speculative_num_draft_tokens"])
    return Setup(
        experts=args["moe_runner_backend"],
        # An FP8 head and an FP32-output head exclude each other; SGLang ignores the flag then.
        fp8_head=fp8_head,
        speculation=speculation,
    )


def _parse(argv: Sequence[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    name = None
    for word in argv:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            given[name] = _value(name, value) if equals else True
        elif name is None:
            raise ValueError(f"unrecognized arguments: {word}")
        elif given[name] is True:
            given[name] = _value(name, word)
        else:
            values = given[name] if isinstance(given[name], list) else [given[name]]
            given[name] = [*values, _value(name, word)]
    return given


def _value(name: str, text: str) -> Any:
    # A key or a path is text even when it looks like a number.
    if _NUMBER.fullmatch(text) and name not in ("api_key", "model_path"):
        return int(text) if text.lstrip("-").isdigit() else float(text)
    return text
