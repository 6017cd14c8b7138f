"""Sweeps made up for tests and benchmarks: heavy-tailed lengths, several variants, known truths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from farm.results.record import RECORD_SCHEMA

LADDER = ("baseline", "humming", "humming+fp8-head", "humming+fp8-head+nextn")
TOKENS = (748286, 801260)
DECODE_S = (19755.022, 14843.355)
TTFT_S = (0.2066, 0.2138)
LATENCY_S = (15.2113, 11.4888)
PAIRING = {"both": 1264, "only_against": 14, "only_variant": 13, "neither": 28}


@dataclass(frozen=True)
class Truth:
    """What one variant really does: seconds per plain step, tokens per round (1: no speculation), share of right."""

    step_s: float = 0.0265
    accept_length: float = 1.0
    round_cost: float = 1.0  # seconds per verify round, in steps
    right: float = 0.97  # between 0.95 and 0.99
    start_scatter: float = 0.0  # standard deviation of the log speed of one engine start


def lengths(rng: np.random.Generator, difficulty: np.ndarray) -> np.ndarray:
    """Completion tokens: median 309, 95th percentile 1,889, and as hard a question under one variant as another."""
    own = rng.standard_normal(len(difficulty))
    values = np.exp(np.log(309) + 1.1 * (0.9 * difficulty + 0.436 * own))
    return np.clip(np.round(values), 2, 32768)


def answers_right(rng: np.random.Generator, hard: np.ndarray, right: float) -> np.ndarray:
    """Most questions are always right, 1 % never, 4 % by chance: two runs differ on 2 % of them, as published."""
    return (hard < 0.95) | ((hard < 0.99) & (rng.random(len(hard)) < (right - 0.95) / 0.04))


def sweep(
    truths: dict[str, Truth],
    items: int = 200,
    *,
    seed: int = 0,
    repeats: int = 1,
    nodes: int = 1,
    graded: bool = True,
    workload: str = "gsm8k",
) -> pd.DataFrame:
    """A crossover sweep: each node answers its share of the items under every variant."""
    rng = np.random.default_rng(seed)
    difficulty = np.tile(rng.standard_normal(items), repeats)
    item = np.tile(np.arange(items), repeats)
    hard = np.tile(rng.random(items), repeats)
    frames = []
    for variant, truth in truths.items():
        node = item % nodes
        scatter = np.exp(truth.start_scatter * rng.standard_normal(nodes))[node]
        count = len(item)
        tokens = lengths(rng, difficulty)
        accepted = np.clip(truth.accept_length * np.exp(0.12 * rng.standard_normal(count)), 1, 4)
        rounds = np.maximum(np.round((tokens - 1) / accepted), 1)
        cost = truth.step_s * truth.round_cost * scatter * np.exp(0.01 * rng.standard_normal(count))
        ttft = 0.2 * np.exp(0.2 * rng.standard_normal(count))
        decode = (tokens - 1) * cost / ((tokens - 1) / rounds if truth.accept_length > 1 else 1.0)
        correct = answers_right(rng, hard, truth.right) if graded else np.full(count, None)
        speculates = truth.accept_length > 1
        frames.append(
            pd.DataFrame(
                {
                    "sweep_id": "test-sweep",
                    "variant": variant,
                    "workload": workload,
                    "item_id": [f"q{number:06d}" for number in item],
                    "repeat": np.repeat(np.arange(repeats), items),
                    "node": [f"node-{number}" for number in node],
                    "engine_id": [f"{variant}@node-{number}" for number in node],
                    "engine_kind": "sglang",
                    "label": None,
                    "started_at": pd.Timestamp("2025-11-01", tz="UTC") + pd.to_timedelta(np.cumsum(ttft + decode), "s"),
                    "sequence": np.arange(count) // nodes,
                    "prompt_sha256": [f"hash-{number}" for number in item],
                    "prompt_tokens": 800,
                    "completion_tokens": tokens.astype(np.int64),
                    "cached_tokens": 0,
                    "ttft_s": ttft,
                    "latency_s": ttft + decode,
                    "decode_s": decode,
                    "truncated": False,
                    "verify_rounds": rounds if speculates else np.nan,
                    "draft_tokens_proposed": 3 * rounds if speculates else np.nan,
                    "draft_tokens_accepted": np.minimum(tokens - 1 - rounds, 3 * rounds) if speculates else np.nan,
                    "output_text": [f"The answer is {number}." for number in item],
                    "answer": "18",
                    "gold": "18",
                    "correct": correct,
                    "error": None,
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def published_sweep() -> pd.DataFrame:
    """Records whose totals and pairing are those that were published for GSM8K."""
    count = sum(PAIRING.values())
    outcomes = [(True, True)] * 1264 + [(False, True)] * 14 + [(True, False)] * 13 + [(False, False)] * 28
    rng = np.random.default_rng(5)
    shape = np.exp(1.1 * rng.standard_normal(count))
    frames = []
    for index, variant in enumerate(("baseline", LADDER[-1])):
        tokens = np.maximum(np.floor(shape / shape.sum() * TOKENS[index]), 2).astype(np.int64)
        tokens[np.argmax(tokens)] += TOKENS[index] - tokens.sum()
        decode = DECODE_S[index] * (tokens - 1) / (TOKENS[index] - count)
        latency = decode + LATENCY_S[index] - DECODE_S[index] / count
        frames.append(
            pd.DataFrame(
                {
                    "variant": variant,
                    "workload": "gsm8k",
                    "item_id": [f"gsm8k-{number:04d}" for number in range(count)],
                    "repeat": 0,
                    "completion_tokens": tokens,
                    "ttft_s": TTFT_S[index],
                    "latency_s": latency,
                    "decode_s": decode,
                    "verify_rounds": np.round(tokens / 2.68) if index else None,
                    "correct": [pair[1 - index] for pair in outcomes],
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def as_parquet_table(records: pd.DataFrame) -> pa.Table:
    """With the types of the record schema, as a sweep writes it."""
    fields = [field for field in RECORD_SCHEMA if field.name in records.columns]
    return pa.Table.from_pandas(
        records[[field.name for field in fields]], schema=pa.schema(fields), preserve_index=False, safe=False
    )
