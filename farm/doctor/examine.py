"""All checks of a node: what is looked at before every sweep, and what takes longer."""

from __future__ import annotations

from farm.doctor import machine, probe, versions
from farm.node.preflight import engine
from farm.node.preflight import machine as quick
from farm.node.preflight.check import SKIPPED, Check
from farm.node.preflight.view import Node
from farm.spec.models import Sweep


def all_checks(sweep: Sweep, driver: versions.Driver, *, bandwidth_probe: bool) -> list[Check]:
    """Everything but the clock offset, which only the driver can see."""
    node = Node(sweep)
    return [
        machine.gpu(node),
        machine.architecture(node),
        *engine.interpreter(node, imports=True),
        versions.same_versions(driver),
        machine.memory(node),
        machine.other_engines(node),
        engine.weights(node),
        machine.kernel_caches(node),
        quick.disk(),
        quick.port(),
        quick.memory_monitor(node),
        quick.niceness(),
        probe.bandwidth(node) if bandwidth_probe else Check("bandwidth", SKIPPED, "--skip-bandwidth"),
    ]
