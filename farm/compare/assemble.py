"""All of a comparison as one dictionary: the JSON contract, and what the views need beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from farm.compare.advice import advice
from farm.compare.caveats import EXCLUDE, INCLUDE, caveats, slow_state
from farm.compare.contrasts import add_holm, contrast, effect, head_to_head
from farm.compare.costs import start_up_costs
from farm.compare.figures import variant_figures
from farm.compare.metrics import WorkloadTable, checked, workload_table
from farm.compare.sample import WorkloadSample, sample_workload
from farm.compare.steadiness import as_json, drifts, node_effect, sentence
from farm.compare.why import add_round_costs, reasons, workload_gaps
from farm.errors import InputError
from farm.stats import family

DEFAULT_MARGIN_PP = 1.0


def compare(
    records: pd.DataFrame,
    sweep: dict[str, Any] | None = None,
    engines: list[dict[str, Any]] | None = None,
    items: pd.DataFrame | None = None,
    baseline: str | None = None,
    margin_pp: float | None = None,
    slow_records: str = INCLUDE,
) -> dict[str, Any]:
    """Compare the variants of a sweep; raises `InputError` with one sentence when the records do not allow it.

    `slow_records` says what becomes of records that were taken in a slow state of their GPU: `include` counts them and
    a warning gives the figures without them, `exclude` leaves them out.
    """
    sweep = sweep or {}
    everything = checked(records)
    frame = everything[~everything["slow_state"].to_numpy()] if slow_records == EXCLUDE else everything
    if frame.empty:
        raise InputError("Every record was taken in a slow state of its GPU; --slow-records exclude leaves none.")
    variants = _ordered(list(frame["variant"].unique()), sweep.get("variants") or ())
    base = _baseline(baseline or sweep.get("baseline"), variants)
    margin = margin_pp if margin_pp is not None else float(sweep.get("margin_pp") or DEFAULT_MARGIN_PP)
    if not 0 < margin < 100:
        raise InputError(f"The equivalence margin is {margin:g} percentage points; it must be above 0 and below 100.")
    if len(variants) < 2:
        raise InputError(f"The records hold one variant only ({variants[0]}); a comparison needs two.")
    names = _ordered(list(frame["workload"].unique()), sweep.get("workloads") or ())
    tables = {name: workload_table(frame, name) for name in names}
    samples = {name: _sample(table, variants, base) for name, table in tables.items()}
    if not any(data.items for sample in samples.values() for data in sample.paired.values()):
        raise InputError(f"No item was answered under {base} and another variant: there are no pairs to compare.")
    out: dict[str, Any] = {
        "sweep": _identity(everything, sweep, variants),
        "slow_records": slow_records,
        "baseline": base,
        "margin_pp": margin,
        "workloads": {
            name: _workload(sample, base, records, margin)
            | _description(sweep, name, sample, items)
            | {"steadiness": as_json(node_effect(tables[name]), drifts(tables[name]))}
            for name, sample in samples.items()
        },
    }
    out["start_up"] = start_up_costs(out["workloads"], engines or [], base)
    out["gaps"] = workload_gaps(out)
    out["advice"] = advice(out)
    out["why"] = reasons(out)
    for name, workload in out["workloads"].items():
        if steady := sentence(workload["steadiness"]):
            out["why"].append(f"{name}: {steady}.")
    out["warnings"] = caveats(out, tables, samples, sweep) + slow_state(everything, names, slow_records)
    return out


def _ordered(found: Sequence[str], declared: Iterable[str]) -> list[str]:
    """The declared order, then what else was found in the order it appears."""
    declared = list(declared)
    return [name for name in declared if name in found] + [name for name in found if name not in declared]


def _baseline(name: str | None, variants: Sequence[str]) -> str:
    if name is None:
        return "baseline" if "baseline" in variants else variants[0]
    if name not in variants:
        raise InputError(f"The baseline {name} has no record in this sweep; the variants are {', '.join(variants)}.")
    return name


def _sample(table: WorkloadTable, variants: Sequence[str], base: str) -> WorkloadSample:
    here = [variant for variant in variants if variant in table.variants]
    return sample_workload(table, here, family.pairs(here, base) if base in here else [])


def _workload(sample: WorkloadSample, base: str, records: pd.DataFrame, margin: float) -> dict[str, Any]:
    contrasts = [contrast(sample, pair, margin) for pair in sample.pairs]
    answered = [variant for variant in sample.variants if len(sample.table.of(variant))]
    found = family.effects(answered, base) if base in answered else []
    effects = [effect(sample, one) for one in found]
    add_holm(contrasts, effects)
    figures = {variant: variant_figures(sample, variant, records) for variant in sample.variants}
    add_round_costs(figures, base)
    return {
        "variants": figures,
        "contrasts": contrasts,
        "effects": effects,
        "fastest_two": _fastest_two(sample, figures, contrasts, base),
    }


def _fastest_two(
    sample: WorkloadSample, figures: dict[str, Any], contrasts: list[dict[str, Any]], base: str
) -> dict[str, Any] | None:
    """The two variants of lowest mean latency among those not shown to answer worse, held against each other."""
    worse = {
        one["variant"]
        for one in contrasts
        if one["against"] == base and one["accuracy"] and one["accuracy"]["verdict"] == "worse"
    }
    fit = [name for name in figures if name not in worse and figures[name]["latency_s"]["mean"] is not None]
    fit.sort(key=lambda name: figures[name]["latency_s"]["mean"])
    return head_to_head(sample, fit[0], fit[1]) if len(fit) > 1 else None


def _identity(frame: pd.DataFrame, sweep: dict[str, Any], variants: Sequence[str]) -> dict[str, Any]:
    labels = sorted(set(frame["label"].dropna().astype(str)) | ({str(sweep["label"])} if sweep.get("label") else set()))
    answered = int(frame["ok"].sum())
    planned = int(sweep.get("planned_cells") or 0) or _cells_asked(frame)
    ids = frame["sweep_id"].dropna()
    return {
        "sweep_id": sweep.get("sweep_id") or (str(ids.iloc[0]) if len(ids) else None),
        "name": sweep.get("name"),
        "created_at": sweep.get("created_at"),
        "label": ", ".join(labels) or None,
        "complete": answered >= planned and not sweep.get("failed_variants"),
        "cells_answered": answered,
        "cells_planned": planned,
        "planned_known": bool(sweep.get("planned_cells")),
        "variants": _ordered(variants, sweep.get("variants") or ()),
        "failed_variants": dict(sweep.get("failed_variants") or {}),
    }


def _cells_asked(frame: pd.DataFrame) -> int:
    """Without a plan: every variant was to answer every cell that some variant has a record of, on each workload."""
    cells = frame.drop_duplicates(["workload", "item_id", "repeat"]).groupby("workload").size()
    variants = frame.groupby("workload")["variant"].nunique()
    return int(np.sum(cells.to_numpy() * variants.loc[cells.index].to_numpy()))


def _description(
    sweep: dict[str, Any], name: str, sample: WorkloadSample, items: pd.DataFrame | None
) -> dict[str, Any]:
    told = (sweep.get("workloads") or {}).get(name) or {}
    asked = None if items is None else int((items["workload"] == name).sum())
    return {
        "kind": told.get("kind"),
        "title": told.get("title") or name,
        "sampling": told.get("sampling") or {},
        "items": max(len(sample.table.items), asked or 0),
    }
