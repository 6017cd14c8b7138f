"""MLflow behind a small face: explicit run ids, bounded waiting, and one kind of error that says what to do.

The client is used and never the fluent API, so that a caller's own active run and tracking URI stay as they are.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from farm.errors import TrackingError
from farm.paths import farm_home
from farm.redaction import masked_text
from farm.tracking.entries import Point
from farm.tracking.mlflow_internals import default_artifacts

P = ParamSpec("P")
T = TypeVar("T")

_DATABASE: Final = re.compile(r"(sqlite|postgresql|mysql|mssql)(\+\w+)?:")

# What one `log_batch` takes.
_METRICS_PER_CALL: Final = 1000
_PAIRS_PER_CALL: Final = 100
_RUNS_PER_PAGE: Final = 1000
# A database that others write to answers "locked" at once or after its own 20 s; calls are repeated this long.
_LOCKED_S: Final = 15.0

# MLflow's own limits add up to minutes in front of a server that is not there. A user's setting wins over these.
_LIMITS: Final = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
    # A sweep reports to the user's MLflow and to nobody else.
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
# The first call finds out whether there is a server at all.
_FIRST_CALL_LIMITS: Final = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "6"}


def tracking_uri(uri: str | None) -> str:
    """Where to log: as asked, as `MLFLOW_TRACKING_URI` says, or a database of the farm's own."""
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{farm_home() / 'mlflow.db'}"


def shown_uri(uri: str) -> str:
    """A tracking URI without its credentials."""
    return masked_text(uri)


@contextmanager
def connected(uri: str) -> Iterator[Store]:
    """MLflow at `uri`. What goes wrong inside is a `TrackingError` that names the cause in a line."""
    with _settings(uri) as relax:
        # Imported here because it takes seconds; it reads the limits, and sets up the logging that is hushed next.
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        with _quiet():
            try:
                _check_database(uri)
                store = Store(MlflowClient(tracking_uri=uri), uri)
                store.check()
                relax()
            except Exception as error:
                raise TrackingError(f"MLflow at {shown_uri(uri)} cannot be reached: {_in_a_line(error)}") from error
            try:
                yield store
            except (MlflowException, OSError) as error:
                raise TrackingError(
                    f"MLflow at {shown_uri(uri)} did not take the results: {_in_a_line(error)}"
                ) from error


class Store:
    """An MLflow client whose writes can be repeated without doing harm."""

    def __init__(self, client: Any, uri: str) -> None:
        self._client = client
        self._uri = uri

    def check(self) -> None:
        """One small request, for its errors."""
        self._call(self._client.search_experiments, max_results=1)

    def experiment(self, name: str, tags: Mapping[str, str]) -> str:
        """The id of an experiment, created when it is not there yet."""
        found = self._call(self._client.get_experiment_by_name, name)
        if found is None:
            from mlflow.exceptions import MlflowException

            try:
                return str(self._call(self._client.create_experiment, name, self._artifacts(name), dict(tags)))
            except MlflowException:
                # Another driver may have created it just now.
                found = self._call(self._client.get_experiment_by_name, name)
                if found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise TrackingError(
                f"MLflow's experiment '{name}' was deleted: restore it with `mlflow experiments restore "
                f"--experiment-id {found.experiment_id}`, or remove it for good with `mlflow gc`"
            )
        for tag, value in tags.items():
            if tag not in found.tags:
                self._call(self._client.set_experiment_tag, found.experiment_id, tag, value)
        return str(found.experiment_id)

    def runs(self, experiment_id: str, tag: str, value: str) -> list[Any]:
        """All runs of an experiment with this tag, the oldest first."""
        found: list[Any] = []
        token: str | None = None
        while True:
            page = self._call(
                self._client.search_runs,
                [experiment_id],
                f"tags.`{tag}` = '{value}'",
                max_results=_RUNS_PER_PAGE,
                order_by=["attributes.start_time ASC"],
                page_token=token,
            )
            found += page
            token = page.token
            if not token:
                return found

    def create_run(self, experiment_id: str, name: str, started_ms: int, tags: Mapping[str, str]) -> Any:
        """A new run, left running."""
        return self._call(self._client.create_run, experiment_id, started_ms, dict(tags), name)

    def log(self, run: Any, tags: Mapping[str, str], params: Mapping[str, str], points: Sequence[Point]) -> None:
        """Bring a run's tags, parameters and metrics up to these; what it has already is not sent again.

        A parameter keeps its first value, as MLflow wants it.
        """
        from mlflow.entities import Metric, Param, RunTag

        run_id, has = run.info.run_id, run.data
        for tag in sorted(has.tags):
            if tag.split(".")[0] in ("farm", "version", "hardware") and tag not in tags:
                self._call(self._client.delete_tag, run_id, tag)
        new_tags = [RunTag(tag, value) for tag, value in tags.items() if has.tags.get(tag) != value]
        new_params = [Param(name, value) for name, value in params.items() if name not in has.params]
        metrics = [Metric(*point) for point in points]
        for chunk in _chunks(new_tags, _PAIRS_PER_CALL):
            self._call(self._client.log_batch, run_id, tags=chunk)
        for chunk in _chunks(new_params, _PAIRS_PER_CALL):
            self._call(self._client.log_batch, run_id, params=chunk)
        for chunk in _chunks(metrics, _METRICS_PER_CALL):
            self._call(self._client.log_batch, run_id, metrics=chunk)

    def missing(self, run: Any, points: Sequence[Point]) -> list[Point]:
        """Those points of series whose step the run does not have yet."""
        has: dict[str, set[int]] = {}
        for key in {point.key for point in points} & set(run.data.metrics):
            has[key] = {metric.step for metric in self._call(self._client.get_metric_history, run.info.run_id, key)}
        return [point for point in points if point.step not in has.get(point.key, ())]

    def log_datasets(self, run: Any, datasets: Sequence[Mapping[str, str]]) -> None:
        """Name data sets as inputs of a run; each is given by the fields of MLflow's `Dataset`."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        known = {(one.dataset.name, one.dataset.digest) for one in run.inputs.dataset_inputs}
        context = [InputTag("mlflow.data.context", "evaluation")]
        wanted = [
            DatasetInput(Dataset(**fields), context)
            for fields in datasets
            if (fields["name"], fields["digest"]) not in known
        ]
        if wanted:
            self._call(self._client.log_inputs, run.info.run_id, datasets=wanted)

    def log_files(self, run: Any, folder: Path) -> None:
        """Upload the content of a folder; files of the same names are replaced."""
        self._call(self._client.log_artifacts, run.info.run_id, str(folder))

    def reopen(self, run: Any) -> None:
        """Mark a run as running."""
        if run.info.status != "RUNNING":
            self._call(self._client.update_run, run.info.run_id, status="RUNNING")

    def end(self, run: Any, status: str, ended_ms: int) -> None:
        """Mark a run as ended."""
        self._call(self._client.set_terminated, run.info.run_id, status, ended_ms)

    def _artifacts(self, experiment: str) -> str | None:
        root = _artifact_root(self._uri)
        return None if root is None else (root / experiment).as_uri()

    def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call MLflow, again and again for a while when somebody else is writing to its database."""
        from mlflow.exceptions import MlflowException

        started = time.monotonic()
        pause = 0.1
        while True:
            try:
                return function(*args, **kwargs)
            except MlflowException as error:
                if "database is locked" not in str(error) or time.monotonic() - started > _LOCKED_S:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 2.0)


