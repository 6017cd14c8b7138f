"""What the farm does with many records: journal, driver's memory, resuming, MLflow, the worker's memory.

    python tests/benchmarks/volume.py [--records 1000000] [--only journal|million|mlflow|worker] [--folder DIR]

- journal: records with text and chunk lists as an answer of 320 tokens has them, in batches as the dispatcher takes
  them, each batch on disk before the next. Also the table that is made of them.
- million: records of 250,000 items and four variants pass through the dispatcher into a journal, in a process whose
  memory is watched; then a fresh process resumes: journal, answered cells, plan. The journal stays in --folder.
- mlflow: HTTP calls to a real tracking server for a sweep of 111, of 10,011 and of 30,009 records.
- worker: resident memory of the actor that works a slot, in an emulated sweep (EMULATED) of 1,319 long prompts.

Exit status: 0 when the goals are met (2,000 records/s; driver under 1 GiB; resuming under 10 s; calls not growing with
records; worker under 250 MiB), 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import _paths  # noqa: F401
import yaml

VARIANTS = ("baseline", "humming", "humming+fp8-head", "humming+fp8-head+nextn")
BATCH = 512
TEXT = "First we need to find what is given. Each box holds 12 eggs, and there are 7 boxes, so 12 * 7 = 84. "


def make_record(variant: str, item: int, tokens: int):
    """A record as a worker sends it."""
    from farm.results.record import Record

    times, now = [], 0.3
    for _ in range(tokens):
        times.append(round(now, 6))
        now += random.uniform(0.02, 0.03)
    latency_s = times[-1]
    return Record(
        sweep_id="volume-0123456789",
        variant=variant,
        workload="gsm8k",
        item_id=f"test-{item:06d}",
        repeat=0,
        node=f"spark-{item % 8 + 1}",
        engine_id=f"spark-{item % 8 + 1}.{variant}.20260301T080000-0",
        engine_kind="sglang",
        label=None,
        started_at=datetime.now(UTC),
        sequence=item,
        prompt_sha256=f"{item:064x}",
        seed=item,
        prompt_tokens=900,
        completion_tokens=tokens,
        ttft_s=times[0],
        latency_s=latency_s,
        decode_s=latency_s - times[0],
        finish_reason="stop",
        accept_histogram=[tokens, 0, 0, 0],
        engine_latency_s=latency_s,
        engine_ttft_s=times[0],
        output_text=(TEXT * (tokens // 25 + 1))[: tokens * 4],
        answer="84",
        gold="84",
        correct=True,
        chunk_times_s=times,
        chunk_tokens=list(range(1, tokens + 1)),
    )


def resident() -> float:
    """MiB of this process that are in memory now."""
    return _status("VmRSS")


def peak() -> float:
    """MiB of this process that were in memory at most."""
    return _status("VmHWM")


def _status(name: str) -> float:
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def measure_journal() -> bool:
    """Records a second into the journal and out of it; whether the goal is met."""
    from farm.results.journal import Journal

    records = [make_record(VARIANTS[n % 4], n // 4, 320) for n in range(8192)]
    print(f"journal: {len(records)} records of 320 tokens (load {os.getloadavg()[0]:.2f})")
    rates = {}
    for batch in (BATCH, 64, 8, 1):
        requested = records if batch > 1 else records[:512]
        with tempfile.TemporaryDirectory() as folder, Journal(Path(folder)) as journal:
            wall, cpu = time.perf_counter(), time.process_time()
            for start in range(0, len(requested), batch):
                journal.add(requested[start : start + batch])
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            rates[batch] = len(requested) / wall
            print(
                f"  batches of {batch:3d}: {rates[batch]:6.0f} records/s, {cpu / len(requested) * 1e3:.3f} ms CPU each"
            )
            if batch == BATCH:
                size = sum(path.stat().st_size for path in Path(folder).iterdir())
                wall = time.perf_counter()
                journal.write_parquet(Path(folder) / "requests.parquet")
                wall = time.perf_counter() - wall
                table = (Path(folder) / "requests.parquet").stat().st_size
                size_kib, table_kib = size / len(requested) / 1024, table / len(requested) / 1024
                print(f"  {size_kib:.1f} KiB a record on disk; as a table {table_kib:.1f} KiB, ", end="")
                print(f"written at {len(requested) / wall:.0f} records/s")
    return rates[BATCH] >= 2000


def _ask(records: int):
    from farm.types import CellGrid

    return CellGrid(VARIANTS, {"gsm8k": tuple(f"test-{n:06d}" for n in range(records // 4))}, {"gsm8k": 1})


def _slots() -> list[str]:
    return [f"spark-{n + 1}" for n in range(8)]


def fill(folder: Path, records: int, tokens: int) -> None:
    """Child process: pass records through the dispatcher, and tell the memory on the way."""
    from rich.console import Console

    from farm.driver.costs import Costs
    from farm.driver.dispatch import Dispatcher
    from farm.driver.progress import Progress
    from farm.driver.prometheus import Meters
    from farm.driver.schedule import Schedule
    from farm.node.messages import Answered
    from farm.results.journal import Journal

    console = Console(file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    pool = [make_record("x", n, tokens) for n in range(64)]

    def batches() -> Iterator[list]:
        events = []
        for item in range(records // 4):
            node = f"spark-{item % 8 + 1}"
            for variant in VARIANTS:
                values = pool[item % len(pool)].to_dict() | {"variant": variant, "item_id": f"test-{item:06d}"}
                values |= {"node": node, "started_at": datetime.now(UTC)}
                events.append((node, Answered(type(pool[0])(**values), 8.0)))
                if len(events) == BATCH:
                    yield events
                    events = []
        yield events

    schedule = Schedule(_ask(records), "crossover", Costs(), {})
    progress = Progress(console, schedule.slots, schedule.costs.expected_start_s, records, 0)
    with Journal(folder) as journal, progress:
        for slot in _slots():
            schedule.joined(slot)
        meters = Meters("volume", cells=records, answered=0)
        dispatcher = Dispatcher(schedule, None, journal, progress, folder, 0.0, lambda: None, meters)
        began, taking_s, done = time.perf_counter(), 0.0, 0
        for events in batches():
            start = time.perf_counter()
            dispatcher._take(events)
            taking_s += time.perf_counter() - start
            done += len(events)
            if done % (BATCH * 200) < BATCH:
                print(f"  {done:9,d}: {resident():5.0f} MiB, {done / taking_s:6.0f} records/s taken", flush=True)
        start = time.perf_counter()
        schedule.refresh(1.0)
        print(f"  plan made anew with all answered: {time.perf_counter() - start:.1f} s")
        print(f"  {done:,} records in {time.perf_counter() - began:.0f} s, driver's peak {peak():.0f} MiB", flush=True)
    print(json.dumps({"peak": peak(), "rate": done / taking_s}))


def resume(folder: Path, records: int) -> None:
    """Child process: what a driver does before it gives its first order."""
    from farm.driver.costs import Costs
    from farm.driver.schedule import Schedule
    from farm.results.journal import Journal

    began = time.perf_counter()
    with Journal(folder) as journal:
        opened = time.perf_counter()
        answered = journal.answered()
        read = time.perf_counter()
        # A thousand cells are left.
        for cell in list(answered)[:: len(answered) // 1000]:
            del answered[cell]
        schedule = Schedule(_ask(records), "crossover", Costs(), answered)
        for slot in _slots():
            schedule.joined(slot)
        schedule.refresh(0.0)
        orders = [schedule.order(slot, 0.0) for slot in _slots()]
        planned = time.perf_counter()
    assert any(orders)
    print(
        f"  resumed: open {opened - began:.2f} s, {len(answered):,} answered cells {read - opened:.2f} s, plan "
        f"{planned - read:.2f} s; peak {peak():.0f} MiB (load {os.getloadavg()[0]:.2f})"
    )
    print(json.dumps({"seconds": planned - began, "peak": peak()}))


def measure_million(records: int, folder: Path, tokens: int) -> bool:
    """The driver's memory and the resuming; whether the goals are met."""
    print(f"\nmillion: {records:,} records of {tokens} tokens (load {os.getloadavg()[0]:.2f})", flush=True)
    journal = folder / f"journal-{records}-{tokens}"
    filled = None
    if not (journal / "journal.sqlite").exists():
        filled = _child("fill", journal, records, tokens)
        print(f"  driver: {filled['peak']:.0f} MiB at most while they pass (goal < 1024)")
    else:
        print(f"  the journal of an earlier run is used, the driver's memory not measured again: {journal}")
    size = (journal / "journal.sqlite").stat().st_size / 2**30
    resumed = _child("resume", journal, records, tokens)
    print(f"  journal of {size:.2f} GiB: resumed in {resumed['seconds']:.1f} s (goal < 10), {resumed['peak']:.0f} MiB")
    return (filled is None or filled["peak"] < 1024) and resumed["seconds"] < 10 and resumed["peak"] < 1024


