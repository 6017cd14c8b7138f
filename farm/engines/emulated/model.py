"""How long a step takes: bytes moved, over the memory's bandwidth, at a stated efficiency for each component. Pure.

At batch size 1 decoding is bound by memory. A plain step reads the backbone, the 8 experts of its token in each
layer, the LM head, the KDA state (and writes it), and the KV cache of the context. A verify round reads the same once
for several rows, but their rows choose their own experts, so more distinct ones are read; it also keeps the KDA state
of every row, and it is preceded by the passes of the NEXTN layer, each of which reads the LM head again. Prefill
reads every expert that any prompt token chooses, or is bound by arithmetic when the prompt is long.

The efficiencies are fitted to the figures published for one DGX Spark (see `published.py`, which prints how well):
- `stream`, `flashinfer_mxfp4`, `bf16_head` and `kv_cache` follow from the three rungs without speculation and from the
  plain figure at GSM8K's shorter context, Humming and the FP8 head being taken to stream as well as the backbone.
- The overlap of experts between neighbouring rows follows from two greedy rounds: repetitive text, and answers to GSM8K
  cut at 512 tokens. What a sampled round costs beyond a greedy one of the same text is `SAMPLED_ROUND_S`.
- `USED_EXPERTS`, how many experts a prompt of one kind spreads over, follows from the time to the first token.

Run `python -m farm.engines.emulated.published` for the published table beside the modelled one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from farm.engines.emulated import shapes

BANDWIDTH: Final = 273e9  # bytes/s, LPDDR5X
COMPUTE: Final = 100e12  # operations/s that prefill reaches, of FP8 and MXFP4 kernels together

# Share of the bandwidth that each component reaches.
STREAM: Final = 0.831  # FP8 matrices, Humming's experts, FP8 head, KDA state
EXPERT_KERNELS: Final = {
    "humming": STREAM,
    "flashinfer_mxfp4": 0.542,
    "marlin": 0.70,  # assumed, between the two: nothing is published
}
BF16_HEAD: Final = 0.675  # with FP32 output
KV_CACHE: Final = 0.753

STEP_S: Final = 1.5e-3  # kernel launches, norms and sampling of one pass through the model
DRAFT_PASS_S: Final = 0.15e-3  # the same of one pass through the NEXTN layer
ROUND_S: Final = 2.0e-3  # host work between verification and the next drafts
SAMPLED_ROUND_S: Final = 8.7e-3  # top-k and top-p over the vocabulary for each row, and rejection sampling
PREFILL_S: Final = 20e-3  # request handling, scheduling, first sampling
PREFILL_CHUNK: Final = 8192

USED_EXPERTS: Final = 309  # of 512: routing is skewed
OVERLAP_PROSE: Final = 0.275  # of a verify row's further experts, those that another row has read already
OVERLAP_REPETITIVE: Final = 0.656


@dataclass(frozen=True)
class Speculation:
    """NEXTN drafting: `steps` passes of the draft layer, then `rows` tokens verified in one round."""

    steps: int = 3
    rows: int = 4


@dataclass(frozen=True)
class Setup:
    """What decides an engine's speed."""

    experts: str = "flashinfer_mxfp4"
    fp8_head: bool = False
    speculation: Speculation | None = None


@dataclass(frozen=True)
class Cost:
    """Seconds of one step: a fixed part, and a part for every token of context."""

    fixed_s: float
    per_context_token_s: float

    def at(self, context: float) -> float:
        """Seconds at a length of context."""
        return self.fixed_s + self.per_context_token_s * context


def plain_step(setup: Setup) -> Cost:
    """One token without speculation."""
    return Cost(
        STEP_S + _backbone_s(state_passes=2) + _experts_s(setup, shapes.EXPERTS_PER_TOKEN) + _head_s(setup),
        _kv_s(shapes.MLA_LAYERS),
    )


