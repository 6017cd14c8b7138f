"""What SGLang's words mean: its account of itself as `Facts`, its answers as `Generation`s. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from farm.engines.base import Evidence, Facts, Generation, StartTimes
from farm.engines.sglang.evidence import ProcessEvidence
from farm.engines.sglang.server_info import ServerInfo, StartPhases
from farm.engines.sglang.stream import Answer, generation_of


@dataclass(frozen=True)
class Dialect:
    """How a server that speaks SGLang's protocol is understood.

    Attributes:
        generation_of: what its answers mean.
        start_s: seconds of its start, by its account of itself and the wall clock.
    """

    generation_of: Callable[[Answer], Generation] = generation_of
    start_s: Callable[[ServerInfo, float], float] = lambda server_info, start_s: start_s


SGLANG_DIALECT: Final = Dialect()


def facts_of(server_info: ServerInfo, start_s: float, evidence: Evidence, dialect: Dialect) -> Facts:
    """All that is known of a server that started."""
    return Facts(
        start_s=dialect.start_s(server_info, start_s),
        version=server_info.version,
        evidence=evidence,
        startup=start_times(server_info),
        versions=versions_in(evidence),
        hardware=hardware_in(evidence),
        server_info=server_info,
    )


def start_times(server_info: ServerInfo) -> StartTimes:
    """Where the time of a start went; SGLang 0.5.23 does not tell compilation apart."""
    phases = server_info.startup_time or StartPhases()
    graphs = phases.cuda_graph
    return StartTimes(weights_s=phases.load_weight, graphs_s=None if graphs is None else sum(graphs.values()))


def versions_in(evidence: Evidence) -> dict[str, str]:
    """Versions of packages as the engine's own processes saw them; empty where unknown."""
    versions: dict[str, str] = {}
    for process in evidence.processes:
        if isinstance(process, ProcessEvidence):
            versions |= {name: version for name, version in process.versions.items() if version}
    return versions


def hardware_in(evidence: Evidence) -> dict[str, str]:
    """The GPU as the engine's own processes saw it; empty where unknown."""
    gpus = (one.gpu for one in evidence.processes if isinstance(one, ProcessEvidence) and one.gpu)
    return {key: value for key, value in next(gpus, {}).items() if value is not None}
