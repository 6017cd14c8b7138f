"""Nothing of an engine outlives its owner: a tree that ignores SIGTERM, an orphaned grandchild in its own session."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from support import REPOSITORY

from farm.engines import guard, process
from farm.engines.base import EngineCommand
from farm.errors import EngineStartError

GRANDCHILD = """
import os, signal, time
os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""
ORPHAN_MAKER = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
STUBBORN = f"""
import signal, subprocess, sys, time
subprocess.run([sys.executable, "-c", {ORPHAN_MAKER!r}, {GRANDCHILD!r}])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(600)
"""
ENGINE = EngineCommand((sys.executable, "-c", STUBBORN), {})
# Its first thread is gone and /proc calls it a zombie, yet it runs.
HALF_DEAD = """
import ctypes, signal, threading, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Thread(target=time.sleep, args=(600,)).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
WITH_A_HALF_DEAD_CHILD = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {HALF_DEAD!r}])
"""
OWNER = f"""
import sys, time
from pathlib import Path
from farm.engines import process
from farm.engines.sglang.command import EngineCommand
engine = process.start(EngineCommand((sys.executable, "-c", {STUBBORN!r}), {{}}), Path(sys.argv[1]))
print(engine.guard.pid, flush=True)
sys.stdin.readline()
engine.stop()
"""


def tree_of(guard_pid, log):
    """The engine and its grandchild, once both are up."""
    deadline = time.monotonic() + 60
    while not log.exists() or "up" not in log.read_text() or len(guard.descendants(guard_pid)) < 2:
        assert time.monotonic() < deadline, "the tree did not come up"
        time.sleep(0.05)
    return guard.descendants(guard_pid)


def running(pids):
    """Those of the processes that still run, be it without their first thread."""
    found = []
    for pid in pids:
        try:
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1:
                found.append(pid)
        except psutil.NoSuchProcess:
            continue
    return found


def wait_until_gone(pids):
    deadline = time.monotonic() + 60
    while left := running(pids):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


@pytest.fixture
def owner(tmp_path):
    """A process that owns an engine, and the pids of the engine's guard and tree."""
    log = tmp_path / "engine.log"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(log)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        start_new_session=True,
    )
    guard_pid = int(owner.stdout.readline())
    tree = tree_of(guard_pid, log)
    yield owner, guard_pid, tree
    owner.kill()
    owner.wait()
    for pid in [guard_pid, *tree]:
        if running([pid]):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("end", ["owner killed", "guard told", "input closed"])
def test_nothing_outlives_its_owner(owner, end):
    owner, guard_pid, tree = owner
    if end == "owner killed":
        owner.kill()
    elif end == "guard told":
        os.kill(guard_pid, signal.SIGTERM)
    else:
        owner.stdin.write("\n")
        owner.stdin.flush()
    wait_until_gone([*tree, guard_pid])


def test_a_killed_guard_takes_the_engine_along_and_its_owner_ends_the_rest(tmp_path):
    engine = process.start(ENGINE, tmp_path / "engine.log")
    tree = tree_of(engine.guard.pid, engine.log)
    engine.guard.kill()
    engine.guard.wait()
    assert not engine.alive
    engine.stop()
    assert running(tree) == []


def test_what_a_killed_owner_and_guard_leave_behind_is_ended_before_the_next_start(owner, tmp_path):
    owner, guard_pid, tree = owner
    (grandchild,) = [pid for pid in tree if psutil.Process(pid).cmdline()[-1] == GRANDCHILD]
    (engine_pid,) = set(tree) - {grandchild}
    os.kill(guard_pid, signal.SIGSTOP)  # so that it does not see its owner's end first
    owner.kill()
    os.kill(guard_pid, signal.SIGKILL)
    owner.wait()
    wait_until_gone([guard_pid, engine_pid])  # the kernel ends the engine's first process with its guard
    # It lives on as a leftover, unless an engine that was started elsewhere on this machine has just ended it.
    assert grandchild in guard.orphan_processes() or not running([grandchild])
    other = subprocess.Popen(["sleep", "600"], env={guard.MARK: "not a mark"})
    engine = process.start(ENGINE, tmp_path / "next.log")
    try:
        assert running(tree) == []
        assert engine.alive
        assert other.poll() is None, "what bears no mark is nobody's engine"
    finally:
        other.kill()
        other.wait()
        engine.stop()
    assert not set(tree) & set(guard.orphan_processes())


def test_a_guard_that_is_stopped_beside_its_engine_ends_it_at_the_next_start(owner, tmp_path):
    owner, guard_pid, tree = owner
    for pid in [guard_pid, *tree]:
        os.kill(pid, signal.SIGSTOP)
    owner.kill()
    owner.wait()
    engine = process.start(ENGINE, tmp_path / "next.log")
    try:
        wait_until_gone([guard_pid, *tree])
    finally:
        engine.stop()


@pytest.mark.parametrize("killed", ["nothing", "guard"])
def test_a_process_whose_first_thread_has_ended_is_ended_too(tmp_path, killed):
    engine = process.start(EngineCommand((sys.executable, "-c", WITH_A_HALF_DEAD_CHILD), {}), tmp_path / "engine.log")
    tree = tree_of(engine.guard.pid, engine.log)
    assert psutil.STATUS_ZOMBIE in [psutil.Process(pid).status() for pid in tree]
    if killed == "guard":
        engine.guard.kill()
    engine.stop()
    assert running(tree) == []


def test_an_engine_that_runs_is_no_leftover(owner):
    _, _, tree = owner
    assert not set(tree) & set(guard.orphan_processes())
    assert not set(tree) & set(guard.end_orphans())
    assert running(tree) == tree


def test_a_log_that_cannot_be_written_is_a_failed_start(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineStartError, match="folder writable"):
        process.start(ENGINE, tmp_path / "file" / "engine.log")
