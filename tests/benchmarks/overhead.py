"""What the farm adds to a request: time between requests, processor time, and patience with many streams at once.

    python tests/benchmarks/overhead.py [--requests 300]

All engines are emulated (EMULATED), so that their own times are known. Three measurements:

- gap: from the engine finishing a request to its receiving the next, by the engine's own monotonic time stamps, at
  concurrency 1. `farm` is a whole sweep as a user runs it: `jobs/sweep.py`, a local Ray, the worker's actor, records
  streamed to the driver and made durable. `bare` is a loop over aiohttp that asks the same of the same engine and does
  nothing with the answers; it runs before and after. Both flush the prefix cache before each request, as a sweep does;
  the engine's own time for that is taken out of the gap and shown apart.
- processor time of the client at 100 tokens a second: of the farm's client alone, and of the worker's whole process.
- 64 streams at once in the farm's client: TPOT as the client saw it against the engine's schedule.

Exit status: 0 when the goals are met (gap beyond bare under 2 ms median and 5 ms p99, client under 5 % of a core, TPOT
within 1 %), 1 otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import _paths  # noqa: F401
import aiohttp
import numpy as np
import psutil
import yaml
from support import AskedEngine, sweep_command

from farm.engines.base import default_python
from farm.spec.loading import load_sweep

LOG = "FARM_EMULATION_REQUEST_LOG"
PROMPT_TOKENS = 32
TOKENS_PER_S = 100
STREAMS = 64
SKIPPED = 10  # the first requests of a run, while everything is loaded for the first time


def write_sweep(folder: Path, requests: int) -> Path:
    """A sweep of one variant and short requests."""
    path = folder / "overhead.yaml"
    content = {
        "name": "overhead",
        "model": {"path": "emulated"},
        "engine": {
            "kind": "emulated",
            "device": "cpu",
            "cpus": 0.1,
            "args": {"emulation-speed": 10, "emulation-start-speed": 4000},
        },
        "variants": [{"name": "plain"}],
        "workloads": {
            "w": {"kind": "synthetic", "requests": requests, "input_tokens": PROMPT_TOKENS, "output_tokens": 16}
        },
        "warmup_requests": 0,
    }
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def run_farm(sweep: Path, folder: Path, log: Path, *settings: str) -> list[tuple[float, float, int]]:
    """The sweep as a user runs it; samples of the worker's process: when, its processor seconds, its resident bytes."""
    env = os.environ | {
        "RAY_ADDRESS": "local",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "180",
        "FARM_HOME": str(folder / "home"),
    }
    env.pop("MLFLOW_TRACKING_URI", None)
    command = sweep_command(sweep, "--fresh", "--set", f"engine.env.{LOG}={log}", *settings)
    output = folder / "sweep.log"
    samples: list[tuple[float, float, int]] = []
    with output.open("wb") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out)
        done = threading.Event()
        watcher = threading.Thread(target=_watch, args=(env["FARM_HOME"], samples, done))
        watcher.start()
        status = process.wait()
        done.set()
        watcher.join()
    if status:
        raise SystemExit(f"the sweep ended with {status}:\n{output.read_text()[-3000:]}")
    return samples


def _watch(home: str, samples: list[tuple[float, float, int]], done: threading.Event) -> None:
    worker = None
    while not done.wait(0.5):
        if worker is None:
            worker = next((p for p in psutil.process_iter(["name"]) if _is_worker(p, home)), None)
        if worker is not None:
            try:
                cpu = worker.cpu_times()
                samples.append((time.monotonic(), cpu.user + cpu.system, worker.memory_info().rss))
            except psutil.NoSuchProcess:
                worker = None


def _is_worker(process: psutil.Process, home: str) -> bool:
    try:
        name = " ".join(process.cmdline()[:1])
        return name.startswith("ray::NodeWorker") and process.environ().get("FARM_HOME") == home
    except psutil.Error:
        return False


def run_bare(sweep: Path, folder: Path, log: Path, requests: int) -> None:
    """The same requests from a loop that does nothing else."""
    engine = start(sweep, folder, f"engine.env.{LOG}={log}")

    async def ask() -> None:
        headers = {"Authorization": f"Bearer {engine.engine.process.api_key}"}
        sampling = {"temperature": 0.0, "max_new_tokens": 16, "ignore_eos": True}
        async with aiohttp.ClientSession(engine.engine.process.url, headers=headers) as session:
            for number in range(requests):
                async with session.post("/flush_cache?timeout=10") as response:
                    await response.read()
                ids = [300 + number, *range(400, 399 + PROMPT_TOKENS)]
                body = {"input_ids": ids, "sampling_params": sampling, "stream": True}
                async with session.post("/generate", json=body) as response:
                    async for _ in response.content:
                        pass

    engine.loop.run_until_complete(ask())
    engine.stop()


def start(sweep: Path, folder: Path, *settings: str) -> AskedEngine:
    """An engine of the sweep."""
    place = Path(tempfile.mkdtemp(dir=folder))
    return AskedEngine.start(load_sweep(sweep, list(settings)), "plain", default_python(), place)


