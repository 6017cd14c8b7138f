"""The files that a run carries, written into a folder that is then uploaded as it is."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pandas as pd

from farm.redaction import masked_text
from farm.report import json_file
from farm.results.folder import ResultsFolder
from farm.results.summary import EngineSummary
from farm.tracking.entries import env_of
from farm.tracking.results import Key, Results
from farm.tracking.views import Views

ANSWERS: Final = "answers.json"
# The UI loads a table whole; 1,319 long chains of thought would make it unusable.
_MAX_CELL_CHARACTERS: Final = 6000
_MAX_LOG_BYTES: Final = 4 << 20


def write_sweep(folder: Path, results: Results, views: Views) -> None:
    """Files of the parent: the report, the comparison, and all that both are made from."""
    if views.comparison is not None:
        (folder / "comparison.json").write_text(json_file.render(views.comparison, indent=1), encoding="utf-8")
        (folder / "comparison.md").write_text(views.table, encoding="utf-8")
    if views.report is not None:
        (folder / "report.html").write_text(views.report, encoding="utf-8")
    # At the top, under the names of the results folder: a comparison elsewhere downloads them from here.
    ResultsFolder(results.folder).share(folder, results.sweep, results.engines)


def write_child(folder: Path, results: Results, key: Key) -> None:
    """Files of a child: the answers as a table, the command, and what its engines said of themselves."""
    table = answers(results, key)
    if not table.empty:
        # The layout of MLflow's own tables; its `log_table` would append the same answers again.
        table.to_json(folder / ANSWERS, orient="split", index=False)
    command = results.sweep.commands.get(key.variant, ())
    env = [f"{name}={shlex.quote(value)}" for name, value in env_of(results, key.variant).items()]
    lines = " \\\n  ".join([*env, *_by_option(command)])
    (folder / "command.txt").write_text(f"{lines}\n", encoding="utf-8")
    for engine in results.engines_of(key.variant):
        _write_engine(folder / "engines" / engine.engine_id, results, engine)


def answers(results: Results, key: Key) -> pd.DataFrame:
    """One row for each answer, in the order of the items."""
    own = results.of(key)
    items = results.items[(results.items["workload"] == key.workload).to_numpy(dtype=bool)]
    requested = items.assign(order=range(len(items)))[["item_id", "order", "prompt"]]
    rows = own.merge(requested, on="item_id", how="left").sort_values(["order", "repeat"], kind="stable")
    table = pd.DataFrame(
        {
            "item": rows["item_id"],
            "repeat": rows["repeat"],
            "question": rows["prompt"].map(_shortened, na_action="ignore"),
            "output": rows["output_text"].map(_shortened, na_action="ignore"),
            "gold": rows["gold"],
            "answer": rows["answer"],
            "correct": rows["correct"],
            "finish_reason": rows["finish_reason"],
            "tokens": rows["completion_tokens"],
        }
    )
    return table if results.repeats(key.workload) > 1 else table.drop(columns="repeat")


def _shortened(text: str) -> str:
    """Both ends of a long text: the question stands at one of them, the answer at the other."""
    if len(text) <= _MAX_CELL_CHARACTERS:
        return text
    half = _MAX_CELL_CHARACTERS // 2
    gap = f"\n[… {len(text) - 2 * half:,} characters left out; the sweep's requests.parquet has them …]\n"
    return text[:half] + gap + text[-half:]


def _by_option(argv: Iterable[str]) -> list[str]:
    """A command line with one option to a line."""
    lines: list[str] = []
    for word in argv:
        if word.startswith("--") or not lines:
            lines.append(shlex.quote(word))
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return lines


def _write_engine(folder: Path, results: Results, engine: EngineSummary) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    report = engine.model_dump(mode="json", exclude_unset=True)
    _write_json(folder / "report.json", {name: value for name, value in report.items() if name != "server_info"})
    if report.get("server_info"):
        _write_json(folder / "server_info.json", report["server_info"])
    if (log := ResultsFolder(results.folder).log_of(engine.engine_id)) is not None:
        (folder / "engine.log").write_text(masked_text(_tail(log)), encoding="utf-8")


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - _MAX_LOG_BYTES, 0))
        text = file.read().decode("utf-8", errors="replace")
    return text if size <= _MAX_LOG_BYTES else f"[the first {size - _MAX_LOG_BYTES:,} bytes are left out]\n{text}"


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
