"""What a sweep asked, in the words of its results folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import farm
from farm.redaction import masked
from farm.results.summary import ResolvedSweep, SweepSummary, WorkloadSummary
from farm.spec.identity import SCHEMA
from farm.spec.models import Sweep
from farm.types import CellGrid, Item, Label
from farm.workloads.items import digest


def grid_of(sweep: Sweep, items: Mapping[str, Sequence[Item]]) -> CellGrid:
    """The cells of the sweep, by names."""
    return CellGrid(
        variants=tuple(variant.name for variant in sweep.variants),
        items={name: tuple(item.item_id for item in items[name]) for name in sweep.workloads},
        repeats={name: workload.repeats for name, workload in sweep.workloads.items()},
    )


def describe(
    sweep: Sweep,
    sweep_id: str,
    items: Mapping[str, Sequence[Item]],
    commands: Mapping[str, Sequence[str]],
    environments: Mapping[str, Mapping[str, str]],
    label: Label | None,
) -> SweepSummary:
    """The content of `sweep.json`, apart from what the run adds to it; `commands` and `environments` are those of the
    engines by variant, without secrets; `label` marks the results."""
    requested = sweep.model_dump(mode="json")
    # Workloads keep their names, whatever these look like.
    settings = {name: masked(workload) for name, workload in requested.pop("workloads").items()}
    return SweepSummary(
        schema_version=SCHEMA,
        sweep_id=sweep_id,
        name=sweep.name,
        about=sweep.about,
        created_at=datetime.now(UTC).isoformat(),
        farm_version=farm.__version__,
        model=sweep.model.path,
        label=label,
        engine_kind=sweep.engine.kind,
        device=sweep.engine.device,
        baseline=sweep.baseline_name,
        margin_pp=sweep.margin_pp,
        min_gain=sweep.min_gain,
        variants=tuple(variant.name for variant in sweep.variants),
        workloads={
            name: WorkloadSummary(
                kind=workload.kind,
                title=workload.title,
                sampling=items[name][0].sampling,
                items=len(items[name]),
                repeats=workload.repeats,
                digest=digest(items[name]),
                source=workload.source_name,
            )
            for name, workload in sweep.workloads.items()
        },
        planned_cells=sum(1 for _ in grid_of(sweep, items).cells()),
        resolved=ResolvedSweep.model_validate(masked(requested) | {"workloads": settings}),
        commands={name: tuple(argv) for name, argv in commands.items()},
        environments={name: dict(env) for name, env in environments.items()},
    )
