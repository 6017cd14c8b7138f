from __future__ import annotations

from pathlib import Path

import pytest
import tracking_sweeps as sweeps

from farm.tracking.__main__ import main


def test_a_sweep_by_its_id(home: Path, capsys: pytest.CaptureFixture[str]):
    sweeps.write(home / "results" / "ladder-a")
    assert main(["sync", "ladder-a"]) == 0
    shown = capsys.readouterr().out
    assert f"logged to sqlite:///{home}/mlflow.db" in shown
    assert "-m mlflow ui --backend-store-uri" in shown


def test_the_folder_of_a_sweep(home: Path, tmp_path: Path, server: str, capsys: pytest.CaptureFixture[str]):
    folder = sweeps.write(tmp_path / "elsewhere")
    assert main(["sync", "--results", str(folder), "--tracking-uri", server]) == 0
    assert f"{server}/#/experiments/" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["sync", "nothing"], ["sync"]])
def test_an_unknown_sweep_is_bad_input(home: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(arguments) == 2
    assert "no sweep" in capsys.readouterr().err


def test_all_sweeps_move_to_a_server(home: Path, server: str, capsys: pytest.CaptureFixture[str]):
    for name in ("ladder-a", "ladder-b"):
        sweeps.write(home / "results" / name)
    (home / "results" / "broken").mkdir()
    (home / "results" / "broken" / "sweep.json").write_text("{}")
    for _ in range(2):  # again adds nothing
        assert main(["sync", "--all", "--tracking-uri", server]) == 2
        shown = capsys.readouterr()
        logged = [line.partition(":")[0] for line in shown.out.splitlines() if f" runs in {server}" in line]
        assert sorted(logged) == ["ladder-a", "ladder-b"]
        assert "broken" in shown.err
