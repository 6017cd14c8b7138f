"""The catalogue of optimisations, and how a name such as `humming+fp8-head+nextn` becomes engine settings.

A `Optimisation` is one optimisation: the settings it adds, and the settings it cannot live with. A variant is the
ground `baseline` with parts laid over it in the order of its name; a later part wins over an earlier one for the same
argument. A value of `None` takes an argument away. `{model}` in a value stands for the model that is measured.

What an engine must show before a figure of it counts follows from the resolved settings (`expected_state`), so it holds
for a user's own variants as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final, Literal

from farm.errors import InputError
from farm.text import is_on

ArgValue = bool | int | float | str | list[str] | None


@dataclass(frozen=True)
class Needs:
    """What a node must have for a part.

    Attributes:
        gpu: refused on a CPU engine.
        capability: least compute capability of the GPU, where there is one.
        package: distribution that must be installed in the engine's environment.
        draft_layer: the model must bring its own layer for multi-token prediction.
    """

    gpu: bool = False
    capability: tuple[int, int] | None = None
    package: str | None = None
    draft_layer: bool = False


@dataclass(frozen=True)
class Optimisation:
    """One optimisation as data.

    Attributes:
        about: what it does, in a line.
        args: SGLang server arguments without the leading dashes; `True` is a bare flag, `None` takes one away.
        env: environment of the engine process.
        excludes: arguments that make it meaningless, each with the reason.
        needs: what its node must have.
    """

    about: str
    args: Mapping[str, ArgValue] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    excludes: Mapping[str, str] = field(default_factory=dict)
    needs: Needs = Needs()


BASELINE: Final = "baseline"
FP8_HEAD_VARIABLE: Final = "SGLANG_ENABLE_FP8_LM_HEAD"
SIMULATED_ACCEPTANCE_VARIABLE: Final = "SGLANG_SIMULATE_ACC_LEN"
# Speculation whose drafts come from a model; these draft with the target's own head.
_SHARED_HEAD_ALGORITHMS: Final = ("NEXTN", "EAGLE")

CATALOGUE: Final[Mapping[str, Optimisation]] = MappingProxyType(
    {
        BASELINE: Optimisation(
            about="FlashInfer MXFP4 MoE kernels, BF16 LM head with FP32 output, no speculation",
            args={"moe-runner-backend": "flashinfer_mxfp4", "enable-fp32-lm-head": True},
            needs=Needs(gpu=True, capability=(9, 0), package="flashinfer-python"),
        ),
        "humming": Optimisation(
            about="Humming MoE kernels in place of FlashInfer MXFP4",
            args={"moe-runner-backend": "humming"},
            env={"HUMMING_COMPILER": "nvrtc"},
            needs=Needs(gpu=True, capability=(7, 5), package="humming-kernels"),
        ),
        "marlin": Optimisation(
            about="Marlin W4A16 MoE kernels in place of FlashInfer MXFP4",
            args={"moe-runner-backend": "marlin"},
            needs=Needs(gpu=True, capability=(8, 0)),
        ),
        "fp8-head": Optimisation(
            about="LM head quantised to FP8 when the model is loaded, in place of the FP32-output head",
            args={"enable-fp32-lm-head": None},
            env={FP8_HEAD_VARIABLE: "1"},
            excludes={"enable-fp32-lm-head": "an FP8 head and an FP32-output head exclude each other"},
            needs=Needs(capability=(8, 9)),
        ),
        "nextn": Optimisation(
            about="NEXTN multi-token prediction: 3 draft steps, 4 verified tokens a round",
            args={
                "speculative-algorithm": "NEXTN",
                "speculative-draft-model-path": "{model}",
                "speculative-num-steps": 3,
                "speculative-eagle-topk": 1,
                "speculative-num-draft-tokens": 4,
            },
            needs=Needs(draft_layer=True),
        ),
        "dspark": Optimisation(
            about="DSPARK block drafter with its own draft model",
            args={
                "speculative-algorithm": "DSPARK",
                "speculative-draft-model-path": "inclusionAI/Ling-3.0-flash-dspark",
            },
            needs=Needs(gpu=True),
        ),
    }
)

LADDER: Final = (BASELINE, "humming", "humming+fp8-head", "humming+fp8-head+nextn")
_FACTORS: Final = ("humming", "fp8-head", "nextn")
FACTORIAL: Final = (
    BASELINE,
    *("+".join(chosen) for size in (1, 2, 3) for chosen in combinations(_FACTORS, size)),
)


_ONE_NODE: Final = "one node"
_ONE_GPU: Final = "one GPU"
# SGLang's arguments by which an engine spreads, each with its other spellings, and what a slot has instead.
_SPREAD: Final[Mapping[tuple[str, ...], str]] = MappingProxyType(
    {
        ("nnodes",): _ONE_NODE,
        ("tp-size", "tensor-parallel-size", "tp"): _ONE_GPU,
        ("pp-size", "pipeline-parallel-size", "pp"): _ONE_GPU,
        ("dp-size", "data-parallel-size", "dp"): _ONE_GPU,
        ("ep-size", "expert-parallel-size", "ep"): _ONE_GPU,
        ("dcp-size", "decode-context-parallel-size"): _ONE_GPU,
        ("attn-cp-size", "attention-context-parallel-size"): _ONE_GPU,
    }
)


@dataclass(frozen=True)
class ExpectedState:
    """What an engine must show of itself when a variant's settings are really active.

    Attributes:
        moe_backend: the runner that every MoE layer of the target must hold; None: any.
        head: `fp8` or `fp32-output`; None: as the model has it.
        speculation: the algorithm asked for; None: there must be none.
        steps, draft_tokens: settings of the drafts; None: any.
        shared_head: the draft must hold the target's own head module.
    """

    moe_backend: str | None
    head: Literal["fp8", "fp32-output"] | None
    speculation: str | None
    steps: int | None = None
    draft_tokens: int | None = None
    shared_head: bool = False


@dataclass(frozen=True)
class Settings:
    """What a variant adds to the sweep's engine settings."""

    args: dict[str, ArgValue]
    env: dict[str, str]


