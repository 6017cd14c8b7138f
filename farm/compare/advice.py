"""The decision in words: one sentence to act on for each workload that decides, and what stands behind it."""

from __future__ import annotations

from farm.compare.codes import Code
from farm.compare.decision import (
    MIN_ITEMS,
    against_baseline,
    faster_ones,
    holds,
    losing_ones,
    shown_slower,
    shown_worse,
    unreliable,
    variants_tried,
    verdicts,
    with_failures,
    worst_answers,
)
from farm.compare.model import (
    AccuracyContrast,
    Comparison,
    Contrast,
    Decision,
    Note,
    Reliability,
    WorkloadComparison,
    WorkloadDecision,
)
from farm.compare.words import change, count, number, p_value, points, ratio, signed


def advice(comparison: Comparison, decision: Decision) -> list[Note]:
    """The statement under the tables. Its first reason is the code of a workload's sentence."""
    out = []
    sweep = comparison.sweep
    if Code.LABELLED in decision.reasons:
        text = (
            f"These results are {(sweep.label or '').upper()}: they show that the farm works, not what to deploy. "
            "The rest is what the rule would say of real ones."
        )
        out.append(Note(code=Code.LABELLED, text=text))
    if not sweep.complete:
        late = ", ".join(f"{count(cells)} of {variant}" for variant, cells in sweep.cells_pending.items())
        pending = f"{late} are awaited" if late else "the others have failed"
        text = f"PARTIAL: {sweep.cells_answered:,} of {sweep.cells_planned:,} cells are answered; {pending}."
        out.append(Note(code=Code.PARTIAL, text=text))
    for name, one in decision.workloads.items():
        if one.decides:
            reasons = [code for code in one.reasons if code not in (Code.LABELLED, Code.KINDS_MIXED, Code.PARTIAL)]
            text = _statement(comparison, name, one)
            out.append(Note(code=reasons[0], text=text, workload=name, variant=one.candidate))
    candidates = {one.candidate for one in decision.workloads.values() if one.decides}
    if len(candidates) > 1:
        text = "The workloads do not agree on one variant: choose by the one that resembles your use."
        out.append(Note(code=Code.WORKLOADS_DISAGREE, text=text))
    return out


def _statement(comparison: Comparison, workload: str, decided: WorkloadDecision) -> str:
    base = comparison.baseline
    contrasts = against_baseline(comparison, workload)
    if Code.NOTHING_PAIRED in decided.reasons:
        return f"{workload}: cannot be said, nothing is paired with {base}."
    if Code.FEW_ITEMS in decided.reasons:
        return (
            f"{workload}: cannot be said from {max(c.pairs for c in contrasts)} paired items; with fewer than "
            f"{MIN_ITEMS} an interval cannot be trusted."
        )
    contrasts = [c for c in contrasts if c.pairs >= MIN_ITEMS]
    losses = "".join(f"{_loss(comparison, one)}; " for one in losing_ones(comparison, contrasts))
    nearest = f"{contrasts[0].variant}, has {_figures(contrasts[0])}"
    if Code.NONE_FASTER in decided.reasons:
        return f"{workload}: {losses}keep {base}; no variant is shown to be faster. The nearest, {nearest}."
    if Code.GAIN_BELOW_MINIMUM in decided.reasons:
        return (
            f"{workload}: {losses}keep {base}; no variant is shown to gain the minimum of "
            f"{100 * comparison.min_gain:g} % in decode throughput. The nearest, {nearest}."
        )
    if Code.NODES_UNBOUNDED in decided.reasons:
        return (
            f"{workload}: cannot be said: {nearest} on another node than {base}, and how far nodes differ is not "
            "known. Run the sweep as a crossover, with more nodes, or give --node-scatter."
        )
    first = faster_ones(contrasts)[0]
    if decided.candidate == base or decided.candidate is None:
        held = _held_back(comparison, workload, first, f"keep {base}")
        return held + (f" Beside it, {losses.removesuffix('; ')}." if losses else "")
    found = next(c for c in contrasts if c.variant == decided.candidate)
    verb = "deploy" if decided.action == "deploy" else "the rule would deploy"
    text = f"{workload}: {verb} {found.variant}. {_figures(found)}; {_accuracy_words(comparison, found.variant)}."
    if Code.LATENCY_GAIN_UNSURE in decided.reasons:
        text += " The gain per token is sure; output lengths scatter too much to be sure of the gain in latency."
    if Code.STARTS_ASSUMED in decided.reasons:
        text += f" {starts_assumed(comparison.workloads[workload])}"
    two = comparison.workloads[workload].fastest_two
    if two and Code.SECOND_NOT_TOLD_APART in decided.reasons:
        text += f" It cannot be told apart from {two.against} in mean latency ({change(two.mean_latency_change)})."
    if Code.FASTER_ONE_HELD_BACK in decided.reasons:
        text += " " + _held_back(comparison, workload, first, f"{found.variant} is the fastest that qualifies")
    return text + (f" Of the others, {losses.removesuffix('; ')}." if losses else "")


