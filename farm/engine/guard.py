"""Runs one engine and lets nothing of it outlive its owner: `python guard.py GRACE_S COMMAND...`.

The owner holds the write end of this process's standard input. When the owner dies, however it dies, the kernel closes
that pipe, and the guard ends the engine. It is a subreaper: whatever the engine starts, in sessions of its own and
orphaned by its parent too, stays a descendant of the guard, so the whole tree can be found and ended.

Should the guard itself be killed, the kernel ends the engine's first process at once. The others carry the guard's mark
in their environment, and `end_leftovers` ends what bears the mark of a guard that is no more.

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
MARK = "FARM_ENGINE_GUARD"  # GUARD'S PID:GUARD'S START TIME, in the environment of all that an engine starts


def _processes() -> dict[int, tuple[int, str]]:
    """Parent and start time of every process that is no zombie, by process id, from one reading of /proc."""
    found: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            # The name in parentheses may hold anything; state and parent follow the last parenthesis.
            fields = stat.rpartition(")")[2].split()
            if fields[0] != "Z":
                found[int(entry.name)] = (int(fields[1]), fields[19])
    return found


def descendants(root: int) -> list[int]:
    """Process ids below `root`."""
    return _below([root], _processes())


def leftovers() -> list[int]:
    """Processes of engines whose guard is gone, and what these started."""
    processes = _processes()
    orphans = []
    for pid in processes:
        guard, _, started = _mark_of(pid).partition(":")
        if started and processes.get(int(guard), (0, ""))[1] != started:
            orphans.append(pid)
    return [*orphans, *(pid for pid in _below(orphans, processes) if pid not in orphans)]


def end_leftovers() -> list[int]:
    """End what is left of engines whose guard was killed; returns the process ids. A process id that is used again
    would have to be so within this reading of /proc."""
    ended: list[int] = []
    while found := leftovers():
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        ended += [pid for pid in found if pid not in ended]
        time.sleep(0.05)
    return ended


def _below(roots: list[int], processes: dict[int, tuple[int, str]]) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in processes.items():
        children.setdefault(parent, []).append(pid)
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
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ""
    for entry in environment.split(b"\0"):
        if entry.startswith(f"{MARK}=".encode()):
            mark = entry.partition(b"=")[2].decode(errors="replace")
            guard, _, started = mark.partition(":")
            return mark if guard.isdigit() and started.isdigit() else ""
    return ""


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
    mark = f"{os.getpid()}:{_processes()[os.getpid()][1]}"
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
