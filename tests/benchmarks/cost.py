"""What a comparison costs: seconds and memory by number of records, as the command is run by a user.

    python tests/benchmarks/cost.py [--most 1000000]

Each size is a four-variant sweep over 1,319 items or more, written as Parquet with texts, chunk times and accepted
drafts, and compared in a fresh process.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _paths  # noqa: F401
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from compare_sweeps import LADDER, Truth, as_parquet_table, sweep

TRUTHS = {
    LADDER[0]: Truth(),
    LADDER[1]: Truth(step_s=0.0243),
    LADDER[2]: Truth(step_s=0.0218),
    LADDER[3]: Truth(step_s=0.0218, accept_length=2.68, round_cost=2.2),
}


def write(folder: Path, items: int) -> int:
    """Write a sweep of this many items and tell its number of records."""
    records = sweep(TRUTHS, items, nodes=4)
    rounds = records["verify_rounds"].to_numpy()
    records["accept_histogram"] = pd.Series([[int(count) // 4] * 4 if count > 0 else None for count in rounds])
    table = as_parquet_table(records)
    chunks = pa.array([[0.1, 0.2, 0.3, 0.4]] * len(records), pa.list_(pa.float64()))
    pq.write_table(table.append_column("chunk_times_s", chunks), folder / "requests.parquet")
    return len(records)


def measure(folder: Path, output: str) -> float:
    """Run the command, print what it took, and give its CPU seconds."""
    before = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "farm.compare",
        "--results",
        str(folder),
        "--format",
        output,
        "--output",
        os.devnull,
    ]
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    cpu = usage.ru_utime + usage.ru_stime
    wall, memory = time.perf_counter() - before, usage.ru_maxrss / 2**20
    print(f"    {output:6s} {wall:7.1f} s wall {cpu:7.1f} s CPU {memory:5.2f} GiB", flush=True)
    return cpu


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1_000_000)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    sizes = [1319, *(size // 4 for size in (100_000, 300_000, 1_000_000) if size <= options.most)]
    seen = []
    for items in sizes:
        with tempfile.TemporaryDirectory() as scratch:
            count = write(Path(scratch), items)
            print(f"{count:,} records", flush=True)
            seen.append((count, measure(Path(scratch), "table")))
            measure(Path(scratch), "html")
    (count, cpu), (last, last_cpu) = seen[-2:]
    growth = math.log(last_cpu / cpu) / math.log(last * math.log(last) / (count * math.log(count)))
    print(f"CPU seconds grow as (n log n) to the power {growth:.2f} between the two largest sizes")


if __name__ == "__main__":
    main()
