"""`sweep.json` and `engines.json` as values: what a results folder says of the sweep it is of.

Written by the farm of the day, read by that of any later day: a field that is missing or null has its default, one that
is not known is kept.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from farm.errors import InputError
from farm.results.origin import Origin


def _file_name(text: str) -> str:
    """A name that becomes part of a path stays one part of it."""
    if text.startswith(".") or any(letter in "/\\" or not letter.isprintable() for letter in text):
        raise ValueError(f"{text!r:.80} is no plain name")
    return text


def _moment(text: str) -> str:
    if not _EARLIEST <= datetime.fromisoformat(text).year <= _LATEST:
        raise ValueError(f"{text} is no moment at which a sweep was run")
    return text


# What such a file says may come from anybody.
PlainName = Annotated[str, Field(max_length=250), AfterValidator(_file_name)]
Moment = Annotated[str, AfterValidator(_moment)]
_EARLIEST: Final = 1980
_LATEST: Final = 9000


class Told(BaseModel):
    """Part of such a file; null stands for what is not there."""

    model_config = ConfigDict(frozen=True, extra="allow", coerce_numbers_to_str=True, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: object) -> object:
        return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given


class WorkloadSummary(Told):
    """One workload: what it is and what of it was asked."""

    kind: str | None = None
    title: str | None = None
    sampling: dict[str, JsonValue] = Field(default_factory=dict)
    items: int = Field(default=0, ge=0)
    repeats: int | None = Field(default=None, ge=1)
    digest: str = ""
    source: str | None = None


class ResolvedEngine(Told):
    """Engine settings of all variants."""

    concurrency: int | None = None
    env: dict[str, str] = Field(default_factory=dict)
    node_labels: dict[str, str] = Field(default_factory=dict)


class ResolvedVariant(Told):
    """One variant as it was asked."""

    name: str
    parts: tuple[str, ...] | None = None
    args: dict[str, JsonValue] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)


class ResolvedWorkload(Told):
    """Settings of a workload that tell one run of it from another."""

    repeats: int | None = None
    seed: int | None = None
    shots: JsonValue = None
    thinking: JsonValue = None


class ResolvedSweep(Told):
    """The sweep that was run, with all its defaults."""

    design: str | None = None
    engine: ResolvedEngine = ResolvedEngine()
    variants: tuple[ResolvedVariant, ...] = ()
    workloads: dict[str, ResolvedWorkload] = Field(default_factory=dict)


class Submission(Told):
    """One submission of the sweep: when, of which farm, for which nodes, and what its driver knew of the origin.

    `mixed` says how its answers differ in origin from those before, where the user wanted that.
    """

    at: str | None = None
    farm_version: str | None = None
    python: str | None = None
    node_labels: dict[str, str] = Field(default_factory=dict)
    origin: Origin = Origin()
    mixed: tuple[str, ...] = ()


class SweepSummary(Told):
    """`sweep.json`; `environments` are those the engines were started with, secrets out, null in sweeps before it."""

    model_config = ConfigDict(populate_by_name=True)

    schema_version: int = Field(default=1, alias="schema")
    sweep_id: PlainName | None = None
    name: PlainName | None = None
    about: str | None = None
    created_at: Moment | None = None
    farm_version: str | None = None
    model: str | None = None
    label: str | None = None
    engine_kind: str | None = None
    device: str | None = None
    baseline: str | None = None
    margin_pp: float | None = None
    min_gain: float | None = None
    variants: tuple[str, ...] = ()
    workloads: dict[str, WorkloadSummary] = Field(default_factory=dict)
    planned_cells: int | None = None
    failed_variants: dict[str, str] = Field(default_factory=dict)
    resolved: ResolvedSweep = ResolvedSweep()
    commands: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    environments: dict[str, dict[str, str]] | None = None
    submissions: tuple[Submission, ...] = ()

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """The optimisations of each variant of which the file tells them."""
        return {one.name: one.parts for one in self.resolved.variants if one.parts is not None}

    @property
    def with_own_settings(self) -> list[str]:
        """The variants that have arguments or environment beside their optimisations."""
        return [one.name for one in self.resolved.variants if one.args or one.env]

    def twins_of(self, baseline: str) -> list[str]:
        """Variants that are the baseline under another name: the same optimisations, arguments and environment."""
        made = {one.name: (set(one.parts or ()), one.args, one.env) for one in self.resolved.variants}
        return [name for name, own in made.items() if name != baseline and own == made.get(baseline)]


class EngineSummary(Told):
    """One engine in `engines.json`; `status` is how it goes on, `ready_s` from launch to the first measured request."""

    engine_id: PlainName = ""
    variant: str = ""
    node: str | None = None
    status: str = ""
    ready_s: float | None = None
    start_s: float | None = None
    version: JsonValue = None
    versions: dict[str, JsonValue] = Field(default_factory=dict)
    hardware: dict[str, JsonValue] = Field(default_factory=dict)
    model_digest: dict[str, str] = Field(default_factory=dict)

    @property
    def origin(self) -> Origin | None:
        """Where its answers come from; None of one that never started."""
        if (self.status or "started") not in _STARTED:
            return None
        found = self.versions | {"driver": self.hardware.get("driver")}
        told = {name: str(version) for name, version in found.items() if version and name != _OWN}
        return Origin(model=self.model_digest, versions=told)


_STARTED: Final = ("started", "stopped", "died")
_OWN: Final = "spark-farm"  # of each submission `sweep.json` says it anyway
_ENGINES = TypeAdapter(list[EngineSummary])


def sweep_summary(content: bytes, path: Path) -> SweepSummary:
    """The content of `sweep.json`.

    Raises:
        InputError: it is no sweep's.
    """
    try:
        return SweepSummary.model_validate_json(content)
    except ValidationError as error:
        raise InputError(_why(error, path)) from error


def engine_summaries(content: bytes, path: Path) -> list[EngineSummary]:
    """The content of `engines.json`.

    Raises:
        InputError: it is not a list of engines.
    """
    try:
        return _ENGINES.validate_json(content)
    except ValidationError as error:
        raise InputError(_why(error, path)) from error


def _why(error: ValidationError, path: Path) -> str:
    first = error.errors()[0]
    where = ".".join(str(step) for step in first["loc"])
    return f"{path}: {where or 'its content'}: {first['msg']}; submit the sweep again to have it written anew"
