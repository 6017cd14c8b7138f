"""How much of N nodes' time goes into measured requests and engine starts: the published ladder over all of GSM8K.

    python tests/benchmarks/efficiency.py --simulate 8 32 256 1024
    python tests/benchmarks/efficiency.py --run 8 --speed 20 --gsm8k FOLDER

`--simulate` runs the farm's own schedule in simulated time, with the emulated Spark's answers: what the plan loses.
`--run` runs the sweep `rehearsal` through Ray, emulated engines, journal and all, and takes figures from its results;
what the farm itself costs is multiplied by the speed there: the real loss is smaller. Its questions are those in the
folder of --gsm8k or FARM_TEST_GSM8K, else the hub's.

Efficiency = (seconds in requests + seconds of unavoidable starts) / (nodes x makespan). A start is unavoidable when it
is a node's first of a variant. Everything here is EMULATED.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import _paths  # noqa: F401
import pandas as pd
from rich.console import Console
from rich.table import Table
from simulation import Simulation

from farm.driver.costs import Costs
from farm.driver.history import SPARK_START_S
from farm.driver.schedule import Schedule
from farm.engines.emulated import published
from farm.types import CellGrid
from farm.workloads.gsm8k import Gsm8kWorkload

ROOT = Path(__file__).resolve().parents[2]
SETUPS = {
    "baseline": published.BASELINE,
    "humming": published.HUMMING,
    "humming+fp8-head": published.HUMMING_FP8,
    "humming+fp8-head+nextn": published.OPTIMISED,
}
SYNTHETIC = 8
WARM_START_S = 440.0


def answers():
    """(variant, workload, item) -> tokens and seconds of the emulated Spark's answer."""
    found = {}
    for variant, setup in SETUPS.items():
        for workload, schedules in (("gsm8k", published.gsm8k(setup)), ("synthetic", published.synthetic(setup))):
            for number, answer in enumerate(schedules):
                found[variant, workload, f"{number:04d}"] = (len(answer.ids), answer.latency_s)
    return found


def simulate(nodes, known):
    """One sweep in simulated time on a number of nodes."""
    # Neighbours in the list of answers are alike in length; questions of a data set are not.
    items = sorted({item for _, workload, item in known if workload == "gsm8k"}, key=lambda item: hash_of(item))
    grid = CellGrid(tuple(SETUPS), {"gsm8k": tuple(items), "synthetic": tuple(f"{n:04d}" for n in range(SYNTHETIC))},
              {"gsm8k": 1, "synthetic": 1})  # fmt: skip
    costs = Costs(
        tokens={("synthetic", f"{n:04d}"): 2048.0 for n in range(SYNTHETIC)},
        prior_cell_s={"gsm8k": Gsm8kWorkload.published_answer_s, "synthetic": 66.7},
        prior_start_s=SPARK_START_S,
    )
    made = Schedule(grid, "crossover", costs, {})
    slots = [f"spark-{n:04d}" for n in range(nodes)]
    return Simulation(
        made, lambda cell: known[cell.variant, cell.workload, cell.item_id], slots=slots, start_s=WARM_START_S
    ).run(), made


def hash_of(item):
    """A fixed shuffle."""
    return hashlib.sha256(item.encode()).digest()


