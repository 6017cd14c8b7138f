"""The emulated engine writes evidence of the real one's form, and the gate tells a silent fallback by it."""

from __future__ import annotations

import pytest

from farm.engines.emulated.reading import emulated_generation
from farm.engines.sglang.evidence import Probe, mismatches, read_processes
from farm.engines.sglang.server_info import ServerInfo
from farm.spec.optimisations import compose, expected_state

PROMPT = list(range(40, 90))
SAMPLING = {"temperature": 0.0, "ignore_eos": True, "max_new_tokens": 64}
LADDER = {
    "baseline": ("flashinfer_mxfp4", []),
    "humming": ("humming", ["humming"]),
    "humming+fp8-head": ("humming", ["humming", "fp8-head"]),
    "humming+fp8-head+nextn": ("humming", ["humming", "fp8-head", "nextn"]),
}


def proven(start, folder, parts, faults=None):
    """Start a variant, and compare it with what its settings must show."""
    settings = compose(["baseline", *parts])
    flags = []
    for name, value in settings.args.items():
        flags += [] if value is None else [f"--{name}"] if value is True else [f"--{name}", str(value)]
    engine = start(*flags, faults=faults, env=settings.env | {"FARM_EVIDENCE_DIR": str(folder)}, speed=200)
    figures = emulated_generation(engine.generate(PROMPT, **SAMPLING))
    rounds = figures.verify_rounds
    probe = Probe(64, figures.completion_tokens, rounds, figures.decode_s / (rounds or 63))
    info = ServerInfo.model_validate(engine.call("GET", "/server_info")[1])
    return mismatches(expected_state(settings.args, settings.env), read_processes(folder), info, probe)


@pytest.mark.parametrize("variant", LADDER)
def test_every_rung_proves_itself(start, tmp_path, variant):
    assert proven(start, tmp_path / "evidence", LADDER[variant][1]) == []


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (["humming"], "MoE backend humming is asked for and the experts run on flashinfer_mxfp4"),
        (["fp8-head"], "an FP8 LM head is asked for and the LM head is bfloat16"),
        (["nextn"], "accept length 1.0"),
    ],
)
def test_a_silent_fallback_is_told(start, tmp_path, parts, reason):
    reasons = proven(start, tmp_path / "evidence", parts, faults={"silent_fallback": True})
    assert reason in "; ".join(reasons)