def gaps_of(log: Path, requests: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds from the end of each request to the arrival of the next without the flush between, and those of it."""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    entries = [one for one in entries if one["path"] in ("/generate", "/flush_cache")]
    entries.sort(key=lambda one: one["received_s"])
    entries = entries[-2 * requests :]  # flush and request by turns; readiness, probe and the like came before
    gaps, flushes = [], []
    for before, flush, after in zip(entries[1::2], entries[2::2], entries[3::2], strict=False):
        if (before["path"], flush["path"], after["path"]) != ("/generate", "/flush_cache", "/generate"):
            raise SystemExit("the engine was not asked flush and request by turns")
        flushes.append(flush["finished_s"] - flush["received_s"])
        gaps.append(after["received_s"] - before["finished_s"] - flushes[-1])
    return np.array(gaps[SKIPPED:]), np.array(flushes[SKIPPED:])


def measure_gap(sweep: Path, folder: Path, requests: int) -> bool:
    """Bare, farm, bare; whether the goal is met."""
    print(f"gap between requests, {requests} requests of 16 tokens, ms (load {os.getloadavg()[0]:.2f})", flush=True)
    found = {}
    for number, way in enumerate(("bare", "farm", "bare")):
        log = folder / f"{number}.jsonl"
        if way == "farm":
            samples = run_farm(sweep, folder, log)
        else:
            run_bare(sweep, folder, log, requests)
        gaps, flushes = gaps_of(log, requests)
        found.setdefault(way, []).append(gaps)
        low, high = np.percentile(gaps, [50, 99]) * 1e3
        flush = np.median(flushes) * 1e3
        print(f"  {way}: median {low:.2f}, p99 {high:.2f}, of {len(gaps)}; the engine's flush {flush:.2f}")
    beyond = [
        (np.percentile(found["farm"][0], at) - np.mean([np.percentile(one, at) for one in found["bare"]])) * 1e3
        for at in (50, 99)
    ]
    resident = max(rss for _, _, rss in samples) / 2**20
    print(f"  farm beyond bare: median {beyond[0]:+.2f} (goal < 2), p99 {beyond[1]:+.2f} (goal < 5)")
    print(f"  worker's process: {resident:.0f} MiB resident at most (goal < 250)")
    return beyond[0] < 2 and beyond[1] < 5 and resident < 250


def measure_cpu(sweep: Path, folder: Path) -> bool:
    """Processor time at 100 tokens a second; whether the goal is met."""
    engine = start(sweep, folder, "engine.args.emulation-speed=1")
    ids = list(range(400, 400 + PROMPT_TOKENS))
    step_s = 1 / engine.generate(ids, temperature=0.0, max_new_tokens=20, ignore_eos=True).meta["decode_throughput"]
    engine.stop()
    speed = step_s * TOKENS_PER_S
    engine = start(sweep, folder, f"engine.args.emulation-speed={speed:.4f}")
    wall, cpu = time.monotonic(), time.process_time()
    answer = engine.generate(ids, temperature=0.0, max_new_tokens=1000, ignore_eos=True)
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    engine.stop()
    rate = answer.completion_tokens / wall
    print(f"\nprocessor time at {rate:.0f} tokens/s (load {os.getloadavg()[0]:.2f})")
    print(f"  client: {cpu / wall:.2%} of a core (goal < 5 %), {cpu / answer.completion_tokens * 1e6:.0f} us a token")
    log = folder / "cpu.jsonl"
    samples = run_farm(
        sweep, folder, log, "--set", f"engine.args.emulation-speed={speed:.4f}",
        "--set", "workloads.w.requests=10", "--set", "workloads.w.output_tokens=200",
    )  # fmt: skip
    times = [json.loads(line) for line in log.read_text().splitlines()]
    generated = [one for one in times if one["path"] == "/generate"][-10:]
    during = [one for one in samples if generated[0]["received_s"] < one[0] < generated[-1]["finished_s"]]
    share = (during[-1][1] - during[0][1]) / (during[-1][0] - during[0][0])
    print(f"  worker's whole process, Ray included: {share:.2%} of a core")
    return cpu / wall < 0.05


def measure_streams(sweep: Path, folder: Path) -> bool:
    """64 streams at once; whether the goal is met."""
    engine = start(sweep, folder, "engine.args.emulation-speed=1", f"engine.args.max-running-requests={STREAMS}")
    sampling = {"temperature": 0.0, "max_new_tokens": 200, "ignore_eos": True}

    async def ask(count: int) -> list:
        return await asyncio.gather(
            *(engine.client.generate([300 + n, *range(400, 399 + PROMPT_TOKENS)], sampling) for n in range(count))
        )

    print("\nTPOT as the client saw it against the engine's schedule")
    worst = {}
    for count in (1, STREAMS):
        cpu, wall = time.process_time(), time.monotonic()
        answers = engine.run(ask(count))
        busy = (time.process_time() - cpu) / (time.monotonic() - wall)
        shifts = []
        for answer in answers:
            planned = answer.meta["emulation_chunk_times_s"]
            seen_s = answer.chunk_times_s[-1] - answer.chunk_times_s[0]
            shifts.append(seen_s / (planned[-1] - planned[0]) - 1)
        worst[count] = max(map(abs, shifts))
        print(
            f"  {count:2d} streams: median {np.median(shifts):+.3%}, worst {worst[count]:.3%} (goal < 1 %); client "
            f"{busy:.0%} of a core (load {os.getloadavg()[0]:.2f})"
        )
    engine.stop()
    return worst[STREAMS] < 0.01


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--only", choices=["gap", "cpu", "streams"])
    options = parser.parse_args()
    print("EMULATED engines")
    met = True
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sweep = write_sweep(folder, options.requests)
        if options.only in (None, "gap"):
            met &= measure_gap(sweep, folder, options.requests)
        if options.only in (None, "cpu"):
            met &= measure_cpu(sweep, folder)
        if options.only in (None, "streams"):
            met &= measure_streams(sweep, folder)
    print("\ngoals met:", "yes" if met else "NO")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