def verify_round(setup: Setup, speculation: Speculation, *, predictability: float, sampled: bool) -> Cost:
    """Drafts and their verification, however many tokens come of it.

    Args:
        setup: the engine's.
        speculation: what is drafted and verified.
        predictability: 0 for prose, 1 for text that repeats itself.
        sampled: temperature above 0.
    """
    overlap = OVERLAP_PROSE + predictability * (OVERLAP_REPETITIVE - OVERLAP_PROSE)
    verified = distinct_experts(speculation.rows, overlap)
    # Every row's state is kept until it is known which row was the last to be accepted.
    target_s = STEP_S + _backbone_s(state_passes=2 + speculation.rows) + _experts_s(setup, verified) + _head_s(setup)
    # The first draft pass takes in all rows of the round before, the others one token each.
    passes = [verified] + [float(shapes.EXPERTS_PER_TOKEN)] * (speculation.steps - 1)
    draft_s = sum(
        DRAFT_PASS_S
        + _seconds(shapes.NEXTN_BACKBONE, STREAM)
        + _experts_s(setup, distinct) / shapes.MOE_LAYERS
        + _head_s(setup)
        for distinct in passes
    )
    return Cost(
        ROUND_S + target_s + draft_s + (SAMPLED_ROUND_S if sampled else 0.0),
        _kv_s(shapes.MLA_LAYERS + speculation.steps),
    )


def distinct_experts(rows: int, overlap: float) -> float:
    """Experts that a layer reads for several neighbouring rows, each of which chooses 8."""
    return shapes.EXPERTS_PER_TOKEN + (_spread(rows) - shapes.EXPERTS_PER_TOKEN) * (1 - overlap)


def prefill_s(setup: Setup, new_tokens: int, cached_tokens: int = 0) -> float:
    """From the arrival of a request at an idle engine to its first token."""
    seconds = PREFILL_S
    context, left = cached_tokens, new_tokens
    while left > 0:
        chunk = min(left, PREFILL_CHUNK)
        pairs = chunk * (context + chunk / 2)
        compute_s = (2 * shapes.PARAMETERS_OF_TOKEN * chunk + shapes.ATTENTION_FLOPS_OF_PAIR * pairs) / COMPUTE
        # Prefill kernels are the same for all variants and stream as the backbone does.
        experts = _spread(chunk) * shapes.EXPERT_IN_EVERY_LAYER
        memory_s = _seconds(shapes.BACKBONE + experts, STREAM) + context * _kv_s(shapes.MLA_LAYERS)
        seconds += max(compute_s, memory_s)
        if setup.speculation is not None:
            seconds += _seconds(shapes.NEXTN_BACKBONE + experts / shapes.MOE_LAYERS, STREAM)
        context, left = context + chunk, left - chunk
    heads = 2 if setup.speculation is not None else 1
    return seconds + heads * _head_s(setup)


def _spread(tokens: int) -> float:
    """Expected distinct experts of independent tokens that choose among `USED_EXPERTS`."""
    return USED_EXPERTS * (1.0 - (1.0 - shapes.EXPERTS_PER_TOKEN / USED_EXPERTS) ** tokens)


def _seconds(moved: float, efficiency: float) -> float:
    return moved / (BANDWIDTH * efficiency)


def _backbone_s(*, state_passes: int) -> float:
    return _seconds(shapes.BACKBONE + state_passes * shapes.KDA_STATE, STREAM)


def _experts_s(setup: Setup, distinct: float) -> float:
    return _seconds(distinct * shapes.EXPERT_IN_EVERY_LAYER, EXPERT_KERNELS[setup.experts])


def _head_s(setup: Setup) -> float:
    if setup.fp8_head:
        return _seconds(shapes.LM_HEAD_FP8, STREAM)
    return _seconds(shapes.LM_HEAD_BF16, BF16_HEAD)


def _kv_s(layers: int) -> float:
    return _seconds(layers * shapes.KV_OF_TOKEN, KV_CACHE)
