"""The gate: no figure is taken from an engine before it has shown that it runs the variant that was asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from farm.engines.base import EngineCommand, Evidence, OnPhase, ProbeFigures
from farm.engines.sglang.evidence import Probe, mismatches, read_processes
from farm.engines.sglang.facts import SGLANG_DIALECT, Dialect
from farm.engines.sglang.phases import PROVING
from farm.engines.sglang.running import RunningServer, launch
from farm.errors import EngineStartError, FarmError, VariantNotActive
from farm.spec.models import EngineSettings
from farm.spec.optimisations import ExpectedState

EVIDENCE_VARIABLE: Final = "FARM_EVIDENCE_DIR"
PROBE_TOKENS: Final = 64
_PROBE_TEXT: Final = (
    "A farm has 12 rows of 7 trees. Each tree gives 3 baskets. How many baskets are there? Let us count:"
)


async def start_proven(
    command: EngineCommand,
    log: Path,
    settings: EngineSettings,
    expected: ExpectedState,
    on_phase: OnPhase,
    dialect: Dialect = SGLANG_DIALECT,
) -> RunningServer:
    """Start an engine and let it prove that it runs what was asked for.

    Returns:
        The running engine with its evidence: what each of its processes wrote, and the probe.

    Raises:
        EngineStartError: it never became ready, or is another SGLang than the sweep is pinned to.
        VariantNotActive: it runs something else; names every mismatch. Nothing of the engine is left.
    """
    folder = evidence_folder(log)
    try:
        engine = await launch(
            command,
            log,
            start_timeout_s=settings.start_timeout_s,
            request_timeout_s=settings.request_timeout_s,
            stall_timeout_s=settings.stall_timeout_s,
            extra_env={EVIDENCE_VARIABLE: str(folder)},
            on_phase=on_phase,
            dialect=dialect,
        )
    except EngineStartError as error:
        raise _explained(error, expected, folder) from error
    try:
        version = engine.server_info.version
        if settings.version and version != settings.version:
            raise EngineStartError(
                f"the engine is SGLang {version} and the sweep is pinned to {settings.version} (engine.version)"
            )
        on_phase(PROVING)
        engine.evidence = await _prove(engine, expected, folder, settings.start_timeout_s)
        return engine
    except BaseException:
        await asyncio.shield(engine.stop())
        raise


def evidence_folder(log: Path) -> Path:
    """Where the processes of the engine with this log write their evidence."""
    return log.with_suffix(".evidence")


async def _prove(engine: RunningServer, expected: ExpectedState, folder: Path, start_timeout_s: float) -> Evidence:
    probe = await _probe(engine, start_timeout_s)
    processes = await asyncio.to_thread(read_processes, folder)
    reasons = mismatches(expected, processes, engine.server_info, probe)
    if reasons:
        raise VariantNotActive("; ".join(reasons))
    figures = ProbeFigures(probe.tokens, probe.rounds, probe.accept_length, probe.round_s)
    return Evidence("processes" if processes else "server_info", processes, figures)


def _explained(error: EngineStartError, expected: ExpectedState, folder: Path) -> FarmError:
    """Why an engine did not start: the variant is not active, if its evidence already says so.

    A draft that reads the target's FP8 head without its method dies in its first forward pass, for one.
    """
    processes = read_processes(folder)
    reasons = mismatches(expected, processes, None, None) if any(process.models for process in processes) else []
    return VariantNotActive(f"{'; '.join(reasons)}; then the engine failed: {error}") if reasons else error


async def _probe(engine: RunningServer, start_timeout_s: float) -> Probe:
    sampling = {"temperature": 0.0, "max_new_tokens": PROBE_TOKENS, "ignore_eos": True}
    ids = await engine.tokenize_text(_PROBE_TEXT)
    answer = await engine.generate(ids, sampling, start_timeout_s=start_timeout_s)
    rounds = answer.verify_rounds
    steps = rounds or max(1, answer.completion_tokens - 1)
    return Probe(PROBE_TOKENS, answer.completion_tokens, rounds, answer.decode_s / steps)
