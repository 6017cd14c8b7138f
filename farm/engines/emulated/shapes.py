"""Shape of Ling-3.0-flash, and the bytes that each of its parts moves when a step reads it once. Pure arithmetic.

Shapes are those of the published configuration: 42 layers (35 KDA, 7 MLA), 512 routed experts of which a token uses 8,
one shared expert, two dense layers, one NEXTN layer. Attention, dense and shared weights are FP8, routed experts MXFP4
(a 4-bit value each, and one scale byte for 32), the router is FP32, the KV cache BF16, the KDA state FP32.
"""

from __future__ import annotations

from typing import Final

HIDDEN: Final = 2560
VOCABULARY: Final = 157_184
KDA_LAYERS: Final = 35
MLA_LAYERS: Final = 7
DENSE_LAYERS: Final = 2
MOE_LAYERS: Final = KDA_LAYERS + MLA_LAYERS - DENSE_LAYERS
HEADS: Final = 32
HEAD_DIM: Final = 128
ROPE_DIM: Final = 64
KV_LORA_RANK: Final = 512
DENSE_INTERMEDIATE: Final = 6144
MOE_INTERMEDIATE: Final = 768
EXPERTS: Final = 512
EXPERTS_PER_TOKEN: Final = 8

FP8: Final = 1.0
MXFP4: Final = 0.5 + 1 / 32
BF16: Final = 2.0
FP32: Final = 4.0

_WIDTH: Final = HEADS * HEAD_DIM

# Query, key, value, decay, output gate and output projections, and the write strength of each head.
KDA_WEIGHTS: Final = FP8 * HIDDEN * (6 * _WIDTH + HEADS)
# Query, compressed key-value, its expansion, output, and the head-wise gate.
MLA_WEIGHTS: Final = FP8 * (
    HIDDEN * HEADS * (HEAD_DIM + ROPE_DIM)
    + HIDDEN * (KV_LORA_RANK + ROPE_DIM)
    + KV_LORA_RANK * HEADS * 2 * HEAD_DIM
    + _WIDTH * HIDDEN
    + HIDDEN * HEADS
)
EXPERT: Final = MXFP4 * 3 * HIDDEN * MOE_INTERMEDIATE
SHARED_EXPERT: Final = FP8 * 3 * HIDDEN * MOE_INTERMEDIATE
DENSE_MLP: Final = FP8 * 3 * HIDDEN * DENSE_INTERMEDIATE
ROUTER: Final = FP32 * HIDDEN * EXPERTS

# What every token needs whichever experts it takes; the LM head is counted apart.
BACKBONE: Final = (
    KDA_LAYERS * KDA_WEIGHTS
    + MLA_LAYERS * MLA_WEIGHTS
    + DENSE_LAYERS * DENSE_MLP
    + MOE_LAYERS * (SHARED_EXPERT + ROUTER)
)
# One expert in each layer that has experts.
EXPERT_IN_EVERY_LAYER: Final = MOE_LAYERS * EXPERT
LM_HEAD_BF16: Final = BF16 * VOCABULARY * HIDDEN
LM_HEAD_FP8: Final = FP8 * VOCABULARY * HIDDEN
# The recurrent state of all KDA layers, read or written once.
KDA_STATE: Final = FP32 * KDA_LAYERS * HEADS * HEAD_DIM * HEAD_DIM
# The compressed key and value of one past token, in one MLA layer.
KV_OF_TOKEN: Final = BF16 * (KV_LORA_RANK + ROPE_DIM)
# The NEXTN layer without its experts and head: the projection of embedding and hidden state, MLA, shared expert,
# router.
NEXTN_BACKBONE: Final = FP8 * 2 * HIDDEN * HIDDEN + MLA_WEIGHTS + SHARED_EXPERT + ROUTER

# Multiply-adds that a token costs in prefill, the LM head left out: only the last position needs it.
PARAMETERS_OF_TOKEN: Final = (
    KDA_LAYERS * KDA_WEIGHTS
    + MLA_LAYERS * MLA_WEIGHTS
    + DENSE_LAYERS * DENSE_MLP
    + MOE_LAYERS * (SHARED_EXPERT + EXPERTS_PER_TOKEN * EXPERT / MXFP4)
)
# Floating-point operations of attention between two tokens, over the MLA layers: scores and values.
ATTENTION_FLOPS_OF_PAIR: Final = MLA_LAYERS * HEADS * 2 * (HEAD_DIM + ROPE_DIM + HEAD_DIM)
