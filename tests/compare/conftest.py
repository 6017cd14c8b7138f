from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from compare_sweeps import as_parquet_table

from farm.cli.compare import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a results folder."""

    def make(records: pd.DataFrame, sweep: dict[str, Any] | None = None, name: str = "results") -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        pq.write_table(as_parquet_table(records), folder / "requests.parquet")
        if sweep is not None:
            (folder / "sweep.json").write_text(json.dumps(sweep))
        return folder

    return make


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run the command; gives exit status, standard output and standard error."""
    monkeypatch.setenv("FARM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def call(*arguments: object) -> tuple[int, str, str]:
        status = main([str(one) for one in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call
