"""What a sweep asks: pydantic models, loaded from YAML. Every error names the file, the field and the fix."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal

from pydantic import (
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from farm.builtin.catalogue import BUILTINS
from farm.paths import is_path
from farm.spec import optimisations as catalogue
from farm.spec.optimisations import ArgValue
from farm.types import Label
from farm.workloads.base import Strict
from farm.workloads.build import Workload

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


class ModelSpec(Strict):
    """The model that every variant serves."""

    path: str = Field(min_length=1, description="a folder on every node, a hub name, or builtin:NAME")
    label: Label | None = None
    digest: Literal["sampled", "full"] = Field(
        default="sampled", description="what of the weights is compared before a sweep goes on; full reads every byte"
    )

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
        return is_path(self.path)


class EngineSettings(Strict):
    """How engines are started; the same for every variant."""

    kind: Name = Field(
        default="sglang", description="name of the engine: sglang, emulated, or one that a package brings"
    )
    python: str | None = Field(default=None, description="interpreter of the engine's environment; default: the farm's")
    device: Literal["cuda", "cpu"] = "cuda"
    args: dict[str, ArgValue] = Field(default={})
    env: dict[str, EnvValue] = Field(default={})
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


class Variant(Strict):
    """One set of engine settings under comparison; `args` and `env` are laid over the sweep's own."""

    name: Name
    parts: list[str] = Field(default=[])
    args: dict[str, ArgValue] = Field(default={})
    env: dict[str, EnvValue] = Field(default={})

    @field_validator("args")
    @classmethod
    def _canonical_args(cls, args: dict[str, ArgValue]) -> dict[str, ArgValue]:
        return _checked_args(args)


class Sweep(Strict):
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
    min_gain: float = Field(
        default=0.02, ge=0, lt=1, description="the smallest gain in decode throughput that is worth deploying, a share"
    )
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
            {"name": entry, "parts": catalogue.catalogue_optimisations(entry)} if isinstance(entry, str) else entry
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
        places = {"engine.args": self.engine.args}
        places |= {f"variants: '{variant.name}': args": variant.args for variant in self.variants}
        for place, args in places.items():
            if found := catalogue.beyond_a_slot(args, device=self.engine.device):
                raise ValueError(f"{place}.{found[0]}: {found[1]}")
        for variant in self.variants:
            problems = catalogue.contradictions(
                variant.parts, self.args_of(variant), self.env_of(variant), device=self.engine.device
            )
            if problems:
                raise ValueError(f"variants: '{variant.name}': {problems[0]}")
        if self.engine.concurrency > 1:
            for name, workload in self.workloads.items():
                if workload.prefix_cache == "flush" and not self.engine.args.get("disable-radix-cache"):
                    raise ValueError(
                        f"workloads.{name}.prefix_cache: the cache cannot be flushed while other requests run "
                        "(engine.concurrency > 1): set prefix_cache: keep, or engine.args.disable-radix-cache: true"
                    )
        return self

    @property
    def model_label(self) -> Label | None:
        """How results must be marked for the sake of the weights; an engine may have a label of its own beside it."""
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


def argument_name(written: str) -> str:
    """A server argument as the farm writes it: `--mem_fraction_static` and `mem-fraction-static` are one."""
    return written.removeprefix("--").replace("_", "-")


def _checked_args(args: dict[str, ArgValue]) -> dict[str, ArgValue]:
    canonical: dict[str, ArgValue] = {}
    for key, value in args.items():
        name = argument_name(key)
        if name in FARM_OWNED_ARGS:
            raise ValueError(f"'{key}' is the farm's to set; change {FARM_OWNED_ARGS[name]}")
        if name in canonical:
            raise ValueError(f"'{key}' is given twice")
        canonical[name] = value
    return canonical
