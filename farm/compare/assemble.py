"""All of a comparison: records in, a `Comparison` out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from farm.compare.advice import advice
from farm.compare.codes import Code
from farm.compare.contrasts import contrast, effect, head_to_head, with_holm, with_twins
from farm.compare.costs import start_up_costs
from farm.compare.decision import decide
from farm.compare.figures import variant_figures
from farm.compare.metrics import WorkloadTable, checked, workload_table
from farm.compare.model import (
    AssumedScatter,
    Comparison,
    Contrast,
    LatencyContrast,
    Note,
    Reliability,
    SweepIdentity,
    VariantFigures,
    WorkloadComparison,
)
from farm.compare.reliability import reliability
from farm.compare.sample import WorkloadSample, sample_workload
from farm.compare.stability import drifts, node_effect, sentence, stability
from farm.compare.starts import DEFAULT, Assumption
from farm.compare.warnings import EXCLUDE, INCLUDE, comparison_warnings, slow_state
from farm.compare.why import reasons, with_round_costs, workload_gaps
from farm.errors import InputError
from farm.results.summary import EngineSummary, SweepSummary, WorkloadSummary
from farm.stats import family
from farm.workloads.gsm8k import QUESTIONS

DEFAULT_MARGIN_PP = 1.0
DEFAULT_MIN_GAIN = 0.02
SlowRecords = Literal["include", "exclude"]


@dataclass(frozen=True)
class Analysis:
    """How a decision is taken, where that is not the sweep's own way."""

    min_gain: float | None = None
    start_scatter: float | None = None  # standard deviations, as shares
    node_scatter: float | None = None

    @property
    def scatter(self) -> Assumption:
        """What is assumed of starts and nodes."""
        if self.start_scatter is None and self.node_scatter is None:
            return Assumption()
        start = DEFAULT.start if self.start_scatter is None else self.start_scatter
        return Assumption(DEFAULT._replace(start=start, node=self.node_scatter), "stated")


def compare(
    records: pd.DataFrame,
    sweep: SweepSummary | None = None,
    engines: Sequence[EngineSummary] = (),
    items: pd.DataFrame | None = None,
    baseline: str | None = None,
    margin_pp: float | None = None,
    slow_records: SlowRecords = INCLUDE,
    analysis: Analysis | None = None,
) -> Comparison:
    """Compare the variants of a sweep; raises `InputError` with one sentence when the records do not allow it.

    `slow_records` says what becomes of records that were taken in a slow state of their GPU: `include` counts them and
    a warning gives the figures without them, `exclude` leaves them out. `analysis` says what else the rule goes by.
    """
    analysis = analysis or Analysis()
    sweep = sweep or SweepSummary()
    everything = checked(records)
    frame = everything[~everything["slow_state"].to_numpy()] if slow_records == EXCLUDE else everything
    if frame.empty:
        raise InputError("Every record was taken in a slow state of its GPU; --slow-records exclude leaves none.")
    variants = _ordered(list(frame["variant"].unique()), sweep.variants)
    base = _baseline(baseline or sweep.baseline, variants)
    margin = margin_pp if margin_pp is not None else sweep.margin_pp or DEFAULT_MARGIN_PP
    if not 0 < margin < 100:
        raise InputError(f"The equivalence margin is {margin:g} percentage points; it must be above 0 and below 100.")
    gain = analysis.min_gain if analysis.min_gain is not None else sweep.min_gain
    gain = DEFAULT_MIN_GAIN if gain is None else gain
    if not 0 <= gain < 1:
        raise InputError(f"The minimum gain is {gain:g}; it is a share, 0.02 for 2 %, and must be 0 or more, below 1.")
    if len(variants) < 2:
        raise InputError(f"The records hold one variant only ({variants[0]}); a comparison needs two.")
    names = _ordered(list(frame["workload"].unique()), sweep.workloads)
    made_of = family.features(variants, base, sweep.parts, sweep.with_own_settings)
    tables = {name: workload_table(frame, name) for name in names}
    twins = sweep.twins_of(base)
    samples = {name: _sample(table, variants, made_of, base, twins, analysis.scatter) for name, table in tables.items()}
    if not any(data.items for sample in samples.values() for data in sample.paired.values()):
        raise InputError(f"No item was answered under {base} and another variant: there are no pairs to compare.")
    identity = _identity(everything, sweep, variants)
    figures = Comparison(
        sweep=identity,
        slow_records=slow_records,
        baseline=base,
        margin_pp=margin,
        min_gain=gain,
        workloads={
            name: _workload(
                sample,
                base,
                made_of,
                records,
                (margin, gain),
                sweep.workloads.get(name),
                items,
                _reliabilities(sample, engines, identity),
            )
            for name, sample in samples.items()
        },
    )
    decision = decide(figures)
    costed = figures.model_copy(
        update={
            "start_up": start_up_costs(figures.workloads, engines, base),
            "gaps": workload_gaps(figures),
            "decision": decision,
            "advice": tuple(advice(figures, decision)),
        }
    )
    return costed.model_copy(
        update={
            "why": (*reasons(costed), *_stability_reasons(costed)),
            "warnings": (
                *comparison_warnings(costed, tables, samples, sweep),
                *slow_state(everything, names, slow_records),
            ),
        }
    )


