"""infra/spark/weights.sh over real rsync, with `ssh` replaced by a shell on this machine that has another home."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY

MODEL = "someone/a-model"
FOLDER = "huggingface/hub/models--someone--a-model"
SCRIPT = REPOSITORY / "infra" / "spark" / "weights.sh"
# The words after `ssh [-c CIPHER] [-o OPTION] HOST` go to a shell on the host.
SSH = """#!/bin/bash
while [[ $1 == -* ]]; do shift 2; done
export HOME=$HOSTS/$1
shift
cd "$HOME" && exec sh -c "$*"
"""


@pytest.fixture(scope="module")
def rsync():
    assert shutil.which("rsync"), "apt-get install rsync"


@pytest.fixture
def sparks(tmp_path, monkeypatch, rsync):
    """The homes of this machine and two others; the hub's cache of this one holds a small model."""
    hosts = tmp_path / "hosts"
    for name in ("here", "spark-2", "spark-3"):
        (hosts / name).mkdir(parents=True)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "ssh").write_text(SSH)
    (tools / "ssh").chmod(0o755)
    farm = tmp_path / "farm" / "envs" / "farm"
    farm.parent.mkdir(parents=True)
    farm.symlink_to(sys.prefix)
    cache = hosts / "here" / ".cache" / FOLDER
    snapshot = cache / "snapshots" / ("1" * 40)
    for place in (snapshot, cache / "blobs", cache / "refs"):
        place.mkdir(parents=True)
    (cache / "refs" / "main").write_text("1" * 40)
    for name, content in {"model.safetensors": b"weights" * 5000, "config.json": b"{}"}.items():
        digest = hashlib.sha256(content).hexdigest() if name.endswith("safetensors") else "2" * 40
        (cache / "blobs" / digest).write_bytes(content)
        (snapshot / name).symlink_to(Path("../../blobs") / digest)
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(hosts / "here"))
    monkeypatch.setenv("HOSTS", str(hosts))
    monkeypatch.setenv("FARM_HOME", str(tmp_path / "farm"))
    # The hub is not asked: what is in the cache is the model.
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    return hosts


def weights(*arguments):
    return subprocess.run(["bash", str(SCRIPT), *arguments], capture_output=True, text=True)


def content(home):
    cache = home / ".cache" / FOLDER
    return {str(path.relative_to(cache)): path.read_bytes() for path in cache.rglob("*") if path.is_file()}


def test_every_spark_gets_the_same_files(sparks):
    done = weights(MODEL, "spark-2", "spark-3")
    assert done.returncode == 0, done.stderr
    assert content(sparks / "spark-2") == content(sparks / "spark-3") == content(sparks / "here")
    assert (sparks / "spark-2" / ".cache" / FOLDER / "snapshots" / ("1" * 40) / "config.json").is_symlink()
    assert "4 files are the same on this node and 2 others" in done.stdout
    assert weights(MODEL, "spark-2", "spark-3").returncode == 0


def test_a_damaged_file_here_is_found_before_it_is_copied(sparks):
    (blob,) = [path for path in (sparks / "here" / ".cache" / FOLDER / "blobs").iterdir() if len(path.name) == 64]
    blob.write_bytes(blob.read_bytes()[:-1] + b"x")
    done = weights(MODEL, "spark-2")
    assert done.returncode != 0
    assert blob.name in done.stdout + done.stderr
    assert not content(sparks / "spark-2")


def test_a_damaged_file_elsewhere_is_found(sparks):
    """rsync takes size and time for sameness; the hash does not."""
    assert weights(MODEL, "spark-2").returncode == 0
    (blob,) = [path for path in (sparks / "spark-2" / ".cache" / FOLDER / "blobs").iterdir() if len(path.name) == 64]
    times = blob.stat()
    blob.write_bytes(blob.read_bytes()[:-1] + b"x")
    os.utime(blob, ns=(times.st_atime_ns, times.st_mtime_ns))
    done = weights(MODEL, "spark-2")
    assert done.returncode == 1
    assert "files on spark-2 differ" in done.stderr


def test_an_unfinished_download_is_not_copied(sparks):
    (sparks / "here" / ".cache" / FOLDER / "blobs" / ("3" * 64 + ".incomplete")).write_bytes(b"")
    done = weights(MODEL, "spark-2")
    assert done.returncode == 1
    assert "incomplete" in done.stderr
    assert not content(sparks / "spark-2")
