"""SGLang's command line, as far as the emulated engine heeds or reports it, resolved as SGLang resolves it. Pure.

Any `--name value` is accepted and reported; only what `setup_of` and the server read has an effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from farm.engines.emulated.model import EXPERT_KERNELS, Setup, Speculation
from farm.text import is_on

VERSION: Final = "0.5.23"
Scalar = int | float | str
Value = Scalar | list[Scalar]


class ServerArgs(BaseModel):
    """Resolved server arguments by SGLang's names, with what SGLang resolves for this model when nothing is said, for
    those that the farm reads or sets. Others are kept as they were given."""

    model_config = ConfigDict(extra="allow", frozen=True, coerce_numbers_to_str=True, protected_namespaces=())

    host: str = "127.0.0.1"
    port: int = 30000
    api_key: str | None = None
    dtype: str = "auto"
    device: str = "cuda"
    tp_size: int = 1
    ep_size: int = 1
    dp_size: int = 1
    load_format: str = "auto"
    trust_remote_code: bool = False
    context_length: int = Field(262_144, gt=0)
    random_seed: int = 42
    page_size: int = Field(64, gt=0)
    max_running_requests: int = Field(1, gt=0)
    max_total_tokens: int | None = None
    chunked_prefill_size: int = 8192
    mem_fraction_static: float = 0.68
    disable_radix_cache: bool = False
    attention_backend: str = "flashinfer"
    moe_runner_backend: str = "auto"
    enable_fp32_lm_head: bool = False
    kv_cache_dtype: str = "auto"
    reasoning_parser: str | None = None
    incremental_streaming_output: bool = False
    stream_interval: int = 1
    enable_metrics: bool = False
    skip_server_warmup: bool = False
    weight_version: str = "default"
    speculative_algorithm: str | None = None
    speculative_draft_model_path: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None
    model_path: str
    tokenizer_path: str
    served_model_name: str
    emulation_speed: float = Field(1.0, gt=0)
    emulation_start_speed: float = Field(1.0, gt=0)
    # An event loop cannot keep appointments closer than this.
    emulation_chunk_gap_ms: float = Field(2.0, gt=0)


_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")


def resolve(argv: Sequence[str]) -> ServerArgs:
    """The arguments of a command line, resolved.

    Raises:
        ValueError: the arguments are not such that SGLang would start, or ask for what is not emulated.
    """
    given = _parse(argv)
    if "model_path" not in given:
        raise ValueError("the following arguments are required: --model-path")
    model = given["model_path"]
    start_speed = given.get("emulation_speed", 1.0)
    defaults = {"tokenizer_path": model, "served_model_name": model, "emulation_start_speed": start_speed}
    try:
        args = ServerArgs.model_validate(defaults | given)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = str(problem["loc"][0]).replace("_", "-")
        raise ValueError(f"--{name} {problem['input']}: {problem['msg']}") from error
    if args.moe_runner_backend == "auto":
        args = args.model_copy(update={"moe_runner_backend": "flashinfer_mxfp4"})
    if args.moe_runner_backend not in EXPERT_KERNELS:
        raise ValueError(
            f"--moe-runner-backend {args.moe_runner_backend}: emulated are {', '.join(sorted(EXPERT_KERNELS))}"
        )
    if args.speculative_algorithm is None:
        return args
    if args.speculative_algorithm not in ("NEXTN", "EAGLE"):
        raise ValueError(f"--speculative-algorithm {args.speculative_algorithm}: emulated is NEXTN")
    resolved = {
        "speculative_algorithm": "EAGLE",
        "speculative_draft_model_path": args.speculative_draft_model_path or args.model_path,
        "speculative_num_steps": args.speculative_num_steps or 3,
        "speculative_eagle_topk": args.speculative_eagle_topk or 1,
        "speculative_num_draft_tokens": args.speculative_num_draft_tokens or 4,
    }
    return args.model_copy(update=resolved)


def setup_of(args: ServerArgs, environment: Mapping[str, str]) -> Setup:
    """What of the resolved arguments and the environment decides the speed."""
    speculation = None
    if args.speculative_num_steps and args.speculative_num_draft_tokens and args.speculative_algorithm:
        speculation = Speculation(args.speculative_num_steps, args.speculative_num_draft_tokens)
    return Setup(
        experts=args.moe_runner_backend,
        # An FP8 head and an FP32-output head exclude each other; SGLang ignores the flag then.
        fp8_head=is_on(environment, "SGLANG_ENABLE_FP8_LM_HEAD"),
        speculation=speculation,
    )


def _parse(argv: Sequence[str]) -> dict[str, Value]:
    given: dict[str, Value] = {}
    name = None
    for word in argv:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            given[name] = _value(name, value) if equals else True
        elif name is None:
            raise ValueError(f"unrecognized arguments: {word}")
        elif (before := given[name]) is True:
            given[name] = _value(name, word)
        else:
            given[name] = [*(before if isinstance(before, list) else [before]), _value(name, word)]
    return given


def _value(name: str, text: str) -> Scalar:
    # A key or a path is text even when it looks like a number.
    if _NUMBER.fullmatch(text) and name not in ("api_key", "model_path"):
        return int(text) if text.lstrip("-").isdigit() else float(text)
    return text
