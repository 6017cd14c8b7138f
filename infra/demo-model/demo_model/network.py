"""The demo model in plain torch: what SGLang 0.5.23 computes for BailingMoeV2 and its NEXTN layer, made for training.

Shapes: B rows, T positions, H hidden, V vocabulary, E experts, W expert width, D head dimension. Every expert is
computed for every token and weighed by the router (zero for those not chosen): at this size that is faster on a GPU
than gathering tokens, and gives the same result.
"""

# mypy: disable-error-code="misc,untyped-decorator"
# torch is not installed where mypy runs: its classes and decorators are untyped there.

from typing import NamedTuple

from demo_model.shape import Shape

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812  (the name that torch code uses)
except ImportError as error:
    raise ImportError(
        "training the demo model needs torch: run it in the engine's environment, or `pip install torch`"
    ) from error


class KeysValues(NamedTuple):
    """Keys and values of one pass, each [B, kv_heads, T, D]."""

    keys: Tensor
    values: Tensor


class Norm(nn.Module):
    """RMS normalisation over the last dimension."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] to the same."""
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


class Rotary(nn.Module):
    """Rotary position embedding, halves rotated against each other (NeoX style)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        inverse = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2).float() / shape.head_dim)
        angles = torch.arange(shape.context).float()[:, None] * inverse
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Rotate [B, heads, T, D] for positions 0 to T-1."""
        cos, sin = self.cos[: x.shape[2]].to(x.dtype), self.sin[: x.shape[2]].to(x.dtype)
        left, right = x.chunk(2, dim=-1)
        return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


class Attention(nn.Module):
    """Grouped-query attention with normalised queries and keys."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        heads, kv, dim = shape.heads, shape.kv_heads, shape.head_dim
        self.query_key_value = nn.Linear(shape.hidden, (heads + 2 * kv) * dim, bias=False)
        self.dense = nn.Linear(heads * dim, shape.hidden, bias=False)
        self.query_layernorm = Norm(dim, shape.eps)
        self.key_layernorm = Norm(dim, shape.eps)

    def project(self, x: Tensor, rotary: Rotary) -> tuple[Tensor, KeysValues]:
        """Queries [B, heads, T, D] and this pass's keys and values of [B, T, H]."""
        heads, kv, dim = self.shape.heads, self.shape.kv_heads, self.shape.head_dim
        split = self.query_key_value(x).unflatten(-1, (heads + 2 * kv, dim)).transpose(1, 2)
        q, k, v = split.split((heads, kv, kv), dim=1)
        return rotary(self.query_layernorm(q)).to(v.dtype), KeysValues(rotary(self.key_layernorm(k)).to(v.dtype), v)

    def attend(self, q: Tensor, seen: KeysValues, mask: Tensor) -> Tensor:
        """[B, T, H] of queries over all keys seen; `mask` [B or 1, 1, T, keys] is true where a key is visible."""
        group = self.shape.heads // self.shape.kv_heads
        keys, values = (x.repeat_interleave(group, dim=1) for x in seen)
        out = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        return self.dense(out.transpose(1, 2).flatten(2))


