"""The training code needs torch, which the farm's own environment has not: its checks run in the engine's."""

import os
import subprocess

from support import REPOSITORY


def test_training_code_in_the_engines_environment(cpu_engine):
    command = [cpu_engine, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--override-ini", "addopts=", "--noconftest"]
    # With threads of their own, tests that run beside this one would make it ten times slower.
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "tests/infra/training_checks.py"], cwd=REPOSITORY, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
