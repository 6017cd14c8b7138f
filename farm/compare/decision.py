"""What to do, by rule, from intervals, tests and verdicts; `advice` puts it into words.

A variant qualifies when its accuracy is shown equivalent, better, or not worse by the margin, on every graded
workload, also with its errors and cut answers counted as wrong. Of those that qualify and are shown to be faster than
the baseline by the minimum gain, the one of lowest mean latency is deployed. Where none is, the baseline is kept.
Everything else is undecided. Tests are corrected for as many variants as were tried, by Holm's method.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from farm.compare.codes import Code
from farm.compare.model import (
    AccuracyContrast,
    Comparison,
    Contrast,
    Decision,
    LatencyContrast,
    SweepIdentity,
    WorkloadDecision,
)
from farm.compare.reliability import shortcomings
from farm.compare.words import excludes

MIN_ITEMS: Final = 8
"""Fewer items cannot stand for a workload, and the coverage of their intervals has not been measured."""
SURE_P: Final = 0.05
_OPEN: Final = frozenset(
    {Code.LABELLED, Code.KINDS_MIXED, Code.PARTIAL, Code.NOTHING_PAIRED, Code.FEW_ITEMS, Code.NODES_UNBOUNDED}
)
"""Reasons with which nothing is decided."""
_ACCURACY: Final = {
    "equivalent": Code.ACCURACY_EQUIVALENT,
    "better": Code.ACCURACY_BETTER,
    "worse": Code.ACCURACY_NOT_WORSE,
    "inconclusive": Code.ACCURACY_NOT_WORSE,
}


def decide(comparison: Comparison) -> Decision:
    """The decision on a sweep and on each of its workloads."""
    names = _deciding(comparison)
    found = {name: _of_workload(comparison, name, name in names) for name in comparison.workloads}
    base = comparison.baseline
    heard = [found[name] for name in names]
    open_ = tuple(dict.fromkeys(code for one in heard for code in one.reasons if code in _OPEN))
    reasons = tuple(dict.fromkeys(code for one in heard for code in one.reasons))
    action, variant = (heard[0].action, heard[0].variant) if heard else ("undecided", base)
    if len({one.candidate for one in heard}) != 1:
        reason = Code.WORKLOADS_DISAGREE if heard else Code.NOTHING_PAIRED
        action, variant, reasons = "undecided", base, (*open_, reason)
    elif open_:
        action, variant = "undecided", base
    tried = variants_tried(comparison)
    return Decision(action=action, variant=variant, reasons=reasons, workloads=found, variants_tried=tried)


def against_baseline(comparison: Comparison, workload: str) -> list[Contrast]:
    """The contrasts against the baseline, the lowest mean latency first."""
    contrasts = comparison.workloads[workload].contrasts
    own = [c for c in contrasts if c.against == comparison.baseline]
    known = [c for c in own if c.mean_latency_change.value is not None]
    return sorted(known, key=lambda c: c.mean_latency_change.value or 0.0)


def picked_or_nearest(comparison: Comparison, workload: str) -> str | None:
    """The variant that a workload's figures are about: the rule's, or where that is the baseline, the next best."""
    decided = comparison.decision.workloads.get(workload) if comparison.decision else None
    if decided and decided.candidate not in (None, comparison.baseline):
        return decided.candidate
    return next((contrast.variant for contrast in against_baseline(comparison, workload)), None)


def faster_ones(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Those shown to be faster by the minimum gain, in the same order; of a node's speed none of it can be."""
    return [contrast for contrast in contrasts if contrast.nodes_bounded and _shown_faster(contrast)]


def variants_tried(comparison: Comparison) -> int:
    """How many variants were held against the baseline."""
    return len({c.variant for one in comparison.workloads.values() for c in one.contrasts if "baseline" in c.kinds})


def verdicts(comparison: Comparison, variant: str) -> dict[str, AccuracyContrast]:
    """A variant's accuracy against the baseline, by workload."""
    return {
        name: c.accuracy
        for name, one in comparison.workloads.items()
        for c in one.contrasts
        if c.variant == variant and c.against == comparison.baseline and c.accuracy
    }


