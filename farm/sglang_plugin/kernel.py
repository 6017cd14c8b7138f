"""The FP8 LM head's matrix product on CUDA: logits[M, N] = (x[M, K] / sx) @ (w[N, K] / sw)^T, scaled back, in Triton.

At the few rows of decoding the product is one pass over the weights, so the kernel is built to stream them: each
program owns a block of output channels, and the FP8 weights go from device memory through shared memory into the tensor
cores without ever being converted. Weights are the left operand because Hopper's FP8 instructions want 64 rows there,
and there are N of them where there are only M tokens, padded to 16.

Scales are factored out of the sum, per output channel and per token, and applied to the FP32 accumulator.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _quantise_rows(x_ptr, q_ptr, scale_ptr, K, BLOCK_K: tl.constexpr):
    """One row to FP8 with its own scale."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_K)
    x = tl.load(x_ptr + row * K + columns, mask=columns < K, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), axis=0) / 448.0, 1e-12)
    tl.store(scale_ptr + row, scale)
    tl.store(q_ptr + row * K + columns, (x / scale).to(tl.float8e4nv), mask=columns < K)


@triton.jit(do_not_specialize=["M"])  # one build serves every number of tokens
def _head(
    x_ptr,  # FP8 [M, K]
    x_scale_ptr,  # FP32 [M]
    w_ptr,  # FP8 [N, K]
    w_scale_ptr,  # FP32 [N]
    out_ptr,  # FP32 [M, N]
    M,
    N,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """BLOCK_N output channels of BLOCK_M tokens."""
    channels = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    tokens = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    ks = tl.arange(0, BLOCK_K)
    # Channels beyond the last one read the last one again: no mask in the loop, and their sums are not stored.
    w_rows = w_ptr + tl.minimum(channels, N - 1).to(tl.int64)[:, None] * K
    x_rows = x_ptr + tokens.to(tl.int64)[None, :] * K
    sums = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for start in range(0, K, BLOCK_K):
        if K % BLOCK_K == 0:
            w = tl.load(w_rows + (start + ks)[None, :], eviction_policy="evict_first")
            x = tl.load(x_rows + (start + ks)[:, None], mask=tokens[None, :] < M, other=0.0)
        else:
            inside = start + ks < K
            w = tl.load(w_rows + (start + ks)[None, :], mask=inside[None, :], other=0.0)
            x = tl.load(x_rows + (start + ks)[:, None], mask=(tokens[None, :] < M) & inside[:, None], other=0.0)
        sums = tl.dot(w, x, sums)
    sums *= tl.load(w_scale_ptr + channels, mask=channels < N, other=0.0)[:, None]
    sums *= tl.load(x_scale_ptr + tokens, mask=tokens < M, other=0.0)[None, :]
    out = out_ptr + tokens.to(tl.int64)[None, :] * N + channels[:, None]
    tl.store(out, sums, mask=(tokens[None, :] < M) & (channels[:, None] < N))


# Block of output channels, block of K, warps, stages: the fastest of fourteen on an H200 at 157,184 x 2,560 (96 us at
# one token, 98 us at four; tests/benchmarks/fp8_head.py --tune), where most are within 3 %. Compiled for a GB10 it
# takes 72 of the 99 KiB of shared memory there.
DEFAULT_CONFIG = (128, 256, 8, 3)


def quantise_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 rows and their FP32 scales, [M, K] and [M], of a contiguous BF16, FP16 or FP32 matrix on CUDA."""
    rows, columns = x.shape
    quantised = torch.empty((rows, columns), dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty(rows, dtype=torch.float32, device=x.device)
    if rows:
        _quantise_rows[(rows,)](x, quantised, scales, columns, triton.next_power_of_2(columns), num_warps=4)
    return quantised, scales


def head_logits(
    x: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    config: tuple[int, int, int, int] = DEFAULT_CONFIG,
) -> torch.Tensor:
    """FP32 logits [M, N] of hidden states [M, K] and an FP8 head [N, K] with its channels' scales [N]."""
    quantised, scales = quantise_rows(x.contiguous())
    rows, columns = x.shape
    channels = weight.shape[0]
    logits = torch.empty((rows, channels), dtype=torch.float32, device=x.device)
    if rows == 0:
        return logits
    block_n, block_k, warps, stages = config
    block_m = 16 if rows <= 16 else 64
    grid = (triton.cdiv(channels, block_n), triton.cdiv(rows, block_m))
    _head[grid](
        quantised, scales, weight, weight_scale, logits, rows, channels, columns, block_m, block_n, block_k,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return logits
