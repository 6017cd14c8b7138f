"""Why, in words: exact identities applied to the contrasts, so that each sentence adds up."""

from __future__ import annotations

from collections.abc import Mapping

from farm.compare.codes import Code
from farm.compare.decision import against_baseline, picked_or_nearest
from farm.compare.model import Comparison, Contrast, Estimate, Gap, Note, RoundCost, VariantFigures
from farm.compare.words import change, count, excludes, number, percent, ratio
from farm.stats.family import Features, without


def reasons(comparison: Comparison) -> list[Note]:
    """Why the variant that the decision is about is as fast as it is, and no faster."""
    variant = focus(comparison)
    out: list[Note] = []
    if variant is None:
        return out
    for name, workload in comparison.workloads.items():
        for contrast in against_baseline(comparison, name):
            if contrast.variant == variant:
                for code, texts in (
                    (Code.SPEED_PARTS, _speed_reason(name, contrast)),
                    (Code.BREAK_EVEN, _break_even(name, workload.variants[variant])),
                    (Code.LATENCY_PARTS, _latency_reason(name, contrast)),
                    (Code.ENERGY, _energy_reason(name, workload.variants, contrast)),
                ):
                    out += [Note(code=code, text=text, workload=name, variant=variant) for text in texts]
    out += [
        Note(code=Code.WORKLOAD_GAP, text=gap.text, variant=variant)
        for gap in comparison.gaps
        if gap.variant == variant
    ]
    for name in _deciding(comparison):
        out += [Note(code=Code.START_UP, text=text, workload=name) for text in _start_up_reasons(comparison, name)]
    return out


def focus(comparison: Comparison) -> str | None:
    """The variant to explain: the one picked, else the one of lowest mean latency on the workload that decides."""
    for name in _deciding(comparison):
        if (picked := picked_or_nearest(comparison, name)) is not None:
            return picked
    return None


def _deciding(comparison: Comparison) -> list[str]:
    decided = comparison.decision.workloads if comparison.decision else {}
    return [name for name, one in decided.items() if one.decides]


def _speed_reason(name: str, contrast: Contrast) -> list[str]:
    parts = contrast.speed_parts
    if parts is None:
        return []
    head = f"{name}: {contrast.variant} decodes {parts.throughput_ratio:.2f}x as fast as {contrast.against}"
    if contrast.accept_length.variant is None and contrast.accept_length.against is None:
        return [f"{head}: a decode step costs {parts.round_cost_ratio:.2f} times as much."]
    return [
        f"{head}: {parts.accept_length_ratio:.2f} times the tokens per round at "
        f"{parts.round_cost_ratio:.2f} times the cost per round."
    ]


def _energy_reason(name: str, figures: Mapping[str, VariantFigures], contrast: Contrast) -> list[str]:
    """What an answer and a token cost in energy, and how that is known."""
    if contrast.energy_per_token_ratio is None:
        return []
    own, other = figures[contrast.variant], figures[contrast.against]
    methods = sorted({method for method in (own.energy_method, other.energy_method) if method})
    answer, token = f"{_joules(own.energy_j_per_request, 1)} J", f"{_joules(own.energy_j_per_token)} J"
    base = _joules(other.energy_j_per_token)
    return [
        f"{name}: {contrast.variant} takes {answer} an answer and {token} a generated token, "
        f"{ratio(contrast.energy_per_token_ratio)} of {contrast.against}'s {base} J; "
        f"energy by {', '.join(methods)}."
    ]


def _joules(energy: Estimate | None, digits: int = 2) -> str:
    return number(energy.value if energy else None, digits)


def with_round_costs(
    figures: Mapping[str, VariantFigures], made_of: Features, baseline: str
) -> dict[str, VariantFigures]:
    """Cost of a verify round, in milliseconds and in plain steps, for the variants that speculate.

    A plain step is that of the same variant without speculation; the baseline's where the sweep does not hold it, or
    null where that speculates too. The cost in plain steps is the accept length at which speculation breaks even.
    """
    twins = {variant: plain_twin(figures, made_of, variant, baseline) for variant in figures}
    return {
        variant: own.model_copy(update={"round_cost": _round_cost(figures, twins[variant], variant)})
        for variant, own in figures.items()
    }


def _round_cost(figures: Mapping[str, VariantFigures], reference: str | None, variant: str) -> RoundCost | None:
    length, tpot = figures[variant].accept_length, figures[variant].tpot_ms.value
    if length is None or tpot is None:
        return None
    step = figures[reference].tpot_ms.value if reference else None
    return RoundCost(ms=tpot * length, plain_variant=reference, plain_steps=tpot * length / step if step else None)


