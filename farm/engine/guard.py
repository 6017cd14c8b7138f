"""Runs one engine and lets nothing of it outlive its owner: `python guard.py GRACE_S COMMAND...`.

The owner holds the write end of this process's standard input. When the owner dies, however it dies, the kernel closes
that pipe, and the guard ends the engine. It is a subreaper: whatever the engine starts, in sessions of its own and
orphaned by its parent too, stays a descendant of the guard, so the whole tree can be found and ended.

Standard library only, and no import of the farm: it must start at once and never fail on a node's environment.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def descendants(root: int) -> list[int]:
    """Process ids below `root`, from one reading of /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            # The name in parentheses may hold anything; state and parent follow the last parenthesis.
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    frontier = [root]
    while frontier:
        frontier = [child for parent in frontier for child in children.get(parent, [])]
        found += frontier
    return found


def _signal_all(number: signal.Signals) -> bool:
    """Signal every descendant; false when there is none left."""
    pids = descendants(os.getpid())
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
    return bool(pids)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _end_all(grace_s: float) -> None:
    """Ask every descendant to end, then make it: new ones may appear while old ones die, hence the loop."""
    deadline = time.monotonic() + grace_s
    if _signal_all(signal.SIGTERM):
        while time.monotonic() < deadline and descendants(os.getpid()):
            _reap()
            time.sleep(0.05)
    while _signal_all(signal.SIGKILL):
        _reap()
        time.sleep(0.05)
    _reap()


def main(grace_s: float, command: list[str]) -> int:
    """Run the command until it ends, the owner ends, or a signal comes; returns the command's exit status."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # A signal only has to wake the loop below.
    woken_r, woken_w = os.pipe()
    os.set_blocking(woken_w, False)
    signal.set_wakeup_fd(woken_w)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    engine = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        # Should the guard itself be killed, the kernel ends the engine's first process.
        preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
    )
    while engine.poll() is None:
        ready, _, _ = select.select([0, woken_r], [], [])
        if 0 in ready and not os.read(0, 4096):
            break
        if woken_r in ready and any(byte != signal.SIGCHLD for byte in os.read(woken_r, 64)):
            break
    _end_all(grace_s)
    # _end_all may have reaped the child itself; then its status is gone and the tree was ended on request.
    return engine.poll() or 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
