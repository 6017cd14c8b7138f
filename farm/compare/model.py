"""A comparison and all within it, as values. Its JSON is the contract of `--format json`; its schema is
`comparison.schema.json`.

Ratios are variant over against; every `ci` is a 95 % interval whose end is null where it is not known. A figure is null
where the records do not allow it.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue

from farm.compare.codes import Code
from farm.stats.intervals import Interval


def finite(value: float | None) -> float | None:
    """A number for JSON, which knows no NaN."""
    return float(value) if value is not None and math.isfinite(value) else None


Known = Annotated[float | None, BeforeValidator(finite)]
Ends = tuple[float | None, float | None]


def ends(low: float, high: float) -> Ends | None:
    """An interval for JSON; null where neither end is known."""
    known = finite(low), finite(high)
    return None if known == (None, None) else known


class Value(BaseModel):
    """Cannot be changed, and holds nothing that is not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_serialization_defaults_required=True)


class Note(Value):
    """A sentence for readers, and for programs its code and what it is about."""

    code: Code
    text: str
    workload: str | None = None
    variant: str | None = None


class Estimate(Value):
    """A figure with its interval."""

    value: Known
    ci: Ends | None


def estimate(interval: Interval) -> Estimate:
    """An interval as it is shown."""
    return Estimate(value=finite(interval.value), ci=ends(interval.low, interval.high))


class Distribution(Value):
    """Over answers: mean, median and 95th percentile."""

    mean: Known
    p50: Known
    p95: Known
    mean_ci: Ends | None
    p50_ci: Ends | None
    p95_ci: Ends | None


class PerRequest(Value):
    """Each answer's own figure, unweighted."""

    mean: Known
    mean_ci: Ends | None
    p50: Known
    p50_ci: Ends | None


class Accuracy(Value):
    """Share of right answers among those graded."""

    value: float
    ci: Ends | None
    correct: int
    n: int


class RoundCost(Value):
    """Cost of a verify round; in plain steps it is the accept length at which speculation breaks even."""

    ms: float
    plain_variant: str | None
    plain_steps: Known


class Reliability(Value):
    """Failed and repeated answers of one variant on one workload, and what became of its engines in the whole sweep."""

    answers: int
    errors: int
    attempted_again: int
    engines_died: int
    engines_lost: int
    starts_failed: int
    starts_refused: int


class VariantFigures(Value):
    """The figures of one variant on one workload."""

    requests: int
    items: int
    errors: int
    truncated: int
    tpot_ms: Estimate
    decode_tokens_per_s: Estimate
    tpot_per_request_ms: PerRequest
    ttft_s: Distribution
    latency_s: Distribution
    completion_tokens: Distribution
    accept_length: Known
    accept_length_ci: Ends | None
    accept_length_engine: Known
    accept_rate: Known
    accept_rate_ci: Ends | None
    accept_length_per_request: Known
    accept_rate_per_request: Known
    accept_histogram: tuple[int, ...] | None
    energy_j_per_request: Estimate | None
    energy_j_per_token: Estimate | None
    energy_answers: int
    energy_method: str | None
    sm_clock_mhz: Known
    throttled_s: Known
    slow_answers: int
    accuracy: Accuracy | None
    label: str | None
    reliability: Reliability
    round_cost: RoundCost | None = None


class AcceptLengths(Value):
    """Tokens per verify round of both sides; the ratio counts a side without speculation as one."""

    variant: Known
    against: Known
    ratio: Estimate | None


class SpeedParts(Value):
    """`throughput_ratio` is `accept_length_ratio` over `round_cost_ratio`."""

    throughput_ratio: float
    accept_length_ratio: float
    round_cost_ratio: float
    break_even_accept_length: float


class LatencyParts(Value):
    """Parts of a change of mean latency, which add up to `total`."""

    ttft: float
    output_length: float
    per_token: float
    other: float
    total: float


class AccuracyContrast(Value):
    """Accuracy of two variants on the same questions."""

    questions: int
    difference_pp: float
    ci: Ends | None
    both: int
    only_against: int
    only_variant: int
    neither: int
    mcnemar_exact_p: Known
    mcnemar_mid_p: Known
    tost_p: Known
    not_worse_p: Known
    margin_pp: float
    detectable_pp: Known
    questions_needed: Known
    repeats_needed: int | None
    verdict: Literal["equivalent", "better", "worse", "inconclusive"]
    mcnemar_mid_p_holm: Known = None
    not_worse_p_holm: Known = None


class LeftOut(Value):
    """Answers that errors of one or both sides keep out of the figures of speed.

    Lengths are mean tokens of the side that answered (the second, where both did), beside those of the answers kept.
    """

    answers: int
    items: int
    answered_by_one: int
    completion_tokens: Known
    completion_tokens_kept: Known
    prompt_tokens: Known
    prompt_tokens_kept: Known


class LatencyContrast(Value):
    """Mean latency of one variant against another."""

    variant: str
    against: str
    mean_latency_change: Estimate


