"""Evidence of an emulated engine, in the form that the plug-in inside SGLang writes it. Pure but for the writing."""

from __future__ import annotations

import os
from pathlib import Path

from farm.engines.emulated import shapes
from farm.engines.emulated.arguments import VERSION, ServerArgs
from farm.engines.emulated.model import Setup
from farm.engines.sglang.evidence import ProcessEvidence

_MOE_LAYERS = 40


def evidence(args: ServerArgs, setup: Setup) -> ProcessEvidence:
    """What is active, from what the emulation runs with and not from what it was asked for."""
    drafting = setup.speculation and {
        "worker": "Emulated",
        "algorithm": "EAGLE",
        "steps": setup.speculation.steps,
        "draft_tokens": setup.speculation.rows,
        "simulated_accept_length": None,
    }
    head_bytes = shapes.LM_HEAD_FP8 + 4 * shapes.VOCABULARY if setup.fp8_head else shapes.LM_HEAD_BF16
    roles = ("target",) if drafting is None else ("target", "draft")
    written = {
        "pid": os.getpid(),
        "plugin": {"features": ["emulated"]},
        "versions": {"sglang": VERSION},
        "models": [
            {
                "role": role,
                "class": "Emulated",
                "lm_head": {
                    "class": "Emulated",
                    "method": "Fp8HeadMethod" if setup.fp8_head else "UnquantizedEmbeddingMethod",
                    "dtype": "float8_e4m3fn" if setup.fp8_head else "bfloat16",
                    "shape": [shapes.VOCABULARY, shapes.HIDDEN],
                    "bytes": round(head_bytes),
                    "fp32_output": args.enable_fp32_lm_head and not setup.fp8_head,
                },
                "shares_target_head": None if role == "target" else True,
                "moe": [{"class": "Emulated", "method": "Emulated", "backend": setup.experts, "layers": _MOE_LAYERS}],
                "attention": "Emulated",
                "decode_graphs": True,
            }
            for role in roles
        ],
        "speculation": drafting,
        "gpu": None,
        "kernel_caches": {name: {"kernels": 0, "bytes": 0} for name in ("flashinfer", "humming", "triton")},
    }
    return ProcessEvidence.model_validate(written)


def write(folder: Path, args: ServerArgs, setup: Setup) -> None:
    """Write this process's evidence file."""
    folder.mkdir(parents=True, exist_ok=True)
    content = evidence(args, setup).model_dump_json(by_alias=True, indent=1)
    (folder / f"{os.getpid()}.json").write_text(content, encoding="utf-8")
