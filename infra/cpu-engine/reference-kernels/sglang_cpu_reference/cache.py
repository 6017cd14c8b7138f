"""Moves of cache locations and of cached rows, as speculative decoding needs them between its steps.

``req_to_token[request, position]`` is SGLang's table of where each token's keys and values lie in the pool.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor


def _spans(requests: Tensor, starts: Tensor, ends: Tensor) -> list[tuple[int, int, int]]:
    return list(zip(requests.tolist(), starts.tolist(), ends.tolist(), strict=False))


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Read the locations of ``start:end`` of each request, one after the other."""
    at = 0
    for request, start, end in _spans(req_pool_indices, start_offset, end_offset):
        out_cache_loc[at : at + end - start] = req_to_token[request, start:end].to(out_cache_loc.dtype)
        at += end - start


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Write new locations to ``start:end`` of each request."""
    at = 0
    for request, start, end in _spans(req_pool_indices, start_offset, end_offset):
        req_to_token[request, start:end] = out_cache_loc[at : at + end - start].to(req_to_token.dtype)
        at += end - start


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Read the locations reserved for each request's drafts, right behind its verified tokens."""
    count = topk * num_steps
    for row, (request, start) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=False)):
        locations = req_to_token[request, start : start + count]
        out_cache_loc[row * count : (row + 1) * count] = locations.to(out_cache_loc.dtype)


def build_draft_decode_metadata_cpu(
    req_to_token: Tensor, req_pool_indices: Tensor, seq_lens: Tensor, topk: int, num_steps: int, pool_len: int
) -> Tensor:
    """A location table with a row for each branch of each request: the shared prefix, then the branch's drafts."""
    table = req_to_token.new_zeros(seq_lens.shape[0] * topk, pool_len)
    for i, (request, length) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=False)):
        for branch in range(topk):
            row = table[i * topk + branch]
            drafts = length + branch * num_steps
            row[:length] = req_to_token[request, :length]
            row[length : length + num_steps] = req_to_token[request, drafts : drafts + num_steps]
    return table


def fill_bonus_tokens_cpu(accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, accept_stride: int) -> None:
    """The last accepted token of each request: the one that the target chose itself."""
    last = torch.arange(accept_lens.shape[0]) * accept_stride + accept_lens.long() - 1
    bonus_tokens.copy_(accept_tokens.view(-1)[last].to(bonus_tokens.dtype))


def fill_accept_out_cache_loc_cpu(accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor) -> None:
    """The locations of the accepted tokens, packed."""
    accepted = accept_index.view(-1)
    accepted = accepted[accepted > -1].long()
    accept_out_cache_loc.view(-1)[: accepted.numel()] = out_cache_loc[accepted].to(accept_out_cache_loc.dtype)


def rotate_input_ids_cpu(
    input_ids: Tensor,
    extend_start_loc: Tensor,
    extend_seq_lens: Tensor,
    topk_index: Tensor,
    select_index: Tensor | None = None,
) -> None:
    """Shift each request's tokens one to the left and append its new token: a draft layer reads one token ahead."""
    new = topk_index.view(-1)
    for i, (start, count) in enumerate(zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), strict=False)):
        if count <= 0:
            continue
        end = start + count
        input_ids[start : end - 1] = input_ids[start + 1 : end].clone()
        input_ids[end - 1 if select_index is None else int(select_index[i])] = new[i]


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor) -> None:
    """Move cached rows within every layer's buffer; addresses and row sizes come as numbers, as for the real kernel."""
    sources, targets = src_loc.tolist(), tgt_loc.tolist()
    for base, size in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        # All rows are read before one is written: source and target ranges may overlap.
        rows = [ctypes.string_at(base + source * size, size) for source in sources]
        for target, row in zip(targets, rows, strict=True):
            ctypes.memmove(base + target * size, row, size)
