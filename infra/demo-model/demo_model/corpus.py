"""Training data: generated problems as tokens, packed into rows of one length. Imports numpy, no torch."""

import itertools
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from demo_model.problems import problems
from demo_model.tokenizer import PAD_ID, completion_text, load_tokenizer, prompt_text

TRAIN_SCALES = {"small": 0.3, "medium": 0.4, "large": 0.3}
THINKING_SHARE = 0.85
OPEN_ROWS = 16
"""How many rows are filled side by side: more leave less room unused."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Packed rows, each [R, T]: tokens, number of the document in its row (0 is padding), and whether it is scored."""

    tokens: NDArray[np.uint16]
    document: NDArray[np.uint8]
    scored: NDArray[np.bool_]


def _documents(folder: Path, seed: int) -> Iterator[tuple[list[int], int]]:
    """An endless stream of (tokens, how many of them are prompt) of the train split."""
    tokenizer, rng = load_tokenizer(folder), Random(f"{seed}/thinking")  # noqa: S311  (no secret)
    stream = problems(seed, "train", TRAIN_SCALES)
    while True:
        batch = list(itertools.islice(stream, 64))
        modes = [rng.random() < THINKING_SHARE for _ in batch]
        prompts = [prompt_text(p.question, thinking=m) for p, m in zip(batch, modes, strict=True)]
        answers = [completion_text(p.answer, thinking=m) for p, m in zip(batch, modes, strict=True)]
        encoded = tokenizer.encode_batch(prompts + answers, add_special_tokens=False)
        for prompt, answer in zip(encoded[: len(batch)], encoded[len(batch) :], strict=True):
            yield prompt.ids + answer.ids, len(prompt.ids)


def make_rows(folder: Path, seed: int, count: int, length: int) -> Rows:
    """`count` rows of `length` tokens: the same for the same arguments."""
    rows = Rows(
        np.full((count, length), PAD_ID, np.uint16),
        np.zeros((count, length), np.uint8),
        np.zeros((count, length), bool),
    )
    stream = _documents(folder, seed)
    used, held = [0] * count, [0] * count
    opened, upcoming = list(range(min(OPEN_ROWS, count))), min(OPEN_ROWS, count)
    while opened:
        tokens, prompt = next(stream)
        if len(tokens) > length:
            continue
        at = next((r for r in opened if used[r] + len(tokens) <= length), None)
        if at is None:
            # Close the fullest row and go on with a new one.
            fullest = max(opened, key=lambda r: used[r])
            opened.remove(fullest)
            if upcoming < count:
                opened.append(upcoming)
                upcoming += 1
            continue
        span = slice(used[at], used[at] + len(tokens))
        held[at] += 1
        rows.tokens[at, span] = tokens
        rows.document[at, span] = held[at]
        rows.scored[at, used[at] + prompt : span.stop] = True
        used[at] = span.stop
    return rows


class RowSource:
    """Batches of rows from worker processes, in an order that depends on the seed alone."""

    def __init__(self, folder: Path, seed: int, *, rows: int, length: int, workers: int, first: int = 0) -> None:
        self.arguments = (folder, seed, rows, length)
        self.pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
        self.upcoming = first
        self.ahead: list[Future[Rows]] = []
        for _ in range(4 * workers):
            self._order()

    def _order(self) -> None:
        folder, seed, rows, length = self.arguments
        self.ahead.append(self.pool.submit(make_rows, folder, seed * 1_000_003 + self.upcoming, rows, length))
        self.upcoming += 1

    def next(self) -> Rows:
        """The next batch."""
        self._order()
        return self.ahead.pop(0).result()

    def close(self) -> None:
        """Stop the workers."""
        self.pool.shutdown(wait=False, cancel_futures=True)
