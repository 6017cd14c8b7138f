"""What can be said of a node within two seconds, before anything expensive starts. Knows no Ray.

check      one thing looked at
view       the sweep as this node sees it
weights    whether a model's files are there and whole
engine     interpreter, packages, plug-in and weights
machine    disk, port, Ray's settings
inside     run by the engine's own interpreter: versions, imports, what torch sees
"""

from __future__ import annotations

from farm.node.preflight import engine, machine
from farm.node.preflight.check import Check, problems
from farm.node.preflight.view import Node
from farm.spec.models import Sweep

__all__ = ["problems", "quick_checks"]


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
