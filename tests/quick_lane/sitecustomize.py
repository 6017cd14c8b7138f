"""Watches that nothing of the quick lane starts Ray or an engine.

`tests/conftest.py` puts this folder on PYTHONPATH: Python imports a module of this name by itself in every process that
a test starts.
"""

import os
import sys

REPORT = "FARM_TESTS_STARTED"
"""Variable that names the file which tells the test what was started."""
PROGRAMS = {
    "ray": ("raylet", "gcs_server", "ray"),
    "engine": ("farm.engines.emulated", "sglang.launch_server"),
}


def watch(event, arguments):
    """Audit hook: refuse to start such a program, and tell the test."""
    if event not in ("subprocess.Popen", "os.exec", "os.posix_spawn"):
        return
    program, words = arguments[0], arguments[1]
    words = words.split() if isinstance(words, str) else [os.fsdecode(word) for word in words]
    names = {os.path.basename(os.fsdecode(program)), *map(os.path.basename, words)}
    for marker, programs in PROGRAMS.items():
        if started := names.intersection(programs):
            said = (
                f"the quick lane starts no {marker}, and this test starts {started.pop()}: mark it with "
                f"@pytest.mark.{marker}, or use a fixture that does"
            )
            with open(os.environ[REPORT], "a") as report:
                report.write(f"{said}\n")
            raise RuntimeError(said)


if REPORT in os.environ:
    sys.addaudithook(watch)