def figures_alone(records: pd.DataFrame, sweep: SweepSummary) -> Comparison:
    """The figures of each variant, where there is nothing to compare."""
    frame, workloads = checked(records, may_be_empty=True), {}
    identity = _identity(frame, sweep, sweep.variants)
    for name in sweep.workloads if frame["ok"].any() else ():
        table = workload_table(frame, name)
        there = [variant for variant in sweep.variants if len(table.of(variant))]
        if there:  # not interrupted before the workload's first answer
            sample = sample_workload(table, there, [])
            alone, reported = family.features(there, "", {}), sweep.workloads[name]
            reliable = _reliabilities(sample, (), identity)
            workloads[name] = _workload(sample, "", alone, records, (DEFAULT_MARGIN_PP, 0.0), reported, None, reliable)
    return Comparison(
        sweep=identity,
        slow_records=INCLUDE,
        baseline=sweep.baseline or "",
        margin_pp=sweep.margin_pp or DEFAULT_MARGIN_PP,
        min_gain=DEFAULT_MIN_GAIN if sweep.min_gain is None else sweep.min_gain,
        workloads=workloads,
    )


def _reliabilities(
    sample: WorkloadSample, engines: Sequence[EngineSummary], sweep: SweepIdentity
) -> dict[str, Reliability]:
    return {
        name: reliability(sample.table, name, engines, ended=name not in sweep.cells_pending)
        for name in sample.variants
    }


def _stability_reasons(comparison: Comparison) -> list[Note]:
    reported = {name: sentence(workload.steadiness) for name, workload in comparison.workloads.items()}
    return [
        Note(code=Code.STABILITY, text=f"{name}: {steady}.", workload=name)
        for name, steady in reported.items()
        if steady
    ]


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


def _sample(
    table: WorkloadTable,
    variants: Sequence[str],
    made_of: family.Features,
    base: str,
    twins: Collection[str],
    assumption: Assumption,
) -> WorkloadSample:
    here = [variant for variant in variants if variant in table.variants]
    pairs = family.pairs(_only(made_of, here), base) if base in here else []
    sample = sample_workload(table, here, pairs, assumption)
    arms = [pair for pair in pairs if pair.against == base and pair.variant in twins]
    return replace(sample, assumption=with_twins(sample, arms))


def _only(made_of: family.Features, variants: Iterable[str]) -> family.Features:
    return {name: made_of[name] for name in variants}


