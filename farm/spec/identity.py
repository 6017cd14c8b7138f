"""What makes two sweeps the same: what they ask of which model and engine, by content, never by path."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

from farm.redaction import masked
from farm.spec.models import ModelSpec, Sweep
from farm.workloads.base import WorkloadBase

SCHEMA: Final = 2
"""1 hashed every field with its default, paths and analysis included; results of it are found by what they describe."""

# How results are looked at: it may change on a finished sweep.
_ANALYSIS: Final = {"about", "baseline", "margin_pp", "min_gain"}
# Where, how patiently and by which interpreter: a sweep goes on after one of them has changed. Which versions answered,
# and on which nodes, is checked when it goes on: see `farm.results.origin`.
_PLACE: Final = {
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


def identity(sweep: Sweep, digests: Mapping[str, str]) -> str:
    """The sweep's id: its name, and the hash of all that can change an answer or a figure.

    Of a workload that is its items, and what all kinds have in common; all else of it shows in its items. A field with
    its default does not count, so that a later farm may have more fields and the id stays.

    Args:
        sweep: what is asked.
        digests: the content of each workload's items.
    """
    kept = set(Sweep.model_fields) - _ANALYSIS - {"name", "model", "engine", "variants", "workloads"}
    requested: dict[str, Any] = {
        "schema": SCHEMA,
        "sweep": sweep.model_dump(mode="json", include=kept, exclude_defaults=True),
        "model": {"name": _name(sweep.model), "label": sweep.model.label},
        "engine": masked(sweep.engine.model_dump(mode="json", exclude=_PLACE, exclude_defaults=True))
        | {"version": sweep.engine.version},
        "variants": [
            {"name": v.name, "args": masked(sweep.args_of(v)), "env": masked(sweep.env_of(v))} for v in sweep.variants
        ],
        "workloads": {
            name: workload.model_dump(mode="json", include=set(WorkloadBase.model_fields), exclude_defaults=True)
            | {"items": digests[name]}
            for name, workload in sweep.workloads.items()
        },
    }
    canonical = json.dumps(requested, sort_keys=True, separators=(",", ":"))
    return f"{sweep.name}-{hashlib.sha256(canonical.encode()).hexdigest()[:10]}"


def _name(model: ModelSpec) -> str:
    """A model's name: a folder's is its last part, wherever it lies."""
    return PurePath(model.path).name if model.is_local else model.path
