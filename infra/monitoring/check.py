"""Ask Prometheus every query of the dashboard, and say which have no data.

    python infra/monitoring/check.py [--prometheus URL] [--sweep SWEEP_ID] [--while PID]

While a sweep runs (or shortly after), every query should be answered. Exit status 1 when one is not. Queries about GPUs
are left out where no engine of the sweep has one.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

Answer = list[tuple[dict[str, str], float]]  # labels and a finite value

GPU = "ray_farm_gpu_"
DASHBOARD = Path(__file__).with_name("dashboard.json")


class Query(NamedTuple):
    """One query of a panel, its variables filled in."""

    panel: str
    expression: str


def expressions(dashboard: dict[str, Any]) -> Iterator[Query]:
    """Every query of the dashboard, as written there."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield Query(panel["title"], target["expr"])


def filled(queries: list[Query], sweep: str, nodes: list[str], span: str) -> list[Query]:
    """The queries as Grafana would send them; those of a node's row once for each node."""
    result = []
    for query in queries:
        text = query.expression.replace("$sweep", sweep).replace("$span", span)
        if "$node" in text:
            title = query.panel.replace("$node", "{}")
            result += [Query(title.format(node), text.replace("$node", node)) for node in nodes]
        else:
            result.append(Query(query.panel, text))
    return result


def values(prometheus: str, expression: str) -> Answer:
    """What Prometheus answers now."""
    url = f"{prometheus.rstrip('/')}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    with urllib.request.urlopen(url, timeout=10) as reply:  # noqa: S310  (the address is the user's own)
        answer = json.load(reply)
    found = [(entry["metric"], float(entry["value"][1])) for entry in answer["data"]["result"]]
    return [(labels, value) for labels, value in found if math.isfinite(value)]


def newest_sweep(prometheus: str) -> str | None:
    """The sweep that Prometheus heard of last."""
    found = values(prometheus, "timestamp(ray_farm_cells)")
    return max(found, key=lambda pair: pair[1])[0]["sweep"] if found else None


def main() -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Ask Prometheus every query of the farm's dashboard.")
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", metavar="URL")
    parser.add_argument("--sweep", metavar="SWEEP_ID", help="default: the newest that Prometheus knows")
    parser.add_argument("--while", type=int, dest="pid", metavar="PID", help="try again as long as this process runs")
    parser.add_argument("--span", default="15m", help="the dashboard's 'averaged over' (default: 15m)")
    arguments = parser.parse_args()
    queries = list(expressions(json.loads(DASHBOARD.read_text(encoding="utf-8"))))
    sweep, nodes = arguments.sweep, set[str]()
    # What was answered once is answered: an engine's numbers go with the engine.
    answered: dict[Query, Answer] = {}
    while True:
        last_try = not _runs(arguments.pid)
        sweep = sweep or newest_sweep(arguments.prometheus)
        nodes |= {
            labels["node"] for labels, _ in values(arguments.prometheus, f'ray_farm_engine_state{{sweep="{sweep}"}}')
        }
        wanted = filled(queries, sweep or "none", sorted(nodes), arguments.span)
        for query in wanted:
            if found := values(arguments.prometheus, query.expression):
                answered[query] = found
        if not any(GPU in query.expression for query in answered):
            wanted = [query for query in wanted if GPU not in query.expression]
        empty = [query for query in wanted if query not in answered]
        if (nodes and not empty) or last_try:
            break
        time.sleep(3)
    for query in wanted:
        shown = ", ".join(_shown(labels, value) for labels, value in answered.get(query, ())) or "NO DATA"
        print(f"{query.panel}: {shown}")
    if not any(GPU in query.expression for query in wanted):
        print("no GPU was read: the panels about GPUs are empty")
    print(
        f"{len(wanted) - len(empty)} of {len(wanted)} queries answered, sweep {sweep}, nodes {', '.join(sorted(nodes))}"
    )
    return 0 if nodes and not empty else 1


def _runs(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        # A child that ended and is not waited for still has its number.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _shown(labels: dict[str, str], value: float) -> str:
    names = " ".join(text for name, text in sorted(labels.items()) if not name.startswith("__"))
    return f"{names} {value:.4g}".strip()


if __name__ == "__main__":
    sys.exit(main())