def with_failures(comparison: Comparison, variant: str) -> dict[str, AccuracyContrast]:
    """The same with errors, time-outs and answers cut off counted as wrong."""
    return {
        name: c.accuracy_with_failures
        for name, one in comparison.workloads.items()
        for c in one.contrasts
        if c.variant == variant and c.against == comparison.baseline and c.accuracy_with_failures
    }


def qualifies(comparison: Comparison, variant: str) -> bool:
    """Reliable, and shown to answer as well on every graded workload, also with its failures counted as wrong."""
    return not unreliable(comparison, variant) and _answers_as_well(comparison, variant)


def unreliable(comparison: Comparison, variant: str) -> list[Code]:
    """Why a variant is too unreliable to be deployed, on whichever workload."""
    sides = [
        (one.variants.get(variant), one.variants.get(comparison.baseline)) for one in comparison.workloads.values()
    ]
    found = [shortcomings(own.reliability, base.reliability) for own, base in sides if own and base]
    return list(dict.fromkeys(code for codes in found for code in codes))


def _answers_as_well(comparison: Comparison, variant: str) -> bool:
    return all(holds(found) for by in (verdicts, with_failures) for found in by(comparison, variant).values())


def worst_answers(comparison: Comparison, contrast: Contrast) -> AccuracyContrast | None:
    """The lowest difference in accuracy shown to be a loss on any workload, failures counted as wrong or not."""
    found = [one for by in (verdicts, with_failures) for one in by(comparison, contrast.variant).values()]
    return min((one for one in found if shown_worse(one)), key=lambda one: one.difference_pp, default=None)


def shown_slower(contrast: Contrast) -> bool:
    """Slower per token beyond chance, and not for being on another node."""
    speed = contrast.throughput_ratio
    slower = bool(speed.value and speed.value < 1 and excludes(speed.ci, 1) and _sure(contrast.throughput_p_holm))
    return contrast.nodes_bounded and slower


