"""What to do, in words. Every sentence follows by rule from intervals, tests and verdicts.

A variant qualifies when its accuracy is shown equivalent, better, or not worse by the margin, on every graded
workload. Of those that qualify and are shown to be faster than the baseline, the one of lowest mean latency is
deployed. Everything else is said to be undecided, and what would decide it.
"""

from __future__ import annotations

import math

from farm.compare.model import AccuracyContrast, Comparison, Contrast
from farm.compare.words import change, count, excludes, number, p_value, points, ratio, signed

MIN_ITEMS = 8
"""Fewer items cannot stand for a workload, and the coverage of their intervals has not been measured."""
SURE_P = 0.05


def advice(comparison: Comparison) -> list[str]:
    """The statement under the tables: one sentence to act on first, then what stands behind it."""
    out = []
    sweep = comparison.sweep
    if sweep.label:
        out.append(
            f"These results are {sweep.label.upper()}: they show that the farm works, not what to deploy. "
            "The rest is what the rule would say of real ones."
        )
    if not sweep.complete:
        out.append(
            f"PARTIAL: {sweep.cells_answered:,} of {sweep.cells_planned:,} cells are answered; "
            "the statement may change when the rest is in."
        )
    names = decisive(comparison)
    for name in names:
        out.append(_statement(comparison, name))
    choices = {choice(comparison, name) for name in names}
    if len(choices) > 1:
        out.append("The workloads do not agree on one variant: choose by the one that resembles your use.")
    return out


def decisive(comparison: Comparison) -> list[str]:
    """The workloads that decide: those with graded answers, else all that have contrasts."""
    workloads = comparison.workloads
    with_pairs = [name for name, one in workloads.items() if any(c.pairs for c in one.contrasts)]
    graded = [name for name in with_pairs if any(c.accuracy for c in workloads[name].contrasts)]
    return graded or with_pairs


def against_baseline(comparison: Comparison, workload: str) -> list[Contrast]:
    """The contrasts against the baseline, the lowest mean latency first."""
    contrasts = comparison.workloads[workload].contrasts
    own = [c for c in contrasts if c.against == comparison.baseline]
    known = [c for c in own if c.mean_latency_change.value is not None]
    return sorted(known, key=lambda c: c.mean_latency_change.value or 0.0)


def shown_faster(contrast: Contrast) -> bool:
    """Higher decode throughput beyond interval and Holm's correction, and lower mean latency as far as is known.

    Output lengths scatter much more than time per token, so throughput is what a sweep of ordinary size can prove.
    """
    latency, speed = contrast.mean_latency_change, contrast.throughput_ratio
    p = contrast.throughput_p_holm
    return bool(
        latency.value is not None
        and latency.value < 0
        and speed.value is not None
        and speed.value > 1
        and excludes(speed.ci, 1)
        and p is not None
        and p <= SURE_P
    )


def _verdicts(comparison: Comparison, variant: str) -> dict[str, AccuracyContrast]:
    return {
        name: c.accuracy
        for name, one in comparison.workloads.items()
        for c in one.contrasts
        if c.variant == variant and c.against == comparison.baseline and c.accuracy
    }


def _qualifies(comparison: Comparison, variant: str) -> bool:
    return all(_accuracy_holds(found) for found in _verdicts(comparison, variant).values())


def _accuracy_holds(found: AccuracyContrast) -> bool:
    """Equivalent, better, or inconclusive only because it may be better: shown not to be worse by the margin."""
    if found.verdict == "inconclusive":
        return found.not_worse_p is not None and found.not_worse_p <= SURE_P
    return found.verdict in ("equivalent", "better")


def choice(comparison: Comparison, workload: str) -> str | None:
    """The variant that the rule picks on this workload; the baseline when none is shown to be faster."""
    faster = [c for c in against_baseline(comparison, workload) if shown_faster(c)]
    return next((c.variant for c in faster if _qualifies(comparison, c.variant)), None)


