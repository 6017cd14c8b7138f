"""All engines by name: those that come along, and those that installed packages bring.

A package brings an engine by an entry point of the group `farm.engines`: its name is what `engine.kind` says, its value
an `Engine`. It must be installed on the driver and on the nodes.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from farm.engines.base import Engine
from farm.errors import InputError
from farm.spec.models import Sweep
from farm.types import Label

GROUP: Final = "farm.engines"
# Entry points as well, for a job may have shipped the farm here instead of installed.
_BUILT_IN: Final = (
    EntryPoint("sglang", "farm.engines.sglang.engine:SGLANG", GROUP),
    EntryPoint("emulated", "farm.engines.emulated.engine:EMULATED", GROUP),
)


def engine_named(name: str) -> Engine:
    """The engine of this name.

    Raises:
        InputError: there is none, or its package does not hold what it says.
    """
    known = {entry.name: entry for entry in (*entry_points(group=GROUP), *_BUILT_IN)}
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise InputError(f"engine.kind: no engine is named '{name}' here; {hint}known are {', '.join(sorted(known))}")
    try:
        engine = known[name].load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"engine.kind: '{name}' cannot be loaded from {known[name].value}: {error}") from error
    if not isinstance(engine, Engine) or engine.name != name:
        raise InputError(f"engine.kind: {known[name].value} is no farm.engines.base.Engine with the name '{name}'")
    return engine


def engine_of(sweep: Sweep) -> Engine:
    """The engine that a sweep's variants run on."""
    return engine_named(sweep.engine.kind)


def label_of(sweep: Sweep) -> Label | None:
    """How results must be marked; null means real weights on a real engine."""
    return engine_of(sweep).label or sweep.model_label


def problem_of(sweep: Sweep) -> str | None:
    """What is wrong with a sweep's engine, naming the field and the fix."""
    try:
        return engine_of(sweep).problem(sweep)
    except InputError as error:
        return str(error)