def plain_twin(figures: Mapping[str, VariantFigures], made_of: Features, variant: str, baseline: str) -> str | None:
    """The variant that lacks only the feature which speculates, else the baseline; it must not speculate itself."""
    twins = [without(variant, feature, made_of) for feature in sorted(made_of[variant])]
    for twin in [*twins, baseline]:
        if twin is not None and twin in figures and figures[twin].accept_length is None and figures[twin].requests:
            return twin
    return None


def _break_even(name: str, figures: VariantFigures) -> list[str]:
    cost = figures.round_cost
    length = figures.accept_length
    if cost is None or cost.plain_steps is None or length is None:
        return []
    steps = cost.plain_steps
    return [
        f"{name}: a verify round costs {steps:.2f} plain steps of {cost.plain_variant}; that is the accept length "
        f"at which it breaks even, and {length:.2f} is {'above' if length > steps else 'not above'} it."
    ]


def _latency_reason(name: str, contrast: Contrast) -> list[str]:
    parts, tokens = contrast.latency_parts, contrast.mean_completion_tokens
    speed = contrast.throughput_ratio.value
    if parts is None or speed is None or None in tokens:
        return []
    other = f", other {percent(parts.other)}" if abs(parts.other) >= 0.0005 else ""
    return [
        f"{name}: {percent(speed - 1)} tokens/s becomes {percent(parts.total)} mean latency: time per token "
        f"{percent(parts.per_token)}, output length {percent(parts.output_length)} "
        f"({tokens[1]:,.0f} to {tokens[0]:,.0f} tokens, {_sureness(contrast.completion_tokens_change)}), time to first "
        f"token {percent(parts.ttft)} ({_sureness(contrast.ttft_change)}){other}."
    ]


def _sureness(found: Estimate) -> str:
    """A change of its own, and whether it may be called a cause."""
    return change(found) + ("" if excludes(found.ci, 0) else ": not shown to differ")


def workload_gaps(comparison: Comparison) -> tuple[Gap, ...]:
    """Where a synthetic and a real workload are both there: how far the speed-ups differ, and what makes the gap."""
    workloads = comparison.workloads
    synthetic = [name for name, one in workloads.items() if (one.kind or name) == "synthetic"]
    real = [name for name in workloads if name not in synthetic]
    return tuple(
        gap
        for one in synthetic
        for other in real
        for contrast in against_baseline(comparison, one)
        if (gap := _gap(comparison, contrast, one, other)) is not None
    )


def _gap(comparison: Comparison, contrast: Contrast, synthetic: str, real: str) -> Gap | None:
    twin = next((c for c in against_baseline(comparison, real) if c.variant == contrast.variant), None)
    if twin is None or twin.speed_parts is None or contrast.speed_parts is None:
        return None
    one, two = contrast.speed_parts, twin.speed_parts
    lengths = two.accept_length_ratio / one.accept_length_ratio
    cost = one.round_cost_ratio / two.round_cost_ratio
    tokens = contrast.mean_completion_tokens[0], twin.mean_completion_tokens[0]
    text = (
        f"{contrast.variant}: {one.throughput_ratio:.2f}x on {synthetic} is {two.throughput_ratio:.2f}x on "
        f"{real}: tokens per round {one.accept_length_ratio:.2f} to {two.accept_length_ratio:.2f} "
        f"(factor {lengths:.2f}), cost per round {one.round_cost_ratio:.2f} to {two.round_cost_ratio:.2f} "
        f"(factor {cost:.2f}); sampling {_sampling(comparison, synthetic)} and {_sampling(comparison, real)}, "
        f"output {number(tokens[0], 0)} and {number(tokens[1], 0)} tokens."
    )
    return Gap(
        variant=contrast.variant,
        synthetic=synthetic,
        real=real,
        throughput_ratios=(one.throughput_ratio, two.throughput_ratio),
        accept_length_factor=lengths,
        round_cost_factor=cost,
        text=text,
    )


def _sampling(comparison: Comparison, workload: str) -> str:
    sampling = comparison.workloads[workload].sampling
    if not sampling:
        return "unknown"
    temperature = sampling.get("temperature")
    return "greedy" if temperature == 0 else f"temperature {temperature}" if temperature is not None else "default"


def _start_up_reasons(comparison: Comparison, workload: str) -> list[str]:
    """One sentence for the steps that start later than what they are compared with."""
    parts = []
    for cost in comparison.start_up:
        if cost.workload == workload and cost.extra_start_s > 0:
            needed, tokens = cost.requests_to_pay_back, cost.tokens_to_pay_back
            use = "never" if needed is None else f"{count(needed)} requests"
            use += "" if tokens is None else f" or {count(tokens / 1000)} thousand tokens"
            parts.append(f"{cost.variant} over {cost.against} +{cost.extra_start_s:.0f} s, {use}")
    return [f"{workload}: a slower start is paid back after: {'; '.join(parts)}."] if parts else []
