"""Preparation: what would be compiled, how many compilers fit, and a node that is lost."""

import json
import subprocess
import sys

from support import REPOSITORY

from farm.cli.prewarm import compilers_at_once, prewarm_node, short_command
from farm.spec.loading import load_sweep

SWEEPS = REPOSITORY / "jobs" / "sweeps"


def test_compilers_are_bounded_by_memory_and_processor():
    assert compilers_at_once(102, cpus=20) == 12
    assert compilers_at_once(512, cpus=20) == 20
    assert compilers_at_once(3, cpus=20) == 1


def test_the_short_engine_is_the_variants_own_with_dummy_weights_and_few_layers():
    sweep = load_sweep(SWEEPS / "ling-flash-ladder.yaml")
    command = short_command(sweep, sweep.variant("humming+fp8-head+nextn"), 6, "/model", "python")
    argv = list(command.argv)

    def value(flag):
        return argv[argv.index(flag) + 1]

    assert value("--load-format") == "dummy"
    assert json.loads(value("--json-model-override-args")) == {"num_hidden_layers": 6}
    assert value("--moe-runner-backend") == "humming"
    assert value("--speculative-draft-model-path") == "/model"
    assert "--disable-cuda-graph" in argv
    assert command.env["SGLANG_ENABLE_FP8_LM_HEAD"] == "1"
    whole = short_command(sweep, sweep.variant("baseline"), 0, "/model", "python")
    assert "--json-model-override-args" not in whole.argv


def test_a_cpu_engine_has_nothing_to_compile():
    report = prewarm_node("here", load_sweep(SWEEPS / "quickstart.yaml"), 6)
    assert "nothing to compile" in report.note
    assert report.steps == []


LOSES_TWO = """
import os, sys
from pathlib import Path
from farm.cli import prewarm
# Ray tries a task of a dead worker again, until it gives it up.
report = prewarm.NodeReport
prewarm.prewarm_node = lambda node, sweep, layers: os._exit(1) if node == "two" else report(node, "compiled")
sys.exit(prewarm.main(["quickstart"], Path("jobs/sweeps")))
"""


def test_a_lost_node_leaves_the_other_reports_as_they_are(ray_cluster):
    done = subprocess.run(
        [sys.executable, "-c", LOSES_TWO],
        env=ray_cluster.env,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1, done.stdout + done.stderr[-2000:]
    assert "one: compiled" in done.stdout
    assert "was lost" in done.stdout.partition("two:")[2]


def test_bad_input_is_refused_before_ray_starts():
    done = subprocess.run(
        [sys.executable, REPOSITORY / "jobs" / "prewarm.py", "no-such-sweep"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "no-such-sweep" in done.stdout
