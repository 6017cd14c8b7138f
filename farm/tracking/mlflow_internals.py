"""What the farm knows of MLflow beyond its documented interface, in one place. Tried with MLflow 3; with another one
the sweep is logged all the same, and only what stands here is left out.

- The runs table as a reader wants it: the variants of one sweep, with the columns that decide. MLflow keeps a shared
  view as a tag of the experiment, and shows it for a link that names its key. Left to itself, the table shows sweeps
  folded, without any figure.
- Where MLflow writes the artifacts of the `Default` experiment that it puts into every new database.
"""

from __future__ import annotations

import base64
import json
import zlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final
from urllib.parse import quote

_TRIED_MAJOR: Final = "3"
_COLUMNS: Final = (
    "speed/decode_tokens_per_s",
    "vs_baseline/throughput_ratio",
    "speed/tpot_ms",
    "speed/latency_s.mean",
    "speculation/accept_length",
    "accuracy/accuracy",
    "vs_baseline/accuracy_difference_pp",
)


def view_tag(sweep_id: str) -> dict[str, str]:
    """The tag of the experiment that holds a sweep's view; none for an MLflow that may read it in another way."""
    if not _is_tried():
        return {}
    columns = [f"metrics.`{name}`" for name in _COLUMNS]
    state = {
        "searchFilter": _filter(sweep_id),
        # Sorted by anything but time, the UI shows runs flat instead of folded under their parents.
        "orderByKey": "params.`workload`",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": columns,
        "columnOrder": columns,
    }
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    return {f"mlflow.sharedViewState.{sweep_id}": f"deflate;{packed}"}


def view_link(experiment_id: str, sweep_id: str) -> str:
    """The link to it, relative to any page of the UI; without a view, to the same runs in MLflow's own columns."""
    wanted = f"viewStateShareKey={quote(sweep_id)}" if _is_tried() else f"searchFilter={quote(_filter(sweep_id))}"
    return f"#/experiments/{experiment_id}/runs?{wanted}"


def default_artifacts(root: Path) -> dict[str, str]:
    """Environment under which a new database's `Default` experiment keeps its artifacts below `root`. An MLflow that
    does not heed it notes a folder of the working directory there, and writes nothing into it."""
    return {"_MLFLOW_SERVER_ARTIFACT_ROOT": str(root)}


def _filter(sweep_id: str) -> str:
    return f"tags.farm.sweep_id = '{sweep_id}' AND tags.farm.role = 'variant'"


def _is_tried() -> bool:
    try:
        return version("mlflow").partition(".")[0] == _TRIED_MAJOR
    except PackageNotFoundError:
        return False