def _loss(comparison: Comparison, contrast: Contrast) -> str:
    """What a variant is shown to lose, the answers first."""
    worse, parts = worst_answers(comparison, contrast), []
    if worse:
        parts.append(f"answers worse by {number(-worse.difference_pp)} pp ({p_value(worse.mcnemar_mid_p_holm)})")
    if shown_slower(contrast):
        parts.append(f"is slower (decode throughput {ratio(contrast.throughput_ratio)})")
    return f"{contrast.variant} {' and '.join(parts)}"


def _held_back(comparison: Comparison, workload: str, fast: Contrast, instead: str) -> str:
    plain, failing = verdicts(comparison, fast.variant), with_failures(comparison, fast.variant)
    if unreliable(comparison, fast.variant):
        own = comparison.workloads[workload].variants[fast.variant].reliability
        cause = f"is not reliable: {reliability_words(own)}"
        worse = worst_answers(comparison, fast)
        if worse:
            cause = (
                f"answers worse by {number(-worse.difference_pp)} pp ({p_value(worse.mcnemar_mid_p_holm)}) and {cause}"
            )
        return f"{workload}: {fast.variant} is faster ({_figures(fast)}) but {cause}: {instead}."
    name, found = next((n, a) for n, a in (*plain.items(), *failing.items()) if not holds(a))
    if all(map(holds, plain.values())):
        cause = (
            f"with its errors and cut answers counted as wrong is not shown to answer {name} as well: {points(found)}"
        )
    elif shown_worse(found):
        cause = f"answers {name} worse by {number(-found.difference_pp)} pp ({p_value(found.mcnemar_mid_p_holm)})"
    else:
        cause = (
            f"is not shown to answer {name} as well: {points(found)}, {found.questions:,} questions can show "
            f"{number(found.detectable_pp, 1)} pp, {_needed(name, comparison, found)} for a margin of "
            f"{found.margin_pp:g} pp"
        )
    return f"{workload}: {fast.variant} is faster ({_figures(fast)}) but {cause}: {instead}."


def reliability_words(own: Reliability) -> str:
    """What went wrong, each count with its name; empty where nothing did."""
    counts = (
        (own.errors, f"errors in {own.answers:,} answers"),
        (own.attempted_again, "answers attempted again"),
        (own.engines_died, "engines died"),
        (own.engines_lost, "engines lost with their node or driver"),
        (own.starts_failed, "starts failed"),
        (own.starts_refused, "starts refused"),
    )
    return ", ".join(f"{number:,} {words}" for number, words in counts if number)


def _needed(workload: str, comparison: Comparison, found: AccuracyContrast) -> str:
    """How many questions would decide, and what to do where there are not so many."""
    needed, known = found.questions_needed or 0, comparison.workloads[workload].questions_known
    if known is None or needed <= known:
        return f"about {count(needed)} are needed"
    if found.repeats_needed is None:
        return f"more than its {known:,} questions can tell are needed"
    return f"its {known:,} questions are needed {found.repeats_needed} times over (repeats: {found.repeats_needed})"


def starts_assumed(workload: WorkloadComparison) -> str:
    """On what an interval stands where starts are too few to show how they scatter."""
    assumed = workload.assumed_scatter
    whence = {
        "default": "as measured on other machines",
        "stated": "as stated",
        "baseline-arms": "with what the baseline's arms differ by",
    }[assumed.source]
    nodes = "" if assumed.node_percent is None else f" and nodes by {number(assumed.node_percent)} %"
    return (
        f"With fewer than four starts of a variant, starts are taken to differ by {number(assumed.start_percent)} %"
        f"{nodes} (standard deviation, {whence}); the interval allows for it."
    )


def _figures(contrast: Contrast) -> str:
    return f"decode throughput {ratio(contrast.throughput_ratio)}, mean latency {change(contrast.mean_latency_change)}"


def _accuracy_words(comparison: Comparison, variant: str) -> str:
    found_on = verdicts(comparison, variant)
    if not found_on:
        return "accuracy was not measured"
    parts = []
    for name, found in found_on.items():
        where = f" on {name}" if len(found_on) > 1 else ""
        if found.verdict == "equivalent":
            parts.append(f"accuracy{where} equivalent within {found.margin_pp:g} pp ({p_value(found.tost_p)})")
        elif found.verdict != "better":
            shown = f"not worse by {found.margin_pp:g} pp ({p_value(found.not_worse_p)})"
            parts.append(f"accuracy{where} {signed(found.difference_pp, 2)} pp, {shown}")
        else:
            parts.append(f"accuracy{where} better ({p_value(found.mcnemar_mid_p)})")
    tried = variants_tried(comparison)
    return ", ".join(parts) + (f" (one of {tried} variants tried; the decision allows for it)" if tried > 1 else "")
