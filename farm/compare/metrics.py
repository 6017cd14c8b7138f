"""The records table turned into figures: checked, reduced to sums per item, and named as the definitions name them.

Times are seconds of the client's clock, tokens are counted by the engine. A record with `error` is in no figure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from farm.errors import InputError
from farm.results.record import REQUIRED_COLUMNS
from farm.stats.intervals import FloatArray, IntArray, Statistic

_OPTIONAL_NUMBERS: Final = {
    "verify_rounds": 0.0,
    "draft_tokens_proposed": 0.0,
    "draft_tokens_accepted": 0.0,
    "cached_tokens": 0.0,
    "first_chunk_tokens": 1.0,
    "decode_s": math.nan,
    "sequence": math.nan,
    "energy_j": math.nan,
    "sm_clock_mhz": math.nan,
    "throttled_s": math.nan,
    "prompt_tokens": math.nan,
    "attempts": 1.0,
}
_OPTIONAL_TEXT: Final = (
    "node",
    "engine_id",
    "engine_kind",
    "label",
    "prompt_sha256",
    "error",
    "sweep_id",
    "energy_method",
)


class Sums(NamedTuple):
    """What answers add up to; a column of numbers for each."""

    answers: FloatArray
    latency_s: FloatArray
    ttft_s: FloatArray
    decode_s: FloatArray  # of answers with more tokens than those of the first chunk
    steps: FloatArray  # their completion tokens after the first chunk
    completion_tokens: FloatArray
    spec_completion_tokens: FloatArray  # completion tokens under speculation
    spec_tokens: FloatArray  # of them, those of verify rounds: the prefill's token left out
    verify_rounds: FloatArray
    accepted: FloatArray
    proposed: FloatArray
    request_tpot_s: FloatArray  # each answer's own seconds per token
    request_tpot_answers: FloatArray
    request_accept_length: FloatArray  # each answer's own tokens per verify round
    request_accept_rate: FloatArray
    spec_answers: FloatArray
    drafting_answers: FloatArray
    energy_j: FloatArray  # of answers whose energy is known
    energy_tokens: FloatArray  # their completion tokens
    energy_answers: FloatArray


SUMS: Final = Sums._fields
_COLUMN: Final = {name: number for number, name in enumerate(SUMS)}


def ratio_of(numerator: str, denominator: str, block: int = 0) -> Statistic:
    """The statistic sum(numerator) / sum(denominator) of the block-th set of columns."""
    top, bottom = block * len(SUMS) + _COLUMN[numerator], block * len(SUMS) + _COLUMN[denominator]
    return lambda sums: sums[..., top] / sums[..., bottom]


TPOT_S: Final = ("decode_s", "steps")
LATENCY_S: Final = ("latency_s", "answers")
TTFT_S: Final = ("ttft_s", "answers")
COMPLETION_TOKENS: Final = ("completion_tokens", "answers")
ACCEPT_LENGTH: Final = ("spec_tokens", "verify_rounds")
ACCEPT_LENGTH_ENGINE: Final = ("spec_completion_tokens", "verify_rounds")
"""As SGLang has it, the prefill's token counted."""
ACCEPT_RATE: Final = ("accepted", "proposed")
ENERGY_PER_REQUEST_J: Final = ("energy_j", "energy_answers")
ENERGY_PER_TOKEN_J: Final = ("energy_j", "energy_tokens")


