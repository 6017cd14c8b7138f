"""What the LM head costs at a few tokens: FP8 candidates against the BF16 and FP32-output heads, on this GPU.

    python tests/benchmarks/fp8_head.py [--vocab 157184] [--hidden 2560] [--batches 1 4] [--tune] [--json FILE]

Run it with the engine environment's Python on a GPU. Every candidate is timed in a CUDA graph of many calls, activation
quantisation included. Bytes are what one call must move: weights, scales, hidden states and logits. `of copy` is bytes
per second over the bandwidth of a device-to-device copy (read and written bytes) measured in the same run. Errors are
relative (Frobenius) against a float64 product of the unquantised BF16 operands; `argmax` is the share of rows whose
largest logit is at the same place.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from farm.sglang_plugin import kernel

Head = Callable[[torch.Tensor], torch.Tensor]
Config = tuple[int, int, int, int]
CALLS = 20
REPLAYS = 15
ERROR_ROWS = 16
# Output channels, K, warps and stages of the Triton kernel.
CONFIGS = [
    (64, 128, 4, 5),
    (64, 128, 4, 8),
    (64, 256, 4, 3),
    (64, 256, 4, 4),
    (64, 256, 4, 5),
    (64, 512, 4, 2),
    (64, 512, 4, 3),
    (128, 128, 4, 4),
    (128, 128, 4, 6),
    (128, 128, 8, 4),
    (128, 256, 4, 3),
    (128, 256, 8, 3),
    (128, 256, 8, 4),
    (256, 128, 8, 4),
]


@dataclass
class Row:
    """One candidate at one batch size."""

    candidate: str
    batch: int
    microseconds: float
    megabytes: float
    of_copy: float
    against_bf16: float
    relative_error: float
    same_argmax: float


def seconds_per_call(call: Callable[[], object]) -> float:
    """Median over replays of a CUDA graph that holds many calls."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    times = [elapsed(graph.replay) / CALLS for _ in range(REPLAYS)]
    return statistics.median(times[3:])