def _check_database(uri: str) -> None:
    """Open a database once: MLflow itself would try a broken one for an hour."""
    if not _DATABASE.match(uri):
        return
    import sqlalchemy

    if uri.startswith("sqlite:///"):
        _database_file(uri).parent.mkdir(parents=True, exist_ok=True)
    engine = sqlalchemy.create_engine(uri)
    try:
        sqlalchemy.inspect(engine).get_table_names()
    finally:
        engine.dispose()


def _artifact_root(uri: str) -> Path | None:
    """Where experiments of a database without a server keep their artifacts.

    Left to itself, MLflow would use the working directory, which for a job is temporary.
    """
    if uri.startswith("sqlite:///"):
        return _database_file(uri).parent / "mlartifacts"
    return farm_home() / "mlartifacts" if _DATABASE.match(uri) else None


def _database_file(uri: str) -> Path:
    return Path(uri.removeprefix("sqlite:///").partition("?")[0]).absolute()


def _chunks(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _in_a_line(error: Exception) -> str:
    """The cause in one line: the innermost reason that MLflow's layers still carry."""
    text = " ".join(str(error).split()) or type(error).__name__
    if "database is locked" in text:
        return "its database is locked by another writer"
    for pattern, meaning in (
        (r"Connection refused", "the connection was refused; is the server running?"),
        (r"Name or service not known|NameResolutionError|Failed to resolve", "its host name is unknown"),
        (r"timed out|ConnectTimeout|ReadTimeout", "it did not answer in time"),
    ):
        if re.search(pattern, text):
            return meaning
    return masked_text(text if len(text) < 400 else text[:400] + "…")


@contextmanager
def _settings(uri: str) -> Iterator[Callable[[], None]]:
    """The limits of the first call; calling what this gives changes to those of the others. All are taken back."""
    wanted = dict(_LIMITS)
    if root := _artifact_root(uri):
        wanted |= default_artifacts(root)
    mine = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(mine)
    os.environ.update({name: value for name, value in _FIRST_CALL_LIMITS.items() if name in mine})
    try:
        yield lambda: os.environ.update(mine)
    finally:
        for name in mine:
            os.environ.pop(name, None)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hush what is said of every table that is created, of every retry, and of errors that are handled here."""
    loggers = [logging.getLogger(name) for name in ("mlflow", "alembic", "urllib3")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
