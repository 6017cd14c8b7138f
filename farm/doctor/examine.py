"""All checks of a node, and those that are quick enough for the gate before a sweep."""

from __future__ import annotations

from farm.doctor import engine, machine, probe
from farm.doctor.node import Node
from farm.doctor.verdict import SKIPPED, Check
from farm.spec.models import Sweep


def quick_checks(sweep: Sweep) -> list[Check]:
    """What can be said within two seconds: for the gate before a sweep. `problems` turns it into sentences."""
    node = Node(sweep)
    return [
        *engine.interpreter(node, imports=False),
        engine.weights(node),
        machine.disk(),
        machine.port(),
        machine.memory_monitor(node),
        machine.niceness(),
    ]


def all_checks(sweep: Sweep, driver: engine.Driver, *, bandwidth_probe: bool) -> list[Check]:
    """Everything but the clock offset, which only the driver can see."""
    node = Node(sweep)
    return [
        machine.gpu(node),
        machine.architecture(node),
        *engine.interpreter(node, imports=True),
        engine.same_versions(driver),
        machine.memory(node),
        machine.leftovers(node),
        engine.weights(node),
        machine.kernel_caches(node),
        machine.disk(),
        machine.port(),
        machine.memory_monitor(node),
        machine.niceness(),
        probe.bandwidth(node) if bandwidth_probe else Check("bandwidth", SKIPPED, "--skip-bandwidth"),
    ]
