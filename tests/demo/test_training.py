"""The training code needs torch, which the farm's own environment has not: its checks run in the engine's."""

import subprocess

from support import REPOSITORY


def test_training_code_in_the_engines_environment(cpu_engine):
    command = [cpu_engine, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--override-ini", "addopts=", "--noconftest"]
    done = subprocess.run([*command, "tests/demo/training_checks.py"], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
