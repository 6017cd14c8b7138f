"""`jobs/doctor.py`: whether each node can run a sweep, and what to do where it cannot. Builds on `farm.node.preflight`.

verdict    a node's verdict from its checks
versions   Ray and Python as the driver has them
machine    checks of GPU, memory, other engines, caches, clock
probe      ten seconds of copies with the clock watched
examine    which checks are made
bandwidth  run by the engine's own interpreter: the copies
show       tables, plain lines and JSON
"""
