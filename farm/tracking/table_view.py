"""The runs table as a reader wants it: the variants of one sweep, with the columns that decide.

MLflow keeps a shared view as a tag of the experiment, and shows it for a link that names its key. Left to itself, the
table shows the sweeps folded, without any figure.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Final
from urllib.parse import quote

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
    """The tag of the experiment that holds a sweep's view."""
    columns = [f"metrics.`{name}`" for name in _COLUMNS]
    state = {
        "searchFilter": f"tags.farm.sweep_id = '{sweep_id}' AND tags.farm.role = 'variant'",
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
    """The link to it, relative to any page of the UI."""
    return f"#/experiments/{experiment_id}/runs?viewStateShareKey={quote(sweep_id)}"
