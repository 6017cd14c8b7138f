"""Where the records of a sweep are found: a folder, the farm's results, or a tracking server."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pandas as pd

from farm.errors import InputError
from farm.paths import farm_home, results_root
from farm.results.folder import SHARED, ResultsFolder, begins, find
from farm.results.summary import EngineSummary, SweepSummary

if TYPE_CHECKING:
    from mlflow import MlflowClient

_HEAVY: Final = ("chunk_times_s", "chunk_tokens", "output_text")
_TRACKING_TIMEOUT_S: Final = 10


@dataclass(frozen=True)
class Results:
    """A sweep's table and what lies beside it; texts stay in the file until `texts` asks for some."""

    folder: Path
    records: pd.DataFrame
    sweep: SweepSummary | None
    engines: Sequence[EngineSummary]
    items: pd.DataFrame | None

    def texts(self, item_ids: Iterable[str]) -> pd.DataFrame:
        """The output texts of a few items: workload, variant, item_id, repeat, output_text."""
        found: pd.DataFrame = ResultsFolder(self.folder).texts(item_ids).to_pandas()
        return found


def load(folder: Path) -> Results:
    """Read a results folder; only the records are required."""
    results = ResultsFolder(folder)
    table = results.records(without=_HEAVY)
    first = results.first_chunk_tokens()
    records = (table if first is None else table.append_column("first_chunk_tokens", first)).to_pandas()
    items, sweep, engines = results.items(), results.sweep(), results.engines()
    return Results(
        folder=folder,
        records=records,
        sweep=sweep,
        engines=engines or (),
        items=None if items is None else items.to_pandas(),
    )


def local_folder(sweep_id: str | None) -> Path | None:
    """The folder of a sweep under the farm's results: by id or unique prefix, the newest without one."""
    found = find(results_root(), sweep_id)
    return None if found is None else found.path


def default_tracking_uri() -> str | None:
    """The server the sweeps are logged to: the environment's, else the farm's own database where there is one."""
    own = farm_home() / "mlflow.db"
    return os.environ.get("MLFLOW_TRACKING_URI") or (f"sqlite:///{own}" if own.is_file() else None)


def download(sweep_id: str | None, uri: str, into: Path) -> Path:
    """Fetch the artifacts of a sweep's parent run from MLflow."""
    _refuse_expressions(sweep_id)
    _refuse_absent_database(uri)
    # The client's defaults retry for minutes; a server that is not there should be said within seconds.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(_TRACKING_TIMEOUT_S))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    import mlflow
    from mlflow.exceptions import MlflowException

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    try:
        client = mlflow.MlflowClient(uri)
        run = _parent_run(client, sweep_id)
        if run is None:
            raise InputError(f"{uri} knows no sweep {sweep_id or ''}".rstrip() + "; nor does this machine.")
        listed = {one.path for one in client.list_artifacts(run)}
        for name in SHARED:
            if name in listed:
                client.download_artifacts(run, name, str(into))
    except (MlflowException, OSError) as error:
        raise InputError(f"The tracking server {uri} cannot be used: {_first_line(error)}.") from error
    return into


def _parent_run(client: MlflowClient, sweep_id: str | None) -> str | None:
    experiments = [one.experiment_id for one in client.search_experiments()]
    wanted = f"tags.`farm.sweep_id` LIKE '{sweep_id}%'" if sweep_id else "tags.`farm.sweep_id` LIKE '%'"
    runs = client.search_runs(experiments, filter_string=wanted, order_by=["attributes.start_time DESC"])
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    if sweep_id:
        named = [run for run in parents if run.data.tags["farm.sweep_id"] == sweep_id]
        parents = named or [run for run in parents if begins(run.data.tags["farm.sweep_id"], sweep_id)]
    ids = {run.data.tags["farm.sweep_id"] for run in parents}
    if sweep_id and len(ids) > 1:
        raise InputError(f"{sweep_id} fits several sweeps: {', '.join(sorted(ids))}.")
    return str(parents[0].info.run_id) if parents else None


def _refuse_expressions(sweep_id: str | None) -> None:
    """The id becomes part of a filter expression."""
    if sweep_id and not all(letter.isalnum() or letter in "-_." for letter in sweep_id):
        raise InputError(f"{sweep_id!r} is no sweep id: it has letters, digits, '-', '_' and '.' only.")


def _refuse_absent_database(uri: str) -> None:
    """MLflow would create it, and then know no sweep."""
    path = uri.removeprefix("sqlite:///")
    if path != uri and not Path(path).is_file():
        raise InputError(f"The tracking server {uri} cannot be used: there is no file {path}.")


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")[:300]
