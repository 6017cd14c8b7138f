"""The engines' command lines that `--dry-run` prints: pasted into a shell, they start what the farm would start."""

import shlex
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
import yaml
from support import REPOSITORY, free_port, run_sweep

from farm.builtin import demo
from farm.engines.base import model_of, python_of
from farm.engines.registry import engine_of
from farm.spec.loading import load_sweep


def printed(*arguments):
    """The command lines of a dry run by variant."""
    done = run_sweep(*arguments, "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    return {lines[place - 1].removeprefix("# "): line for place, line in enumerate(lines) if line.startswith("env ")}


def words(line):
    """What a shell makes of a line."""
    split = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True).stdout
    return split.split("\0")[:-1]


def test_a_printed_line_is_what_starts(cpu_engine, farm_home):
    lines = printed("quickstart")
    sweep = load_sweep(REPOSITORY / "jobs" / "sweeps" / "quickstart.yaml", [])
    assert list(lines) == [variant.name for variant in sweep.variants]
    for variant in sweep.variants:
        command = engine_of(sweep).command(sweep, variant, model_path=model_of(sweep), python=python_of(sweep))
        settings = [f"{name}={value}" for name, value in command.env.items()]
        assert words(lines[variant.name]) == shlex.split(lines[variant.name]) == ["env", *settings, *command.argv]
        assert command.argv[0] == str(farm_home / "envs" / "engine-cpu" / "bin" / "python")
        assert Path(command.argv[0]).exists()
        assert command.argv[command.argv.index("--model-path") + 1] == str(demo.model_path())
    assert not (farm_home / "results").exists()


@pytest.mark.engine
def test_a_printed_emulated_engine_starts(tmp_path, farm_home):
    sweep = {
        "name": "pasted",
        "model": {"path": "inclusionAI/Ling-3.0-flash-fp4"},
        "engine": {"kind": "emulated", "args": {"emulation-speed": 1000}, "env": {"SAID": "it's $HOME"}},
        "variants": ["humming+nextn"],
        "workloads": {"synthetic": {"kind": "synthetic", "requests": 1, "input_tokens": 64, "output_tokens": 8}},
    }
    path = tmp_path / "pasted.yaml"
    path.write_text(yaml.safe_dump(sweep))
    [line] = printed(path).values()
    assert "SAID=it's $HOME" in words(line)
    port = free_port()
    engine = subprocess.Popen(["bash", "-c", f"exec {line} --port {port}"], cwd="/")
    try:
        while True:
            assert engine.poll() is None
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
                    assert answer.status == 200
                    break
            except OSError:
                time.sleep(0.1)
    finally:
        engine.terminate()
        engine.wait()