class Dense(nn.Module):
    """A gated feed-forward part; also the shared expert."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, H] to the same."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.Module):
    """A mixture of experts with a sigmoid router, a selection bias for balance, and one shared expert."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.active = shape.active_experts
        self.gate = nn.Linear(shape.hidden, shape.experts, bias=False)
        self.gate_proj = nn.Parameter(torch.empty(shape.experts, shape.expert_width, shape.hidden))
        self.up_proj = nn.Parameter(torch.empty(shape.experts, shape.expert_width, shape.hidden))
        self.down_proj = nn.Parameter(torch.empty(shape.experts, shape.hidden, shape.expert_width))
        self.shared_experts = Dense(shape.hidden, shape.expert_width)
        self.register_buffer("expert_bias", torch.zeros(shape.experts))
        self.register_buffer("load", torch.zeros(shape.experts), persistent=False)

    def route(self, x: Tensor) -> Tensor:
        """Weight of every expert for every token, [N, E]: zero for those not chosen, and 1 in sum."""
        with torch.autocast(x.device.type, enabled=False):
            scores = torch.sigmoid(F.linear(x.float(), self.gate.weight.float()))
            chosen = (scores.detach() + self.expert_bias).topk(self.active, dim=-1).indices
            mask = torch.zeros_like(scores).scatter_(1, chosen, 1.0)
            if self.training:
                self.load.copy_(mask.mean(0))
            kept = scores * mask
            return kept / (kept.sum(-1, keepdim=True) + 1e-20)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, H] to the same."""
        tokens = x.flatten(0, 1)
        weights = self.route(tokens)
        gated = F.silu(F.linear(tokens, self.gate_proj.flatten(0, 1))) * F.linear(tokens, self.up_proj.flatten(0, 1))
        weighed = gated.unflatten(-1, (weights.shape[1], -1)) * weights.to(gated.dtype).unsqueeze(-1)
        routed = F.linear(weighed.flatten(1), self.down_proj.transpose(0, 1).flatten(1))
        return self.shared_experts(x) + routed.view_as(x)

    @torch.no_grad()
    def balance(self, rate: float) -> None:
        """Make experts that had less than their share a little more likely to be chosen."""
        self.expert_bias += rate * torch.sign(self.load.mean() - self.load)


class Block(nn.Module):
    """One decoder layer."""

    def __init__(self, shape: Shape, *, sparse: bool) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden, shape.eps)
        self.attention = Attention(shape)
        self.post_attention_layernorm = Norm(shape.hidden, shape.eps)
        self.mlp: nn.Module = Experts(shape) if sparse else Dense(shape.hidden, shape.dense_width)

    def forward(
        self, x: Tensor, rotary: Rotary, mask: Tensor, before: tuple[KeysValues, ...] = ()
    ) -> tuple[Tensor, KeysValues]:
        """The layer's output and its keys and values; `before` holds those of earlier passes, leftmost in `mask`."""
        q, own = self.attention.project(self.input_layernorm(x), rotary)
        passes = (*before, own)
        seen = KeysValues(torch.cat([p.keys for p in passes], 2), torch.cat([p.values for p in passes], 2))
        x = x + self.attention.attend(q, seen, mask)
        return x + self.mlp(self.post_attention_layernorm(x)), own


class Trunk(nn.Module):
    """The target model. The embedding and the head are separate weights."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.word_embeddings = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Block(shape, sparse=i > 0) for i in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.eps)
        self.lm_head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        self.rotary = Rotary(shape)

    def features(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """What the head and the NEXTN layer read: the normalised last hidden states, [B, T, H]."""
        x = self.word_embeddings(tokens)
        for layer in self.layers:
            x, _ = layer(x, self.rotary, mask)
        return self.norm(x)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Logits [B, T, V]."""
        return self.lm_head(self.features(tokens, mask))


class NextN(nn.Module):
    """The draft layer. It reads the trunk's features and the next token's embedding, and shares embedding and head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.enorm = Norm(shape.hidden, shape.eps)
        self.hnorm = Norm(shape.hidden, shape.eps)
        self.eh_proj = nn.Linear(2 * shape.hidden, shape.hidden, bias=False)
        self.block = Block(shape, sparse=True)
        self.final_layernorm = Norm(shape.hidden, shape.eps)

    def forward(
        self, embedded: Tensor, features: Tensor, rotary: Rotary, mask: Tensor, before: tuple[KeysValues, ...] = ()
    ) -> tuple[Tensor, KeysValues]:
        """One pass: features [B, T, H] for the head and for the next pass, and this pass's keys and values."""
        x = self.eh_proj(torch.cat((self.enorm(embedded), self.hnorm(features)), dim=-1))
        x, own = self.block(x, rotary, mask, before)
        return self.final_layernorm(x), own


def initialise(module: nn.Module, depth: int, generator: torch.Generator) -> None:
    """Normal weights scaled by fan-in; projections back into the residual stream are smaller, by the depth."""
    for name, parameter in module.named_parameters():
        if parameter.dim() < 2:
            continue
        std = 1.0 if "word_embeddings" in name else 0.7 * parameter.shape[-1] ** -0.5
        if name.endswith(("dense.weight", "down_proj", "down_proj.weight")):
            std /= (2 * depth) ** 0.5
        with torch.no_grad():
            parameter.normal_(0.0, std, generator=generator)
