r"""Do the farm's times say what others say?

One real engine is asked the same prompts in turn by the farm and by SGLang's own benchmark, and both are compared with
what the engine itself says of the same requests.

    python tests/benchmarks/truth.py [--variant nextn] [--prompts 40] [--tokens 64] [--rounds 3]

The engine is the quick start's: SGLang on the CPU with the demo model (DEMO-MODEL: the figures say nothing about a
Spark). Each round asks all prompts three ways, one request at a time: `farm` is the farm's client, `bench` is
`python -m sglang.bench_serving`, `as bench` is the farm's reader asking as bench_serving does, which opens a connection
for each request, sends text instead of token ids, and calls the request finished at `[DONE]` instead of at the last
token. Where `farm` and `bench` differ and `as bench` does not, those three habits are the reason.

The machine's speed drifts from one way's turn to the next. So each turn is compared with the engine's own account of
that turn, from its Prometheus sums: what a client's mean has beyond the engine's is the client's, whatever the engine's
speed was just then. Plain medians are shown as well.

bench_serving imports packages that the farm's CPU engine does not have. Put them beside it, and name the folder with
`--bench-packages DIR`:

    ~/.farm/envs/engine-cpu/bin/python -m pip install --no-deps --target DIR datasets==5.2.0 multiprocess pandas \
        pyarrow python-dateutil tzdata

The engine's own times are compared request by request. Its clock starts when its server has parsed the request and
stops when it hands a chunk to its server; client and engine share this machine's wall clock, so the way in and the way
out are measured too, and what they leave unexplained.

Exit status: 0 when every difference is within 1 % or explained to within 1 %, 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import _paths  # noqa: F401
import aiohttp
from support import CPU_ENGINE, AskedEngine, quickstart_sweep

from farm.builtin import demo
from farm.engines.sglang.stream import StreamReader, generation_of

GOAL = 0.01
WAYS = ("farm", "as bench", "bench")


@dataclass
class Asked:
    """One request's times in seconds."""

    ttft_s: float
    latency_s: float
    tokens: int
    sent_ts: float = 0.0
    meta: dict | None = None

    @property
    def tpot_s(self) -> float:
        """Seconds per token after the first."""
        return (self.latency_s - self.ttft_s) / (self.tokens - 1)


def prompts_of(engine: AskedEngine, count: int) -> list[tuple[str, list[int]]]:
    """Prompts of some 250 tokens that begin differently: text, and the ids that the engine makes of it."""
    questions = [json.loads(line)["question"] for line in demo.test_path().read_text(encoding="utf-8").splitlines()]
    found = []
    for number in range(count):
        chosen = [questions[(number + 17 * index) % len(questions)] for index in range(8)]
        ids = engine.chat(" ".join(chosen), enable_thinking=True)
        text = engine.run(engine.client.text_of(ids))
        if engine.run(engine.client.tokenize_text(text)) != ids:
            raise SystemExit("a prompt's text is not the same tokens")
        found.append((text, ids))
    return found


def ask_farm(engine: AskedEngine, prompts: list, sampling: dict) -> list[Asked]:
    """The farm's client, one request at a time."""
    found = []
    for _, ids in prompts:
        sent_ts = time.time()
        answer = engine.generate(ids, **sampling)
        figures = generation_of(answer)
        found.append(Asked(figures.ttft_s, figures.latency_s, figures.completion_tokens, sent_ts, answer.meta))
    return found


def ask_as_bench(engine: AskedEngine, prompts: list, sampling: dict) -> list[Asked]:
    """The farm's reader with bench_serving's habits."""

    async def one(text: str) -> Asked:
        headers = {"Authorization": f"Bearer {engine.engine.process.api_key}"}
        body = {"text": text, "sampling_params": sampling, "stream": True}
        reader = StreamReader()
        async with aiohttp.ClientSession(headers=headers, read_bufsize=10 << 20) as session:
            sent = time.perf_counter()
            async with session.post(f"{engine.engine.process.url}/generate", json=body) as response:
                async for line in response.content:
                    at_s = time.perf_counter() - sent
                    reader.feed(line, at_s)
                    if line.strip():
                        end_s = at_s
        answer = reader.finish()
        return Asked(answer.ttft_s, end_s, answer.completion_tokens)

    return [engine.run(one(text)) for text, _ in prompts]


