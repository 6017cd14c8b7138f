"""The Ray side: which engine slots a cluster has, and one actor on each that runs engines and streams records back."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict

import ray
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import farm
from farm.driver.deadlines import sign_every_s
from farm.driver.prometheus import EngineMeters
from farm.driver.slots import Slots
from farm.engines.registry import engine_named
from farm.errors import InputError, first_line
from farm.node.messages import Answered, Assignment, Event, StillThere
from farm.node.slot import EngineSlot
from farm.spec.models import EngineSettings
from farm.text import one_line
from farm.types import CellKey

_CHECK_TIMEOUT_S: Final = 120.0
_LOOK_EVERY_S: Final = 5.0


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
        self._meters = EngineMeters(assignment.sweep_id, slot.name)
        self._sign_every_s = sign_every_s(assignment.sweep.engine)

    async def check(self) -> None:
        """Raise InputError when this node lacks what the sweep needs."""
        self._slot.check()

    async def run(
        self,
        variant: str,
        expected: tuple[CellKey, ...],
        cells: tuple[CellKey, ...],
        attempts: Mapping[CellKey, int],
    ) -> AsyncIterator[Event]:
        """Answer cells of a variant until `finish`, streaming what happens, and that it is there while nothing does."""
        async for event in _with_signs(self._slot.run(variant, expected, cells, attempts), self._sign_every_s):
            # With one request at a time, the engine has nothing else to do now.
            if isinstance(event, Answered) and self._meters.due():
                self._meters.export(variant, await self._slot.engine_metrics())
            yield event
        self._meters.engine_ended()

    async def feed(self, cells: tuple[CellKey, ...], attempts: Mapping[CellKey, int]) -> None:
        """More cells for the variant that runs."""
        self._slot.feed(cells, attempts)

    async def finish(self) -> None:
        """End the engine session once the cells that were fed are answered."""
        self._slot.finish()

    async def close(self) -> None:
        """Stop the engine."""
        await self._slot.close()


async def _with_signs(events: AsyncIterator[Event], every_s: float) -> AsyncIterator[Event]:
    """The events, and a `StillThere` whenever none has come for a while."""
    while True:
        coming = asyncio.ensure_future(anext(events, None))
        while not (await asyncio.wait({coming}, timeout=every_s))[0]:
            yield StillThere()
        if (event := coming.result()) is None:
            return
        yield event


def connect(before_local_start: Callable[[], None]) -> None:
    """Join the cluster that `RAY_ADDRESS` or a running local head names, else start a local one.

    The farm's own package travels with the job, so that every node runs the driver's version of it.

    Args:
        before_local_start: called before a local cluster is started, which takes long; it may find this machine unfit.
    """
    init = partial(
        ray.init,
        runtime_env={"py_modules": [str(Path(farm.__file__).parent)]},
        log_to_driver=False,
        logging_level="error",
    )
    try:
        # `local` is Ray's own word for a cluster of its own.
        if os.environ.get("RAY_ADDRESS") == "local":
            raise ConnectionError
        init(address="auto")
    except ConnectionError:
        before_local_start()
        # Ray asks for a token by default. One of this process alone keeps Ray from leaving one in the home folder
        # that later clusters would ask for.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        # Ray runs its workers, and so the engines that they start, at niceness 15 unless told otherwise: any other
        # process of the machine would then slow a measurement down.
        os.environ.setdefault("RAY_worker_niceness", "0")
        init(address="local", include_dashboard=False)


def find_slots(engine: EngineSettings, *, limit: int | None = None) -> list[Slot]:
    """The cluster's engine slots: one for each GPU, or one for each node when engines run on CPUs.

    Raises:
        InputError: no node fits, or fewer than `limit`.
    """
    alive = sorted(_Node.of(told) for told in ray.nodes() if told["Alive"])
    names = Counter(node.name for node in alive)
    slots: list[Slot] = []
    for node in alive:
        # Nodes that share a name (several raylets on one machine) are told apart by their id.
        name = node.name if names[node.name] == 1 else f"{node.name}-{node.node_id[:6]}"
        if engine_named(engine.kind).needs_gpu(engine):
            count, gpu = int(node.resources.get("GPU", 0)), 1
        else:
            fits = node.resources.get("CPU", 0) >= engine.cpus * engine.slots_per_node
            count, gpu = engine.slots_per_node if fits else 0, 0
        if not node.fits(engine):
            count = 0
        for index in range(count):
            slots.append(Slot(name if count == 1 else f"{name}.{index}", name, node.node_id, gpu))
    if not slots:
        have = f"{len(alive)} node{'s' * (len(alive) != 1)}"
        if alive and not any(node.fits(engine) for node in alive):
            requested = ", ".join(f"{key}={value}" for key, value in {**engine.node_labels, **engine.resources}.items())
            raise InputError(
                f"engine.node_labels, engine.resources: none of the cluster's {have} has {requested}; start Ray there "
                "with "
                "--labels and --resources, or change the sweep"
            )
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


class _Checking(NamedTuple):
    """A worker that was started and has not said yet whether its node will do."""

    slot: str
    worker: Any
    until_s: float


class WorkerPool:
    """The workers of a sweep: one on every slot that is there and fit, and the slots that come later."""

    def __init__(self, engine: EngineSettings, assignment_ref: Any, limit: int | None) -> None:
        """`limit` is the most slots to use at a time; null is all of them."""
        self.workers: dict[str, ActorHandle] = {}
        self._engine, self._assignment_ref, self._limit = engine, assignment_ref, limit
        self.slots = Slots()
        self._slots: dict[str, Slot] = {}
        self._checking: dict[Any, _Checking] = {}
        self._looked_s = time.monotonic()

    def gather(self) -> dict[str, str]:
        """Start a worker on every slot of the cluster. Returns the slots that are left out, each with the reason.

        Raises:
            InputError: no slot can run the sweep.
        """
        slots = find_slots(self._engine, limit=self._limit)
        for slot in slots:
            self._check(slot)
        unfit: dict[str, str] = {}
        while self._checking:
            unfit |= self._checked(timeout_s=1.0)[1]
        for name in unfit:
            self.slots[name].leave_out()
        if not self.workers:
            raise InputError(next(iter(unfit.values())))
        # In the order of their names, whoever answered first: it is the order of the rotation.
        self.workers = {slot.name: self.workers[slot.name] for slot in slots if slot.name in self.workers}
        return unfit

    def newcomers(self) -> tuple[list[str], dict[str, str]]:
        """Slots that came, or came back, and can be used from now on; and those that turned out unfit, with the reason.

        Looks at the cluster every few seconds at most, and never waits.
        """
        if time.monotonic() - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s = time.monotonic()
            busy = {*self.workers, *(one.slot for one in self._checking.values())}
            try:
                slots = find_slots(self._engine)
            except InputError:
                slots = []  # nobody is there at the moment
            room = len(slots) if self._limit is None else self._limit - len(self.workers) - len(self._checking)
            fit = [slot for slot in slots if slot.name not in busy and self.slots.may_join(slot.name, _life(slot))]
            for slot in fit[: max(0, room)]:
                self._check(slot)
        return self._checked(timeout_s=0.0)

    def lose(self, name: str) -> bool:
        """A slot's worker is gone or given up for now; returns whether the slot may come back."""
        self.stop_worker(name)
        return self.slots.died(name, _life(self._slots[name]))

    def stop(self) -> None:
        """End all workers; each one's engine ends with it."""
        for name in list(self.workers):
            self.stop_worker(name)
        for one in self._checking.values():
            ray.kill(one.worker)

    def stop_worker(self, name: str) -> None:
        """End a worker; its engine ends with it."""
        worker = self.workers.pop(name, None)
        if worker is not None:
            ray.kill(worker)

    def _check(self, slot: Slot) -> None:
        self._slots[slot.name] = slot
        worker = _start_worker(slot, self._assignment_ref, self._engine)
        self._checking[worker.check.remote()] = _Checking(slot.name, worker, time.monotonic() + _CHECK_TIMEOUT_S)

    def _checked(self, timeout_s: float) -> tuple[list[str], dict[str, str]]:
        fit: list[str] = []
        unfit: dict[str, str] = {}
        if not self._checking:
            return fit, unfit
        done, _ = ray.wait(list(self._checking), num_returns=len(self._checking), timeout=timeout_s)
        for reference in done:
            name, worker, _ = self._checking.pop(reference)
            try:
                ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                self.slots[name].leave_out()
                unfit[name] = str(error.cause)
                ray.kill(worker)
            except ray.exceptions.RayError as error:
                # The node went away again, or is not quite gone yet; it may be tried later.
                self.slots.died(name, _life(self._slots[name]))
                unfit[name] = f"its worker did not start: {first_line(error)}"
            else:
                self.workers[name] = worker
                fit.append(name)
        late = [reference for reference, one in self._checking.items() if time.monotonic() > one.until_s]
        for reference in late:
            name, worker, _ = self._checking.pop(reference)
            ray.kill(worker)
            self.slots.died(name, _life(self._slots[name]))
            unfit[name] = (
                f"its worker did not start within {_CHECK_TIMEOUT_S:g} s: "
                "the node's CPUs or GPUs are taken by another job, or it is frozen"
            )
        return fit, unfit


