"""What a cell will cost, in seconds: learned from earlier sweeps and from the one that runs. Pure.

A cell's cost is the tokens that its item is expected to need, times the seconds per token of its variant on its
workload, times how slow its slot is. A question that needs a long answer needs it under every variant, so one variant's
answer predicts the others'. Before anything is known all questions cost the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from farm.types import CellKey

ItemKey = tuple[str, str]  # workload and item id

_GUESSED_START_S: Final = 60.0
_TRUSTED: Final = 5  # records of this sweep from which its own speed replaces an earlier sweep's
_SLOT_PRIOR: Final = 10  # records' worth of belief that a slot is as fast as the others
_TEXT_PRIOR: Final = 20.0  # records from which the length of a question says something about its answer's


@dataclass
class _Sum:
    """Seconds over tokens of what was measured."""

    tokens: float = 0.0
    seconds: float = 0.0
    count: int = 0

    def add(self, tokens: float, seconds: float) -> None:
        self.tokens += tokens
        self.seconds += seconds
        self.count += 1


@dataclass
class _Line:
    """Least squares of answer tokens on question length, by its running sums."""

    n: int = 0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def add(self, x: float, y: float) -> None:
        self.n, self.x, self.y = self.n + 1, self.x + x, self.y + y
        self.xx, self.xy = self.xx + x * x, self.xy + x * y

    def at(self, x: float, unfinished: float = 0.0) -> float:
        """The expected tokens: the mean, and the slope's part as far as the records support it.

        `unfinished` are tokens of answers that are not complete: without them the mean would be that of answers short
        enough to be complete by now. Their sum over the complete ones is the estimator for censored lifetimes.
        """
        mean_x, mean_y = self.x / self.n, (self.y + unfinished) / self.n
        spread = self.xx - self.n * mean_x * mean_x
        slope = (self.xy - mean_x * self.y) / spread if spread > 1e-9 else 0.0
        trusted = slope * self.n / (self.n + _TEXT_PRIOR)
        return max(mean_y / 4, mean_y + trusted * (x - mean_x))


@dataclass
class Costs:
    """Predicts seconds. `learn` from records as they come; the prediction is of wall seconds on a slot.

    Attributes:
        tokens: what is known of an item beforehand: exact output lengths, where the workload fixes them.
        lengths: characters of each item's question, the feature that predicts an unknown answer's length.
        prior_cell_s: seconds of a cell before anything was measured, by workload.
        prior_start_s: published seconds of an engine start; null where nothing is published.
    """

    tokens: Mapping[ItemKey, float] = field(default_factory=dict)
    lengths: Mapping[ItemKey, float] = field(default_factory=dict)
    prior_cell_s: Mapping[str, float] = field(default_factory=dict)
    prior_start_s: float | None = None
    _unfinished: dict[str, float] = field(default_factory=dict)
    _lengths: dict[ItemKey, _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    _line: dict[str, _Line] = field(default_factory=lambda: defaultdict(_Line))
    _rate: dict[tuple[str, str], _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    _earlier: dict[tuple[str, str], _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    _slots: dict[str, dict[tuple[str, str], _Sum]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(_Sum))
    )
    _starts: dict[str, _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    _earlier_starts: dict[str, _Sum] = field(default_factory=lambda: defaultdict(_Sum))

    def learn(self, cell: CellKey, slot: str, tokens: int, took_s: float) -> None:
        """Take over what one cell of this sweep took on a slot."""
        self._learn_length((cell.workload, cell.item_id), tokens)
        self._rate[cell.variant, cell.workload].add(tokens, took_s)
        self._slots[slot][cell.variant, cell.workload].add(tokens, took_s)

    def learn_earlier(self, cell: CellKey, tokens: int, took_s: float) -> None:
        """Take over a record of an earlier sweep that asked the same items."""
        self._learn_length((cell.workload, cell.item_id), tokens)
        self._earlier[cell.variant, cell.workload].add(tokens, took_s)

    def under_way(self, cells: Iterable[tuple[CellKey, float]]) -> None:
        """Take over which cells are being answered now, each with the seconds it has taken so far."""
        self._unfinished = defaultdict(float)
        for cell, so_far_s in cells:
            rate = self._rate_of(cell.variant, cell.workload)
            if rate and (cell.workload, cell.item_id) not in self._lengths:
                self._unfinished[cell.workload] += so_far_s / rate

    def learn_start(self, variant: str, took_s: float) -> None:
        """Take over what one engine start of this sweep took."""
        self._starts[variant].add(1, took_s)

    def learn_earlier_start(self, variant: str, took_s: float) -> None:
        """Take over what an engine start of an earlier sweep took."""
        self._earlier_starts[variant].add(1, took_s)

    def cell_s(self, cell: CellKey) -> float:
        """Predicted seconds of a cell on a slot of usual speed."""
        rate = self._rate_of(cell.variant, cell.workload)
        if rate is None:
            return self.prior_cell_s.get(cell.workload, 1.0)
        return rate * self._tokens_of((cell.workload, cell.item_id))

    def start_s(self, variant: str) -> float:
        """Predicted seconds of an engine start, a guess if need be."""
        return self.expected_start_s(variant) or _GUESSED_START_S

    def expected_start_s(self, variant: str) -> float | None:
        """Seconds of an engine start by this sweep's starts, earlier sweeps' or the published figure; null where there
        is none of them. A variant's own starts come first, then those of the others."""
        for starts in (self._starts, self._earlier_starts):
            known = [starts[variant]] if variant in starts else list(starts.values())
            if known:
                return sum(each.seconds for each in known) / sum(each.count for each in known)
        return self.prior_start_s

    def measured(self, variants: Iterable[str], workloads: Iterable[str]) -> bool:
        """Whether starts and answers of all of them were measured, here or in earlier sweeps."""
        names = list(workloads)
        return all(
            self.expected_start_s(variant) is not None and all(self._rate_of(variant, name) for name in names)
            for variant in variants
        )

    def slowness(self, slot: str) -> float:
        """How many times as long as usual a cell takes on a slot, drawn to 1 while little is known."""
        expected = took = 0.0
        count = 0
        for kind, own in self._slots.get(slot, {}).items():
            usual = self._rate[kind]
            expected += own.tokens * usual.seconds / max(usual.tokens, 1.0)
            took += own.seconds
            count += own.count
        if not expected:
            return 1.0
        prior = expected / count * _SLOT_PRIOR
        return (took + prior) / (expected + prior)

    def _learn_length(self, key: ItemKey, tokens: int) -> None:
        self._lengths[key].add(tokens, 0.0)
        self._line[key[0]].add(self.lengths.get(key, 0.0), tokens)

    def _tokens_of(self, key: ItemKey) -> float:
        if key in self.tokens:
            return self.tokens[key]
        line = self._line.get(key[0])
        seen = self._lengths.get(key)
        if seen:
            return seen.tokens / seen.count
        if line is None or not line.n:
            return 1.0
        return line.at(self.lengths.get(key, 0.0), self._unfinished.get(key[0], 0.0))

    def _rate_of(self, variant: str, workload: str) -> float | None:
        """Seconds per token: this sweep's own, an earlier one's, else the mean of the workload's other variants."""
        own, earlier = self._rate.get((variant, workload)), self._earlier.get((variant, workload))
        for known in (own if own and own.count >= _TRUSTED else None, earlier, own):
            if known and known.tokens:
                return known.seconds / known.tokens
        others = [sums for (_, name), sums in self._rate.items() if name == workload and sums.tokens]
        if not others:
            return None
        return sum(sums.seconds / sums.tokens for sums in others) / len(others)
