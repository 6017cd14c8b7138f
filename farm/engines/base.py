"""What an engine is, in plain values: the seam between the farm and whatever serves a model.

An engine is a folder beside this file, or anybody's package. It has one `Engine`, which says what it needs and how a
variant of it is started and proven active, and whose `start` gives a `RunningEngine`, which is asked until it is
stopped. `farm.engines` knows all of them by name: `engine.kind` in a sweep.
"""

from __future__ import annotations

import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, SerializeAsAny

from farm.builtin.catalogue import builtin_model
from farm.errors import EngineError
from farm.paths import expand
from farm.redaction import masked
from farm.spec.models import EngineSettings, Sweep, Variant
from farm.types import Item, Label


@dataclass(frozen=True, slots=True)
class GpuState:
    """The GPU of an engine that tells its own power and clock, where nobody else can read them.

    Attributes:
        source: how energy that follows from it is named in records.
    """

    source: str
    power_w: float
    sm_clock_mhz: float
    max_sm_clock_mhz: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One whole answer, checked. Seconds count from the sending of the request; token counts are the engine's.

    Attributes:
        finish_reason: `stop`, or `length` when the token limit ended it.
        asked_s: what the request took on the farm's own clock; other than `latency_s` where an engine's clock is not
            the wall's.
        chunk_times_s: arrival of each chunk.
        chunk_tokens: completion tokens received up to and with each chunk.
        verify_rounds: null without speculation, as are the drafts.
        accept_histogram: rounds by number of accepted drafts: index 0, 1, 2, ...
        engine_latency_s: the engine's own account of the same request; null where it keeps none.
    """

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    ttft_s: float
    latency_s: float
    asked_s: float
    chunk_times_s: list[float]
    chunk_tokens: list[int]
    verify_rounds: int | None = None
    draft_tokens_proposed: int | None = None
    draft_tokens_accepted: int | None = None
    accept_histogram: list[int] | None = None
    engine_latency_s: float | None = None
    engine_ttft_s: float | None = None
    gpu: GpuState | None = None

    @property
    def decode_s(self) -> float:
        """From the first chunk to the last."""
        return self.latency_s - self.ttft_s


@dataclass(frozen=True)
class Phase:
    """One step of an engine's start; `share` is how much of it is done, 0 to 1, null where the engine does not tell."""

    name: str
    share: float | None = None

    def __str__(self) -> str:
        return self.name if self.share is None else f"{self.name}, {self.share:.0%}"


OnPhase = Callable[[Phase], None]


@dataclass(frozen=True)
class EngineCommand:
    """How to start one engine, apart from its port and key."""

    argv: tuple[str, ...]
    env: dict[str, str]

    def as_shell(self) -> str:
        """A line that starts the engine from a shell, in any folder."""
        settings = (f"{shlex.quote(name)}={shlex.quote(value)}" for name, value in self.env.items())
        return " ".join(["env", *settings, shlex.join(self.argv)])

    def masked(self) -> EngineCommand:
        """The same command without its secrets."""
        return EngineCommand(tuple(masked(list(self.argv))), masked(self.env))


@dataclass(frozen=True)
class Launch:
    """One start of an engine.

    Attributes:
        log: the file for all that it writes.
        node: name of its slot.
        number: of this launch on its slot, from 0.
        items: all that it will be asked.
    """

    sweep: Sweep
    variant: Variant
    log: Path
    node: str
    number: int
    items: Iterable[Item]


@dataclass(frozen=True)
class ProbeFigures:
    """A short generation after the start."""

    tokens: int
    verify_rounds: int | None  # null without speculation
    accept_length: float | None
    round_s: float


class OwnWords(BaseModel):
    """What an engine or a process of it says of itself, in its own names; kept whole."""

    model_config = ConfigDict(extra="allow", frozen=True)


@dataclass(frozen=True)
class Evidence:
    """What an engine itself says about what is active in it.

    Attributes:
        source: where it was found; `processes`: each process of the engine wrote its own.
        processes: what they wrote.
    """

    source: str
    processes: Sequence[SerializeAsAny[OwnWords]] = ()
    probe: ProbeFigures | None = None


