"""A soak: many thousand emulated requests over 8 engine slots while engines and drivers fail at random.

    python tests/benchmarks/soak.py [--requests 50000] [--slots 8] [--kills 4] [--seed 1] [--keep DIR]

A Ray cluster of its own runs the sweep job as a user would. Every launch of an engine gets a fault of its own (crash,
hang, broken, malformed or impossible stream, errors) that strikes after some hundred requests; the driver is killed or
interrupted a few times and the sweep submitted again. In the end nothing may be lost, nothing answered twice, no answer
different from its repeats, and no process, port or file left behind. Prints a table; the exit status is 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import _paths  # noqa: F401
import pandas as pd
import psutil
import yaml
from support import Cluster, free_port, sweep_command

CELL = ["variant", "workload", "item_id", "repeat"]
VARIANTS = ["baseline", "humming+nextn"]
REPEATS = 10
FAULTS = ("crash", "hang", "truncate", "malformed", "impossible_counts", "error")
LAUNCHES = 60  # per slot and driver; later ones have no fault
RESULTS = {"journal.sqlite", "lock", "requests.parquet", "items.parquet", "sweep.json", "engines.json", "engines"}


def sweep_of(requests: int, slots: int, seed: int) -> dict:
    """The sweep and the faults of its launches."""
    rng = random.Random(seed)
    faults = [
        {f"{rng.choice(FAULTS)}_after": rng.randint(50, 600), "launches": [launch], "grandchild": rng.random() < 0.3}
        for launch in range(LAUNCHES)
    ]
    return {
        "name": "soak",
        "model": {"path": "inclusionAI/Ling-3.0-flash-fp4"},
        "engine": {
            "kind": "emulated",
            "slots_per_node": slots,
            "cpus": 0.1,
            "args": {"emulation-speed": 20_000},
            "env": {"FARM_EMULATION_FAULTS": json.dumps(faults)},
            "stall_timeout_s": 2,
            "start_timeout_s": 300,
        },
        "variants": VARIANTS,
        "workloads": {
            "short": {
                "kind": "synthetic",
                "requests": -(-requests // (len(VARIANTS) * REPEATS)),
                "repeats": REPEATS,
                "input_tokens": 16,
                "output_tokens": 24,
                "prefix_cache": "keep",
            }
        },
        "warmup_requests": 0,
    }


def start_cluster(home: Path) -> tuple[Cluster, subprocess.Popen]:
    """One raylet, whose workers keep their files in `home`."""
    port, dashboard = free_port(), free_port()
    env = os.environ | {
        "FARM_HOME": str(home),
        "MLFLOW_TRACKING_URI": "",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_ADDRESS": f"127.0.0.1:{port}",
    }
    cluster = Cluster(env, f"127.0.0.1:{port}", f"http://127.0.0.1:{dashboard}")
    head = cluster.start_head("soak", port, dashboard)
    cluster.wait_for(["soak"])
    return cluster, head


def answered(home: Path) -> int:
    """Answers in the journal so far."""
    for journal in home.glob("results/*/journal.sqlite"):
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as db:
            return int(db.execute("SELECT count(*) FROM record WHERE NOT failed").fetchone()[0])
    return 0


def engine_processes(home: Path) -> list[psutil.Process]:
    """All that engines of this soak have started."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if str(home) in process.environ().get("FARM_EVIDENCE_DIR", ""):
                found.append(process)
    return found


def ports_of(processes: list[psutil.Process]) -> set[int]:
    """The ports that engines were told to listen on."""
    ports = set()
    for process in processes:
        with suppress(psutil.Error, ValueError, IndexError):
            command = process.cmdline()
            ports.add(int(command[command.index("--port") + 1]))
    return ports


def soak(home: Path, arguments: argparse.Namespace) -> tuple[dict, set[int]]:
    """Run the sweep to its end in spite of everything; returns what was done to it, and the ports that were used."""
    rng = random.Random(arguments.seed)
    sweep = home / "soak.yaml"
    sweep.write_text(yaml.safe_dump(sweep_of(arguments.requests, arguments.slots, arguments.seed)))
    kills = sorted(rng.uniform(0.1, 0.9) * arguments.requests for _ in range(arguments.kills))
    cluster, head = start_cluster(home)
    ports: set[int] = set()
    statuses = []
    peak_mib = 0.0
    try:
        while True:
            with (home / "driver.log").open("ab") as log:
                driver = subprocess.Popen(sweep_command(sweep), env=cluster.env, stdout=log, stderr=log)
            while driver.poll() is None:
                time.sleep(0.5)
                ports |= ports_of(engine_processes(home))
                with suppress(psutil.Error):
                    peak_mib = max(peak_mib, psutil.Process(driver.pid).memory_info().rss / 2**20)
                if kills and answered(home) >= kills[0]:
                    kills.pop(0)
                    driver.send_signal(rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT]))
                    driver.wait()
            statuses.append(driver.returncode)
            print(f"driver {len(statuses)} ended with {driver.returncode}", flush=True)
            if driver.returncode not in (-signal.SIGKILL, 3) or len(statuses) > arguments.kills + 5:
                break
        ended = time.monotonic()
        while engine_processes(home) and time.monotonic() < ended + 60:
            time.sleep(0.5)
        return {"drivers": statuses, "driver_mib": peak_mib, "processes": engine_processes(home)}, ports
    finally:
        head.terminate()
        head.wait(60)


