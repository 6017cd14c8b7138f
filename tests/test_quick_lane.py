"""The quick lane's watch: whatever process of a test starts Ray or an engine, the test hears of it."""

import json
import os
import subprocess
import sys

import pytest
from quick_lane import sitecustomize

STARTS = "import json, os, subprocess; subprocess.run(json.loads(os.environ['COMMAND']))"
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {STARTS!r}])"


@pytest.mark.parametrize(
    ("command", "marker"),
    [
        (["/somewhere/gcs_server", "--port", "1"], "ray"),
        (["/somewhere/bin/ray", "start", "--head"], "ray"),
        ([sys.executable, "-m", "farm.engines.emulated"], "engine"),
        ([sys.executable, "/somewhere/guard.py", "--", "python", "-m", "sglang.launch_server"], "engine"),
        ([sys.executable, "-c", "print('ray')"], None),
    ],
)
def test_what_a_process_of_a_process_starts_is_told(tmp_path, command, marker):
    report = tmp_path / "report"
    places = {"PYTHONPATH": os.path.dirname(sitecustomize.__file__), sitecustomize.REPORT: str(report)}
    env = os.environ | places | {"COMMAND": json.dumps(command)}
    subprocess.run([sys.executable, "-c", CHILD], env=env, capture_output=True, check=True)
    if marker is None:
        assert not report.exists()
    else:
        assert f"@pytest.mark.{marker}" in report.read_text()