def optimisation(name: str) -> Optimisation:
    """One part of the catalogue; an unknown name is an `InputError` that names the nearest known one."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    near = get_close_matches(name, CATALOGUE, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(CATALOGUE)}"
    raise InputError(f"unknown variant '{name}': {hint}")


def compose(names: list[str]) -> Settings:
    """Lay parts over each other in the order given."""
    args: dict[str, ArgValue] = {}
    env: dict[str, str] = {}
    for name in names:
        args |= optimisation(name).args
        env |= optimisation(name).env
    return Settings(args, env)


def catalogue_optimisations(variant: str) -> list[str]:
    """The parts of a variant written by name: always over the baseline, `a+b` being baseline, a, b."""
    parts = [name for name in variant.split("+") if name != BASELINE]
    if found := _conflicts(parts):
        raise InputError(f"variant '{variant}': {found[0]}")
    return [BASELINE, *parts]


def _conflicts(parts: Sequence[str]) -> list[str]:
    """Parts that would overrule each other. Only the baseline is there to be overruled."""
    found = []
    for arg, what in (("moe-runner-backend", "choose the MoE kernels"), ("speculative-algorithm", "draft")):
        conflicts = [name for name in dict.fromkeys(parts) if name != BASELINE and arg in optimisation(name).args]
        if len(conflicts) > 1:
            found.append(f"'{conflicts[0]}' and '{conflicts[1]}' both {what}; keep one of them")
    return found


def beyond_a_slot(args: Mapping[str, ArgValue], *, device: str) -> tuple[str, str] | None:
    """The first argument that asks for more than a slot has, one node and one GPU; with the reason."""
    for names, has in _SPREAD.items():
        if device == "cpu" and has == _ONE_GPU:
            continue  # its ranks share the slot's cores
        for name in names:
            # Text in YAML is a number to SGLang.
            if str(args.get(name) or 1).strip() != "1":
                return name, (
                    f"{args[name]} is asked for, and an engine has {has}: set it to 1 or leave it away; more nodes and "
                    "GPUs are used by running more engines at a time"
                )
    return None


def contradictions(parts: list[str], args: Mapping[str, ArgValue], env: Mapping[str, str], *, device: str) -> list[str]:
    """What is impossible in a variant's resolved settings, each as a sentence that names both sides."""
    found = _conflicts(parts)
    if device == "cpu":
        found += [
            f"'{name}' needs a GPU and engine.device is cpu; variants for a CPU are declared with `parts` that run "
            "there, for example {name: plain} and {name: nextn, parts: [nextn]}"
            for name in parts
            if optimisation(name).needs.gpu
        ]
    for name in parts:
        for arg, reason in optimisation(name).excludes.items():
            if args.get(arg) not in (None, False):
                found.append(f"'{name}' is set beside --{arg}: {reason}")
    if _fp8_head(env) and "fp8-head" not in parts and args.get("enable-fp32-lm-head"):
        found.append(
            f"{FP8_HEAD_VARIABLE} is set beside --enable-fp32-lm-head: "
            + CATALOGUE["fp8-head"].excludes["enable-fp32-lm-head"]
        )
    if env.get(SIMULATED_ACCEPTANCE_VARIABLE, "-1") not in ("", "-1") and args.get("load-format") != "dummy":
        found.append(
            f"{SIMULATED_ACCEPTANCE_VARIABLE} is set without --load-format dummy: acceptance would be made up, and the "
            "answers would not be the model's"
        )
    algorithm = args.get("speculative-algorithm")
    if algorithm and algorithm != "NGRAM" and not args.get("speculative-draft-model-path"):
        found.append(f"--speculative-algorithm {algorithm} is set without --speculative-draft-model-path")
    return found


def expected_state(args: Mapping[str, ArgValue], env: Mapping[str, str]) -> ExpectedState:
    """What follows from a variant's resolved settings for the engine that runs them."""
    backend = args.get("moe-runner-backend")
    fp8 = _fp8_head(env)
    algorithm = args.get("speculative-algorithm")
    return ExpectedState(
        moe_backend=str(backend) if backend not in (None, False, "auto") else None,
        head="fp8" if fp8 else "fp32-output" if args.get("enable-fp32-lm-head") else None,
        speculation=str(algorithm) if algorithm else None,
        steps=_count(args.get("speculative-num-steps")),
        draft_tokens=_count(args.get("speculative-num-draft-tokens")),
        shared_head=fp8 and algorithm in _SHARED_HEAD_ALGORITHMS,
    )


def _fp8_head(env: Mapping[str, str]) -> bool:
    return is_on(env, FP8_HEAD_VARIABLE)


def _count(value: Any) -> int | None:
    return value if type(value) is int else None
