"""Kimi Delta Attention (KDA) in plain torch: short causal convolution, gated delta rule, gated norm, state commit.

Each head keeps a state ``S [value, key]``. A token with key k, value v, gate g (a decay for every key channel) and
strength beta updates and reads it:

    S <- S * exp(g);   S <- S + beta * (v - S k) k^T;   o = S q

Decode and verification run this step by step, so that a token gets the same floating-point treatment with and without
speculation. Prefill runs it in chunks. Signatures follow the Triton functions of SGLang that are replaced; arguments
that steer only their performance end in ``**_``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

NORM_EPS = 1e-6
CHUNK = 32
# A run this short (a decode step, a verification) is not worth a chunk.
STEPWISE_BELOW = 16


# --- short causal convolution -----------------------------------------------------------------------------------------


def causal_conv1d_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    conv_states: Tensor,
    query_start_loc: Tensor,
    seq_lens_cpu: list[int] | None = None,
    cache_indices: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    activation: str | None = "silu",
    pad_slot_id: int = -1,
    **_: Any,
) -> Tensor:
    """Prefill: ``x [dim, tokens]`` holds several sequences; a slot of ``conv_states`` keeps the last inputs."""
    history = weight.shape[1] - 1
    out = torch.empty_like(x)
    starts = query_start_loc.tolist()
    slots = range(len(starts) - 1) if cache_indices is None else cache_indices.tolist()
    resumed = [False] * (len(starts) - 1) if has_initial_state is None else has_initial_state.tolist()
    kernel = weight.float().unsqueeze(1)
    for i, (start, end) in enumerate(pairwise(starts)):
        slot = slots[i]
        if end <= start or slot == pad_slot_id:
            continue
        before = conv_states[slot].float() if resumed[i] else x.new_zeros(x.shape[0], history).float()
        padded = torch.cat([before, x[:, start:end].float()], 1)
        result = F.conv1d(padded.unsqueeze(0), kernel, _float(bias), groups=x.shape[0])[0]
        out[:, start:end] = _activate(result, activation).to(out.dtype)
        conv_states[slot] = padded[:, -history:].to(conv_states.dtype)
    return out


def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    cache_seqlens: Tensor | None = None,
    conv_state_indices: Tensor | None = None,
    num_accept_tokens: Tensor | None = None,
    intermediate_conv_window: Tensor | None = None,
    intermediate_state_indices: Tensor | None = None,
    retrieve_next_token: Tensor | None = None,
    retrieve_next_sibling: Tensor | None = None,
    retrieve_parent_token: Tensor | None = None,
    pad_slot_id: int = -1,
    **_: Any,
) -> Tensor:
    """Decode (``x [batch, dim]``) or verify drafts (``x [batch, dim, drafts]``).

    Verification keeps the window after every draft in ``intermediate_conv_window`` and leaves ``conv_state`` alone: the
    accepted one is committed later. In a tree, a draft continues its parent's window, not its neighbour's.
    """
    tokens = x.unsqueeze(-1) if x.dim() == 2 else x
    out = torch.zeros_like(tokens)
    kernel, offset = weight.float(), _float(bias)
    slots = range(len(tokens)) if conv_state_indices is None else conv_state_indices.tolist()
    parents = None if retrieve_parent_token is None else retrieve_parent_token.tolist()
    for i, slot in zip(range(len(tokens)), slots, strict=False):
        if slot == pad_slot_id:
            continue
        windows: list[Tensor] = []
        for t in range(tokens.shape[-1]):
            parent = t - 1 if parents is None or t == 0 else parents[i][t]
            before = windows[parent] if parent >= 0 else conv_state[slot].float()
            window = torch.cat([before, tokens[i, :, t : t + 1].float()], 1)
            result = (window * kernel).sum(1)
            out[i, :, t] = _activate(result if offset is None else result + offset, activation).to(out.dtype)
            windows.append(window[:, 1:])
        if intermediate_conv_window is None:
            conv_state[slot] = windows[-1].to(conv_state.dtype)
        else:
            if intermediate_state_indices is None:
                raise ValueError("verification needs to know where its windows go")
            kept = torch.stack(windows).to(intermediate_conv_window.dtype)
            intermediate_conv_window[int(intermediate_state_indices[i]), : len(windows)] = kept
    return out.squeeze(-1) if x.dim() == 2 else out


def _activate(x: Tensor, activation: str | bool | None) -> Tensor:
    return F.silu(x) if activation in ("silu", "swish", True) else x


def _float(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.float()


# --- gated delta rule -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tokens:
    """What the delta rule reads of each token, in float32.

    q, k and log_decay are [tokens, heads, key], v is [tokens, heads, value], beta is [tokens, heads].
    """

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor
    beta: Tensor

    def __getitem__(self, span: slice) -> Tokens:
        return Tokens(self.q[span], self.k[span], self.v[span], self.log_decay[span], self.beta[span])

    def __len__(self) -> int:
        return self.q.shape[0]


def prepare(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate: Tensor,
    beta: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float | None,
    scale: float | None,
) -> Tokens:
    """Normalise queries and keys, activate the raw gate and strength; the token axes are flattened."""
    heads, key_dim = k.shape[-2:]
    value_heads, value_dim = v.shape[-2:]
    q, k = q.reshape(-1, heads, key_dim).float(), k.reshape(-1, heads, key_dim).float()
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + NORM_EPS) * (key_dim**-0.5 if scale is None else scale)
    k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + NORM_EPS)
    if value_heads != heads:
        q, k = (x.repeat_interleave(value_heads // heads, 1) for x in (q, k))
    gate = gate.reshape(-1, value_heads, key_dim).float() + dt_bias.reshape(1, value_heads, key_dim).float()
    rate = A_log.reshape(1, value_heads, 1).float().exp()
    log_decay = -rate * F.softplus(gate) if lower_bound is None else lower_bound * torch.sigmoid(rate * gate)
    v, beta = v.reshape(-1, value_heads, value_dim).float(), beta.reshape(-1, value_heads).float().sigmoid()
    return Tokens(q, k, v, log_decay, beta)


def delta_rule_step(state: Tensor, token: Tokens, t: int) -> tuple[Tensor, Tensor]:
    """One token: the new state [heads, value, key] and the output [heads, value]."""
    k = token.k[t].unsqueeze(-1)
    state = state * token.log_decay[t].exp().unsqueeze(1)
    change = token.beta[t].view(-1, 1, 1) * (token.v[t].unsqueeze(-1) - state @ k)
    state = state + change @ k.transpose(1, 2)
    return state, (state @ token.q[t].unsqueeze(-1)).squeeze(-1)


def delta_rule_chunk(state: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor]:
    """A chunk of tokens at once: the new state and the outputs [t, heads, value].

    The rank-one changes u_t of the steps solve a unit lower triangular system, since each depends on those before:

        u_t = beta_t (v_t - S e^{G_t} k_t - sum_{j<t} u_j <k_j, e^{G_t - G_j} k_t>),   G = cumulative log decay

    Only differences G_t - G_j <= 0 are exponentiated, so nothing overflows however strong the decay.
    """
    q, k, v = (x.transpose(0, 1) for x in (tokens.q, tokens.k, tokens.v))  # [heads, t, dim]
    beta = tokens.beta.t().unsqueeze(-1)
    total = tokens.log_decay.cumsum(0).transpose(0, 1)
    since = total.exp()
    count = len(tokens)
    causal = torch.ones(count, count, dtype=torch.bool).tril()
    between = (total.unsqueeze(2) - total.unsqueeze(1)).masked_fill(~causal[..., None], float("-inf")).exp()
    keys_at = between * k.unsqueeze(1)  # [heads, t, j, key]: key j as it has decayed by t
    overlap = torch.einsum("htk,htjk->htj", k, keys_at)
    read = torch.einsum("htk,htjk->htj", q, keys_at)
    system = torch.eye(count) + beta * overlap.tril(-1)
    target = beta * (v - (since * k) @ state.transpose(1, 2))
    changes = torch.linalg.solve_triangular(system, target, upper=False, unitriangular=True)
    out = (since * q) @ state.transpose(1, 2) + read @ changes
    state = state * since[:, -1].unsqueeze(1) + changes.transpose(1, 2) @ keys_at[:, -1]
    return state, out.transpose(0, 1)


def delta_rule(state: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor]:
    """A sequence of any length."""
    outputs = []
    if len(tokens) < STEPWISE_BELOW:
        for t in range(len(tokens)):
            state, out = delta_rule_step(state, tokens, t)
            outputs.append(out.unsqueeze(0))
    else:
        for start in range(0, len(tokens), CHUNK):
            state, out = delta_rule_chunk(state, tokens[start : start + CHUNK])
            outputs.append(out)
    return state, torch.cat(outputs)


def delta_rule_tree(state: Tensor, tokens: Tokens, parents: list[int] | None) -> tuple[Tensor, Tensor]:
    """Drafts to verify: the state after each of them [t, heads, value, key], and the outputs."""
    states: list[Tensor] = []
    outputs = []
    for t in range(len(tokens)):
        parent = t - 1 if parents is None or t == 0 else parents[t]
        after, out = delta_rule_step(states[parent] if parent >= 0 else state, tokens, t)
        states.append(after)
        outputs.append(out)
    return torch.stack(states), torch.stack(outputs)


def _initial_state(pool: Tensor, slot: int) -> Tensor:
    return pool[slot].float() if slot >= 0 else pool.new_zeros(pool.shape[1:], dtype=torch.float32)


def _advance(tokens: Tokens, out: Tensor, pool: Tensor, slots: Tensor, starts: Tensor) -> Tensor:
    """Run each sequence from its slot's state and store the state it ends in; -1 marks padding."""
    bounds = starts.tolist()
    for slot, (start, end) in zip(slots.tolist(), pairwise(bounds), strict=False):
        if end > start:
            state, result = delta_rule(_initial_state(pool, slot), tokens[start:end])
            out[0, start:end] = result.to(out.dtype)
            if slot >= 0:
                pool[slot] = state.to(pool.dtype)
    return out