def checked(records: pd.DataFrame, *, may_be_empty: bool = False) -> pd.DataFrame:
    """A copy of the records with every column the figures need, or an `InputError` that says what is wrong."""
    missing = [name for name in REQUIRED_COLUMNS if name not in records.columns]
    if missing:
        raise InputError(f"The records lack the required column(s) {', '.join(missing)}.")
    if records.empty and not may_be_empty:
        raise InputError("The sweep is empty: it holds no record yet.")
    keys = records[["variant", "workload", "item_id", "repeat"]]
    if keys.isna().to_numpy().any():
        raise InputError("Some records name no variant, workload, item_id or repeat; every record needs all four.")
    frame = keys.assign(variant=keys["variant"].astype(str), workload=keys["workload"].astype(str))
    repeat = _numbers(records, "repeat")
    _refuse(records, (repeat % 1 != 0).to_numpy(), "repeat", repeat, "a repeat is a whole number")
    frame = frame.assign(item_id=keys["item_id"].astype(str), repeat=repeat.astype(np.int64))
    for name in _OPTIONAL_TEXT:
        frame[name] = records[name] if name in records.columns else None
    for name in ("completion_tokens", "ttft_s", "latency_s"):
        frame[name] = _numbers(records, name)
    for name, default in _OPTIONAL_NUMBERS.items():
        frame[name] = _numbers(records, name).fillna(default) if name in records.columns else default
    for name in ("truncated", "moved", "slow_state"):
        frame[name] = _truth(records[name]).fillna(0.0) > 0 if name in records.columns else False
    frame["correct"] = _truth(records["correct"]) if "correct" in records.columns else math.nan
    if "started_at" in records.columns:
        frame["started_at"] = pd.to_datetime(records["started_at"], utc=True)
    frame["ok"] = frame["error"].isna() | (frame["error"] == "")
    _refuse_duplicates(frame)
    frame["decode_s"] = frame["decode_s"].fillna(frame["latency_s"] - frame["ttft_s"])
    _refuse_impossible(frame)
    frame["steps"] = np.maximum(frame["completion_tokens"] - np.maximum(frame["first_chunk_tokens"], 1.0), 0.0)
    return frame.reset_index(drop=True)


def _numbers(records: pd.DataFrame, name: str) -> pd.Series[float]:
    text = [] if pd.api.types.is_numeric_dtype(records[name]) else [v for v in records[name] if isinstance(v, str)]
    if text:
        raise InputError(f"The column {name} holds text, {text[0]!r:.40} for one; it needs numbers.")
    try:
        return pd.to_numeric(records[name]).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"The column {name} holds something that is not a number: {error}.") from error


def _truth(column: pd.Series[Any]) -> pd.Series[float]:
    """Nullable booleans, however they were stored, as 1, 0 and NaN."""
    return column.astype("boolean").astype("Float64").astype(np.float64)


def _cell(row: pd.Series[Any]) -> str:
    return f"{row['variant']} / {row['workload']} / {row['item_id']} / repeat {row['repeat']}"


def _refuse_duplicates(frame: pd.DataFrame) -> None:
    again = frame.duplicated(["variant", "workload", "item_id", "repeat"])
    if again.any():
        raise InputError(
            f"{int(again.sum())} cell(s) are answered more than once, the first is {_cell(frame[again].iloc[0])}; "
            "a cell has one record."
        )


_COUNTS: Final = ("verify_rounds", "draft_tokens_proposed", "draft_tokens_accepted", "cached_tokens")


def _refuse(records: pd.DataFrame, bad: NDArray[np.bool_], name: str, values: pd.Series[float], rule: str) -> None:
    if bad.any():
        cell, value = _cell(records[bad].iloc[0]), values[bad].iloc[0]
        raise InputError(f"{name} is {value:g} in {cell} ({int(bad.sum())} such record(s)); {rule}.")


def _refuse_impossible(frame: pd.DataFrame) -> None:
    ok = frame["ok"].to_numpy()
    for name in _COUNTS:
        _refuse(frame, ok & (frame[name] < 0).to_numpy(), name, frame[name], "a count is not negative")
    accepted, proposed = frame["draft_tokens_accepted"], frame["draft_tokens_proposed"]
    more = ok & (accepted > proposed).to_numpy() & (proposed > 0).to_numpy()
    _refuse(frame, more, "draft_tokens_accepted", accepted, "no more can be accepted than are proposed")
    for name in ("ttft_s", "latency_s", "decode_s", "completion_tokens"):
        values = frame[name].to_numpy(dtype=np.float64)
        bad = ok & ~(np.isfinite(values) & (values >= 0))
        _refuse(frame, bad, name, frame[name], "an answer without an error needs a finite value, not negative")
    longer = ok & (frame["decode_s"] > frame["latency_s"] * (1 + 1e-6) + 1e-6).to_numpy()
    _refuse(frame, longer, "decode_s", frame["decode_s"], "decoding is a part of the latency and cannot take longer")


