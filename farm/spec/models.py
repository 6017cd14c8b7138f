"""What a sweep asks: pydantic models, loaded from YAML. Every error names the file, the field and the fix."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from farm.builtin.catalogue import BUILTINS, Label
from farm.errors import InputError
from farm.paths import expand
from farm.redaction import is_secret, masked
from farm.spec import optimisations as catalogue
from farm.spec.optimisations import ArgValue

MAX_SWEEP_BYTES: Final = 1 << 20
MAX_TOKENS: Final = 1 << 20  # of one prompt or answer
NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,79}$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
# YAML reads `X: 1` as a number, and an environment holds text.
EnvValue = Annotated[str, Field(coerce_numbers_to_str=True)]

# Arguments that the farm itself decides for every engine, with what to set instead.
FARM_OWNED_ARGS: Final = {
    "model-path": "model.path",
    "model": "model.path",
    "device": "engine.device",
    "trust-remote-code": "engine.trust_remote_code",
    "host": "nothing: engines listen on loopback",
    "port": "nothing: every launch gets a free port",
    "api-key": "nothing: every launch gets a key of its own",
    "admin-api-key": "nothing: every launch gets a key of its own",
    "incremental-streaming-output": "nothing: the farm's client needs it",
    "stream-interval": "nothing: the farm's client needs every chunk",
    "enable-metrics": "nothing: the farm reads the engine's own timings",
    "skip-server-warmup": "nothing: the farm warms every engine up itself",
}

# Engine settings that say where and how patiently, not what: a sweep goes on after one of them has changed.
_NOT_ASKED: Final = {
    "start_timeout_s",
    "request_timeout_s",
    "stall_timeout_s",
    "lost_node_wait_s",
    "attempts",
    "python",
    "cpus",
    "slots_per_node",
    "node_labels",
    "resources",
}


class Model(BaseModel):
    """Strict base: an unknown field is an error, values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSpec(Model):
    """The model that every variant serves."""

    path: str = Field(min_length=1, description="a folder on every node, a hub name, or builtin:NAME")
    label: Label | None = None

    @field_validator("path")
    @classmethod
    def _known_builtin(cls, path: str) -> str:
        name = path.removeprefix("builtin:")
        if name != path and name not in BUILTINS:
            near = get_close_matches(name, BUILTINS, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(BUILTINS)}"
            raise ValueError(f"no builtin model '{name}'; {hint}")
        return path

    @property
    def is_local(self) -> bool:
        """Whether `path` names a folder rather than a model hub's name or a builtin."""
        return self.path.startswith(("/", "~", "$", "."))


class EngineSettings(Model):
    """How engines are started; the same for every variant."""

    kind: Literal["sglang", "emulated"] = "sglang"
    python: str | None = Field(default=None, description="interpreter of the engine's environment; default: the farm's")
    device: Literal["cuda", "cpu"] = "cuda"
    args: dict[str, ArgValue] = {}
    env: dict[str, EnvValue] = {}
    concurrency: int = Field(default=1, ge=1, le=1024)
    trust_remote_code: bool = False
    version: str | None = Field(default="0.5.23", description="the SGLang version the sweep is pinned to")
    cpus: float = Field(default=1, ge=0, description="Ray CPUs that one engine's worker reserves")
    slots_per_node: int = Field(default=1, ge=1, le=256, description="engines on one node, where they need no GPU")
    node_labels: dict[str, str] = Field(default={}, description="only nodes that carry all these Ray labels")
    resources: dict[str, float] = Field(default={}, description="Ray resources that one engine's worker reserves too")
    start_timeout_s: float = Field(default=1800, gt=0)
    request_timeout_s: float = Field(default=3600, gt=0)
    stall_timeout_s: float = Field(default=300, gt=0, description="longest silence of an engine amid an answer")
    lost_node_wait_s: float = Field(
        default=0, ge=0, description="how long the cells of a lost node wait for its return before they go to others"
    )
    attempts: int = Field(
        default=2, ge=1, le=10, description="tries of one cell, each later one on a fresh engine or node"
    )

    @field_validator("args")
    @classmethod
    def _canonical_args(cls, args: dict[str, ArgValue]) -> dict[str, ArgValue]:
        return _checked_args(args)

    @property
    def speed(self) -> float:
        """How many times faster than its model's seconds an emulated engine runs; 1 for a real one."""
        given = self.args.get("emulation-speed")
        return float(given) if self.kind == "emulated" and isinstance(given, int | float) else 1.0


