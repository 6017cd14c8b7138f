"""The driver's disk is full or read-only: said in a sentence, and what was written is whole."""

import contextlib
import os
import re
import resource
import subprocess

import drill
import pytest


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 4 MiB; without the right to mount one, None."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], capture_output=True)
    yield place if mounted.returncode == 0 else None
    if mounted.returncode == 0:
        subprocess.run(["umount", "-l", place], check=True)


def fill(disk, job, folder):
    """Let nothing more fit: on the small disk by a file that takes the rest, else by a limit on the driver's files."""
    if disk is None:
        largest = max(path.stat().st_size for path in folder.iterdir())
        resource.prlimit(job.process.pid, resource.RLIMIT_FSIZE, (largest, largest))
        return
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.parametrize("kind", ["disk", "limit"])
def test_a_full_disk(home, undisturbed, tmp_path, small_disk, kind):
    # Where no disk can be mounted, both are the limit.
    disk = small_disk if kind == "disk" else None
    results = disk or tmp_path / "results"
    sweep = drill.write_sweep(tmp_path)
    job = drill.start(sweep, "--results", results)
    drill.wait_for_records(5, results)
    fill(disk, job, drill.results_folder(results))
    outcome = job.wait(results=results)
    assert outcome.status == 1, outcome.output
    assert "Traceback" not in outcome.output
    # Whichever file is written next is the one that says so.
    assert re.search("free (some|the) disk", outcome.output)
    drill.wait_until_nothing_runs(results)
    if disk:
        (disk / "filler").unlink()
    kept = drill.records(outcome.folder)
    assert 5 <= len(kept) < drill.CELLS
    again = drill.run(sweep, "--results", results, results=results)
    again.complete_like(undisturbed)
    assert f"{len(kept)} already answered" in again.output


def test_a_results_folder_that_cannot_be_written(home, tmp_path):
    (tmp_path / "file").write_text("")
    outcome = drill.run(drill.write_sweep(tmp_path), "--results", tmp_path / "file" / "results")
    assert outcome.status == 1
    assert "Traceback" not in outcome.output
    assert "make the folder writable" in outcome.output


def test_a_read_only_disk(home, tmp_path, small_disk):
    if small_disk is None:
        os.chmod(tmp_path, 0o500)  # binds all but root, who could have mounted
        place = tmp_path / "results"
    else:
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
        place = small_disk
    outcome = drill.run(drill.write_sweep(home), "--results", place)
    assert outcome.status == 1
    assert "Traceback" not in outcome.output
    assert "make the folder writable" in outcome.output
