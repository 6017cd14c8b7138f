"""The Ray side: which engine slots a cluster has, and one actor on each that runs stints and streams records back."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import farm
from farm.errors import InputError, first_line
from farm.node import Assignment, EngineReport, EngineSlot, StintFailed
from farm.plan import Stint
from farm.records import Record
from farm.spec import EngineSettings

Event = Record | EngineReport | StintFailed
_CHECK_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True)
class Slot:
    """A place for one engine: a node, or one GPU of a node with several."""

    name: str
    node: str
    node_id: str
    gpus: float


@ray.remote
class NodeWorker:
    """Owns one engine slot. Lives as long as the sweep; its engine is ended with it, however it ends."""

    def __init__(self, slot: Slot, assignment: Assignment) -> None:
        self._slot = EngineSlot(slot.name, f"node {slot.node}", assignment)

    async def check(self) -> None:
        """Raise InputError when this node lacks what the sweep needs."""
        self._slot.check()

    async def run(self, stint: Stint) -> AsyncIterator[Event]:
        """Answer the stint's cells, streaming what happens."""
        async for event in self._slot.run(stint):
            yield event

    async def wind_down(self) -> None:
        """Finish the cells that run and start no further ones."""
        self._slot.wind_down()

    async def close(self) -> None:
        """Stop the engine."""
        await self._slot.close()


def connect(before_local_start: Callable[[], None]) -> None:
    """Join the cluster that `RAY_ADDRESS` or a running local head names, else start a local one.

    The farm's own package travels with the job, so that every node runs the driver's version of it.

    Args:
        before_local_start: called before a local cluster is started, which takes long; it may find this machine unfit.
    """
    settings: dict[str, Any] = {
        "runtime_env": {"py_modules": [str(Path(farm.__file__).parent)]},
        "log_to_driver": False,
        "logging_level": "error",
    }
    try:
        # `local` is Ray's own word for a cluster of its own.
        if os.environ.get("RAY_ADDRESS") == "local":
            raise ConnectionError
        ray.init(address="auto", **settings)
    except ConnectionError:
        before_local_start()
        # Ray asks for a token by default. One of this process alone keeps Ray from leaving one in the home folder
        # that later clusters would ask for.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        # Ray runs its workers, and so the engines that they start, at niceness 15 unless told otherwise: any other
        # process of the machine would then slow a measurement down.
        os.environ.setdefault("RAY_worker_niceness", "0")
        ray.init(address="local", include_dashboard=False, **settings)


def find_slots(engine: EngineSettings, *, limit: int | None = None) -> list[Slot]:
    """The cluster's engine slots: one for each GPU, or one for each node when engines run on CPUs.

    Raises:
        InputError: no node fits, or fewer than `limit`.
    """
    alive = sorted((node for node in ray.nodes() if node["Alive"]), key=lambda node: (_name(node), node["NodeID"]))
    names = Counter(_name(node) for node in alive)
    slots: list[Slot] = []
    for node in alive:
        # Nodes that share a name (several raylets on one machine) are told apart by their id.
        name = _name(node) if names[_name(node)] == 1 else f"{_name(node)}-{node['NodeID'][:6]}"
        if engine.device == "cuda" and engine.kind == "sglang":
            places, gpu = int(node["Resources"].get("GPU", 0)), 1
        else:
            fits = node["Resources"].get("CPU", 0) >= engine.cpus * engine.slots_per_node
            places, gpu = engine.slots_per_node if fits else 0, 0
        for place in range(places):
            slots.append(Slot(name if places == 1 else f"{name}.{place}", name, node["NodeID"], gpu))
    if not slots:
        have = f"{len(alive)} node{'s' * (len(alive) != 1)}"
        if engine.device == "cuda":
            raise InputError(
                f"engine.device: no node fits: cuda is asked for and none of the cluster's {have} has a GPU; "
                "start Ray on the GPU nodes, or choose a sweep with engine.device: cpu"
            )
        raise InputError(
            f"engine.cpus: no node fits: none of the cluster's {have} has {engine.cpus:g} CPUs for an engine"
        )
    if limit is not None and limit > len(slots):
        raise InputError(
            f"--nodes {limit}: the cluster has {len(slots)} engine slots: {', '.join(s.name for s in slots)}"
        )
    return slots[:limit]


def start_worker(slot: Slot, assignment_ref: Any, engine: EngineSettings) -> Any:
    """The slot's actor, bound to its node."""
    actor: Any = NodeWorker  # Ray's decorator adds methods that type checkers do not see
    return actor.options(
        num_cpus=engine.cpus,
        num_gpus=slot.gpus,
        scheduling_strategy=NodeAffinitySchedulingStrategy(slot.node_id, soft=False),
    ).remote(slot, assignment_ref)


def check_workers(workers: dict[str, Any]) -> dict[str, str]:
    """What each slot lacks, by slot; empty when all can run the sweep."""
    asked = {worker.check.remote(): name for name, worker in workers.items()}
    missing: dict[str, str] = {}
    done, late = ray.wait(list(asked), num_returns=len(asked), timeout=_CHECK_TIMEOUT_S)
    for reference in done:
        try:
            ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            missing[asked[reference]] = str(error.cause)
        except ray.exceptions.RayError as error:
            missing[asked[reference]] = f"its worker did not start: {first_line(error)}"
    for reference in late:
        missing[asked[reference]] = (
            f"its worker did not start within {_CHECK_TIMEOUT_S:g} s: the node's CPUs or GPUs are taken by another job"
        )
    return missing


def _name(node: dict[str, Any]) -> str:
    """The name given by `ray start --node-name`, else the host's."""
    given = str(node.get("NodeName") or "")
    return given if given and given != node["NodeManagerAddress"] else str(node["NodeManagerHostname"])