@dataclass(frozen=True)
class StartTimes:
    """Where the time of a start went; null where the engine is silent."""

    weights_s: float | None = None
    graphs_s: float | None = None
    tokenizer_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a started engine says of itself, and its environment.

    Attributes:
        start_s: from launch to the first generated tokens.
        versions: of the packages that matter, by name.
        hardware: of its GPU; empty without one.
        server_info: its resolved settings, without secrets.
    """

    start_s: float
    version: str | None
    evidence: Evidence
    startup: StartTimes = StartTimes()
    versions: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, str] = field(default_factory=dict)
    server_info: SerializeAsAny[OwnWords] = field(default_factory=OwnWords)


class RunningEngine(ABC):
    """An engine that was proven active, and is asked until it is stopped.

    A request raises `EngineGone` when it is not answered in time or at all, `RequestRefused` when it is refused, and
    `StreamBroken` when its answer cannot be.
    """

    @property
    @abstractmethod
    def facts(self) -> Facts:
        """What it says of itself."""

    @abstractmethod
    async def tokenize_text(self, text: str) -> list[int]:
        """Token ids of plain text, as the model's tokenizer gives them."""

    @abstractmethod
    async def tokenize_chat(self, messages: list[dict[str, str]], template_kwargs: Mapping[str, bool]) -> list[int]:
        """Token ids of chat messages in the engine's own chat template, ready for generation."""

    @abstractmethod
    async def detokenize(self, token_ids: list[int]) -> str:
        """Text of token ids, special tokens included."""

    @abstractmethod
    async def generate(
        self, input_ids: list[int], sampling: Mapping[str, float], *, start_timeout_s: float | None = None
    ) -> Generation:
        """One answer, streamed and timed.

        Args:
            input_ids: the prompt.
            sampling: sampling parameters by SGLang's names.
            start_timeout_s: for a request that belongs to an engine's start and is not measured: this alone bounds it.
        """

    @abstractmethod
    async def stop(self) -> None:
        """End it and all that it started."""

    async def flush_cache(self) -> None:
        """Empty the prefix cache, if it has one; waits until the engine is idle."""
        return

    async def metrics(self) -> str:
        """The engine's own numbers, in Prometheus' text format; empty where it has none."""
        return ""

    @property
    def alive(self) -> bool:
        """Whether it has not ended by itself."""
        return True

    def explain(self) -> str:
        """Why it ended by itself."""
        return "it gives no reason"

    async def why(self, error: EngineError) -> str:
        """Why a request failed: by what the engine died of, if it did, else by what the client saw."""
        return str(error)

    def following(self, on_phase: OnPhase) -> AbstractAsyncContextManager[None]:
        """Tell `on_phase` what the engine says that it is doing while the body runs."""
        return nullcontext()


class Engine(ABC):
    """One kind of engine: what it needs, and how a variant of it is started and proven active.

    Attributes:
        name: `engine.kind` of a sweep, and `engine_kind` of its records.
        label: how its results are marked, whatever the model.
        needs_sglang: it serves real weights by SGLang in an environment of its own: a node is examined for them.
        own_clock: its times are those of the machine that it plays, `speed` times the wall's.
        note: on the command lines that a dry run prints.
    """

    name: str
    label: Label | None = None
    needs_sglang: bool = False
    own_clock: bool = False
    note: str | None = None

    def needs_gpu(self, settings: EngineSettings) -> bool:
        """Whether each engine takes a GPU, rather than CPUs of its node."""
        return settings.device == "cuda"

    def speed(self, settings: EngineSettings) -> float:
        """How many times faster than the machine that it plays it runs; 1 for a real one."""
        return 1.0

    def problem(self, sweep: Sweep) -> str | None:
        """What is wrong with a sweep's settings for this engine, naming field and fix; seen before anything starts."""
        return None

    def missing(self, sweep: Sweep, variant: Variant) -> list[str]:
        """What this machine lacks for a variant, each as a sentence; seen before its engine costs minutes."""
        return []

    def versions(self, sweep: Sweep, packages: Collection[str]) -> dict[str, str]:
        """Versions of packages where engines run on this machine, without starting one; empty where nobody can tell."""
        return {}

    @abstractmethod
    def command(self, sweep: Sweep, variant: Variant, *, model_path: str, python: str) -> EngineCommand:
        """The command that starts a variant. Pure, and shown by a dry run.

        Args:
            sweep: the sweep whose settings are the ground.
            variant: the variant laid over them.
            model_path: the model as this node knows it; it also stands for `{model}` in the arguments.
            python: interpreter of the engine's environment.
        """

    @abstractmethod
    async def start(self, launch: Launch, on_phase: OnPhase) -> RunningEngine:
        """Start an engine and let it prove that it runs what was asked for; `on_phase` is told what it is doing.

        Raises:
            EngineStartError: it does not come up, or is not what the sweep is pinned to.
            VariantNotActive: it runs something else; names every mismatch. Nothing of the engine is left.
        """

    def evidence_of(self, log: Path) -> Evidence:
        """What an engine that failed to start had said before, found by its log."""
        return Evidence("processes")


def default_python() -> str:
    """The farm's own interpreter: where engines run when the sweep names no other."""
    return sys.executable


def python_of(sweep: Sweep) -> str:
    """The interpreter of the sweep's engines on this machine."""
    return expand(sweep.engine.python) if sweep.engine.python else default_python()


def model_of(sweep: Sweep) -> str:
    """What an engine on this machine is given as its model: a folder, or a hub's name."""
    path = sweep.model.path
    if path.startswith("builtin:"):
        return str(builtin_model(path.removeprefix("builtin:")))
    return expand(path) if sweep.model.is_local else path
