"""Faults on demand, from the JSON in `FARM_EMULATION_FAULTS`: one object, or a list of objects.

Each object holds faults, and optionally `launches` and `nodes`: it acts only on launches whose number
(`FARM_EMULATION_LAUNCH`, from 0) and nodes whose name (`FARM_EMULATION_NODE`) are listed there. `_after: n` lets n
generations of this process pass and strikes every later one.

- `fail_start: true`: the engine dies while it loads, with a traceback.
- `crash_after: n`: the process dies in the middle of a stream.
- `poison: "text"`: the same, for every prompt that holds the text.
- `hang_after: n`: the stream stops and the connection stays open; later requests hang too, and health turns 503.
- `truncate_after: n`: the stream ends in the middle, without a finish reason and without `[DONE]`.
- `malformed_after: n`: one chunk of the stream is not JSON.
- `impossible_counts_after: n`: the last chunk counts more tokens than were sent.
- `error_after: n`: HTTP 500.
- `cold_s: s`: each of the first three generations waits s seconds before its first token, as for kernels compiled.
- `slow_clock: f`: the machine is in a slow state, and every step takes 1 / f times as long.
- `silent_fallback: true`: the outermost optimisation is not active, without an error: drafts are never accepted;
  without speculation, the experts run on FlashInfer's kernels; without Humming either, the LM head stays BF16.
- `refuse_sigterm: true`: SIGTERM and SIGINT are ignored.
- `grandchild: true`: a process in a session of its own, that ignores SIGTERM, stays behind for ten minutes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Faults:
    """The faults of one launch; the default is none."""

    fail_start: bool = False
    crash_after: int | None = None
    poison: str | None = None
    hang_after: int | None = None
    truncate_after: int | None = None
    malformed_after: int | None = None
    impossible_counts_after: int | None = None
    error_after: int | None = None
    cold_s: float = 0.0
    slow_clock: float = 1.0
    silent_fallback: bool = False
    refuse_sigterm: bool = False
    grandchild: bool = False


def faults_from(environment: Mapping[str, str]) -> Faults:
    """The faults that act on this launch of this node; a later entry of the list wins.

    Raises:
        ValueError: the JSON does not say what the list in this module's docstring allows.
    """
    text = environment.get("FARM_EMULATION_FAULTS")
    if not text:
        return Faults()
    raw = json.loads(text)
    launch = {
        "launches": int(environment.get("FARM_EMULATION_LAUNCH", "0")),
        "nodes": environment.get("FARM_EMULATION_NODE", ""),
    }
    acting: dict[str, bool | int | float | str] = {}
    for entry in raw if isinstance(raw, list) else [raw]:
        _check(entry)
        if all(here in entry.get(limit, [here]) for limit, here in launch.items()):
            acting |= {name: value for name, value in entry.items() if name not in launch}
    return Faults(**acting)  # type: ignore[arg-type]  # each was checked


def _check(entry: Any) -> None:
    if not isinstance(entry, dict):
        raise ValueError(f"FARM_EMULATION_FAULTS: an entry is an object, not {entry!r}")
    known = {field.name for field in fields(Faults)} | {"launches", "nodes"}
    for name, value in entry.items():
        if name not in known:
            raise ValueError(f"FARM_EMULATION_FAULTS: there is no '{name}'; there are {', '.join(sorted(known))}")
        if name in ("launches", "nodes"):
            fits = isinstance(value, list)
        elif name.endswith("_after"):
            fits = type(value) is int and value >= 0
        elif name == "cold_s":
            fits = isinstance(value, int | float) and value >= 0
        elif name == "slow_clock":
            fits = isinstance(value, int | float) and 0 < value <= 1
        elif name == "poison":
            fits = isinstance(value, str) and value != ""
        else:
            fits = isinstance(value, bool)
        if not fits:
            raise ValueError(f"FARM_EMULATION_FAULTS: {name} cannot be {value!r}")
