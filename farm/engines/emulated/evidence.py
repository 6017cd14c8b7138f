"""Evidence of an emulated engine, in the form that the plug-in inside SGLang writes it. Pure but for the writing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from farm.engines.emulated import shapes
from farm.engines.emulated.arguments import VERSION
from farm.engines.emulated.model import Setup

_MOE_LAYERS = 40


def evidence(args: Mapping[str, Any], setup: Setup) -> dict[str, Any]:
    """What is active, from what the emulation runs with and not from what it was asked for."""
    drafts = setup.speculation is not None
    return {
        "pid": os.getpid(),
        "plugin": {"features": ["emulated"]},
        "versions": {"sglang": VERSION},
        "models": [_model("target", args, setup), *([_model("draft", args, setup)] if drafts else [])],
        "speculation": None
        if setup.speculation is None
        else {
            "worker": "Emulated",
            "algorithm": "EAGLE",
            "steps": setup.speculation.steps,
            "draft_tokens": setup.speculation.rows,
            "simulated_accept_length": None,
        },
        "gpu": None,
        "kernel_caches": {name: {"kernels": 0, "bytes": 0} for name in ("flashinfer", "humming", "triton")},
    }


def write(folder: Path, args: Mapping[str, Any], setup: Setup) -> None:
    """Write this process's evidence file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{os.getpid()}.json").write_text(json.dumps(evidence(args, setup), indent=1), encoding="utf-8")


def _model(role: str, args: Mapping[str, Any], setup: Setup) -> dict[str, Any]:
    return {
        "role": role,
        "class": "Emulated",
        "lm_head": {
            "class": "Emulated",
            "method": "Fp8HeadMethod" if setup.fp8_head else "UnquantizedEmbeddingMethod",
            "dtype": "float8_e4m3fn" if setup.fp8_head else "bfloat16",
            "shape": [shapes.VOCABULARY, shapes.HIDDEN],
            "bytes": round(shapes.LM_HEAD_FP8 + 4 * shapes.VOCABULARY if setup.fp8_head else shapes.LM_HEAD_BF16),
            "fp32_output": bool(args["enable_fp32_lm_head"]) and not setup.fp8_head,
        },
        "shares_target_head": None if role == "target" else True,
        "moe": [{"class": "Emulated", "method": "Emulated", "backend": setup.experts, "layers": _MOE_LAYERS}],
        "attention": "Emulated",
        "decode_graphs": True,
    }
