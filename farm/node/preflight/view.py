"""A sweep seen from one node: which interpreter, model and GPU its engines would be started with here."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel

from farm.engines.base import Engine, model_of, python_of
from farm.engines.nvml import Gpu, find_gpu
from farm.engines.process import NOT_INHERITED
from farm.engines.registry import engine_of
from farm.node.preflight.weights import find_in_cache
from farm.spec.models import Sweep
from farm.spec.optimisations import Needs, optimisation

GIB: Final = 1 << 30
NO_GPU: Final = "the engine runs on the CPU"
NO_GPU_FOUND: Final = "no GPU was found"
TIMEOUT_S: Final = 180.0
Answer = TypeVar("Answer", bound=BaseModel)


@dataclass(frozen=True)
class Node:
    """A sweep seen from one node: what its engines would be started with here."""

    sweep: Sweep

    @property
    def engine(self) -> Engine:
        """The engine of all variants."""
        return engine_of(self.sweep)

    @property
    def no_sglang(self) -> str | None:
        """Why nothing that SGLang needs is looked for here; None where it is."""
        return None if self.engine.needs_sglang else f"the engine is {self.engine.name}"

    @property
    def on_gpu(self) -> bool:
        """Engines need a GPU."""
        return self.engine.needs_gpu(self.sweep.engine)

    @cached_property
    def python(self) -> str:
        """Interpreter of the engines."""
        return python_of(self.sweep)

    @cached_property
    def environment(self) -> dict[str, str]:
        """Environment of an engine, as far as it is the same for all variants: the farm's own packages stay out."""
        return {name: value for name, value in os.environ.items() if name not in NOT_INHERITED} | self.sweep.engine.env

    @cached_property
    def needs(self) -> dict[str, Needs]:
        """What the parts of all variants need."""
        return {name: optimisation(name).needs for variant in self.sweep.variants for name in variant.parts}

    @cached_property
    def gpu(self) -> Gpu | None:
        """This slot's GPU by NVML."""
        return find_gpu() if self.on_gpu else None

    @cached_property
    def model(self) -> Path | None:
        """The folder of the model; None when a hub model is not in the cache."""
        path = model_of(self.sweep)
        is_folder = self.sweep.model.is_local or Path(path).is_absolute()
        return Path(path) if is_folder else find_in_cache(path, self.environment)

    def ask_engine(
        self, source: Path, answer: type[Answer], *arguments: str, timeout_s: float = TIMEOUT_S
    ) -> Answer | str:
        """Run a script in the engine's interpreter: the `answer` that it printed as JSON, or in words why there is
        none."""
        text = source.read_text(encoding="utf-8")
        try:
            done = subprocess.run(
                [self.python, "-c", text, *arguments],
                capture_output=True,
                text=True,
                timeout=timeout_s,
                env=self.environment,
                cwd="/",
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{type(error).__name__}: {error}"[:300]
        try:
            return answer.model_validate_json(done.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:300]
