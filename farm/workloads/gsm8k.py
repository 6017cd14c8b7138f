"""GSM8K: grade-school word problems, from the hub, from files, or from the small set that comes with the farm.

The prompt is one user message: the solved examples, the instruction, the question. Examples as earlier turns would show
a thinking model assistant turns without thinking, and how those are rendered differs by chat template.

The examples are the first `shots` rows of train, the same for every question and every seed, so that figures of two
sweeps differ by what is compared and not by the draw. Train is never asked and test never shown. The calculator marks
of the data set (`<<48/2=24>>`) are taken out of the examples: they train a calculator that nobody has here.
"""

from __future__ import annotations

import hashlib
import os
import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field

from farm.errors import InputError
from farm.paths import absolute, expand, is_path, not_shipped
from farm.types import Item
from farm.workloads import hub
from farm.workloads.base import MAX_TOKENS, Sampling, WorkloadBase, laid_over
from farm.workloads.grading import gold_answer
from farm.workloads.jsonl import Row, checked_id, read_rows

HUB_NAME: Final = "openai/gsm8k"
FOLDER_VARIABLE: Final = "FARM_GSM8K"
"""Names the folder that holds GSM8K on this machine, for all sweeps whose source is the hub's data set."""
# Files of the package: name -> (test, train).
BUILTINS: Final = {"gsm-mini": ("gsm-mini/gsm-mini.jsonl", "gsm-mini/gsm-mini-train.jsonl")}
# How the files of a split may be called in a folder, the published ones and those of a clone of the hub's repository.
SPELLINGS: Final = tuple(
    folder + name for folder in ("", "main/", "data/") for name in ("{}.jsonl", "{}.parquet", "{}-*-of-*.parquet")
)
CALCULATOR: Final = re.compile(r"<<[^<>\n]*>>")
INSTRUCTION: Final = (
    "Solve the following problem. Reason step by step. End your answer with a last line of the form `#### N`, "
    "where N is the final number alone."
)

_GSM8K_SAMPLING: Final = Sampling(temperature=0.6, top_p=0.95, top_k=29, max_new_tokens=32768)


QUESTIONS: Final = 1319
"""Of the test split."""


class Gsm8kWorkload(WorkloadBase):
    """Grade-school word problems in GSM8K's format; the defaults are the published protocol."""

    published_answer_s: ClassVar[float | None] = 15.2

    kind: Literal["gsm8k"]
    source: str = Field(
        default="openai/gsm8k", description="a data set of the hub, a folder with train and test files, or builtin:NAME"
    )
    questions: int | None = Field(default=None, ge=1, description="how many; null is all of them")
    order: Literal["dataset", "shuffled"] = "dataset"
    shots: int = Field(default=5, ge=0, le=64)
    thinking: bool = True
    instruction: bool = Field(default=True, description="false: the bare question, for a model trained on such")
    sampling: Annotated[Sampling, laid_over(_GSM8K_SAMPLING)] = _GSM8K_SAMPLING
    output_tokens: int | None = Field(
        default=None,
        ge=1,
        le=MAX_TOKENS,
        description="every answer has exactly this many tokens and is not graded: speed alone",
    )

    def items(self) -> list[Item]:
        """The questions, each with the same examples."""
        return items(self)

    @property
    def title(self) -> str:
        """Source, shots and thinking."""
        return f"{self.source_name}, {self.shots} shots, thinking {'on' if self.thinking else 'off'}"

    @property
    def source_name(self) -> str:
        """The data set's name, or its folder's."""
        return Path(self.source).name if self.source.startswith("/") else self.source

    def beside(self, folder: Path) -> Self:
        """The same with an absolute folder of data."""
        if not is_path(self.source):
            return self
        return self.model_copy(update={"source": absolute(folder, self.source)})