class Variant(Model):
    """One set of engine settings under comparison; `args` and `env` are laid over the sweep's own."""

    name: Name
    parts: list[str] = []
    args: dict[str, ArgValue] = {}
    env: dict[str, EnvValue] = {}

    @field_validator("args")
    @classmethod
    def _canonical_args(cls, args: dict[str, ArgValue]) -> dict[str, ArgValue]:
        return _checked_args(args)


class Sampling(Model):
    """Sampling parameters, by SGLang's names."""

    temperature: float = Field(ge=0, le=10)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=-1, ge=-1)
    max_new_tokens: int = Field(ge=1, le=MAX_TOKENS)


def _laid_over(default: Sampling) -> BeforeValidator:
    """Fields that are not given keep the workload's default: who shortens answers does not leave the protocol."""
    return BeforeValidator(lambda given: default.model_dump() | given if isinstance(given, dict) else given)


_GSM8K_SAMPLING: Final = Sampling(temperature=0.6, top_p=0.95, top_k=29, max_new_tokens=32768)
_PROMPTS_SAMPLING: Final = Sampling(temperature=0.6, top_p=0.95, max_new_tokens=2048)


class WorkloadBase(Model):
    """What all workloads have in common."""

    repeats: int = Field(default=1, ge=1, le=1000)
    seed: int = Field(default=42, ge=0, lt=2**31)
    prefix_cache: Literal["flush", "keep"] = Field(
        default="flush", description="flush: the engine's prefix cache is emptied before each measured request"
    )


class Gsm8kWorkload(WorkloadBase):
    """Grade-school word problems in GSM8K's format; the defaults are the published protocol."""

    kind: Literal["gsm8k"]
    source: str = Field(
        default="openai/gsm8k", description="a data set of the hub, a folder with train and test files, or builtin:NAME"
    )
    questions: int | None = Field(default=None, ge=1, description="how many; null is all of them")
    order: Literal["dataset", "shuffled"] = "dataset"
    shots: int = Field(default=5, ge=0, le=64)
    thinking: bool = True
    instruction: bool = Field(default=True, description="false: the bare question, for a model trained on such")
    sampling: Annotated[Sampling, _laid_over(_GSM8K_SAMPLING)] = _GSM8K_SAMPLING
    output_tokens: int | None = Field(
        default=None,
        ge=1,
        le=MAX_TOKENS,
        description="every answer has exactly this many tokens and is not graded: speed alone",
    )


class SyntheticWorkload(WorkloadBase):
    """Exactly N tokens in and M tokens out, greedy, from seeded text."""

    kind: Literal["synthetic"]
    requests: int = Field(default=8, ge=1, le=100_000)
    input_tokens: int = Field(default=32768, ge=8, le=MAX_TOKENS)
    output_tokens: int = Field(default=2048, ge=1, le=MAX_TOKENS)
    text: Literal["repetitive", "varied"] = "repetitive"


class PromptsWorkload(WorkloadBase):
    """The user's own prompts, a JSONL file."""

    kind: Literal["prompts"]
    file: str
    thinking: bool | None = None
    sampling: Annotated[Sampling, _laid_over(_PROMPTS_SAMPLING)] = _PROMPTS_SAMPLING


Workload = Annotated[Gsm8kWorkload | SyntheticWorkload | PromptsWorkload, Field(discriminator="kind")]