def copy_bandwidth() -> float:
    """Bytes per second of a device-to-device copy of 4 GiB, read and written bytes counted.

    Not in a CUDA graph: a copy node of a graph may run on a copy engine, a third slower.
    """
    source = torch.ones(1 << 30, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    target.copy_(source)
    times = [elapsed(lambda: target.copy_(source)) for _ in range(REPLAYS)]
    return 2 * source.nbytes / statistics.median(times)


def elapsed(call: Callable[[], object]) -> float:
    """Seconds of one call on the GPU."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def candidates(weight: torch.Tensor) -> dict[str, tuple[Head, int]]:
    """Each way to the logits, with the bytes of weights that it reads; what this stack lacks is left out, said so."""
    quantised, scale = quantised_rows(weight)
    wide, narrow = weight.nbytes, quantised.nbytes + scale.nbytes
    found: dict[str, tuple[Head, int]] = {
        "BF16": (lambda x: torch.mm(x, weight.T), wide),
        "BF16, FP32 output": (lambda x: torch.mm(x, weight.T, out_dtype=torch.float32), wide),
        "Triton (the farm's)": (lambda x: kernel.head_logits(x, quantised, scale, kernel.DEFAULT_CONFIG), narrow),
        "torch._scaled_mm": (lambda x: scaled_mm(x, quantised, scale), narrow),
    }
    for name, build in (("SGLang FP8 linear", sglang_linear), ("Humming dense FP8", humming_linear)):
        try:
            found[name] = (build(weight, quantised, scale), narrow)
        except Exception as error:
            print(f"{name}: not available here: {type(error).__name__}: {str(error)[:200]}", flush=True)
    return found


def quantised_rows(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The head as the plug-in quantises it."""
    scale = (weight.float().abs().amax(dim=1) / 448.0).clamp_min(1e-12)
    return (weight.float() / scale[:, None]).to(torch.float8_e4m3fn), scale


def scaled_mm(x: torch.Tensor, quantised: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """PyTorch's row-wise scaled product."""
    x_quantised, x_scale = kernel.quantise_rows(x)
    return torch._scaled_mm(
        x_quantised, quantised.T, scale_a=x_scale[:, None], scale_b=scale[None, :], out_dtype=torch.bfloat16
    )


def sglang_linear(_weight: torch.Tensor, quantised: torch.Tensor, scale: torch.Tensor) -> Head:
    """SGLang's online FP8 linear layer, per channel and per token."""
    from sglang.srt.layers.quantization.fp8_utils import apply_fp8_linear

    return lambda x: apply_fp8_linear(x, quantised.T, scale[:, None], use_per_token_if_dynamic=True)


def humming_linear(weight: torch.Tensor, _quantised: torch.Tensor, _scale: torch.Tensor) -> Head:
    """Humming's dense FP8 layer, quantised by Humming itself."""
    from humming.layer import HummingLayer

    layer = HummingLayer(
        shape_n=weight.shape[0],
        shape_k=weight.shape[1],
        weight_config={"dtype": "float8e4m3"},
        input_config={"dtype": "float8e4m3"},
        torch_dtype=torch.bfloat16,
    ).cuda()
    layer.load_from_unquantized(weight)
    layer.transform()
    layer.cuda()
    return lambda x: layer(x, compute_config={"use_f16_accum": False, "gemm_type": "dense"})


def errors(logits: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> tuple[float, float]:
    """Relative error and share of equal argmax against float64, in slices that fit beside the heads."""
    difference = norm = 0.0
    best = torch.full((x.shape[0],), -torch.inf, dtype=torch.float64, device=x.device)
    where = torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
    for start in range(0, weight.shape[0], 16384):
        exact = x.double() @ weight[start : start + 16384].double().T
        difference += float((logits[:, start : start + 16384].double() - exact).square().sum())
        norm += float(exact.square().sum())
        top, place = exact.max(dim=1)
        where = torch.where(top > best, place + start, where)
        best = torch.maximum(top, best)
    return (difference / norm) ** 0.5, float((logits.argmax(dim=1) == where).float().mean())


def measure(weight: torch.Tensor, hidden: torch.Tensor, batches: list[int], bandwidth: float) -> list[Row]:
    """All candidates at all batch sizes."""
    rows = []
    heads = candidates(weight)
    for batch in batches:
        x = hidden[:batch].contiguous()
        bf16_s = 0.0
        for name, (head, weight_bytes) in heads.items():
            try:
                head(x)
                seconds = seconds_per_call(partial(head, x))
                error, same = errors(head(hidden[:ERROR_ROWS].contiguous()), hidden[:ERROR_ROWS], weight)
            except Exception as problem:
                print(f"{name}, batch {batch}: {type(problem).__name__}: {str(problem)[:300]}", flush=True)
                continue
            bf16_s = seconds if name == "BF16" else bf16_s
            moved = weight_bytes + x.nbytes + head(x).nbytes
            share = moved / seconds / bandwidth
            rows.append(Row(name, batch, seconds * 1e6, moved / 1e6, share, bf16_s / seconds, error, same))
    return rows


def tune(weight: torch.Tensor, hidden: torch.Tensor, batches: list[int], bandwidth: float) -> Config:
    """Time the Triton kernel's configurations; the best over the batch sizes together."""
    quantised, scale = quantised_rows(weight)
    total: dict[Config, float] = {}
    for config in CONFIGS:
        try:
            times = []
            for batch in batches:
                head = partial(kernel.head_logits, hidden[:batch].contiguous(), quantised, scale, config)
                head()
                times.append(seconds_per_call(head))
        except Exception as problem:
            print(f"{config}: {type(problem).__name__}: {str(problem)[:120]}", flush=True)
            continue
        total[config] = sum(times)
        shares = ", ".join(f"{quantised.nbytes / seconds / bandwidth:.1%}" for seconds in times)
        print(f"(channels, K, warps, stages) {config}: {[round(s * 1e6, 1) for s in times]} us, {shares}", flush=True)
    return min(total, key=lambda config: total[config])


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocab", type=int, default=157_184)
    parser.add_argument("--hidden", type=int, default=2_560)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--tune", action="store_true", help="also time the Triton kernel's configurations")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    # Rows of different size, as trained heads have them.
    sizes = torch.rand(arguments.vocab, 1, device="cuda") + 0.5
    weight = (torch.randn(arguments.vocab, arguments.hidden, device="cuda") * 0.02 * sizes).bfloat16()
    hidden = torch.randn(64, arguments.hidden, device="cuda").bfloat16()
    bandwidth = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: copy {bandwidth / 1e12:.3f} TB/s", flush=True)
    if arguments.tune:
        kernel.DEFAULT_CONFIG = tune(weight, hidden, arguments.batches, bandwidth)
        print(f"best, and used below: {kernel.DEFAULT_CONFIG}", flush=True)
    rows = measure(weight, hidden, arguments.batches, bandwidth)
    print(f"LM head {arguments.vocab} x {arguments.hidden}")
    print("| candidate | batch | us | MB | of copy | against BF16 | relative error | argmax |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.candidate} | {row.batch} | {row.microseconds:.1f} | {row.megabytes:.1f} | {row.of_copy:.1%} | "
            f"{row.against_bf16:.2f} | {row.relative_error:.2e} | {row.same_argmax:.0%} |"
        )
    if arguments.json:
        result = {"gpu": torch.cuda.get_device_name(), "copy_bytes_per_s": bandwidth, "rows": [asdict(r) for r in rows]}
        arguments.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
