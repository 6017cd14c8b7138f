"""Attention over SGLang's token pool, with the signatures of the CPU operators of ``sgl_kernel``.

SGLang's ``intel_amx`` attention backend calls ``torch.ops.sgl_kernel.extend_attention_cpu`` (prefill and speculative
verification) and ``decode_attention_cpu``. ``convert_weight_packed`` is deliberately not defined: its presence is how
SGLang concludes that packed AMX layers exist; without it every layer takes its plain torch path.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Queries of one block see only the keys up to its end: half the work of a full causal matrix, and bounded memory.
QUERY_BLOCK = 256

_library = torch.library.Library("sgl_kernel", "FRAGMENT")


def _operator(schema: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def register(function: Callable[..., None]) -> Callable[..., None]:
        _library.define(schema)
        _library.impl(schema.split("(")[0], function, "CompositeExplicitAutograd")
        return function

    return register


def attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float, soft_cap: float = 0.0, mask: Tensor | None = None
) -> Tensor:
    """Softmax attention in float32: query [n, heads, d], key [m, kv_heads, d], mask [n, m] -> [n, heads, dv]."""
    n, heads, _ = query.shape
    kv_heads = key.shape[1]
    # Query heads that share a key head become rows of one product, so keys are never repeated.
    q = query.float().view(n, kv_heads, heads // kv_heads, -1).permute(1, 2, 0, 3).flatten(1, 2)
    k = key.float().transpose(0, 1)
    v = value.float().transpose(0, 1)
    scores = torch.matmul(q, k.transpose(1, 2)) * scale
    if soft_cap > 0:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    if mask is not None:
        by_group = scores.view(kv_heads, -1, n, scores.shape[-1])
        by_group.masked_fill_(~mask, float("-inf"))
    out = torch.matmul(torch.softmax(scores, -1), v)
    return out.view(heads, n, -1).transpose(0, 1)


def attend_causal(
    query: Tensor, key: Tensor, value: Tensor, scale: float, soft_cap: float = 0.0, window: int = 0
) -> Tensor:
    """``query`` belongs to the last positions of ``key``; a window of 0 means no window."""
    n, m = query.shape[0], key.shape[0]
    prefix = m - n
    blocks = []
    for start in range(0, n, QUERY_BLOCK):
        end = min(start + QUERY_BLOCK, n)
        position = torch.arange(prefix + start, prefix + end).unsqueeze(1)
        first = max(0, prefix + start - window + 1) if window > 0 else 0
        seen = torch.arange(first, prefix + end).unsqueeze(0)
        mask = seen <= position
        if window > 0:
            mask &= seen > position - window
        keys = slice(first, prefix + end)
        blocks.append(attend(query[start:end], key[keys], value[keys], scale, soft_cap, mask))
    return torch.cat(blocks)


def _with_prefix(pool: Tensor, locations: Tensor, new: Tensor | None, count: int, head_dim: int) -> Tensor:
    """Keys (or values) of one request: the cached prefix, then ``count`` new rows.

    Without a prefix the new rows may be wider than the pool's: MLA prefills with expanded heads over a latent cache.
    """
    if new is None:
        return pool[locations]
    prefix = locations[: locations.shape[0] - count]
    if prefix.shape[0] == 0:
        return new.reshape(count, -1, head_dim)
    return torch.cat([pool[prefix], new.reshape(count, *pool.shape[1:]).to(pool.dtype)])


@_operator(
    "extend_attention_cpu(Tensor q, Tensor? k, Tensor? v, Tensor(a!) o, Tensor k_pool, Tensor v_pool, float k_scale, "
    "float v_scale, Tensor req_to_token, Tensor requests, Tensor seq_lens, Tensor extend_lens, Tensor extend_start, "
    "SymInt max_extend, float scale, float soft_cap, bool cross, SymInt window, Tensor? encoder_lens, Tensor? sinks, "
    "Tensor? tree_mask, bool causal) -> ()"
)
def extend_attention_cpu(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    o: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: Tensor,
    requests: Tensor,
    seq_lens: Tensor,
    extend_lens: Tensor,
    extend_start: Tensor,
    max_extend: int,
    scale: float,
    soft_cap: float,
    cross: bool,
    window: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
    tree_mask: Tensor | None,
    causal: bool,
) -> None:
    """Attention of each request's new tokens over its cached prefix and themselves."""
    _refuse(cross, encoder_lens, sinks)
    tree_offset = 0
    spans = zip(requests.tolist(), seq_lens.tolist(), extend_lens.tolist(), extend_start.tolist(), strict=False)
    for request, length, count, start in spans:
        if count == 0:
            continue
        rows = slice(start, start + count)
        locations = req_to_token[request, :length].long()
        key = _with_prefix(k_pool, locations, None if k is None else k[rows], count, q.shape[2])
        value = _with_prefix(v_pool, locations, None if v is None else v[rows], count, o.shape[2])
        if tree_mask is not None:
            tree = tree_mask.view(-1)[tree_offset : tree_offset + count * count].view(count, count).bool()
            tree_offset += count * count
            mask = torch.cat([tree.new_ones(count, length - count), tree], 1)
            result = attend(q[rows], key, value, scale, soft_cap, mask)
        elif causal:
            result = attend_causal(q[rows], key, value, scale, soft_cap, window)
        else:
            result = attend(q[rows], key, value, scale, soft_cap)
        o[rows] = result.to(o.dtype)


@_operator(
    "decode_attention_cpu(Tensor q, Tensor(a!) k_pool, Tensor(b!) v_pool, float k_scale, float v_scale, Tensor(c!) o, "
    "Tensor? k, Tensor? v, Tensor? locations, Tensor attn_logits, Tensor req_to_token, Tensor requests, "
    "Tensor seq_lens, float scale, float soft_cap, bool cross, SymInt window, Tensor? encoder_lens, Tensor? sinks) "
    "-> ()"
)
def decode_attention_cpu(
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    k_scale: float,
    v_scale: float,
    o: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    locations: Tensor | None,
    attn_logits: Tensor,
    req_to_token: Tensor,
    requests: Tensor,
    seq_lens: Tensor,
    scale: float,
    soft_cap: float,
    cross: bool,
    window: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
) -> None:
    """Attention of one new token for each request; the new keys and values are written to the pool here."""
    _refuse(cross, encoder_lens, sinks)
    if k is not None and v is not None:
        k_pool[locations] = k.view(-1, *k_pool.shape[1:]).to(k_pool.dtype)
        # With MLA both pools are one buffer of latents, whose first columns are the values: already written.
        if v_pool.data_ptr() != k_pool.data_ptr():
            v_pool[locations] = v.view(-1, *v_pool.shape[1:]).to(v_pool.dtype)
    for row, (request, length) in enumerate(zip(requests.tolist(), seq_lens.tolist(), strict=False)):
        first = max(0, length - window) if window > 0 else 0
        seen = req_to_token[request, first:length].long()
        o[row : row + 1] = attend(q[row : row + 1], k_pool[seen], v_pool[seen], scale, soft_cap).to(o.dtype)


def _refuse(cross: bool, encoder_lens: Tensor | None, sinks: Tensor | None) -> None:
    if cross or encoder_lens is not None or sinks is not None:
        raise NotImplementedError("the CPU reference attention has no cross attention and no attention sinks")


# Operators of other model families that SGLang looks up by name at import; no model served here calls them.
for _schema in (
    "fused_sigmoid_gating_delta_rule_update_cpu(Tensor x) -> Tensor",
    "fused_gdn_gating_cpu(Tensor x) -> Tensor",
):
    _library.define(_schema)