def _output(v: Tensor) -> Tensor:
    return v.new_zeros(1, v.numel() // (v.shape[-1] * v.shape[-2]), *v.shape[-2:])


def chunk_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    initial_state: Tensor,
    initial_state_indices: Tensor,
    cu_seqlens: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    scale: float | None = None,
    lower_bound: float | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    output_intermediate_states: bool = False,
    beta_is_raw: bool = False,
    **_: Any,
) -> Tensor:
    """Prefill."""
    if output_intermediate_states:
        raise NotImplementedError("states inside a prefill: use --mamba-radix-cache-strategy no_buffer")
    if not (use_qk_l2norm_in_kernel and beta_is_raw):
        raise NotImplementedError("only raw gates with normalised queries and keys")
    tokens = prepare(q, k, v, g, beta, A_log, dt_bias, lower_bound, scale)
    return _advance(tokens, _output(v), initial_state, initial_state_indices, cu_seqlens)


def fused_sigmoid_gating_delta_rule_update(
    *,
    A_log: Tensor,
    dt_bias: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    initial_state_source: Tensor,
    initial_state_indices: Tensor,
    cu_seqlens: Tensor,
    scale: float | None = None,
    lower_bound: float | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    is_kda: bool = False,
    disable_state_update: bool = False,
    intermediate_states_buffer: Tensor | None = None,
    intermediate_state_indices: Tensor | None = None,
    retrieve_parent_token: Tensor | None = None,
    cache_ring: bool = False,
    **_: Any,
) -> Tensor:
    """Decode, or verify drafts (then the state after every draft goes to the buffer and the pool stays as it is)."""
    if cache_ring or not (is_kda and use_qk_l2norm_in_kernel):
        raise NotImplementedError("only KDA without the ReplaySSM ring")
    tokens = prepare(q, k, v, a, b, A_log, dt_bias, lower_bound, scale)
    out = _output(v)
    if not disable_state_update:
        return _advance(tokens, out, initial_state_source, initial_state_indices, cu_seqlens)
    if intermediate_states_buffer is None or intermediate_state_indices is None:
        raise ValueError("verification needs buffers for its intermediate states")
    bounds = cu_seqlens.tolist()
    for i, (slot, (start, end)) in enumerate(zip(initial_state_indices.tolist(), pairwise(bounds), strict=False)):
        if end > start:
            parents = None if retrieve_parent_token is None else retrieve_parent_token[i].tolist()
            states, result = delta_rule_tree(_initial_state(initial_state_source, slot), tokens[start:end], parents)
            out[0, start:end] = result.to(out.dtype)
            kept = states.to(intermediate_states_buffer.dtype)
            intermediate_states_buffer[int(intermediate_state_indices[i]), : end - start] = kept
    return out