def _child(step: str, folder: Path, records: int, tokens: int) -> dict:
    command = [sys.executable, __file__, "--child", step, "--records", str(records), "--tokens", str(tokens)]
    process = subprocess.Popen([*command, "--folder", str(folder)], stdout=subprocess.PIPE, text=True)
    last = ""
    for last in process.stdout:
        if not last.startswith("{"):
            print(last, end="", flush=True)
    if process.wait():
        raise SystemExit(f"{step} ended with {process.returncode}")
    return json.loads(last)


def measure_mlflow(folder: Path) -> bool:
    """HTTP calls by number of records; whether they stay the same."""
    import requests
    import tracking_sweeps
    from support import free_port

    from farm.tracking import sync

    print(f"\nmlflow: a real tracking server (load {os.getloadavg()[0]:.2f})", flush=True)
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
    port = free_port()
    place = folder / "mlflow"
    place.mkdir()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{place / 'server.db'}"]
    env = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (place / "server.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=place, env=env, stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    send, calls = requests.Session.send, []

    def counted(session: requests.Session, request: requests.PreparedRequest, **more: object) -> requests.Response:
        calls.append(len(request.body or b"") if not hasattr(request.body, "read") else 0)
        return send(session, request, **more)

    found = {}
    try:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            try:
                if requests.get(f"{url}/health", timeout=1).ok:
                    break
            except requests.RequestException:
                time.sleep(0.5)
        requests.Session.send = counted
        for items in (33, 3333, 9999):
            results = tracking_sweeps.write(folder / f"ladder-{items}", items=items)
            count = 3 * (items + 4)
            calls.clear()
            wall = time.perf_counter()
            sync(results, uri=url)
            wall = time.perf_counter() - wall
            found[count] = len(calls)
            print(
                f"  {count:6,d} records: {len(calls)} HTTP calls, {sum(calls) / 1024:.0f} KiB, {wall:.1f} s", flush=True
            )
    finally:
        requests.Session.send = send
        os.killpg(server.pid, 15)
        server.wait(20)
    # A series of up to 1,500 items is drawn whole, a longer one thinned to about as many points.
    return max(found.values()) < 1.25 * min(found.values())


def measure_worker(folder: Path) -> bool:
    """Resident memory of the worker's process in an emulated sweep; whether the goal is met."""
    import overhead

    print(f"\nworker: an emulated sweep of 1,319 prompts of 900 tokens (load {os.getloadavg()[0]:.2f})", flush=True)
    prompts = folder / "prompts.jsonl"
    rows = ({"id": str(n), "prompt": f"Question {n}. " + TEXT * 28, "answer": "84"} for n in range(1319))
    prompts.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    sweep = folder / "worker.yaml"
    content = {
        "name": "worker",
        "model": {"path": "emulated"},
        "engine": {
            "kind": "emulated",
            "device": "cpu",
            "cpus": 0.1,
            "args": {"emulation-speed": 1000, "emulation-start-speed": 4000},
        },
        "variants": [{"name": "plain"}, {"name": "nextn", "parts": ["nextn"]}],
        "workloads": {"own": {"kind": "prompts", "file": str(prompts)}},
    }
    sweep.write_text(yaml.safe_dump(content), encoding="utf-8")
    samples = overhead.run_farm(sweep, folder, folder / "requests.jsonl")
    most = max(rss for _, _, rss in samples) / 2**20
    print(f"  resident: {samples[0][2] / 2**20:.0f} MiB at first, {most:.0f} MiB at most (goal < 250)")
    return most < 250


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--tokens", type=int, default=40, help="of each of the million records; disk is what it costs")
    parser.add_argument("--folder", type=Path, help="where the million records go, and stay")
    parser.add_argument("--only", choices=["journal", "million", "mlflow", "worker"])
    parser.add_argument("--child", choices=["fill", "resume"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child == "fill":
        fill(options.folder, options.records, options.tokens)
        return 0
    if options.child == "resume":
        resume(options.folder, options.records)
        return 0
    met = True
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if options.only in (None, "journal"):
            met &= measure_journal()
        if options.only in (None, "million"):
            met &= measure_million(options.records, options.folder or folder, options.tokens)
        if options.only in (None, "mlflow"):
            met &= measure_mlflow(folder)
        if options.only in (None, "worker"):
            met &= measure_worker(folder)
    print("\ngoals met:", "yes" if met else "NO")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