def judge(home: Path, done: dict, ports: set[int], arguments: argparse.Namespace) -> list[tuple[str, str, bool]]:
    """What was found, and whether it is as it must be."""
    (folder,) = (home / "results").iterdir()
    table = pd.read_parquet(folder / "requests.parquet")
    engines = json.loads((folder / "engines.json").read_text())
    items = -(-arguments.requests // (len(VARIANTS) * REPEATS))
    wanted = {(v, "short", f"synthetic-{i:04d}", r) for v in VARIANTS for i in range(items) for r in range(REPEATS)}
    cells = Counter(table[CELL].itertuples(index=False, name=None))
    answers = table.groupby("item_id")[["output_text", "completion_tokens", "prompt_sha256"]].nunique()
    open_ports = [port for port in ports if not _free(port)]
    odd = sorted({path.name for path in folder.iterdir()} - RESULTS)
    odd += [path.name for path in home.rglob("*") if path.suffix in (".partial", ".masked")]
    odd += [
        path.name
        for path in Path(tempfile.gettempdir()).glob("farm-tracking-*")
        if path.stat().st_mtime > done["began"]
    ]
    statuses = Counter(engine["status"] for engine in engines)
    attempts = Counter(int(count) for count in table["attempts"])
    return [
        ("requests answered", f"{len(table):,} of {len(wanted):,}", len(table) == len(wanted)),
        ("cells lost", str(len(wanted - set(cells))), not wanted - set(cells)),
        ("cells not asked for", str(len(set(cells) - wanted)), not set(cells) - wanted),
        ("cells answered twice", str(sum(count > 1 for count in cells.values())), max(cells.values()) == 1),
        ("error records", str(int(table["error"].notna().sum())), bool(table["error"].isna().all())),
        ("items whose answers differ", str(int((answers > 1).any(axis=1).sum())), bool((answers == 1).all().all())),
        ("answers by attempts", str(dict(sorted(attempts.items()))), sum(attempts.values()) == len(table)),
        ("slots", str(table["node"].nunique()), table["node"].nunique() == arguments.slots),
        ("engine starts", f"{len(engines)} ({dict(statuses)})", len(engines) >= arguments.slots * len(VARIANTS)),
        ("drivers ended with", str(done["drivers"]), done["drivers"][-1] == 0),
        ("driver's memory at most", f"{done['driver_mib']:.0f} MiB", done["driver_mib"] < 2048),
        ("processes left", str(len(done["processes"])), not done["processes"]),
        ("ports used, still taken", f"{len(ports)}, {len(open_ports)}", bool(ports) and not open_ports),
        ("files left that no one wants", ", ".join(odd) or "none", not odd),
        ("wall time", f"{done['wall_s']:.0f} s, {len(table) / done['wall_s']:.0f} requests/s", True),
    ]


def _free(port: int) -> bool:
    """Nobody listens on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def main() -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--kills", type=int, default=4, help="how often the driver is killed or interrupted")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="leave everything in this folder (default: a temporary one)")
    arguments = parser.parse_args()
    home = (arguments.keep or Path(tempfile.mkdtemp(prefix="soak-"))).absolute()
    home.mkdir(parents=True, exist_ok=True)
    began, started = time.time(), time.monotonic()
    done, ports = soak(home, arguments)
    done |= {"wall_s": time.monotonic() - started, "began": began}
    found = judge(home, done, ports, arguments)
    width = max(len(name) for name, _, _ in found)
    for name, value, good in found:
        print(f"{name:<{width}}  {value}{'' if good else '  <-- WRONG'}")
    good = all(good for _, _, good in found)
    print("the soak holds" if good else f"the soak FAILED; see {home}")
    if good and arguments.keep is None:
        shutil.rmtree(home)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
