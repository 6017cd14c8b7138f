"""Hold an MLflow server against the results of a sweep that was synced into it: nothing may be missing or open.

    python infra/mlflow/check.py RESULTS_FOLDER

MLFLOW_TRACKING_URI names the server, MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD a user who may read.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from mlflow.tracking import MlflowClient


def status_of(uri: str, headers: Mapping[str, str]) -> int:
    """The HTTP status of a search for experiments, asked with these headers and nothing else."""
    request = urllib.request.Request(  # noqa: S310  (the address is the user's own)
        f"{uri}/api/2.0/mlflow/experiments/search",
        data=b'{"max_results": 1}',
        headers={"Content-Type": "application/json", **headers},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:  # noqa: S310
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def main() -> int:
    """Run the command line; returns the exit status."""
    folder = Path(sys.argv[1])
    uri = os.environ["MLFLOW_TRACKING_URI"].rstrip("/")
    sweep = json.loads((folder / "sweep.json").read_text(encoding="utf-8"))
    records = pd.read_parquet(folder / "requests.parquet")
    problems: list[str] = []

    def expect(what: str, seen: object, wanted: object) -> None:
        print(f"{what}: {seen}" + ("" if seen == wanted else f", wanted {wanted}"))
        if seen != wanted:
            problems.append(what)

    expect("HTTP status without a password", status_of(uri, {}), 401)
    expect("HTTP status under a foreign host name", status_of(uri, {"Host": "elsewhere.example"}), 403)

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(sweep["name"])
    assert experiment is not None, f"no experiment {sweep['name']}"
    runs = client.search_runs([experiment.experiment_id], f"tags.`farm.sweep_id` = '{folder.name}'")
    pairs = records[["variant", "workload"]].drop_duplicates()
    expect("runs", len(runs), 1 + len(pairs))
    expect("status of the runs", sorted({run.info.status for run in runs}), ["FINISHED"])
    expect("kind of artifact store", {run.info.artifact_uri.partition(":")[0] for run in runs}, {"mlflow-artifacts"})
    answers = 0
    with tempfile.TemporaryDirectory() as place:
        for run in runs:
            files = Path(client.download_artifacts(run.info.run_id, "", place))
            found = [path for path in files.rglob("*") if path.is_file()]
            print(f"{run.info.run_name}: {len(run.data.metrics)} metrics, {len(run.data.params)} parameters, "
                  f"{len(found)} artifacts of {sum(path.stat().st_size for path in found):,} bytes")  # fmt: skip
            expect(f"{run.info.run_name} has artifacts", bool(found), True)
            if run.data.tags["farm.role"] == "sweep":
                expect(
                    "records read back from the artifacts",
                    len(pd.read_parquet(files / "requests.parquet")),
                    len(records),
                )
            else:
                answers += len(json.loads((files / "answers.json").read_text(encoding="utf-8"))["data"])
            for path in found:
                path.unlink()
    expect("answers read back from the artifacts", answers, len(records))
    if problems:
        print(f"error: {'; '.join(problems)}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
