"""Runs one engine and lets nothing of it outlive its owner: `python guard.py GRACE_S COMMAND...`.

The owner holds the write end of this process's standard input. When the owner dies, however it dies, the kernel closes
that pipe, and the guard ends the engine. It is a subreaper: whatever the engine starts, in sessions of its own and
orphaned by its parent too, stays a descendant of the guard, so the whole tree can be found and ended.

Should the guard itself be killed, the kernel ends the engine's first process at once. The others carry the guard's mark
in their environment, and `end_leftovers` ends what bears the mark of a guard that is no more.

Standard library only, and no import of the farm: it must start at once and never fail on a node's environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
MARK = "FARM_ENGINE_GUARD"  # GUARD'S PID:GUARD'S START TIME, in the environment of all that an engine starts


class _Process(NamedTuple):
    parent: int
    started: str
    stopped: bool  # by SIGSTOP or the like


_NONE = _Process(0, "", False)


def _processes() -> dict[int, _Process]:
    """Every process that has not ended, by process id, from one reading of /proc.

    A process whose first thread has ended while others go on is shown as a zombie, too: it holds all its memory.
    """
    found: dict[int, _Process] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            # The name in parentheses may hold anything; state and parent follow the last parenthesis.
            fields = stat.rpartition(")")[2].split()
            state, parent, threads, started = fields[0], int(fields[1]), int(fields[17]), fields[19]
            if state not in "ZX" or threads > 1:
                found[int(entry.name)] = _Process(parent, started, stopped=state == "T")
    return found


def descendants(root: int) -> list[int]:
    """Process ids below `root`."""
    return _below([root], _processes())


def orphan_processes() -> list[int]:
    """Processes of engines whose guard is gone, and what these started."""
    return _leftovers(_processes())


def _leftovers(processes: dict[int, _Process]) -> list[int]:
    orphans = []
    for pid in processes:
        guard, _, started = _mark_of(pid).partition(":")
        if started and processes.get(int(guard), _NONE).started != started:
            orphans.append(pid)
    return [*orphans, *(pid for pid in _below(orphans, processes) if pid not in orphans)]


def _wake_guards(processes: dict[int, _Process]) -> None:
    """Let guards that were stopped go on: one whose owner is gone then ends its engine, and any other has no harm."""
    for guard in {int(mark.partition(":")[0]) for pid in processes if (mark := _mark_of(pid))}:
        if processes.get(guard, _NONE).stopped:
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                os.kill(guard, signal.SIGCONT)


def end_orphans(patience_s: float = 60.0) -> list[int]:
    """End what is left of engines whose guard was killed, and wait until it has ended; returns the process ids. Guards
    that were stopped go on.

    A process id that is used again would have to be so within this reading of /proc. A process that a wedged driver
    keeps from ending is left behind after `patience_s`: the memory that it holds is seen before the next start.
    """
    deadline = time.monotonic() + patience_s
    ended: dict[int, str] = {}  # when each was started, by process id
    _wake_guards(_processes())
    while True:
        processes = _processes()
        found = _leftovers(processes)
        # A process that is dying has lost its mark, its memory not yet.
        dying = any(processes.get(pid, _NONE).started == started for pid, started in ended.items())
        if not (found or dying) or time.monotonic() > deadline:
            return list(ended)
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
            ended[pid] = processes[pid].started
        time.sleep(0.05)


def _below(roots: list[int], processes: dict[int, _Process]) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found: list[int] = []
    frontier = roots
    while frontier:
        frontier = [child for parent in frontier for child in children.get(parent, [])]
        found += frontier
    return found


def _mark_of(pid: int) -> str:
    """The mark in a process's environment; empty for other people's processes and those of other containers, whose
    process ids count elsewhere."""
    try:
        if os.readlink(f"/proc/{pid}/ns/pid") != os.readlink("/proc/self/ns/pid"):
            return ""
        threads = sorted(os.listdir(f"/proc/{pid}/task"), key=int)
    except OSError:
        return ""
    for thread in threads:
        try:
            environment = Path(f"/proc/{pid}/task/{thread}/environ").read_bytes()
        except ProcessLookupError:
            continue
        except OSError:
            return ""
        if not environment:  # this thread, be it the first, has ended, and others may go on
            continue
        for entry in environment.split(b"\0"):
            if entry.startswith(f"{MARK}=".encode()):
                mark = entry.partition(b"=")[2].decode(errors="replace")
                guard, _, started = mark.partition(":")
                return mark if guard.isdigit() and started.isdigit() else ""
        return ""
    return ""


def _signal_all(number: signal.Signals) -> None:
    for pid in descendants(os.getpid()):
        try:
            os.kill(pid, number)
        except OSError:  # it has ended, or is another user's
            continue


def _reap() -> bool:
    """Take the status of all children that have ended; false when there is no child left, ended or not.

    All descendants become children of this process, their reaper, once their parents end: without a child there is no
    descendant, and whoever looks for one by its process id finds none.
    """
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _end_all(grace_s: float) -> None:
    """Ask every descendant to end, then make it: new ones may appear while old ones die, hence the loop."""
    deadline = time.monotonic() + grace_s
    _signal_all(signal.SIGTERM)
    while _reap() and time.monotonic() < deadline:
        time.sleep(0.05)
    while _reap():
        _signal_all(signal.SIGKILL)
        time.sleep(0.05)


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
    mark = f"{os.getpid()}:{_processes()[os.getpid()].started}"
    engine = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        # SPT_NOENV: SGLang's processes rename themselves, and their environment must stay readable under /proc.
        env={**os.environ, MARK: mark, "SPT_NOENV": "1"},
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
    status = engine.poll() or 0
    return status if status >= 0 else 128 - status  # as shells say that a signal ended it


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