def simulated(counts, console):
    """The table of `--simulate`."""
    known = answers()
    longest_s = max(seconds for _, seconds in known.values())
    table = Table("nodes", "makespan h", "efficiency %", "starts", "in requests %", "in starts %", "waiting %",
                  "moved cells %", "predicted end at 10 %, error %")  # fmt: skip
    for nodes in counts:
        done, made = simulate(nodes, known)
        whole_s = nodes * done.end_s
        owner = {}
        for cell, slot in made.answered.items():
            owner.setdefault((cell.workload, cell.item_id), []).append(slot)
        moved = sum(len(slots) - max(map(slots.count, slots)) for slots in owner.values())
        _, tenth_s = done.predictions[len(done.predictions) // 10]
        table.add_row(
            f"{nodes}", f"{done.end_s / 3600:.2f}", f"{100 * done.efficiency:.1f}", f"{done.starts}",
            f"{100 * done.cells_s / whole_s:.1f}", f"{100 * done.starts_s / whole_s:.1f}",
            f"{100 * (1 - done.efficiency):.1f}", f"{100 * moved / len(made.answered):.1f}",
            f"{100 * (tenth_s / done.end_s - 1):+.1f}",
        )  # fmt: skip
    console.print("EMULATED, simulated time: the schedule alone")
    console.print(table)
    console.print(f"the longest single answer takes {longest_s:.0f} s, one start {WARM_START_S:.0f} s", highlight=False)


def run(nodes, speed, gsm8k, console):
    """One sweep through the whole farm on this machine."""
    command = [sys.executable, str(ROOT / "jobs" / "sweep.py"), "rehearsal", "--fresh",
               "--set", f"engine.slots_per_node={nodes}", "--set", f"engine.cpus={1.0 / nodes}",
               "--set", f"engine.args.emulation-speed={speed}",
               # The streams of dozens of engines would take all of a few cores.
               "--set", "engine.args.emulation-chunk-gap-ms=20",
               "--set", f"workloads.gsm8k.source={gsm8k}"]  # fmt: skip
    began = datetime.now().astimezone()
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout[-3000:])
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    folder = Path(re.search(r"already answered, in (.*)", done.stdout)[1].strip())
    records = pd.read_parquet(folder / "requests.parquet")
    engines = [e for e in json.loads((folder / "engines.json").read_text()) if e["status"] in ("stopped", "started")]
    first = min(datetime.fromisoformat(engine["started_at"]) for engine in engines)
    ends = records["started_at"] + pd.to_timedelta(records["latency_s"] / speed, unit="s")
    makespan_s = (ends.max() - first).total_seconds() * speed
    unique = {(engine["node"], engine["variant"]): engine["start_s"] for engine in engines}
    useful_s = records["latency_s"].sum() + sum(unique.values())
    table = Table("nodes", "speed", "makespan h", "efficiency %", "starts", "in requests %", "in starts %",
                  "moved cells %", "real s")  # fmt: skip
    table.add_row(
        f"{nodes}", f"{speed:g}", f"{makespan_s / 3600:.2f}", f"{100 * useful_s / (nodes * makespan_s):.1f}",
        f"{len(engines)}", f"{100 * records['latency_s'].sum() / (nodes * makespan_s):.1f}",
        f"{100 * sum(unique.values()) / (nodes * makespan_s):.1f}", f"{100 * records['moved'].mean():.1f}",
        f"{makespan_s / speed:.0f}",
    )  # fmt: skip
    console.print("EMULATED, real time x speed: the whole farm on one machine")
    console.print(table)
    tell_prediction(done.stdout, began, ends.max(), len(records), console)


def tell_prediction(said, began, end, total, console):
    """The first expected end that was shown after a tenth of the cells, against the real one."""
    for answered, shown in re.findall(r"(\d+) / \d+ cells answered, .*expected end ([\d: -]+)", said):
        if int(answered) >= total / 10:
            predicted = datetime.fromisoformat(shown.strip()).astimezone()
            took_s = (end - began).total_seconds()
            error = ((predicted - began).total_seconds() / took_s - 1) * 100
            console.print(f"at {answered} of {total} cells the end was predicted with an error of {error:+.1f} %")
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulate", type=int, nargs="*", default=[], metavar="NODES")
    parser.add_argument("--run", type=int, metavar="NODES")
    parser.add_argument("--speed", type=float, default=20)
    parser.add_argument("--gsm8k", default=os.environ.get("FARM_TEST_GSM8K") or "openai/gsm8k", metavar="FOLDER")
    arguments = parser.parse_args()
    console = Console(width=140)
    if arguments.simulate:
        simulated(arguments.simulate, console)
    if arguments.run:
        run(arguments.run, arguments.speed, arguments.gsm8k, console)


if __name__ == "__main__":
    main()
