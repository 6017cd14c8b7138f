"""Shared ground of the tests: a FARM_HOME of their own, a real Ray cluster, and the sweep job as a user runs it."""

import fcntl
import json
import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from quick_lane import sitecustomize
from support import CPU_ENGINE, HOME, AskedEngine, Cluster, free_port, quickstart_sweep

# Marker -> the fixtures whose users bear it. What starts Ray or an engine without them is marked where it stands.
MARKED = {
    "ray": {"ray_cluster"},
    "engine": {"cpu_engine", "emulated_engines"},
    "server": {"server"},
    "tool": {"rsync", "systemd_analyze"},
    "real_data": {"gsm8k_folder"},
}


ASK_THE_DEMO_ENGINE = {
    "tests/conformance/test_protocol.py",
    "tests/builtin/test_demo_engine.py",
    "tests/drills/test_real_engine_faults.py",
    "tests/infra/test_monitoring.py",
}


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help=f"only tests without the markers {', '.join(MARKED)}")


def pytest_configure(config):
    """In the quick lane this process and all that it starts are watched."""
    if config.getoption("--quick"):
        handle, os.environ[sitecustomize.REPORT] = tempfile.mkstemp(prefix="farm-tests-")
        os.close(handle)
        places = [str(Path(sitecustomize.__file__).parent), os.environ.get("PYTHONPATH")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))
        sys.addaudithook(sitecustomize.watch)


def pytest_unconfigure(config):
    if config.getoption("--quick"):
        Path(os.environ.pop(sitecustomize.REPORT)).unlink()


def pytest_xdist_make_scheduler(config, log):
    """File by file; those that ask the session's real engine go to one process, for its start is dear."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return "demo engine" if file in ASK_THE_DEMO_ENGINE else file

    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Markers follow from what a test uses, and the quick lane from the markers. What takes long begins first."""
    for item in items:
        for marker, fixtures in MARKED.items():
            if fixtures.intersection(item.fixturenames):
                item.add_marker(marker)
    heavy = {item.path for item in items if any(map(item.get_closest_marker, ("ray", "engine")))}
    items.sort(key=lambda item: item.path not in heavy)
    if config.getoption("--quick"):
        chosen = [item for item in items if not any(map(item.get_closest_marker, MARKED))]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Fail a test of the quick lane that starts what it must not, whatever became of the attempt."""
    report = Path(os.environ.get(sitecustomize.REPORT) or os.devnull)
    try:
        return (yield)
    finally:
        said = report.read_text()
        report.write_text("")
        if said:
            pytest.fail(said.splitlines()[0], pytrace=False)


@pytest.fixture(scope="session")
def gsm8k_folder(tmp_path_factory):
    """GSM8K itself, as test.jsonl and train.jsonl: what FARM_TEST_GSM8K names, else what the Hugging Face cache holds.
    Tests that do with any data of its format use `builtin:gsm-mini`."""
    named = os.environ.get("FARM_TEST_GSM8K")
    if named:
        folder = Path(named).expanduser().resolve()
        for name in ("test.jsonl", "train.jsonl"):
            assert (folder / name).is_file(), f"FARM_TEST_GSM8K={named} has no {name}"
        return folder
    folder = tmp_path_factory.mktemp("gsm8k")
    for split in ("test", "train"):
        rows = "".join(json.dumps(row) + "\n" for row in cached_gsm8k(split))
        (folder / f"{split}.jsonl").write_text(rows, encoding="utf-8")
    return folder


def cached_gsm8k(split):
    """A split of GSM8K as the `datasets` library has cached it; skips the test where it has not."""
    import datasets

    from farm.errors import InputError
    from farm.workloads import hub

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)  # no test waits for the hub
        try:
            return [row for _, row in hub.rows("openai/gsm8k", "main", split)]
        except InputError:
            pytest.skip("needs GSM8K itself: set FARM_TEST_GSM8K to a folder that holds its test.jsonl and train.jsonl")


@pytest.fixture(scope="session")
def cpu_engine():
    """The interpreter of the CPU engine's environment, which infra/test.sh builds."""
    assert CPU_ENGINE.exists(), "build it with: bash infra/cpu-engine/build.sh"
    return CPU_ENGINE


@pytest.fixture(scope="session")
def demo_engine(cpu_engine, tmp_path_factory):
    """Real SGLang on the CPU with the demo model and NEXTN, with the quick start's settings. Do not kill it: starts
    are dear."""
    engine = AskedEngine.start(quickstart_sweep(), "nextn", cpu_engine, tmp_path_factory.mktemp("demo-engine"))
    yield engine
    engine.stop()


@pytest.fixture
def farm_home(tmp_path, monkeypatch):
    """An empty FARM_HOME that shares the environments of the real one."""
    home = tmp_path / "home"
    home.mkdir()
    if (HOME / "envs").exists():
        (home / "envs").symlink_to(HOME / "envs")
    monkeypatch.setenv("FARM_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory):
    """MLflow's tables, made once for all processes of the run: that takes it some ten seconds."""
    from farm.tracking.store import connected

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    file = folder / "empty-mlflow.db"
    with (folder / "empty-mlflow.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            made = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
            with connected(f"sqlite:///{made}"):
                pass
            made.rename(file)
    return file


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory):
    """A head node and a second node, `one` and `two`, with one CPU each, and a job server."""
    port, dashboard = free_port(), free_port()
    # Ray notes the machine's newest cluster below this folder; another one on the machine must not pass for ours. Its
    # path is short, since those of Unix sockets may have 107 characters.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    env = os.environ | {
        "RAY_TMPDIR": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        # Ray would start more workers beforehand than a job needs, seconds of a processor each.
        "RAY_prestart_worker_first_driver": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_ADDRESS": f"127.0.0.1:{port}",
    }
    env.pop("FARM_HOME", None)
    cluster = Cluster(env, f"127.0.0.1:{port}", f"http://127.0.0.1:{dashboard}")
    nodes = []
    try:
        nodes.append(cluster.start_head("one", port, dashboard))
        nodes.append(cluster.add_node("two"))
        cluster.wait_for(["one", "two"])
        cluster.wait_for_jobs()
        yield cluster
    finally:
        # `ray stop` would end every Ray of this machine; these end their own.
        for node in reversed(nodes):
            node.terminate()
        for node in nodes:
            node.wait(60)
        shutil.rmtree(folder, ignore_errors=True)
