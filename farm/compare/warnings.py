"""Warnings that change how a number is read. Each is one sentence with the figures that raised it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import pandas as pd

from farm.compare.advice import reliability_words, starts_assumed
from farm.compare.codes import Code
from farm.compare.decision import MIN_ITEMS
from farm.compare.metrics import WorkloadTable
from farm.compare.model import Comparison, Note, VariantFigures, WorkloadComparison
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
) -> list[Note]:
    """All warnings of a comparison, those on the whole sweep first."""
    out = list(_of_sweep(comparison, sweep))
    for name, table in tables.items():
        workload = comparison.workloads[name]
        found = [note for check in _CHECKS for note in check(workload, samples[name])]
        found += [note for look in _LOOKS for note in look(table)]
        out += [note.model_copy(update={"text": f"{name}: {note.text}", "workload": name}) for note in found]
    return out


def slow_state(frame: pd.DataFrame, workloads: Iterable[str], slow_records: str) -> list[Note]:
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
            out.append(Note(code=Code.SLOW_STATE, text=f"{reported}: they are left out.", workload=name))
            continue
        both = (
            f"{variant} {_tpot_ms(one)} with them, {_tpot_ms(one[~one['slow_state']])} without" for variant, one in own
        )
        text = f"{reported}. TPOT in ms: {'; '.join(both)}. `--slow-records exclude` leaves them out."
        out.append(Note(code=Code.SLOW_STATE, text=text, workload=name))
    return out


def _tpot_ms(answers: pd.DataFrame) -> str:
    many = answers[(answers["steps"] > 0).to_numpy()]
    tokens = float(many["steps"].sum())
    return number(1000 * float(many["decode_s"].sum()) / tokens if tokens else None)


def _of_sweep(comparison: Comparison, sweep: SweepSummary) -> Iterator[Note]:
    reported = comparison.sweep
    if reported.label:
        text = (
            f"All or some records are labelled {reported.label.upper()}: no figure here is a measurement of the model."
        )
        yield Note(code=Code.LABELLED, text=text)
    if not reported.complete:
        text = (
            f"PARTIAL sweep: {reported.cells_answered:,} of {reported.cells_planned:,} cells have an answer; "
            "every figure is of those alone."
        )
        yield Note(code=Code.PARTIAL, text=text)
    for variant, reason in reported.failed_variants.items():
        text = f"{variant} has failed and has no full figures: {reason}"
        yield Note(code=Code.VARIANT_FAILED, text=text, variant=variant)
    absent = [name for name in sweep.variants if name not in reported.variants]
    for variant in absent:
        if variant not in reported.failed_variants:
            text = f"{variant} belongs to the sweep and has no record yet."
            yield Note(code=Code.VARIANT_WITHOUT_RECORDS, text=text, variant=variant)


def _pairs_missing(workload: WorkloadComparison, sample: WorkloadSample) -> Iterator[Note]:
    requested = len(sample.table.items)
    if not workload.contrasts:
        text = "nothing to compare: the baseline or every other variant has no record here."
        yield Note(code=Code.NOTHING_PAIRED, text=text)
    for contrast in workload.contrasts:
        lost = requested - contrast.pairs
        if lost:
            text = (
                f"{lost:,} of {requested:,} items have no pair of {contrast.variant} and {contrast.against}; "
                "their contrast is over the others."
            )
            yield Note(code=Code.PAIRS_MISSING, text=text, variant=contrast.variant)


def _failed_left_out(workload: WorkloadComparison, sample: WorkloadSample) -> Iterator[Note]:
    for contrast in workload.contrasts:
        lost = contrast.left_out
        if lost is not None:
            text = (
                f"the speed of {contrast.variant} against {contrast.against} leaves out {lost.answers:,} answers to "
                f"{lost.items:,} items for errors. Where one side answered, prompts are "
                f"{number(lost.prompt_tokens, 0)} tokens against {number(lost.prompt_tokens_kept, 0)} of those kept, "
                f"answers {number(lost.completion_tokens, 0)} against {number(lost.completion_tokens_kept, 0)}."
            )
            yield Note(code=Code.FAILED_LEFT_OUT, text=text, variant=contrast.variant)


def _unreliable(workload: WorkloadComparison, sample: WorkloadSample) -> Iterator[Note]:
    for name, figures in workload.variants.items():
        words = reliability_words(figures.reliability)
        if words:
            yield Note(code=Code.UNRELIABLE, text=f"{name} was not without trouble: {words}.", variant=name)


def _small_sample(workload: WorkloadComparison, sample: WorkloadSample) -> Iterator[Note]:
    pairs = min((c.pairs for c in workload.contrasts if c.pairs), default=0)
    if 0 < pairs < MIN_ITEMS:
        yield Note(code=Code.FEW_ITEMS, text=f"with {pairs} paired items no interval can be trusted.")
    elif 0 < pairs < SKEWED_MEAN_ITEMS:
        text = f"with {pairs} items the intervals of mean latency, length and TTFT hold about 90 times in 100, not 95."
        yield Note(code=Code.SKEWED_MEANS, text=text)
    few = [name for name, one in workload.variants.items() if one.requests and _no_p95(one)]
    if few:
        least = min(workload.variants[name].requests for name in few)
        text = (
            f"a 95th percentile needs 72 answers, and the fewest of {', '.join(few)} are {least}: read p95 as the "
            "largest value."
        )
        yield Note(code=Code.FEW_ANSWERS_FOR_P95, text=text)


def _no_p95(figures: VariantFigures) -> bool:
    ci = figures.latency_s.p95_ci
    return ci is None or ci[1] is None


def _starts(workload: WorkloadComparison, sample: WorkloadSample) -> Iterator[Note]:
    single = [name for name in sample.variants if sample.table.of(name)["engine_id"].nunique() == 1]
    for contrast in workload.contrasts:
        starts = contrast.engine_starts
        if starts and contrast.engine_scatter is not None and contrast.engine_scatter > SCATTER_OF_STARTS:
            more = (
                ", but two starts cannot say how far: start more." if starts < 3 else "; more starts would narrow it."
            )
            text = (
                f"{contrast.variant} and {contrast.against}: {starts} engine starts of each differ by more than "
                f"their items explain; the interval allows for it{more}"
            )
            yield Note(code=Code.STARTS_DIFFER, text=text, variant=contrast.variant)
    if len(single) == len(sample.variants):
        text = f"each variant was started once. {starts_assumed(workload)}"
        yield Note(code=Code.ONE_START, text=text)


def _accept_length(workload: WorkloadComparison, sample: WorkloadSample) -> Iterator[Note]:
    for name, figures in workload.variants.items():
        length, rate = figures.accept_length, figures.accept_rate
        if length is None:
            continue
        if rate < LOW_ACCEPT_RATE if rate is not None else length < NEAR_ONE_ACCEPT_LENGTH:
            shown = "" if rate is None else f"accept rate {100 * rate:.1f} %, "
            text = (
                f"{name}'s speculation does not pay, {shown}accept length {length:.2f}: nearly every draft is refused, "
                "as when the draft model does not share the target's head. Do not read its speed as that of "
                "speculation."
            )
            yield Note(code=Code.SPECULATION_DOES_NOT_PAY, text=text, variant=name)


def _prompts(table: WorkloadTable) -> Iterator[Note]:
    known = table.frame[table.frame["prompt_sha256"].notna().to_numpy()]
    if known.empty:
        return
    kinds = known.groupby(["item", "repeat"])["prompt_sha256"].nunique()
    differ = int((kinds > 1).sum())
    if differ:
        text = f"{differ:,} prompts differ between variants (by hash): such pairs are not of one question and left out."
        yield Note(code=Code.PROMPTS_DIFFER, text=text)


def _graded_on_one_side(workload: WorkloadComparison, sample: WorkloadSample) -> Iterator[Note]:
    for pair, data in sample.paired.items():
        graded, other = (side["correct"].notna().to_numpy() for side in (data.variant_answers, data.against_answers))
        alone = int((graded != other).sum())
        if alone:
            text = (
                f"{alone:,} pairs of {pair.variant} and {pair.against} are graded on one side alone: accuracy is "
                "compared over the others."
            )
            yield Note(code=Code.GRADED_ON_ONE_SIDE, text=text, variant=pair.variant)


def _mixed(table: WorkloadTable) -> Iterator[Note]:
    kinds = [
        (variant, f"{kind} ({label})" if label else str(kind), len(rows))
        for (variant, kind, label), rows in table.frame.fillna({"engine_kind": "", "label": ""}).groupby(
            ["variant", "engine_kind", "label"]
        )
    ]
    if len({kind for _, kind, _ in kinds}) > 1:
        listed = ", ".join(f"{variant} {count:,} of {kind or 'unknown'}" for variant, kind, count in kinds)
        text = f"answers come from engines of several kinds ({listed}): they cannot be compared as if of one."
        yield Note(code=Code.KINDS_MIXED, text=text)


def _cached(table: WorkloadTable) -> Iterator[Note]:
    answers = table.frame[table.frame["ok"].to_numpy()]
    hit = answers[(answers["cached_tokens"] > 0).to_numpy()]
    if len(hit):
        counts = hit["variant"].value_counts()
        listed = ", ".join(f"{name} {counts[name]:,}" for name in counts.index)
        text = f"answers with cached prompt tokens ({listed}): their time to first token is too short."
        yield Note(code=Code.CACHED_PROMPT_TOKENS, text=text)


def _uneven(table: WorkloadTable) -> Iterator[Note]:
    frame, ok = table.frame, table.frame["ok"].to_numpy()
    losses = frame[["variant"]].assign(errors=~ok, truncated=frame["truncated"].to_numpy() & ok)
    totals = losses.groupby("variant").sum()
    cut = "an answer cut off counts as not correct where it holds no answer"
    for code, what, counts, note in (
        (
            Code.ERRORS_UNEVEN,
            "errors",
            totals["errors"],
            "variants that fail on other items are compared on what is left",
        ),
        (Code.TRUNCATION_UNEVEN, "truncated answers", totals["truncated"], cut),
    ):
        if counts.nunique() > 1:
            listed = ", ".join(f"{name} {int(counts[name]):,}" for name in counts.index)
            yield Note(code=code, text=f"{what} are uneven ({listed}): {note}.")


def _reassigned(table: WorkloadTable) -> Iterator[Note]:
    moved = int(table.frame["moved"].sum())
    if moved:
        text = (
            f"{moved:,} answers were reassigned to another node than the answers of their pairs: node differences "
            "stay in them."
        )
        yield Note(code=Code.REASSIGNED, text=text)


def _nodes(table: WorkloadTable) -> Iterator[Note]:
    effect = node_effect(table)
    if effect is not None and effect.share > VISIBLE_SHIFT and effect.p < SURE_P:
        fate = (
            "variants did not share nodes, so it is part of their contrast"
            if effect.apart
            else "pairs on one node cancel it"
        )
        text = (
            f"node effect: {effect.slow} takes {100 * effect.share:.1f} % longer per token than {effect.fast}; {fate}."
        )
        yield Note(code=Code.NODE_EFFECT, text=text)


def _drift(table: WorkloadTable) -> Iterator[Note]:
    for one in drifts(table):
        if abs(one.share) > VISIBLE_SHIFT and one.p < SURE_P / 10:
            text = (
                f"drift: {one.variant} on {one.engine_id} ends {100 * one.share:+.1f} % in time per token "
                "from where it began."
            )
            yield Note(code=Code.DRIFT, text=text, variant=one.variant)


_CHECKS: Final = (
    _pairs_missing,
    _graded_on_one_side,
    _failed_left_out,
    _unreliable,
    _small_sample,
    _starts,
    _accept_length,
)
_LOOKS: Final = (_prompts, _mixed, _cached, _uneven, _reassigned, _nodes, _drift)