@dataclass(frozen=True)
class WorkloadTable:
    """The records of one workload, with integer codes for its items."""

    name: str
    frame: pd.DataFrame  # the checked records, and `item`
    items: pd.Index[str]

    def of(self, variant: str) -> pd.DataFrame:
        """The answers of one variant, without errors."""
        wanted = (self.frame["variant"] == variant).to_numpy() & self.frame["ok"].to_numpy()
        answers: pd.DataFrame = self.frame.loc[wanted]
        return answers

    @property
    def variants(self) -> set[str]:
        """The variants that have records here."""
        return set(self.frame["variant"].unique())


def workload_table(frame: pd.DataFrame, name: str) -> WorkloadTable:
    """The part of the checked records that belongs to one workload."""
    own = frame[(frame["workload"] == name).to_numpy()]
    codes, items = pd.factorize(own["item_id"], sort=True)  # sorted: the order of records must not move an interval
    return WorkloadTable(name, own.assign(item=codes.astype(np.int64)), pd.Index(items))


def item_sums(answers: pd.DataFrame, items: int) -> FloatArray:
    """Sums of `SUMS` over the answers to each item: shape (items, columns)."""
    codes = answers["item"].to_numpy(dtype=np.int64)
    return np.column_stack([np.bincount(codes, weights=column, minlength=items) for column in answer_columns(answers)])


def answer_columns(answers: pd.DataFrame) -> Sums:
    """What each answer adds to each sum."""

    def of(name: str) -> FloatArray:
        return answers[name].to_numpy(dtype=np.float64)

    tokens, rounds, proposed = of("completion_tokens"), of("verify_rounds"), of("draft_tokens_proposed")
    steps, speculated, drafted = of("steps"), rounds > 0, proposed > 0
    many, emitted = steps > 0, np.maximum(tokens - 1, 0.0)
    decode = np.where(many, of("decode_s"), 0.0)
    accepted, energy = of("draft_tokens_accepted"), of("energy_j")
    powered = np.isfinite(energy)
    return Sums(
        answers=np.ones(len(answers)),
        latency_s=of("latency_s"),
        ttft_s=of("ttft_s"),
        decode_s=decode,
        steps=steps,
        completion_tokens=tokens,
        spec_completion_tokens=np.where(speculated, tokens, 0.0),
        spec_tokens=np.where(speculated, emitted, 0.0),
        verify_rounds=rounds,
        accepted=accepted,
        proposed=proposed,
        request_tpot_s=np.divide(decode, steps, out=np.zeros_like(decode), where=many),
        request_tpot_answers=many.astype(np.float64),
        request_accept_length=np.divide(emitted, rounds, out=np.zeros_like(emitted), where=speculated),
        request_accept_rate=np.divide(accepted, proposed, out=np.zeros_like(accepted), where=drafted),
        spec_answers=speculated.astype(np.float64),
        drafting_answers=drafted.astype(np.float64),
        energy_j=np.where(powered, energy, 0.0),
        energy_tokens=np.where(powered, tokens, 0.0),
        energy_answers=powered.astype(np.float64),
    )


@dataclass(frozen=True)
class Pairing:
    """The cells that two variants both answered."""

    items: int
    cells: int
    variant_answers: pd.DataFrame  # row by row the same cells
    against_answers: pd.DataFrame


class PairedSums(NamedTuple):
    """Sums per item of two variants on their shared cells, repeats averaged; zero where an item has no pair."""

    pairing: Pairing
    variant: FloatArray
    against: FloatArray


def paired(table: WorkloadTable, variant: str, against: str) -> PairedSums:
    """Pair two variants cell by cell, by item and repeat; cells whose prompts differ are no pair."""
    one, two = table.of(variant), table.of(against)
    _, first, second = np.intersect1d(cell_codes(one), cell_codes(two), assume_unique=True, return_indices=True)
    one, two = one.iloc[first], two.iloc[second]
    same = same_prompt(one["prompt_sha256"], two["prompt_sha256"])
    one, two = one[same], two[same]
    count = len(table.items)
    repeats = np.bincount(one["item"].to_numpy(dtype=np.int64), minlength=count)
    share = 1.0 / np.maximum(repeats, 1)[:, None]
    pairing = Pairing(int(np.sum(repeats > 0)), len(one), one, two)
    return PairedSums(pairing, item_sums(one, count) * share, item_sums(two, count) * share)


