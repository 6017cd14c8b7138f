"""Checks of the machine that cost nothing: disk, port, Ray's settings."""

from __future__ import annotations

import os
import shutil
import socket
from typing import Final

from farm.node.preflight.check import FAIL, OK, WARN, Check, judged, not_applicable
from farm.node.preflight.view import GIB, NO_GPU, Node
from farm.paths import farm_home

DISK_FLOOR_GIB: Final = 5.0


def disk() -> Check:
    """Room for logs and caches below FARM_HOME."""
    home = farm_home()
    folder = next(path for path in (home, *home.parents) if path.exists())
    free_gib = shutil.disk_usage(folder).free / GIB
    short = (
        None if free_gib >= DISK_FLOOR_GIB else f"{free_gib:.1f} GiB are free under {folder}, {DISK_FLOOR_GIB:g} needed"
    )
    return judged(
        "disk", f"{free_gib:.0f} GiB free under {folder}", short, "free some, or set FARM_HOME to another disk"
    )


def port() -> Check:
    """A loopback port for an engine to listen on."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5):
            pass
    except OSError as error:
        return Check("port", FAIL, f"no loopback port can be opened: {error}", "allow connections to 127.0.0.1")
    return Check("port", OK, "a loopback port is free")


def memory_monitor(node: Node) -> Check:
    """On unified memory Ray's memory monitor kills engines for using it."""
    name = "Ray's memory monitor"
    if not node.on_gpu or node.gpu is None or node.gpu.total_gib is not None:
        return not_applicable(name, "the engine's memory is not the host's" if node.on_gpu else NO_GPU)
    if os.environ.get("RAY_memory_monitor_refresh_ms") == "0":  # noqa: SIM112 - Ray's own spelling
        return Check(name, OK, "off")
    do = "start Ray with RAY_memory_monitor_refresh_ms=0 in its environment"
    return Check(name, FAIL, "it is on, and would kill engines at 95 % of this unified memory", do)


def niceness() -> Check:
    """Engines inherit it; Ray's own default of 15 lets any other process slow a measurement down."""
    value = os.getpriority(os.PRIO_PROCESS, 0)
    problem = f"workers run at niceness {value}" if value > 0 else None
    return judged(
        "niceness", str(value), problem, "start Ray with RAY_worker_niceness=0 in its environment", status=WARN
    )
