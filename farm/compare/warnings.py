"""Warnings that change how a number is read. Each is one sentence with the figures that raised it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import pandas as pd

from farm.compare.advice import MIN_ITEMS
from farm.compare.metrics import WorkloadTable
from farm.compare.model import Comparison, VariantFigures, WorkloadComparison
from farm.compare.sample import WorkloadSample
from farm.compare.stability import drifts, node_effect
from farm.compare.words import number
from farm.results.summary import SweepSummary

LOW_ACCEPT_RATE: Final = 0.05
NEAR_ONE_ACCEPT_LENGTH: Final = 1.1
"""Stands in where the accept rate is not known."""
VISIBLE_SHIFT: Final = 0.02
"""Node and drift effects below this share of the time per token change no decision."""
SURE_P: Final = 0.01
SKEWED_MEAN_ITEMS: Final = 50
"""With fewer items the measured coverage of the mean of a skewed figure is nearer 90 % than 95 %."""
SCATTER_OF_STARTS: Final = 0.005
"""Standard deviation that engine starts add to a log ratio before it is worth a warning."""


INCLUDE: Final[Literal["include"]] = "include"
EXCLUDE: Final[Literal["exclude"]] = "exclude"


def comparison_warnings(
    comparison: Comparison,
    tables: dict[str, WorkloadTable],
    samples: dict[str, WorkloadSample],
    sweep: SweepSummary,
) -> list[str]:
    """All warnings of a comparison, those on the whole sweep first."""
    out = list(_of_sweep(comparison, sweep))
    for name, table in tables.items():
        workload = comparison.workloads[name]
        for check in (_pairs_missing, _small_sample, _starts, _accept_length):
            out += [f"{name}: {text}" for text in check(workload, samples[name])]
        for look in (_prompts, _cached, _uneven, _reassigned, _nodes, _drift):
            out += [f"{name}: {text}" for text in look(table)]
    return out


def slow_state(frame: pd.DataFrame, workloads: Iterable[str], slow_records: str) -> list[str]:
    """Answers that were taken in a slow state of the GPU, of all records; by the rule of its telemetry."""
    out = []
    for name in workloads:
        answers = frame[(frame["workload"] == name).to_numpy() & frame["ok"].to_numpy()]
        slow = answers["slow_state"].to_numpy()
        if not slow.any():
            continue
        own = [
            (str(variant), one) for variant, one in answers.groupby("variant", sort=False) if one["slow_state"].any()
        ]
        nodes = ", ".join(sorted(answers.loc[slow, "node"].dropna().astype(str).unique())) or "an unknown node"
        counts = ", ".join(f"{variant} {int(one['slow_state'].sum()):,}" for variant, one in own)
        reported = f"{name}: {int(slow.sum()):,} answers were taken in a slow state of the GPU of {nodes} ({counts})"
        if slow_records == EXCLUDE:
            out.append(f"{reported}: they are left out.")
            continue
        both = (
            f"{variant} {_tpot_ms(one)} with them, {_tpot_ms(one[~one['slow_state']])} without" for variant, one in own
        )
        out.append(f"{reported}. TPOT in ms: {'; '.join(both)}. `--slow-records exclude` leaves them out.")
    return out


def _tpot_ms(answers: pd.DataFrame) -> str:
    many = answers[(answers["steps"] > 0).to_numpy()]
    tokens = float(many["steps"].sum())
    return number(1000 * float(many["decode_s"].sum()) / tokens if tokens else None)


def _of_sweep(comparison: Comparison, sweep: SweepSummary) -> Iterator[str]:
    reported = comparison.sweep
    if reported.label:
        yield (
            f"All or some records are labelled {reported.label.upper()}: no figure here is a measurement of the model."
        )
    if not reported.complete:
        yield (
            f"PARTIAL sweep: {reported.cells_answered:,} of {reported.cells_planned:,} cells have an answer; "
            "every figure is of those alone."
        )
    for variant, reason in reported.failed_variants.items():
        yield f"{variant} has failed and has no full figures: {reason}"
    absent = [name for name in sweep.variants if name not in reported.variants]
    for variant in absent:
        if variant not in reported.failed_variants:
            yield f"{variant} belongs to the sweep and has no record yet."


def _pairs_missing(workload: WorkloadComparison, sample: WorkloadSample) -> Iterator[str]:
    requested = len(sample.table.items)
    if not workload.contrasts:
        yield "nothing to compare: the baseline or every other variant has no record here."
    for contrast in workload.contrasts:
        lost = requested - contrast.pairs
        if lost:
            yield (
                f"{lost:,} of {requested:,} items have no pair of {contrast.variant} and {contrast.against}; "
                "their contrast is over the others."
            )


def _small_sample(workload: WorkloadComparison, sample: WorkloadSample) -> Iterator[str]:
    pairs = min((c.pairs for c in workload.contrasts if c.pairs), default=0)
    if 0 < pairs < MIN_ITEMS:
        yield f"with {pairs} paired items no interval can be trusted."
    elif 0 < pairs < SKEWED_MEAN_ITEMS:
        yield f"with {pairs} items the intervals of mean latency, length and TTFT hold about 90 times in 100, not 95."
    few = [name for name, one in workload.variants.items() if one.requests and _no_p95(one)]
    if few:
        least = min(workload.variants[name].requests for name in few)
        yield (
            f"a 95th percentile needs 72 answers, and the fewest of {', '.join(few)} are {least}: read p95 as the "
            "largest value."
        )


def _no_p95(figures: VariantFigures) -> bool:
    ci = figures.latency_s.p95_ci
    return ci is None or ci[1] is None


def _starts(workload: WorkloadComparison, sample: WorkloadSample) -> Iterator[str]:
    single = [name for name in sample.variants if sample.table.of(name)["engine_id"].nunique() == 1]
    for contrast in workload.contrasts:
        starts = contrast.engine_starts
        if starts and contrast.engine_scatter is not None and contrast.engine_scatter > SCATTER_OF_STARTS:
            yield (
                f"{contrast.variant} and {contrast.against}: {starts} engine starts of each differ by more than "
                "their items explain; the interval allows for it"
                + (
                    ", but two starts cannot say how far: start more."
                    if starts < 3
                    else "; more starts would narrow it."
                )
            )
    if len(single) == len(sample.variants):
        yield "each variant was started once: intervals hold the items' variation, not that of one start to the next."


def _accept_length(workload: WorkloadComparison, sample: WorkloadSample) -> Iterator[str]:
    for name, figures in workload.variants.items():
        length, rate = figures.accept_length, figures.accept_rate
        if length is None:
            continue
        if rate < LOW_ACCEPT_RATE if rate is not None else length < NEAR_ONE_ACCEPT_LENGTH:
            shown = "" if rate is None else f"accept rate {100 * rate:.1f} %, "
            yield (
                f"{name}'s speculation does not pay, {shown}accept length {length:.2f}: nearly every draft is refused, "
                "as when the draft model does not share the target's head. Do not read its speed as that of "
                "speculation."
            )


def _prompts(table: WorkloadTable) -> Iterator[str]:
    known = table.frame[table.frame["prompt_sha256"].notna().to_numpy()]
    if known.empty:
        return
    kinds = known.groupby(["item", "repeat"])["prompt_sha256"].nunique()
    differ = int((kinds > 1).sum())
    if differ:
        yield f"{differ:,} prompts differ between variants (by hash): those pairs are not of the same question."


def _cached(table: WorkloadTable) -> Iterator[str]:
    answers = table.frame[table.frame["ok"].to_numpy()]
    hit = answers[(answers["cached_tokens"] > 0).to_numpy()]
    if len(hit):
        counts = hit["variant"].value_counts()
        listed = ", ".join(f"{name} {counts[name]:,}" for name in counts.index)
        yield f"answers with cached prompt tokens ({listed}): their time to first token is too short."


def _uneven(table: WorkloadTable) -> Iterator[str]:
    frame, ok = table.frame, table.frame["ok"].to_numpy()
    losses = frame[["variant"]].assign(errors=~ok, truncated=frame["truncated"].to_numpy() & ok)
    totals = losses.groupby("variant").sum()
    for what, counts, note in (
        ("errors", totals["errors"], "variants that fail on other items are compared on what is left"),
        ("truncated answers", totals["truncated"], "an answer cut off counts as not correct where it holds no answer"),
    ):
        if counts.nunique() > 1:
            listed = ", ".join(f"{name} {int(counts[name]):,}" for name in counts.index)
            yield f"{what} are uneven ({listed}): {note}."


def _reassigned(table: WorkloadTable) -> Iterator[str]:
    moved = int(table.frame["moved"].sum())
    if moved:
        yield (
            f"{moved:,} answers were reassigned to another node than the answers of their pairs: node differences "
            "stay in them."
        )


def _nodes(table: WorkloadTable) -> Iterator[str]:
    effect = node_effect(table)
    if effect is not None and effect.share > VISIBLE_SHIFT and effect.p < SURE_P:
        fate = (
            "variants did not share nodes, so it is part of their contrast"
            if effect.apart
            else "pairs on one node cancel it"
        )
        yield (
            f"node effect: {effect.slow} takes {100 * effect.share:.1f} % longer per token than {effect.fast}; {fate}."
        )


def _drift(table: WorkloadTable) -> Iterator[str]:
    for one in drifts(table):
        if abs(one.share) > VISIBLE_SHIFT and one.p < SURE_P / 10:
            yield (
                f"drift: {one.variant} on {one.engine_id} ends {100 * one.share:+.1f} % in time per token "
                "from where it began."
            )