def ask_bench(engine: AskedEngine, dataset: Path, options: argparse.Namespace) -> dict:
    """SGLang's benchmark in a process of its own; its result."""
    output = dataset.with_suffix(".out")
    output.unlink(missing_ok=True)
    done = subprocess.run(
        [
            *(str(CPU_ENGINE), "-m", "sglang.bench_serving", "--backend", "sglang"),
            *("--base-url", engine.engine.process.url),
            *("--model", str(demo.model_path()), "--tokenizer", str(demo.model_path())),
            *("--dataset-name", "custom", "--dataset-path", str(dataset), "--num-prompts", str(options.prompts)),
            *("--sharegpt-output-len", str(options.tokens), "--max-concurrency", "1", "--temperature", "0"),
            *("--warmup-requests", "0", "--flush-cache", "--disable-tqdm", "--output-details"),
            *("--output-file", str(output)),
        ],
        env=os.environ
        | {"API_KEY": engine.engine.process.api_key, "OPENAI_API_KEY": engine.engine.process.api_key}
        | ({"PYTHONPATH": str(options.bench_packages)} if options.bench_packages else {})
        | {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode or not output.exists():
        raise SystemExit(f"bench_serving failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return json.loads(output.read_text().splitlines()[-1])


def measure(options: argparse.Namespace, folder: Path) -> tuple[dict, dict, list[Asked], list[dict]]:
    """Ask in turn: medians and excess over the engine by way and round, all that the farm and bench_serving got."""
    engine = AskedEngine.start(quickstart_sweep(), options.variant, CPU_ENGINE, folder)
    try:
        prompts = prompts_of(engine, options.prompts)
        dataset = folder / "prompts.jsonl"
        rows = [{"conversations": [{"content": text}, {"content": "none"}]} for text, _ in prompts]
        dataset.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
        sampling = {"temperature": 0.0, "max_new_tokens": options.tokens, "ignore_eos": True}
        ask_farm(engine, prompts[:5], sampling)
        medians: dict = defaultdict(lambda: defaultdict(list))
        beyond: dict = defaultdict(lambda: defaultdict(list))
        all_farm, all_bench = [], []
        for index in range(options.rounds):
            # The order turns, so that drift falls on all ways alike.
            for way in WAYS[index % len(WAYS) :] + WAYS[: index % len(WAYS)]:
                engine.run(engine.client.flush_cache())
                before = engine_sums(engine)
                if way == "bench":
                    reported = ask_bench(engine, dataset, options)
                    all_bench.append(reported)
                    names = {"TTFT": "ttft", "TPOT": "tpot", "latency": "e2e_latency"}
                    figures = {name: reported[f"median_{key}_ms"] / 1000 for name, key in names.items()}
                    means = {name: reported[f"mean_{key}_ms"] / 1000 for name, key in names.items()}
                else:
                    requested = (ask_farm if way == "farm" else ask_as_bench)(engine, prompts, sampling)
                    all_farm += requested if way == "farm" else []
                    figures = figures_of(requested, statistics.median)
                    means = figures_of(requested, statistics.mean)
                own = engine_means(before, engine_sums(engine), options)
                for name in figures:
                    medians[name][way].append(figures[name])
                    beyond[name][way].append((means[name] - own[name], own[name]))
                print(f"round {index + 1}, {way:8s} load {os.getloadavg()[0]:.2f} " + _line(figures), flush=True)
        return medians, beyond, all_farm, all_bench
    finally:
        engine.stop()


def figures_of(requested: list[Asked], average) -> dict[str, float]:
    """Averages of what was asked."""
    return {
        "TTFT": average([one.ttft_s for one in requested]),
        "TPOT": average([one.tpot_s for one in requested]),
        "latency": average([one.latency_s for one in requested]),
    }


def engine_sums(engine: AskedEngine) -> dict[str, float]:
    """The engine's own sums since its start, from its metrics."""
    names = ("time_to_first_token_seconds", "e2e_request_latency_seconds")
    wanted = tuple(f"sglang:{name}_{part}" for name in names for part in ("sum", "count"))
    sums = dict.fromkeys(wanted, 0.0)
    for line in engine.call("GET", "/metrics")[2].splitlines():
        name = line.partition("{")[0]
        if name in sums:
            sums[name] += float(line.rpartition(" ")[2])
    return sums


def engine_means(before: dict[str, float], after: dict[str, float], options: argparse.Namespace) -> dict[str, float]:
    """The engine's means over the requests between two looks."""
    grown = {name: after[name] - before[name] for name in after}
    ttft, count, latency, finished = grown.values()
    if (count, finished) != (options.prompts, options.prompts):
        raise SystemExit(f"the engine counts {count:g} and {finished:g} requests, not {options.prompts}")
    return {
        "TTFT": ttft / count,
        "TPOT": (latency - ttft) / count / (options.tokens - 1),
        "latency": latency / count,
    }


def show_bench(medians: dict, beyond: dict) -> bool:
    """The farm against bench_serving; whether the goal is met."""
    print("\nagainst sglang.bench_serving: medians over prompts, mean of the rounds, ms")
    print(f"{'':10s}{'farm':>10s}{'as bench':>10s}{'bench':>10s}{'farm/bench':>12s}{'as bench/bench':>16s}")
    for name, ways in medians.items():
        farm, same, bench = (statistics.mean(ways[way]) for way in WAYS)
        print(
            f"{name:10s}{farm * 1e3:10.3f}{same * 1e3:10.3f}{bench * 1e3:10.3f}"
            f"{farm / bench - 1:+12.2%}{same / bench - 1:+16.2%}"
        )
    print("\nthe same without the engine's drift: means beyond the engine's own of the same turn, ms")
    print(f"{'':10s}{'farm':>10s}{'as bench':>10s}{'bench':>10s}{'farm/bench':>12s}{'as bench/bench':>16s}")
    met = True
    for name, ways in beyond.items():
        more = {way: statistics.median(extra for extra, _ in ways[way]) for way in WAYS}
        whole = statistics.median(own for way in WAYS for _, own in ways[way])
        farm, same = ((more[way] - more["bench"]) / (whole + more["bench"]) for way in ("farm", "as bench"))
        print("".join([f"{name:10s}", *(f"{more[way] * 1e3:+10.3f}" for way in WAYS), f"{farm:+12.2%}{same:+16.2%}"]))
        met &= min(abs(farm), abs(same)) <= GOAL
    return met


def show_accept_length(farm: list[Asked], bench: list[dict]) -> bool:
    """Accept lengths of the same greedy answers; whether they agree."""
    rounds = sum(one.meta.get("spec_verify_ct", 0) for one in farm)
    if not rounds:
        return True
    tokens = sum(one.tokens for one in farm)
    own = statistics.mean(one.meta["spec_accept_length"] for one in farm)
    print(f"\naccept length: farm {tokens / rounds:.4f} over tokens, {own:.4f} as the mean of the engine's per request")
    for reported in bench:
        print(f"  bench_serving {reported.get('accept_length')} (the engine's running average since its start)")
    weighted = tokens / rounds
    per_engine = tokens / sum(one.tokens / one.meta["spec_accept_length"] for one in farm)
    reported = [one["accept_length"] for one in bench if one.get("accept_length")]
    agrees = abs(weighted / per_engine - 1) <= GOAL
    if reported:
        # The average leaves each answer's first token out, which comes from prefill and belongs to no round.
        without_first = (tokens - len(farm)) / rounds
        print(f"  farm, first tokens left out: {without_first:.4f}, bench/that {reported[-1] / without_first - 1:+.2%}")
    return agrees


def show_engine(farm: list[Asked]) -> bool:
    """The farm against the engine's own account of the same requests; whether the rest is within the goal."""
    print("\nagainst the engine's meta_info of the same requests: medians, ms")
    way_in, way_out, unexplained = [], [], []
    for one in farm:
        meta = one.meta
        inwards = meta["request_received_ts"] - one.sent_ts
        # A time stamp of the server's, taken after the engine has counted its first token.
        outwards = one.sent_ts + one.ttft_s - meta["response_sent_to_client_ts"]
        way_in.append(inwards)
        way_out.append(outwards)
        unexplained.append(one.ttft_s - meta["first_token_latency"] - inwards - outwards)
    rows = {
        "TTFT": ([one.ttft_s for one in farm], [one.meta["first_token_latency"] for one in farm]),
        "latency": ([one.latency_s for one in farm], [one.meta["e2e_latency"] for one in farm]),
        "TPOT": ([one.tpot_s for one in farm], [1 / one.meta["decode_throughput"] for one in farm]),
    }
    print(f"{'':10s}{'farm':>10s}{'engine':>10s}{'difference':>12s}")
    for name, (seen, reported) in rows.items():
        a, b = statistics.median(seen), statistics.median(reported)
        print(f"{name:10s}{a * 1e3:10.3f}{b * 1e3:10.3f}{a / b - 1:+12.2%}")
    in_s, out_s, rest_s = map(statistics.median, (way_in, way_out, unexplained))
    ttft = statistics.median(rows["TTFT"][0])
    print(
        f"way in (sent until the engine's clock starts) {in_s * 1e3:.3f} ms, way out of the first token (given to the "
        f"network until read) {out_s * 1e3:.3f} ms: together {(in_s + out_s) / ttft:.1%} of TTFT; left unexplained "
        f"{rest_s * 1e3:+.3f} ms, {rest_s / ttft:+.2%}"
    )
    late_s = statistics.median(one.latency_s - one.meta["e2e_latency"] for one in farm) - in_s - out_s
    tpot = statistics.median(rows["TPOT"][0]) / statistics.median(rows["TPOT"][1]) - 1
    latency = statistics.median(rows["latency"][0])
    return abs(rest_s) / ttft <= GOAL and abs(late_s) / latency <= GOAL and abs(tpot) <= GOAL


def _line(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value * 1e3:.3f} ms" for name, value in figures.items())


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variant", default="nextn", choices=["baseline", "nextn"])
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bench-packages", type=Path, metavar="DIR", help="what bench_serving needs beside its engine")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        medians, beyond, farm, bench = measure(options, Path(folder))
    print(f"\nDEMO-MODEL on real SGLang, {options.variant}, {options.prompts} prompts, {options.tokens} tokens")
    met = [show_bench(medians, beyond), show_accept_length(farm, bench), show_engine(farm)]
    print("\nwithin 1 %, or explained to within 1 %:", "yes" if all(met) else "NO")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