def losing_ones(comparison: Comparison, contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Those shown to answer worse or to be slower; of faster ones it is said elsewhere why they are not chosen."""
    others = [c for c in contrasts if c not in faster_ones(contrasts)]
    return [c for c in others if shown_slower(c) or worst_answers(comparison, c)]


def holds(found: AccuracyContrast) -> bool:
    """Shown not to be worse by the margin, or better, also after correction for the number of variants."""
    not_worse = _sure(found.not_worse_p_holm) and not shown_worse(found)
    return not_worse or (found.difference_pp > 0 and _sure(found.mcnemar_mid_p_holm))


def shown_worse(found: AccuracyContrast) -> bool:
    """Worse beyond chance, also after that correction, and not equivalent for all that."""
    return found.verdict != "equivalent" and found.difference_pp < 0 and _sure(found.mcnemar_mid_p_holm)


def _sure(p: float | None) -> bool:
    return p is not None and p <= SURE_P


def told_apart(two: LatencyContrast | None, chosen: str, baseline: str) -> bool:
    """False where the chosen variant's mean latency may be that of the second as well."""
    if two is None or two.variant != chosen or two.against == baseline:
        return True
    return excludes(two.mean_latency_change.ci, 0)


def _deciding(comparison: Comparison) -> list[str]:
    """The workloads that decide: those with graded answers, else all that have contrasts."""
    workloads = comparison.workloads
    with_pairs = [name for name, one in workloads.items() if any(c.pairs for c in one.contrasts)]
    graded = [name for name in with_pairs if any(c.accuracy for c in workloads[name].contrasts)]
    return graded or with_pairs


def _of_workload(comparison: Comparison, workload: str, decides: bool) -> WorkloadDecision:
    base = comparison.baseline
    candidate, reasons = _by_rule(comparison, workload)
    open_ = [code for code in reasons if code in _OPEN] + _obstacles(comparison.sweep, candidate, base)
    return WorkloadDecision(
        action="undecided" if open_ else "keep" if candidate == base else "deploy",
        variant=base if open_ or candidate is None else candidate,
        candidate=candidate,
        decides=decides,
        reasons=tuple(dict.fromkeys([*open_, *reasons])),
    )


def _obstacles(sweep: SweepIdentity, candidate: str | None, baseline: str) -> list[Code]:
    """What keeps a decision open whatever the figures say: a label, engines of several kinds, or cells yet to be
    answered.

    Whoever keeps the baseline has to wait for all variants, whoever deploys one for that and the baseline.
    """
    awaited = {candidate, baseline} if candidate not in (None, baseline) else set(sweep.cells_pending)
    pending = bool(awaited.intersection(sweep.cells_pending))
    return [Code.LABELLED] * bool(sweep.label) + [Code.KINDS_MIXED] * sweep.kinds_mixed + [Code.PARTIAL] * pending


def _by_rule(comparison: Comparison, workload: str) -> tuple[str | None, list[Code]]:
    """What the rule picks, or None where it cannot; and its reasons."""
    contrasts = against_baseline(comparison, workload)
    enough = [c for c in contrasts if c.pairs >= MIN_ITEMS]
    if not enough:
        return None, [Code.FEW_ITEMS if contrasts else Code.NOTHING_PAIRED]
    faster = faster_ones(enough)
    lost = [Code.LOSS_SHOWN] * bool(losing_ones(comparison, enough))
    if not faster:
        gains = [c for c in enough if _faster_at_all(c)]
        if any(not c.nodes_bounded for c in gains):
            return None, [Code.NODES_UNBOUNDED]
        return comparison.baseline, [*lost, Code.GAIN_BELOW_MINIMUM if gains else Code.NONE_FASTER]
    chosen = next((c for c in faster if qualifies(comparison, c.variant)), None)
    if chosen is None:
        return comparison.baseline, [*_accuracy_reasons(comparison, faster[0]), *lost]
    reasons = [Code.SHOWN_FASTER, *_accuracy_reasons(comparison, chosen)]
    if not excludes(chosen.mean_latency_change.ci, 0):
        reasons.append(Code.LATENCY_GAIN_UNSURE)
    if chosen.scatter_source != "measured":
        reasons.append(Code.STARTS_ASSUMED)
    if not told_apart(comparison.workloads[workload].fastest_two, chosen.variant, comparison.baseline):
        reasons.append(Code.SECOND_NOT_TOLD_APART)
    if chosen is not faster[0]:
        reasons.append(Code.FASTER_ONE_HELD_BACK)
    return chosen.variant, [*reasons, *lost]


def _accuracy_reasons(comparison: Comparison, contrast: Contrast) -> list[Code]:
    found = verdicts(comparison, contrast.variant).values()
    codes = unreliable(comparison, contrast.variant)
    if all(map(holds, found)) and not _answers_as_well(comparison, contrast.variant):
        return [*codes, Code.ACCURACY_LOST_TO_FAILURES]
    codes += [_accuracy_code(one) for one in found]
    return list(dict.fromkeys(codes)) or [Code.ACCURACY_NOT_MEASURED]


def _accuracy_code(found: AccuracyContrast) -> Code:
    if shown_worse(found):
        return Code.ACCURACY_WORSE
    if not holds(found):
        return Code.ACCURACY_NOT_SHOWN
    return _ACCURACY[found.verdict]


def _shown_faster(contrast: Contrast) -> bool:
    """More decode throughput than the minimum gain, after Holm's correction, and lower latency as far as is known.

    Output lengths scatter much more than time per token, so throughput is what a sweep of ordinary size can prove.
    """
    latency, speed = contrast.mean_latency_change, contrast.throughput_ratio
    return bool(
        latency.value is not None
        and latency.value < 0
        and speed.value is not None
        and speed.value > 1
        and excludes(speed.ci, 1)
        and _sure(contrast.gain_p_holm)
    )


def _faster_at_all(contrast: Contrast) -> bool:
    """Faster beyond chance, if by less than the minimum gain or not surely by more."""
    speed = contrast.throughput_ratio
    return bool(speed.value and speed.value > 1 and excludes(speed.ci, 1) and _sure(contrast.throughput_p_holm))
