"""The quick start's script where it refuses, gives up or is ended: it says why, and leaves nothing behind.

The whole of it takes minutes, also beside another Ray: `bash infra/quickstart.sh`.
"""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support import REPOSITORY

SCRIPT = REPOSITORY / "infra" / "quickstart.sh"


def started_with(home):
    """The environments of processes that have this FARM_HOME in them, by process id."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = file.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if f"FARM_HOME={home}" in environment:
            found[int(file.parent.name)] = environment
    return found


@pytest.mark.parametrize("script", ["quickstart.sh", "setup.sh", "cpu-engine/build.sh"])
@pytest.mark.parametrize(("variable", "name"), [("HOME", "a b"), ("FARM_HOME", "a b"), ("FARM_HOME", "a$b")])
def test_a_path_that_engines_cannot_run_from_is_refused_before_anything_is_made(script, variable, name, tmp_path):
    home = tmp_path / name
    environment = os.environ | {"FARM_HOME": str(tmp_path / "farm"), variable: str(home)}
    done = subprocess.run(["bash", REPOSITORY / "infra" / script], env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert str(home) in done.stderr
    assert f"export {variable}=" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_ray_that_does_not_come_up_is_told_with_its_log(cpu_engine, farm_home):
    # Ray's server ends at once where it shall use TLS and has no certificate. What starts it need not wait long for it.
    waits = ("gcs_server_port_wait_time", "gcs_rpc_server_connect_timeout", "py_gcs_connect_timeout")
    broken = os.environ | {"RAY_USE_TLS": "1"} | {f"RAY_{name}_s": "1" for name in waits}
    done = subprocess.run(["bash", SCRIPT], env=broken, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Ray ended" in done.stderr
    assert "Failed to start GCS" in done.stderr
    [folder] = set(re.findall(r"==> (/tmp/farm\.\w+)/", done.stderr))
    assert not Path(folder).exists()
    assert not started_with(farm_home)


def test_ended_early_it_ends_the_ray_that_it_started(cpu_engine, farm_home):
    script = subprocess.Popen(["bash", SCRIPT], stdout=subprocess.PIPE, text=True)
    try:
        assert script.stdout is not None
        assert any("waiting until it takes jobs" in line for line in script.stdout)
        while not (servers := [pid for pid in started_with(farm_home) if process_name(pid) == "gcs_server"]):
            assert script.poll() is None
            time.sleep(0.1)
        environment = started_with(farm_home)[servers[0]]
        [folder] = [word.removeprefix("RAY_TMPDIR=") for word in environment if word.startswith("RAY_TMPDIR=")]
        assert Path(folder).exists()
    finally:
        script.terminate()
        status = script.wait(60)
    assert status == 128 + signal.SIGTERM
    assert not started_with(farm_home)
    assert not Path(folder).exists()


def process_name(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None  # it has ended