def _statement(comparison: Comparison, workload: str) -> str:
    contrasts = against_baseline(comparison, workload)
    if not contrasts:
        return f"{workload}: cannot be said, nothing is paired with {comparison.baseline}."
    few = contrasts[0].pairs < MIN_ITEMS
    if few:
        return (
            f"{workload}: cannot be said from {contrasts[0].pairs} paired items; with fewer than {MIN_ITEMS} "
            "an interval cannot be trusted."
        )
    chosen = choice(comparison, workload)
    faster = [c for c in contrasts if shown_faster(c)]
    if chosen is None and not faster:
        return _nothing_faster(comparison, workload, contrasts[0])
    if chosen is None:
        return _held_back(comparison, workload, faster[0], f"keep {comparison.baseline}")
    found = next(c for c in faster if c.variant == chosen)
    text = f"{workload}: deploy {chosen}. {_figures(found)}; {_accuracy_words(comparison, chosen)}."
    if not excludes(found.mean_latency_change.ci, 0):
        text += " The gain per token is sure; output lengths scatter too much to be sure of the gain in latency."
    text += _doubt_about_second(comparison, workload, chosen)
    if found is not faster[0]:
        text += " " + _held_back(comparison, workload, faster[0], f"{chosen} is the fastest that qualifies")
    return text


def _nothing_faster(comparison: Comparison, workload: str, best: Contrast) -> str:
    return (
        f"{workload}: keep {comparison.baseline}; no variant is shown to be faster. The nearest, {best.variant}, "
        f"has {_figures(best)}."
    )


def _held_back(comparison: Comparison, workload: str, fast: Contrast, instead: str) -> str:
    verdicts = _verdicts(comparison, fast.variant)
    name, found = next((n, a) for n, a in verdicts.items() if not _accuracy_holds(a))
    if found.verdict == "worse":
        cause = f"answers {name} worse by {number(-found.difference_pp)} pp ({p_value(found.mcnemar_mid_p)})"
    else:
        cause = (
            f"is not shown to answer {name} as well: {points(found)}, {found.questions:,} questions can show "
            f"{number(found.detectable_pp, 1)} pp, about {count(questions_needed(found))} are needed for a margin of "
            f"{found.margin_pp:g} pp"
        )
    return f"{workload}: {fast.variant} is faster ({_figures(fast)}) but {cause}: {instead}."


def questions_needed(accuracy: AccuracyContrast) -> float:
    """Questions for an equivalence test with 80 % power when the true difference is none.

    Two one-sided tests: (z(0.95) + z(0.90))^2 x rate of discordant pairs / margin^2. Chow, Shao & Wang (2008), ch. 3.
    """
    discordant = max(accuracy.only_against + accuracy.only_variant, 3)
    pairs = discordant + accuracy.both + accuracy.neither
    rate = discordant / max(pairs, 1)
    return float(math.ceil((1.645 + 1.282) ** 2 * rate / (accuracy.margin_pp / 100) ** 2))


def _figures(contrast: Contrast) -> str:
    return f"decode throughput {ratio(contrast.throughput_ratio)}, mean latency {change(contrast.mean_latency_change)}"


def _accuracy_words(comparison: Comparison, variant: str) -> str:
    verdicts = _verdicts(comparison, variant)
    if not verdicts:
        return "accuracy was not measured"
    parts = []
    for name, found in verdicts.items():
        where = f" on {name}" if len(verdicts) > 1 else ""
        if found.verdict == "equivalent":
            parts.append(f"accuracy{where} equivalent within {found.margin_pp:g} pp ({p_value(found.tost_p)})")
        elif found.verdict == "inconclusive":
            shown = f"not worse by {found.margin_pp:g} pp ({p_value(found.not_worse_p)})"
            parts.append(f"accuracy{where} {signed(found.difference_pp, 2)} pp, {shown}")
        else:
            parts.append(f"accuracy{where} {found.verdict} ({p_value(found.mcnemar_mid_p)})")
    return ", ".join(parts)


def _doubt_about_second(comparison: Comparison, workload: str, chosen: str) -> str:
    two = comparison.workloads[workload].fastest_two
    if not two or two.variant != chosen or two.against == comparison.baseline:
        return ""
    if excludes(two.mean_latency_change.ci, 0):
        return ""
    return f" It cannot be told apart from {two.against} in mean latency ({change(two.mean_latency_change)})."
