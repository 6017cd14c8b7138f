"""SGLang as an engine of the farm."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from farm.engines.base import Engine, EngineCommand, Evidence, Launch, OnPhase, RunningEngine, model_of, python_of
from farm.engines.sglang.command import server_command
from farm.engines.sglang.evidence import read_processes
from farm.engines.sglang.gate import evidence_folder, start_proven
from farm.engines.sglang.requirements import check_needs, installed
from farm.spec.models import Sweep, Variant
from farm.spec.optimisations import expected_state, optimisation


class Sglang(Engine):
    """Real SGLang servers, on GPUs or CPUs."""

    name = "sglang"
    needs_sglang = True

    def versions(self, sweep: Sweep, packages: Collection[str]) -> dict[str, str]:
        """By the metadata that the engine's interpreter finds."""
        found = installed(python_of(sweep), packages)
        return {} if found is None else {name: found.get(name, "not installed") for name in packages}

    def missing(self, sweep: Sweep, variant: Variant) -> list[str]:
        """Package, GPU architecture, memory, drafts; waits for memory that is being given back."""
        return check_needs(
            {name: optimisation(name).needs for name in variant.parts},
            sweep.args_of(variant),
            python=python_of(sweep),
            model_path=model_of(sweep),
            device=sweep.engine.device,
        )

    def command(self, sweep: Sweep, variant: Variant, *, model_path: str, python: str) -> EngineCommand:
        """SGLang's own launcher."""
        on_cpu = {"SGLANG_USE_CPU_ENGINE": "1"} if sweep.engine.device == "cpu" else {}
        return server_command(
            sweep, variant, module="sglang.launch_server", env=on_cpu, model_path=model_path, python=python
        )

    async def start(self, launch: Launch, on_phase: OnPhase) -> RunningEngine:
        """A server that has answered a probe, and whose processes wrote evidence where they have the plug-in."""
        sweep = launch.sweep
        command = self.command(sweep, launch.variant, model_path=model_of(sweep), python=python_of(sweep))
        expected = expected_state(sweep.args_of(launch.variant), sweep.env_of(launch.variant))
        return await start_proven(command, launch.log, sweep.engine, expected, on_phase)

    def evidence_of(self, log: Path) -> Evidence:
        """What its processes wrote."""
        return Evidence("processes", read_processes(evidence_folder(log)))


SGLANG: Final = Sglang()
