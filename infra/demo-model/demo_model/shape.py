"""The demo model's dimensions, and the config.json that SGLang reads them from. Imports no torch."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions of a BailingMoeV2 decoder with one NEXTN layer.

    The first layer has a dense feed-forward part, all others a mixture of experts with one shared expert.
    """

    vocab: int = 832
    hidden: int = 256
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    dense_width: int = 512
    experts: int = 8
    active_experts: int = 2
    expert_width: int = 96
    rope_theta: float = 10_000.0
    eps: float = 1e-6
    context: int = 2048


TINY = Shape(hidden=64, layers=2, heads=2, kv_heads=1, head_dim=32, dense_width=128, experts=4, expert_width=32)
"""For tests and rehearsals: trains a few steps on a CPU in seconds."""


def hf_config(shape: Shape, *, pad_id: int, end_id: int) -> dict[str, Any]:
    """config.json for `BailingMoeV2ForCausalLM`.

    Stock transformers does not know BailingMoeV2's own model type, and asks for remote code where it meets one that it
    does not know. `glm4_moe` has the same fields with the same meaning, so the engine reads this config without any;
    the model class is chosen by `architectures` alone.
    """
    return {
        "architectures": ["BailingMoeV2ForCausalLM"],
        "model_type": "glm4_moe",
        "dtype": "bfloat16",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.dense_width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.eps,
        "max_position_embeddings": shape.context,
        "rope_theta": shape.rope_theta,
        "partial_rotary_factor": 1.0,
        "use_qk_norm": True,
        "use_bias": False,
        "use_qkv_bias": False,
        "num_experts": shape.experts,
        "num_experts_per_tok": shape.active_experts,
        "num_shared_experts": 1,
        "moe_intermediate_size": shape.expert_width,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "score_function": "sigmoid",
        "router_dtype": "fp32",
        "moe_router_enable_expert_bias": True,
        "routed_scaling_factor": 1.0,
        "num_nextn_predict_layers": 1,
        "tie_word_embeddings": False,
        "norm_head": False,
        "embedding_dropout": 0.0,
        "attention_dropout": 0.0,
        "output_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": end_id,
        "pad_token_id": pad_id,
    }


def shape_of(config: dict[str, Any]) -> Shape:
    """The inverse of `hf_config`."""
    return Shape(
        vocab=config["vocab_size"],
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        dense_width=config["intermediate_size"],
        experts=config["num_experts"],
        active_experts=config["num_experts_per_tok"],
        expert_width=config["moe_intermediate_size"],
        rope_theta=config["rope_theta"],
        eps=config["rms_norm_eps"],
        context=config["max_position_embeddings"],
    )
