"""What programs read of advice, reasons and warnings: a code for each, with the words beside it in a `Note`."""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """All codes; `farm/compare/README.md` says what each means."""

    # Why a variant is deployed, or not; and what stands in the way of a decision.
    SHOWN_FASTER = "shown-faster"
    NONE_FASTER = "none-faster"
    GAIN_BELOW_MINIMUM = "gain-below-minimum"
    NODES_UNBOUNDED = "nodes-unbounded"
    STARTS_ASSUMED = "starts-assumed"
    ACCURACY_EQUIVALENT = "accuracy-equivalent"
    ACCURACY_BETTER = "accuracy-better"
    ACCURACY_NOT_WORSE = "accuracy-not-worse"
    ACCURACY_WORSE = "accuracy-worse"
    ACCURACY_NOT_SHOWN = "accuracy-not-shown"
    ACCURACY_LOST_TO_FAILURES = "accuracy-lost-to-failures"
    TOO_MANY_ERRORS = "too-many-errors"
    ATTEMPTS_REPEATED = "attempts-repeated"
    ACCURACY_NOT_MEASURED = "accuracy-not-measured"
    LATENCY_GAIN_UNSURE = "latency-gain-unsure"
    SECOND_NOT_TOLD_APART = "second-not-told-apart"
    LOSS_SHOWN = "loss-shown"
    FASTER_ONE_HELD_BACK = "faster-one-held-back"
    NOTHING_PAIRED = "nothing-paired"
    FEW_ITEMS = "few-items"
    LABELLED = "labelled"
    PARTIAL = "partial"
    WORKLOADS_DISAGREE = "workloads-disagree"

    # Why a variant is as fast as it is.
    SPEED_PARTS = "speed-parts"
    BREAK_EVEN = "break-even"
    LATENCY_PARTS = "latency-parts"
    ENERGY = "energy"
    WORKLOAD_GAP = "workload-gap"
    START_UP = "start-up"
    STABILITY = "stability"

    # What changes how a figure is read, beside LABELLED, PARTIAL, NOTHING_PAIRED and FEW_ITEMS.
    VARIANT_FAILED = "variant-failed"
    VARIANT_WITHOUT_RECORDS = "variant-without-records"
    PAIRS_MISSING = "pairs-missing"
    SKEWED_MEANS = "skewed-means"
    FEW_ANSWERS_FOR_P95 = "few-answers-for-p95"
    STARTS_DIFFER = "starts-differ"
    ONE_START = "one-start"
    SPECULATION_DOES_NOT_PAY = "speculation-does-not-pay"
    PROMPTS_DIFFER = "prompts-differ"
    GRADED_ON_ONE_SIDE = "graded-on-one-side"
    KINDS_MIXED = "kinds-mixed"
    CACHED_PROMPT_TOKENS = "cached-prompt-tokens"
    ERRORS_UNEVEN = "errors-uneven"
    TRUNCATION_UNEVEN = "truncation-uneven"
    UNRELIABLE = "unreliable"
    FAILED_LEFT_OUT = "failed-left-out"
    REASSIGNED = "reassigned"
    NODE_EFFECT = "node-effect"
    DRIFT = "drift"
    SLOW_STATE = "slow-state"