def same_prompt(one: pd.Series[Any], two: pd.Series[Any]) -> NDArray[np.bool_]:
    """Whether two columns of prompt hashes are of the same prompts, row by row; where one is unknown they are held to
    be."""
    known = one.notna().to_numpy() & two.notna().to_numpy()
    same: NDArray[np.bool_] = ~known | (one.to_numpy() == two.to_numpy())
    return same


def cell_codes(answers: pd.DataFrame) -> IntArray:
    """A number for each cell: its item, shifted, and its repeat."""
    item = answers["item"].to_numpy(dtype=np.int64)
    repeat = answers["repeat"].to_numpy(dtype=np.int64)
    codes: IntArray = item * np.int64(2**20) + repeat
    return codes


@dataclass(frozen=True)
class Distribution:
    """Mean, median and 95th percentile, with distribution-free intervals for the percentiles."""

    mean: float
    p50: float
    p95: float
    p50_ci: tuple[float, float]
    p95_ci: tuple[float, float]


def distribution(values: FloatArray, items: IntArray) -> Distribution:
    """Summarise one column of the answers to these items."""
    if not len(values):
        nothing = (math.nan, math.nan)
        return Distribution(math.nan, math.nan, math.nan, nothing, nothing)
    ordered = np.sort(values)
    p50, p95 = np.quantile(ordered, [0.5, 0.95])
    return Distribution(
        mean=float(ordered.mean()),
        p50=float(p50),
        p95=float(p95),
        p50_ci=order_statistic_interval(ordered, 0.5, effective_answers(values, items, p50, 0.5)),
        p95_ci=order_statistic_interval(ordered, 0.95, effective_answers(values, items, p95, 0.95)),
    )


def effective_answers(values: FloatArray, items: IntArray, quantile: float, level: float) -> float:
    """How many independent answers say as much of a quantile: repeats of one item are alike.

    The variance of the share below the quantile, items as clusters: Woodruff (1952), "Confidence intervals for medians
    and other position measures", JASA 47; Korn & Graubard (1998), Survey Methodology 24.
    """
    count = len(values)
    _, codes = np.unique(items, return_inverse=True)
    clusters = int(codes.max()) + 1
    if clusters == count or clusters < 2:
        return float(clusters)
    below = (values <= quantile).astype(np.float64)
    sums = np.bincount(codes, weights=below - below.mean())
    variance = float(np.sum(sums**2)) * clusters / (clusters - 1) / count**2
    independent = level * (1 - level) / count
    return min(max(count * independent / variance, float(clusters)), float(count)) if variance > 0 else float(clusters)


def order_statistic_interval(ordered: FloatArray, level: float, effective: float) -> tuple[float, float]:
    """95 % interval of a quantile between two order statistics; NaN for an end that the sample is too small to give.

    Hahn & Meeker (1991), "Statistical Intervals", sec. 5.2. The upper end of p95 needs 72 independent values; where
    `effective` is fewer than there are, ranks are those of so many, stretched.
    """
    whole = math.floor(effective)
    stretch = len(ordered) / whole
    low = int(stats.binom.ppf(0.025, whole, level))
    high = int(stats.binom.ppf(0.975, whole, level)) + 1
    return (
        float(ordered[math.ceil(low * stretch) - 1]) if low >= 1 else math.nan,
        float(ordered[min(math.ceil(high * stretch), len(ordered)) - 1]) if high <= whole else math.nan,
    )


def accept_histogram(answers: pd.DataFrame, records: pd.DataFrame) -> tuple[int, ...] | None:
    """Verify rounds by number of accepted drafts, summed over the answers; None where it was not recorded."""
    if "accept_histogram" not in records.columns:
        return None
    rows = [row for row in records["accept_histogram"].to_numpy()[answers.index.to_numpy()] if _is_list(row)]
    if not rows:
        return None
    lengths = np.array([len(row) for row in rows])
    flat = np.concatenate([np.asarray(row, dtype=np.float64) for row in rows])
    indices = np.arange(len(flat)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return tuple(int(total) for total in np.bincount(indices, weights=flat))


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray) and len(value) > 0