class Sweep(Model):
    """One experiment: variants x workloads x repeats on the nodes of one Ray cluster."""

    name: Name
    about: str = ""
    model: ModelSpec
    engine: EngineSettings = EngineSettings()
    variants: list[Variant] = Field(min_length=1)
    baseline: str | None = Field(default=None, description="the variant others are compared with; default: the first")
    workloads: dict[Name, Workload] = Field(min_length=1)
    design: Literal["crossover", "dedicated"] = "crossover"
    margin_pp: float = Field(default=1.0, gt=0, le=100, description="accuracy differences below it do not matter")
    warmup_requests: int = Field(default=2, ge=0, le=100)

    @field_validator("variants", mode="before")
    @classmethod
    def _expand_variants(cls, value: Any) -> Any:
        if value == "ladder":
            value = list(catalogue.LADDER)
        elif value == "factorial":
            value = list(catalogue.FACTORIAL)
        elif isinstance(value, str):
            raise ValueError(f"'{value}' is not a set of variants: write ladder, factorial, or a list of variants")
        if not isinstance(value, list):
            return value
        return [
            {"name": entry, "parts": catalogue.catalogue_parts(entry)} if isinstance(entry, str) else entry
            for entry in value
        ]

    @model_validator(mode="after")
    def _consistent(self) -> Sweep:
        names = [variant.name for variant in self.variants]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"variants: '{sorted(twice)[0]}' is declared twice; give each variant a name of its own")
        if self.baseline is not None and self.baseline not in names:
            raise ValueError(f"baseline: '{self.baseline}' is not one of the variants {', '.join(names)}")
        for variant in self.variants:
            problems = catalogue.contradictions(
                variant.parts, self.args_of(variant), self.env_of(variant), device=self.engine.device
            )
            if problems:
                raise ValueError(f"variants: '{variant.name}': {problems[0]}")
            for name, value in self.args_of(variant).items():
                if name.startswith("emulation-") and not (type(value) in (int, float) and value > 0):  # type: ignore[operator]
                    raise ValueError(f"engine.args.{name}: must be a number above 0, not {value!r}")
        if self.engine.concurrency > 1:
            for name, workload in self.workloads.items():
                if workload.prefix_cache == "flush" and not self.engine.args.get("disable-radix-cache"):
                    raise ValueError(
                        f"workloads.{name}.prefix_cache: the cache cannot be flushed while other requests run "
                        "(engine.concurrency > 1): set prefix_cache: keep, or engine.args.disable-radix-cache: true"
                    )
        return self

    @property
    def label(self) -> Label | None:
        """How results must be marked; null means real weights on a real engine."""
        if self.engine.kind == "emulated":
            return "emulated"
        if any(self.args_of(variant).get("load-format") == "dummy" for variant in self.variants):
            return "dummy-weights"
        return BUILTINS.get(self.model.path.removeprefix("builtin:"), self.model.label)

    @property
    def baseline_name(self) -> str:
        """The variant that others are compared with."""
        return self.baseline or self.variants[0].name

    def variant(self, name: str) -> Variant:
        """A variant by its name."""
        return next(variant for variant in self.variants if variant.name == name)

    def args_of(self, variant: Variant) -> dict[str, ArgValue]:
        """Server arguments of a variant: the sweep's, then its parts', then its own."""
        return self.engine.args | catalogue.compose(variant.parts).args | variant.args

    def env_of(self, variant: Variant) -> dict[str, str]:
        """Environment of a variant's engine: the sweep's, then its parts', then its own."""
        return self.engine.env | catalogue.compose(variant.parts).env | variant.env

    def identity(self, items_digest: str) -> str:
        """The sweep's id: its name and the hash of all it asks, the content of its workloads included.

        What changes no answer and no figure is left out, so that a sweep goes on after a longer time limit.
        """
        asked = self.model_dump(
            mode="json",
            exclude={"about": True, "engine": _NOT_ASKED},
        )
        asked["variants"] = [{"name": v.name, "args": self.args_of(v), "env": self.env_of(v)} for v in self.variants]
        canonical = json.dumps({"asked": masked(asked), "items": items_digest}, sort_keys=True, separators=(",", ":"))
        return f"{self.name}-{hashlib.sha256(canonical.encode()).hexdigest()[:10]}"


def _arg_name(written: str) -> str:
    """A server argument as the farm writes it: `--mem_fraction_static` and `mem-fraction-static` are one."""
    return written.removeprefix("--").replace("_", "-")


def _checked_args(args: dict[str, ArgValue]) -> dict[str, ArgValue]:
    canonical: dict[str, ArgValue] = {}
    for key, value in args.items():
        name = _arg_name(key)
        if name in FARM_OWNED_ARGS:
            raise ValueError(f"'{key}' is the farm's to set; change {FARM_OWNED_ARGS[name]}")
        if name in canonical:
            raise ValueError(f"'{key}' is given twice")
        canonical[name] = value
    return canonical