class Contrast(Value):
    """One variant against another, paired item by item."""

    variant: str
    against: str
    kinds: tuple[Literal["baseline", "rung"], ...]
    pairs: int
    answers_paired: int
    engine_starts: int | None
    engine_scatter: Known
    scatter_source: Literal["measured", "assumed", "both"] | None
    nodes_bounded: bool
    throughput_ratio: Estimate
    throughput_p: Known
    gain_p: Known
    mean_latency_change: Estimate
    ttft_change: Estimate
    completion_tokens_change: Estimate
    per_request_throughput_ratio: Estimate
    energy_per_token_ratio: Estimate | None
    accept_length: AcceptLengths
    speed_parts: SpeedParts | None
    latency_parts_s: LatencyParts | None
    latency_parts: LatencyParts | None
    mean_completion_tokens: tuple[Known, Known]
    accuracy: AccuracyContrast | None
    accuracy_with_failures: AccuracyContrast | None = None
    """Errors, time-outs and answers cut off counted as wrong for the side that failed."""
    left_out: LeftOut | None = None
    throughput_p_holm: Known = None
    gain_p_holm: Known = None


class EffectEstimate(Value):
    """A factorial effect on decode throughput and on mean latency."""

    name: str
    kind: Literal["main", "interaction"]
    throughput_ratio: Estimate
    throughput_p: Known
    mean_latency_change: Estimate
    throughput_p_holm: Known = None


class NodeShift(Value):
    """The slowest node against the fastest, in time per token."""

    slow: str
    fast: str
    percent: float
    p: Known


class EngineDrift(Value):
    """One engine from its first answer to its last, in time per token."""

    variant: str
    engine_id: str
    percent: float
    p: Known


class Stability(Value):
    """How stable the machines were; null where there is too little to tell."""

    node_effect: NodeShift | None
    largest_drift: EngineDrift | None


class WorkloadComparison(Value):
    """All of one workload."""

    variants: dict[str, VariantFigures]
    contrasts: tuple[Contrast, ...]
    effects: tuple[EffectEstimate, ...]
    fastest_two: LatencyContrast | None
    kind: str | None
    title: str
    sampling: dict[str, JsonValue]
    items: int
    questions_known: int | None
    steadiness: Stability
    assumed_scatter: AssumedScatter

    def contrast(self, variant: str, against: str) -> Contrast | None:
        """The contrast of two variants, where they were paired."""
        return next((c for c in self.contrasts if (c.variant, c.against) == (variant, against)), None)


class SweepIdentity(Value):
    """Which sweep, and how much of it is there."""

    sweep_id: str | None
    name: str | None
    created_at: str | None
    label: str | None
    kinds_mixed: bool
    """Records come from engines of several kinds, or carry several labels, none being one."""
    complete: bool
    cells_answered: int
    cells_planned: int
    cells_pending: dict[str, int]
    planned_known: bool
    variants: tuple[str, ...]
    failed_variants: dict[str, str]


class AssumedScatter(Value):
    """How far starts and nodes of one variant are taken to scatter where too few were seen: standard deviations."""

    start_percent: float
    node_percent: float | None
    source: Literal["default", "stated", "baseline-arms"]


class StartUpCost(Value):
    """Seconds that a start takes longer, and the use after which they are made up for; null is never."""

    workload: str
    variant: str
    against: str
    is_baseline: bool
    start_s: tuple[float, float]
    extra_start_s: float
    saved_s_per_request: float
    saved_s_per_1000_tokens: float
    requests_to_pay_back: Known
    tokens_to_pay_back: Known


class Gap(Value):
    """How far a speed-up on a synthetic workload differs from that on a real one, and what makes the gap."""

    variant: str
    synthetic: str
    real: str
    throughput_ratios: tuple[float, float]
    accept_length_factor: float
    round_cost_factor: float
    text: str


class PublishedFigure(Value):
    """A published figure beside the measured one."""

    workload: str
    variant: str
    figure: str
    measured: float
    published: float


Action = Literal["deploy", "keep", "undecided"]


class WorkloadDecision(Value):
    """What follows from one workload.

    `variant` is what to run: the baseline unless the action is `deploy`. `candidate` is what the rule picks of these
    records, were they real and all there. `decides` says whether the sweep's decision hears this workload.
    """

    action: Action
    variant: str
    candidate: str | None
    decides: bool
    reasons: tuple[Code, ...]


class Decision(Value):
    """What follows from the sweep: `deploy` only where all workloads that decide say so of one variant."""

    action: Action
    variant: str
    reasons: tuple[Code, ...]
    workloads: dict[str, WorkloadDecision]
    variants_tried: int = 0


class Comparison(Value):
    """What `farm.compare.compare` says of a sweep."""

    sweep: SweepIdentity
    slow_records: Literal["include", "exclude"]
    baseline: str
    margin_pp: float
    min_gain: float
    workloads: dict[str, WorkloadComparison]
    start_up: tuple[StartUpCost, ...] = ()
    gaps: tuple[Gap, ...] = ()
    decision: Decision | None = None
    advice: tuple[Note, ...] = ()
    why: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()
    published: tuple[PublishedFigure, ...] | None = None