def _workload(
    sample: WorkloadSample,
    base: str,
    made_of: family.Features,
    records: pd.DataFrame,
    limits: tuple[float, float],
    reported: WorkloadSummary | None,
    items: pd.DataFrame | None,
    reliable: Mapping[str, Reliability],
) -> WorkloadComparison:
    table, reported = sample.table, reported or WorkloadSummary()
    answered = [variant for variant in sample.variants if len(table.of(variant))]
    found = family.effects(_only(made_of, answered)) if base in answered else []
    margin, gain = limits
    # Other data of the same format has as many questions as it has.
    is_gsm8k = reported.kind == "gsm8k" and not (reported.source or "").startswith("builtin:")
    known = QUESTIONS if is_gsm8k else None
    contrasts, effects = with_holm(
        [contrast(sample, pair, margin, gain, known) for pair in sample.pairs],
        [effect(sample, one) for one in found],
    )
    figures = {variant: variant_figures(sample, variant, records, reliable[variant]) for variant in sample.variants}
    requested = 0 if items is None else int((items["workload"] == table.name).sum())
    return WorkloadComparison(
        variants=with_round_costs(figures, _only(made_of, figures), base),
        contrasts=contrasts,
        effects=effects,
        fastest_two=_fastest_two(sample, figures, contrasts, base),
        kind=reported.kind,
        title=reported.title or table.name,
        sampling=reported.sampling,
        items=max(len(table.items), requested),
        questions_known=known,
        assumed_scatter=AssumedScatter(
            start_percent=100 * sample.assumption.value.start,
            node_percent=None if sample.assumption.value.node is None else 100 * sample.assumption.value.node,
            source=sample.assumption.source,
        ),
        steadiness=stability(node_effect(table), drifts(table)),
    )


def _fastest_two(
    sample: WorkloadSample, figures: dict[str, VariantFigures], contrasts: Iterable[Contrast], base: str
) -> LatencyContrast | None:
    """The two variants of lowest mean latency among those not shown to answer worse, compared with each other."""
    worse = {
        one.variant for one in contrasts if one.against == base and one.accuracy and one.accuracy.verdict == "worse"
    }
    means = {name: one.latency_s.mean for name, one in figures.items() if name not in worse}
    known = {name: mean for name, mean in means.items() if mean is not None}
    fit = sorted(known, key=lambda name: known[name])
    return head_to_head(sample, fit[0], fit[1]) if len(fit) > 1 else None


def _identity(frame: pd.DataFrame, sweep: SweepSummary, variants: Sequence[str]) -> SweepIdentity:
    labels = sorted(set(frame["label"].dropna().astype(str)) | ({sweep.label} if sweep.label else set()))
    answered = int(frame["ok"].sum())
    planned = sweep.planned_cells or _cells_requested(frame)
    ids = frame["sweep_id"].dropna()
    return SweepIdentity(
        sweep_id=sweep.sweep_id or (str(ids.iloc[0]) if len(ids) else None),
        name=sweep.name,
        created_at=sweep.created_at,
        label=", ".join(labels) or None,
        kinds_mixed=len(frame[["engine_kind", "label"]].drop_duplicates()) > 1,
        complete=answered >= planned and not sweep.failed_variants,
        cells_answered=answered,
        cells_planned=planned,
        cells_pending=_cells_pending(frame, planned, sweep, dict.fromkeys([*sweep.variants, *variants])),
        planned_known=bool(sweep.planned_cells),
        variants=tuple(_ordered(variants, sweep.variants)),
        failed_variants=sweep.failed_variants,
    )


def _cells_pending(frame: pd.DataFrame, planned: int, sweep: SweepSummary, variants: dict[str, None]) -> dict[str, int]:
    """Cells that may still be answered, by variant: without a record, of variants that have not failed."""
    recorded = frame["variant"].value_counts()
    each = planned // len(variants)
    pending = {name: each - int(recorded.get(name, 0)) for name in variants if name not in sweep.failed_variants}
    return {name: cells for name, cells in pending.items() if cells > 0}


def _cells_requested(frame: pd.DataFrame) -> int:
    """Without a plan: every variant was to answer every cell that some variant has a record of, on each workload."""
    cells = frame.drop_duplicates(["workload", "item_id", "repeat"]).groupby("workload").size()
    variants = frame.groupby("workload")["variant"].nunique()
    return int(np.sum(cells.to_numpy() * variants.loc[cells.index].to_numpy()))
