"""The shipped problems: written once from the generator, and the same whenever they are written again."""

import itertools
import json
from pathlib import Path
from typing import Any

from demo_model.problems import Problem, Split, problems

SEED = 20_261_129
TEST_ITEMS, TRAIN_ITEMS = 200, 40
FILES: tuple[tuple[str, Split, int], ...] = (
    ("gsm-mini", "test", TEST_ITEMS),
    ("gsm-mini-train", "train", TRAIN_ITEMS),
)
SCALES = {"small": 0.25, "medium": 0.45, "large": 0.3}


def shipped(split: Split, count: int) -> list[Problem]:
    """The problems of the shipped files: no question twice, nothing chosen by whether a model solves it."""
    seen: set[str] = set()
    chosen: list[Problem] = []
    for problem in problems(SEED, split, SCALES):
        if problem.question not in seen:
            seen.add(problem.question)
            chosen.append(problem)
        if len(chosen) == count:
            break
    return chosen


def as_items(prefix: str, chosen: list[Problem]) -> list[dict[str, Any]]:
    """JSON objects with stable ids."""
    return [
        {
            "id": f"{prefix}-{number:04d}",
            "question": p.question,
            "answer": p.answer,
            "steps": p.steps,
            "scale": p.scale,
            "template": p.template,
        }
        for number, p in enumerate(chosen, start=1)
    ]


def to_jsonl(items: list[dict[str, Any]]) -> str:
    """One JSON object a line."""
    return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items)


def write_shipped(folder: Path) -> None:
    """Write `gsm-mini.jsonl` (test templates) and `gsm-mini-train.jsonl` (training templates)."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, split, count in FILES:
        items = as_items(name, shipped(split, count))
        (folder / f"{name}.jsonl").write_text(to_jsonl(items), encoding="utf-8")


def tokenizer_corpus(count: int = 20_000) -> list[Problem]:
    """Problems of the train split that the tokenizer is learnt on."""
    return list(itertools.islice(problems(SEED, "train", {"small": 1.0, "medium": 1.0, "large": 1.0}), count))