def items(spec: Gsm8kWorkload) -> list[Item]:
    """The questions that the workload asks, in its order, each with the same examples.

    An item is called after its place in the data set (`test-0017`), or by the row's own `id`: whatever else is asked,
    and in whatever order, it keeps that name.

    Raises:
        InputError: the data cannot be had or is malformed; the message begins with the field to change.
    """
    shown = _examples(spec)
    instruction = f"{INSTRUCTION}\n\nQuestion: " if spec.instruction else ""
    sampling = spec.sampling.model_dump()
    if spec.output_tokens is not None:
        sampling |= {"max_new_tokens": spec.output_tokens, "ignore_eos": True}
    requested: list[Item] = []
    locations: dict[str, str] = {}
    for index, read in enumerate(_rows(spec.source, "test")):
        (location, row), (question, answer) = read, _fields(read)
        item_id = checked_id(f"source: {location}", row["id"]) if row.get("id") is not None else f"test-{index:04d}"
        if item_id in locations:
            raise InputError(
                f"source: {location}: id: '{item_id}' is taken by {locations[item_id]}; give each row its own"
            )
        locations[item_id] = location
        try:
            gold = gold_answer(answer)
        except ValueError as error:
            raise InputError(f"source: {location}: answer: {error}") from error
        requested.append(
            Item(
                item_id=item_id,
                sampling=sampling,
                messages=[{"role": "user", "content": f"{shown}{instruction}{question}"}],
                template_kwargs={"enable_thinking": spec.thinking},
                # An answer of a length that was forced on it has no end to grade.
                gold=None if spec.output_tokens else gold,
            )
        )
    if spec.questions is not None and spec.questions > len(requested):
        raise InputError(
            f"questions: {spec.questions} are asked for and {spec.source} has {len(requested)}; null asks all of them"
        )
    if spec.order == "shuffled":
        # Order by a hash: the same on every machine and Python version, and no question's place depends on the others.
        requested.sort(key=lambda item: hashlib.sha256(f"{spec.seed}/{item.item_id}".encode()).digest())
    return requested[: spec.questions]


def _examples(spec: Gsm8kWorkload) -> str:
    if not spec.shots:
        return ""
    rows = _rows(spec.source, "train")
    if len(rows) < spec.shots:
        raise InputError(f"shots: {spec.shots} examples are asked for and train of {spec.source} has {len(rows)}")
    solved = []
    for row in rows[: spec.shots]:
        question, answer = _fields(row)
        solved.append(f"Question: {question}\nAnswer: {CALCULATOR.sub('', answer)}\n\n")
    return "Here are solved problems.\n\n" + "".join(solved)


def _fields(read: Row) -> tuple[str, str]:
    location, row = read
    for name in ("question", "answer"):
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise InputError(
                f"source: {location}: {name}: must be a text that is not empty, not {row.get(name)!r:.80}; rows hold "
                "`question` and `answer`, and the answer ends in `#### N`"
            )
    return row["question"].strip(), row["answer"].strip()


def _rows(source: str, split: str) -> list[Row]:
    if source.startswith("builtin:"):
        return _jsonl(_builtin(source, split))
    named = os.environ.get(FOLDER_VARIABLE) if source == HUB_NAME else None
    if not named and not is_path(source):
        return hub.rows(source, "main", split)
    folder = Path(expand(named or source))
    if not folder.is_dir() or (named and not folder.is_absolute()):
        where = f"{FOLDER_VARIABLE}: " if named else ""
        what = "is no absolute path" if folder.is_dir() else "is no folder"
        raise InputError(
            f"source: {where}{folder} {what}; name the folder that holds test.jsonl and train.jsonl{not_shipped()}"
        )
    for spelling in SPELLINGS:
        found = sorted(folder.glob(spelling.format(split)))
        if found:
            return _jsonl(found[0]) if found[0].suffix == ".jsonl" else hub.parquet_rows(found)
    raise InputError(
        f"source: {folder} holds no {split} file; looked for {', '.join(s.format(split) for s in SPELLINGS)}"
        + ("; shots: 0 needs no train file" if split == "train" else "")
    )


def _jsonl(path: Path) -> list[Row]:
    try:
        return read_rows(path)
    except InputError as error:
        raise InputError(f"source: {error}") from error


def _builtin(source: str, split: str) -> Path:
    name = source.removeprefix("builtin:")
    if name not in BUILTINS:
        raise InputError(
            f"source: '{source}' does not come with the farm; it has builtin:{', builtin:'.join(BUILTINS)}"
        )
    path = Path(str(files("farm.builtin"))) / BUILTINS[name][split == "train"]
    if not path.is_file():
        raise InputError(f"source: {path} is missing from this installation; install the farm again, or name a folder")
    return path
