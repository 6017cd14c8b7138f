"""The emulated engine as an engine of the farm: its process speaks SGLang's protocol, and its times are its model's."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import farm
from farm.engines.base import Engine, EngineCommand, Evidence, Launch, OnPhase, RunningEngine, model_of, python_of
from farm.engines.emulated.answers import write_answers
from farm.engines.emulated.reading import DIALECT, SOURCE
from farm.engines.sglang.command import server_command
from farm.engines.sglang.evidence import read_processes
from farm.engines.sglang.gate import evidence_folder, start_proven
from farm.spec.models import EngineSettings, Sweep, Variant
from farm.spec.optimisations import expected_state


class Emulated(Engine):
    """Processes that answer as a DGX Spark would, without a model."""

    name = SOURCE
    label = "emulated"
    own_clock = True
    note = "A sweep also gives them the right answers (FARM_EMULATION_ANSWERS); without it they make numbers up."

    def needs_gpu(self, settings: EngineSettings) -> bool:
        """Never, whatever it plays."""
        return False

    def speed(self, settings: EngineSettings) -> float:
        """As its arguments say."""
        given = settings.args.get("emulation-speed")
        return float(given) if isinstance(given, int | float) else 1.0

    def problem(self, sweep: Sweep) -> str | None:
        """Its own arguments are numbers."""
        for variant in sweep.variants:
            for name, value in sweep.args_of(variant).items():
                if name.startswith("emulation-") and not (type(value) in (int, float) and value > 0):  # type: ignore[operator]
                    return f"engine.args.{name}: must be a number above 0, not {value!r}"
        return None

    def command(self, sweep: Sweep, variant: Variant, *, model_path: str, python: str) -> EngineCommand:
        """A module of the farm, which a job may have shipped here instead of installed."""
        env = {"PYTHONPATH": str(Path(farm.__file__).parents[1])}
        return server_command(
            sweep, variant, module="farm.engines.emulated", env=env, model_path=model_path, python=python
        )

    async def start(self, launch: Launch, on_phase: OnPhase) -> RunningEngine:
        """A server that is compared with its variant as a real one is."""
        sweep = launch.sweep
        command = self.command(sweep, launch.variant, model_path=model_of(sweep), python=python_of(sweep))
        command = EngineCommand(command.argv, _told_beside(launch) | command.env)
        expected = expected_state(sweep.args_of(launch.variant), sweep.env_of(launch.variant))
        return await start_proven(command, launch.log, sweep.engine, expected, on_phase, DIALECT)

    def evidence_of(self, log: Path) -> Evidence:
        """What its process wrote."""
        return Evidence("processes", read_processes(evidence_folder(log)))


def _told_beside(launch: Launch) -> dict[str, str]:
    """What an engine is told beside its command line: right answers, its node and number of launch."""
    slot = hashlib.sha256(launch.node.encode()).hexdigest()[:12]
    answers = launch.log.parent / f"{slot}.answers.jsonl"
    if not answers.exists():
        answers.parent.mkdir(parents=True, exist_ok=True)
        write_answers(launch.items, answers)
    return {
        "FARM_EMULATION_ANSWERS": str(answers),
        "FARM_EMULATION_NODE": launch.node,
        "FARM_EMULATION_LAUNCH": str(launch.number),
    }


EMULATED: Final = Emulated()
