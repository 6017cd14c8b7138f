"""Ends the runs of a driver that is no more: `python watch.py COMMAND...` runs COMMAND when its standard input closes.

The driver holds the other end of the pipe. When it dies, however it dies, the kernel closes it; a driver that has
logged its sweep to the end writes a word first, and nothing is left to do. Standard library only: it waits beside a
sweep for a day, and should cost nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_DONE = b"done"
_watchers: dict[Path, subprocess.Popen[bytes]] = {}


def watch(folder: Path, uri: str) -> None:
    """Have the sweep in `folder` logged as ended, should this process die before it does so itself."""
    if folder in _watchers:
        return
    package = Path(__file__).parents[2]
    # In the environment, where no list of processes shows a password that the address may hold.
    env = os.environ | {"PYTHONPATH": str(package), "MLFLOW_TRACKING_URI": uri}
    _watchers[folder] = subprocess.Popen(
        [sys.executable, __file__, sys.executable, "-m", "farm.tracking", "sync", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=env,
        cwd="/",
        # Out of reach of Ctrl-C and of what ends a Ray job's process group.
        start_new_session=True,
    )


def unwatch(folder: Path) -> None:
    """The sweep in `folder` is logged to its end."""
    watcher = _watchers.pop(folder, None)
    if watcher is not None:
        watcher.communicate(_DONE)


if __name__ == "__main__":
    if sys.stdin.buffer.read() != _DONE:
        os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - the command of `watch` above, no shell