class Placement(TypedDict):
    """Ray's options for what takes an engine's place."""

    num_cpus: float
    num_gpus: float
    resources: dict[str, float]
    scheduling_strategy: NodeAffinitySchedulingStrategy


def placement(slot: Slot, engine: EngineSettings) -> Placement:
    """Ray's options for an actor or task that takes an engine's place: bound to its node, with what an engine takes."""
    node = NodeAffinitySchedulingStrategy(slot.node_id, soft=False)
    return Placement(num_cpus=engine.cpus, num_gpus=slot.gpus, resources=engine.resources, scheduling_strategy=node)


def _start_worker(slot: Slot, assignment_ref: Any, engine: EngineSettings) -> Any:
    actor: Any = NodeWorker  # Ray's decorator adds methods that type checkers do not see
    return actor.options(**placement(slot, engine)).remote(slot, assignment_ref)


def _life(slot: Slot) -> str:
    return f"{slot.name} {slot.node_id}"


class _Node(NamedTuple):
    """What Ray tells of a node."""

    name: str  # given by `ray start --node-name`, else the host's
    node_id: str
    labels: dict[str, str]
    resources: dict[str, float]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> _Node:
        """From an entry of `ray.nodes()`."""
        given = str(told.get("NodeName") or "")
        name = given if given and given != told["NodeManagerAddress"] else str(told["NodeManagerHostname"])
        return cls(one_line(name)[:80] or "node", told["NodeID"], told.get("Labels") or {}, told["Resources"])

    def fits(self, engine: EngineSettings) -> bool:
        """Whether it carries the labels and resources that the sweep asks for."""
        return all(self.labels.get(key) == value for key, value in engine.node_labels.items()) and all(
            self.resources.get(key, 0) >= value for key, value in engine.resources.items()
        )
