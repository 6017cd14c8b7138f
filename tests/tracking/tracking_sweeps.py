"""A results folder with the shape and the schema of a real one: three variants, two workloads, invented figures."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from mlflow import MlflowClient

from farm.results.record import RECORD_SCHEMA, Record
from farm.tracking import Synced

VARIANTS = ("baseline", "humming", "humming+fp8-head+nextn")
WORKLOADS = ("gsm8k", "synthetic-2k")
STARTED = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
SECRET = "hunter2-hunter2"
_TPOT_S = {"baseline": 0.0416, "humming": 0.0385, "humming+fp8-head+nextn": 0.0171}


def record(sweep_id: str, variant: str, workload: str, item: int, label: str | None) -> Record:
    """One answer; the same for the same arguments."""
    draw = random.Random(f"{variant}/{workload}/{item}")
    shared = random.Random(f"{workload}/{item}")
    tokens = 2048 if workload != "gsm8k" else shared.randint(120, 900)
    rounds = round(tokens / draw.uniform(2.6, 3.2)) if "nextn" in variant else None
    decode_s = tokens * _TPOT_S[variant] * draw.uniform(0.97, 1.03)
    ttft_s = draw.uniform(0.2, 0.3) * (20 if workload != "gsm8k" else 1)
    graded = workload == "gsm8k"
    correct = shared.random() < 0.95 if graded else None
    return Record(
        sweep_id=sweep_id,
        variant=variant,
        workload=workload,
        item_id=f"{workload}-{item:04d}",
        repeat=0,
        node=f"spark-{item % 2 + 1}",
        engine_id=f"spark-{item % 2 + 1}.{variant}.1",
        engine_kind="sglang",
        label=label,
        started_at=STARTED + timedelta(seconds=60 * item + 7 * VARIANTS.index(variant)),
        sequence=item,
        prompt_tokens=900,
        completion_tokens=tokens,
        ttft_s=ttft_s,
        latency_s=ttft_s + decode_s,
        decode_s=decode_s,
        finish_reason="stop",
        verify_rounds=rounds,
        draft_tokens_proposed=None if rounds is None else 3 * rounds,
        draft_tokens_accepted=None if rounds is None else tokens - rounds,
        accept_histogram=None if rounds is None else [rounds, 0, 0, 0],
        output_text=f"<think>{'so ' * 40}</think> The answer is {item}." if graded else "lorem " * 400,
        answer=str(item if correct else item + 1) if graded else None,
        gold=str(item) if graded else None,
        correct=correct,
    )


def write(
    folder: Path,
    *,
    items: int = 12,
    label: str | None = None,
    failed: dict[str, str] | None = None,
    keep: Callable[[Record], bool] = lambda _: True,
    change: dict[str, Any] | None = None,
) -> Path:
    """Write a results folder.

    Args:
        folder: where.
        items: GSM8K questions; the other workload has four requests.
        label: of the sweep and its records.
        failed: variants that never started, with the reason.
        keep: which cells have a record.
        change: fields of `sweep.json` to replace.
    """
    failed = failed or {}
    folder.mkdir(parents=True, exist_ok=True)
    counts = {"gsm8k": items, "synthetic-2k": 4}
    records = [
        record(folder.name, variant, workload, item, label)
        for workload, count in counts.items()
        for variant in VARIANTS
        if variant not in failed
        for item in range(count)
    ]
    write_records(folder, [one for one in records if keep(one)])
    requested = [
        {"workload": name, "item_id": f"{name}-{item:04d}", "prompt": f"What is {item} + 0?", "gold": str(item)}
        for name, count in counts.items()
        for item in range(count)
    ]
    pq.write_table(pa.Table.from_pylist(requested), folder / "items.parquet")
    sweep = _sweep(folder.name, counts, label, failed) | (change or {})
    (folder / "sweep.json").write_text(json.dumps(sweep))
    (folder / "engines.json").write_text(json.dumps(_engines(folder, label, failed)))
    return folder


def write_records(folder: Path, records: list[Record]) -> None:
    """Write `requests.parquet`."""
    rows = [{name: getattr(one, name) for name in RECORD_SCHEMA.names} for one in records]
    pq.write_table(pa.Table.from_pylist(rows, schema=RECORD_SCHEMA), folder / "requests.parquet")


def _sweep(sweep_id: str, counts: dict[str, int], label: str | None, failed: dict[str, str]) -> dict[str, Any]:
    sampling = {"temperature": 0.6, "top_p": 0.95, "top_k": 29, "max_new_tokens": 32768}
    kinds = {"gsm8k": ("gsm8k", "openai/gsm8k"), "synthetic-2k": ("synthetic", "seed 42")}
    parts = {"baseline": ["baseline"], "humming": ["baseline", "humming"]}
    return {
        "sweep_id": sweep_id,
        "name": "ling-flash-ladder",
        "about": "Each optimisation on top of the one before it.",
        "created_at": (STARTED - timedelta(minutes=9)).isoformat(),
        "farm_version": "0.1.0",
        "model": "/models/Ling-3.0-flash",
        "label": label,
        "engine_kind": "sglang",
        "device": "cuda",
        "baseline": "baseline",
        "margin_pp": 1.0,
        "variants": list(VARIANTS),
        "workloads": {
            name: {
                "kind": kinds[name][0],
                "title": f"{kinds[name][1]}, {count} items",
                "sampling": sampling,
                "items": count,
                "repeats": 1,
                "digest": f"{count:064x}",
                "source": kinds[name][1],
            }
            for name, count in counts.items()
        },
        "planned_cells": len(VARIANTS) * sum(counts.values()),
        "failed_variants": failed,
        "resolved": {
            "design": "crossover",
            "engine": {"concurrency": 1, "env": {"HF_TOKEN": SECRET, "SGLANG_JIT_DEEPGEMM_PRECOMPILE": "0"}},
            "variants": [
                {"name": name, "parts": parts.get(name, ["baseline", "humming", "fp8-head", "nextn"]), "env": {}}
                for name in VARIANTS
            ],
            "workloads": {name: {"seed": 42, "shots": 5 if name == "gsm8k" else None} for name in counts},
        },
        "commands": {
            name: [
                *("/opt/engine/bin/python", "-m", "sglang.launch_server", "--model-path", "/models/Ling-3.0-flash"),
                *("--api-key", SECRET, "--mem-fraction-static", "0.68"),
                *("--moe-runner-backend", "flashinfer_mxfp4" if name == "baseline" else "humming"),
                *(["--speculative-algorithm", "NEXTN"] if "nextn" in name else ["--enable-fp32-lm-head"]),
            ]
            for name in VARIANTS
        },
        "environments": {name: _environment(name) for name in VARIANTS},
    }


def _environment(variant: str) -> dict[str, str]:
    """What the engines of a variant were started with."""
    env = {"HF_TOKEN": "***", "SGLANG_JIT_DEEPGEMM_PRECOMPILE": "0"}
    if variant != "baseline":
        env["HUMMING_COMPILER"] = "nvrtc"
    if "fp8-head" in variant:
        env["SGLANG_ENABLE_FP8_LM_HEAD"] = "1"
    return env


def _engines(folder: Path, label: str | None, failed: dict[str, str]) -> list[dict[str, Any]]:
    engines = []
    for variant in VARIANTS:
        for node in ("spark-1", "spark-2"):
            engine_id = f"{node}.{variant}.1"
            log = folder / "engines" / f"{engine_id}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(f"ServerArgs(api_key='{SECRET}', port=1)\nUsing nvrtc gemm for humming moe\n")
            engines.append(
                {
                    "engine_id": engine_id,
                    "variant": variant,
                    "node": node,
                    "slot": node,
                    "status": "failed" if variant in failed else "started",
                    "reason": failed.get(variant),
                    "start_s": 481.0,
                    "startup": {"load_weight": 361.0},
                    "label": label,
                    "server_info": {"version": "0.5.23", "mem_fraction_static": 0.68, "api_key": SECRET},
                    "log": str(log.relative_to(folder)),
                    "versions": {"sglang": "0.5.23", "torch": "2.14.1", "humming-kernels": "0.1.12"},
                    "hardware": {"gpu": "NVIDIA GB10", "memory_gib": 121, "driver": "580.95"},
                }
            )
    return engines


@dataclass(frozen=True)
class Complete:
    """A results folder, and what MLflow has of it."""

    home: Path
    folder: Path
    synced: Synced
    client: MlflowClient