# --- around them ------------------------------------------------------------------------------------------------------


def gated_rms_norm(
    self: torch.nn.Module,
    x: Tensor,
    g: Tensor,
    residual: Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
) -> Tensor:
    """The ``forward`` of ``FusedRMSNormGated``: SGLang's CPU branch of it knows SiLU only, KDA gates with a sigmoid."""
    if residual is not None:
        raise NotImplementedError("gated RMS norm with a residual")
    normed = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps)
    if self.weight is not None:
        normed = normed * self.weight.float()
    gate = g.reshape(x.shape).float()
    return (normed * (gate.sigmoid() if self.activation == "sigmoid" else F.silu(gate))).to(x.dtype)


def commit_states(
    dst: Tensor,
    src: Tensor,
    dst_indices_raw: Tensor,
    step_indices_raw: Tensor,
    src_indices_raw: Tensor | None = None,
) -> None:
    """After verification: copy the state of each request's last accepted draft into its slot, in all layers.

    ``dst [layers, slots, ...]``, ``src [layers, requests, drafts, ...]``; a negative step or slot means nothing to do.
    """
    rows = range(step_indices_raw.shape[0]) if src_indices_raw is None else src_indices_raw.tolist()
    for row, slot, step in zip(rows, dst_indices_raw.tolist(), step_indices_raw.tolist(), strict=False):
        if step >= 0 and slot >= 0:
            dst[:, slot] = src[:, row, step].to(dst.dtype)
