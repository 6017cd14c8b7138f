"""Whether what runs is the variant that was asked for: evidence, server info and a probe against `ExpectedState`. Pure.

Evidence is what each SGLang process writes of its live objects (`farm.sglang_plugin.evidence`). An engine without the
plug-in writes none; then `/server_info`, the resolved arguments, must do. That is enough for what stock SGLang has, and
the reason to refuse an FP8 head, which it does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import Field

from farm.engines.base import OwnWords
from farm.engines.sglang.server_info import ServerInfo
from farm.spec.optimisations import FP8_HEAD_VARIABLE, ExpectedState

# Drafts that are never accepted give exactly 1; the weakest published workload gives above 2.
MIN_ACCEPT_LENGTH: Final = 1.1
# A verify round or a plain step takes longer than one kernel launch and, on the slowest CPU engine, seconds.
PLAUSIBLE_ROUND_S: Final = (1e-5, 30.0)

INSTALL: Final = "install the farm's plug-in there: bash infra/install-plugin.sh PYTHON"
_FP8_METHOD: Final = "Fp8HeadMethod"  # the plug-in's, over weights and scales that it made itself


@dataclass(frozen=True)
class Probe:
    """A short generation after the start.

    Attributes:
        asked: tokens asked for.
        tokens: tokens that came.
        rounds: verify rounds; None without speculation.
        round_s: seconds of a verify round, or of a plain step.
    """

    requested: int
    tokens: int
    rounds: int | None
    round_s: float

    @property
    def accept_length(self) -> float | None:
        """Tokens emitted per verify round."""
        return self.tokens / self.rounds if self.rounds else None


class _Head(OwnWords):
    class_name: str = Field(alias="class")
    method: str | None
    dtype: str | None
    fp32_output: bool


class _Experts(OwnWords):
    backend: str | None


class _Model(OwnWords):
    role: str
    class_name: str = Field(alias="class")
    lm_head: _Head | None
    shares_target_head: bool | None
    moe: list[_Experts]


class _Drafting(OwnWords):
    steps: int | None = None
    draft_tokens: int | None = None


class ProcessEvidence(OwnWords):
    """What the plug-in wrote in one process, as far as the farm reads it, and the rest beside it."""

    models: tuple[_Model, ...] = ()
    speculation: _Drafting | None = None
    versions: dict[str, str | None] = Field(default_factory=dict)
    gpu: dict[str, str | None] | None = None


def read_processes(folder: Path) -> list[ProcessEvidence]:
    """The evidence of each process of an engine; a file that cannot be read is none."""
    found = []
    for path in sorted(folder.glob("*.json")):
        with suppress(OSError, ValueError):
            found.append(ProcessEvidence.model_validate_json(path.read_bytes()))
    return found


def mismatches(
    expected: ExpectedState, processes: Sequence[ProcessEvidence], server_info: ServerInfo | None, probe: Probe | None
) -> list[str]:
    """Why what runs is not what was asked for; empty when it is.

    Args:
        expected: what the variant's settings must show.
        processes: evidence of the engine's processes; empty when the plug-in is not in them.
        server_info: the engine's resolved arguments; None for an engine that did not get that far.
        probe: figures of a short generation; None for an engine that did not get that far.
    """
    found = _from_processes(expected, processes)
    if server_info is not None:
        found += _from_server_info(expected, server_info)
    if probe is not None:
        found += _from_probe(expected, probe)
    return list(dict.fromkeys(found))


def _from_processes(expected: ExpectedState, processes: Sequence[ProcessEvidence]) -> list[str]:
    if not processes:
        if expected.head == "fp8":
            return [
                f"an FP8 LM head is asked for and the engine's processes wrote no evidence: stock SGLang ignores "
                f"{FP8_HEAD_VARIABLE}; {INSTALL}"
            ]
        return []
    schedulers = [process for process in processes if process.models]
    if not schedulers:
        return ["no process wrote evidence of a model"]
    found = []
    for process in schedulers:
        targets = [model for model in process.models if model.role == "target"]
        drafts = [model for model in process.models if model.role == "draft"]
        for model in targets:
            found += _wrong_experts(expected, model) + _wrong_head(expected, model)
        found += _wrong_drafts(expected, process.speculation, drafts)
    return found


def _wrong_experts(expected: ExpectedState, model: _Model) -> list[str]:
    if expected.moe_backend is None:
        return []
    running = sorted({str(layers.backend) for layers in model.moe})
    if running == [expected.moe_backend]:
        return []
    what = f"on {', '.join(running)}" if running else "in no MoE layer"
    return [f"MoE backend {expected.moe_backend} is asked for and the experts run {what}"]


def _wrong_head(expected: ExpectedState, model: _Model) -> list[str]:
    head = model.lm_head
    if head is None or head.class_name == "PPMissingLayer":  # a rank of a pipeline without a head
        return []
    runs_fp8 = head.dtype == "float8_e4m3fn" and head.method == _FP8_METHOD
    is_what = f"the LM head is {head.dtype} with {head.method}" + ", FP32 output" * head.fp32_output
    if expected.head == "fp8" and not runs_fp8:
        return [f"an FP8 LM head is asked for and {is_what}"]
    if expected.head == "fp32-output" and (runs_fp8 or not head.fp32_output):
        return [f"an LM head with FP32 output is asked for and {is_what}"]
    if expected.head is None and runs_fp8:
        return [f"no FP8 LM head is asked for and {is_what}"]
    return []


def _wrong_drafts(expected: ExpectedState, speculation: _Drafting | None, drafts: Sequence[_Model]) -> list[str]:
    if expected.speculation is None:
        return [] if speculation is None else ["no speculation is asked for and a draft worker runs"]
    if speculation is None and not drafts:
        return [f"speculation {expected.speculation} is asked for and no draft worker runs"]
    found = []
    if speculation is not None:
        found += _wrong_counts(expected, speculation.steps, speculation.draft_tokens)
    if expected.shared_head:
        for draft in drafts:
            if not draft.shares_target_head:
                head = draft.lm_head
                reads = f"{head.dtype if head else None} weights with {head.method if head else None}"
                found.append(f"the draft {draft.class_name} does not share the target's LM head: it reads {reads}")
    return found


def _from_server_info(expected: ExpectedState, info: ServerInfo) -> list[str]:
    found = []
    if expected.moe_backend is not None and info.moe_runner_backend != expected.moe_backend:
        found.append(
            f"MoE backend {expected.moe_backend} is asked for and the engine resolved {info.moe_runner_backend}"
        )
    if expected.head == "fp32-output" and not info.enable_fp32_lm_head:
        found.append("an LM head with FP32 output is asked for and the engine resolved enable_fp32_lm_head to false")
    algorithm = info.speculative_algorithm
    if expected.speculation is None and algorithm is not None:
        found.append(f"no speculation is asked for and the engine resolved {algorithm}")
    if expected.speculation is not None:
        if algorithm is None:
            found.append(f"speculation {expected.speculation} is asked for and the engine resolved none")
        else:
            found += _wrong_counts(expected, info.speculative_num_steps, info.speculative_num_draft_tokens)
    return found


def _wrong_counts(expected: ExpectedState, steps: int | None, draft_tokens: int | None) -> list[str]:
    return [
        f"{requested} {what} are asked for and {running} run"
        for what, requested, running in (
            ("draft steps", expected.steps, steps),
            ("draft tokens", expected.draft_tokens, draft_tokens),
        )
        if requested is not None and running is not None and requested != running
    ]


def _from_probe(expected: ExpectedState, probe: Probe) -> list[str]:
    found = []
    if probe.tokens != probe.requested:
        found.append(f"a probe asked for {probe.requested} tokens and got {probe.tokens}")
    if expected.speculation is not None and probe.rounds is None:
        found.append(f"speculation {expected.speculation} is asked for and a probe was answered without verify rounds")
    if expected.speculation is None and probe.rounds:
        found.append("no speculation is asked for and a probe was answered in verify rounds")
    accepted = probe.accept_length
    if expected.speculation is not None and accepted is not None and accepted < MIN_ACCEPT_LENGTH:
        found.append(
            f"speculation {expected.speculation} has accept length {accepted:.2f} in a probe, below "
            f"{MIN_ACCEPT_LENGTH:g}: "
            "drafts are not accepted"
        )
    low, high = PLAUSIBLE_ROUND_S
    if not low < probe.round_s < high:
        found.append(f"a probe's steps took {probe.round_s:g} s each, which cannot be")
    return found