class _OneOfEachKey(yaml.SafeLoader):
    """YAML's safe loader, which of two equal keys would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"):
            if key.value in seen:
                raise yaml.YAMLError(f"line {key.start_mark.line + 1}: '{key.value}' is given twice; keep one of them")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def load_sweep(path: Path, overrides: list[str] | None = None) -> Sweep:
    """Read a sweep file, lay `dotted.key=value` overrides over it, and check it.

    Raises:
        InputError: naming the file, the field and the fix.
    """
    try:
        if path.stat().st_size > MAX_SWEEP_BYTES:
            raise InputError(
                f"{path}: larger than 1 MiB; a sweep file holds settings, data belongs in files of its own"
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    try:
        raw = yaml.load(text, _OneOfEachKey)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise InputError(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise InputError(f"{path}: is nested too deeply to be a sweep") from error
    if not isinstance(raw, dict):
        raise InputError(f"{path}: a sweep is a mapping with at least name, model, variants and workloads")
    for override in overrides or []:
        _override(raw, override)
    try:
        sweep = Sweep.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{path}: {_first_problem(error)}") from error
    except InputError as error:
        raise InputError(f"{path}: variants: {error}") from error
    return _with_absolute_files(sweep, path.parent)


def _override(raw: dict[Any, Any], override: str) -> None:
    dotted, separator, text = override.partition("=")
    keys = dotted.split(".")
    if not separator or not all(keys):
        raise InputError(f"--set {override}: write it as dotted.key=value, for example engine.concurrency=2")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"--set {override}: the value is not valid YAML") from error
    place: Any = raw
    for depth, key in enumerate(keys):
        here = ".".join(keys[:depth]) or "the sweep"
        if isinstance(place, list):
            if not key.isdigit() or int(key) >= len(place):
                raise InputError(
                    f"--set {override}: {here} is a list of {len(place)}; '{key}' is not one of its places"
                )
            step: Any = int(key)
        elif isinstance(place, dict):
            step = key
        else:
            raise InputError(f"--set {override}: {here} is a plain value and has no '{key}'")
        if depth == len(keys) - 1:
            if isinstance(place, dict) and keys[-2:-1] == ["args"]:
                for known in [name for name in place if _arg_name(str(name)) == _arg_name(key)]:
                    del place[known]  # the same argument, written in another way
            place[step] = value
        else:
            if isinstance(place, dict) and place.get(step) is None:
                place[step] = {}
            place = place[step]


def _first_problem(error: ValidationError) -> str:
    # A misspelt field is the cause of the one that is then missing.
    problem = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    where = [str(part) for part in problem["loc"]]
    if where[:1] == ["workloads"] and len(where) > 2:
        del where[2]  # pydantic's own: the kind of the workload
    place = ".".join(where)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if problem["type"] == "extra_forbidden":
        near = get_close_matches(where[-1], _known_fields(), n=1)
        hint = f"; did you mean '{near[0]}'?" if near else "; remove it"
        return f"{place}: unknown field{hint}{more}"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        message = "is missing; add it"
    elif problem["type"] != "value_error" and not any(is_secret(part) for part in where):
        message = f"{message}, not {problem['input']!r:.80}"
    return f"{place}: {message}{more}" if place else f"{message}{more}"


def _known_fields() -> list[str]:
    models = (Sweep, ModelSpec, EngineSettings, Variant, Sampling, Gsm8kWorkload, SyntheticWorkload, PromptsWorkload)
    return [name for model in models for name in model.model_fields]


def _with_absolute_files(sweep: Sweep, folder: Path) -> Sweep:
    """Paths of data files are relative to the sweep's own file: a job's working directory is a temporary copy."""

    def absolute(text: str) -> str:
        return str((folder / expand(text)).absolute())

    workloads: dict[str, Any] = {}
    for name, workload in sweep.workloads.items():
        if isinstance(workload, PromptsWorkload):
            workloads[name] = workload.model_copy(update={"file": absolute(workload.file)})
        elif isinstance(workload, Gsm8kWorkload) and workload.source.startswith(("/", "~", "$", ".")):
            workloads[name] = workload.model_copy(update={"source": absolute(workload.source)})
        else:
            workloads[name] = workload
    return sweep.model_copy(update={"workloads": workloads})
