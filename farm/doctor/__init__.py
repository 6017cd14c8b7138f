"""`jobs/doctor.py`: whether each node can run a sweep, and what to do where it cannot.

verdict    a `Check`, and a node's verdict from its checks
weights    whether a model's files are there and whole
node       the sweep as this node sees it
engine     checks of interpreter, packages, plug-in and weights
machine    checks of GPU, memory, other engines, caches, disk, port, clock, Ray's settings
probe      ten seconds of copies with the clock watched
examine    which checks are made, all or the quick ones
inside     run by the engine's own interpreter: versions, imports, what torch sees
bandwidth  run by the engine's own interpreter: the copies
show       tables, plain lines and JSON
cli        the command, and the Ray side
"""

from farm.doctor.examine import quick_checks
from farm.doctor.verdict import Check, Verdict, problems

__all__ = ["Check", "Verdict", "problems", "quick_checks"]
