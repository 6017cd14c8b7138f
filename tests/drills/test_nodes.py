"""A worker or its node is lost, comes back or joins late: every cell is answered once, nothing of an engine stays."""

import contextlib

import drill
import psutil

# Long enough that a raylet comes up amid the sweep.
SLOW = {"engine": {"args": {"emulation-speed": 15}}}


@contextlib.contextmanager
def node(cluster, name, others=("one", "two")):
    """One more raylet, ended with its workers in the end."""
    started = cluster.add_node(name)
    try:
        yield started
    finally:
        if started.poll() is None:
            started.terminate()
            started.wait(60)
        cluster.wait_for(list(others))


def kill_raylet(started):
    """SIGKILL to the raylet alone, as a power cut does to all of its machine; its workers find out by themselves."""
    for process in psutil.Process(started.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.name() == "raylet":
                process.kill()
    started.wait(60)


def test_the_actor_is_killed(ray_cluster, home, undisturbed, tmp_path):
    sweep = drill.write_sweep(tmp_path)
    job = drill.start(sweep)
    drill.wait_for_records(4)
    drill.an_engine()
    drill.workers()[0].kill()
    table = job.wait().complete_like(undisturbed)
    # The cell under way, if its engine did not just start, is told from the others.
    assert sorted(table["attempts"])[:-1] == [1] * (drill.CELLS - 1)
    drill.wait_until_nothing_runs()


def test_a_worker_that_is_frozen_is_given_up(home, undisturbed, tmp_path):
    """Stopped, it says nothing any more, and holds its connections open: only a deadline of the driver's own tells."""
    sweep = drill.write_sweep(tmp_path, {"engine": {"stall_timeout_s": 1}})
    job = drill.start(sweep)
    drill.wait_for_records(4)
    engine = drill.an_engine()
    frozen = engine.parent().parent()
    for process in [frozen, engine]:
        process.suspend()
    outcome = job.wait()
    table = outcome.complete_like(undisturbed)
    assert "engine.stall_timeout_s" in outcome.output
    assert sorted(table["attempts"])[:-1] == [1] * (drill.CELLS - 1)
    drill.until(lambda: not frozen.is_running(), "its end, by Ray")
    drill.wait_until_nothing_runs()


def test_the_only_slot_is_waited_for_however_long_the_sweep_has_run(home, undisturbed, tmp_path):
    sweep = drill.write_sweep(tmp_path, {"engine": {"lost_node_wait_s": 120}})
    job = drill.start(sweep, "--nodes", "1", settings={"farm.driver.dispatch._NOBODY_S": 1.0})
    drill.wait_for_records(4)
    drill.an_engine()
    drill.workers()[0].kill()
    outcome = job.wait()
    outcome.complete_like(undisturbed)
    assert "joined" in outcome.output
    drill.wait_until_nothing_runs()


def test_a_lost_node_does_not_return_and_its_cells_move(ray_cluster, home, undisturbed, tmp_path):
    sweep = drill.write_sweep(tmp_path, SLOW)
    with node(ray_cluster, "three") as third:
        ray_cluster.wait_for(["one", "two", "three"])
        job = drill.start(sweep)
        drill.until(lambda: "three" in answering(), "a record of the third node")
        kill_raylet(third)
        table = job.wait().complete_like(undisturbed)
    assert {"one", "two"} <= set(table["node"])
    drill.wait_until_nothing_runs()


def test_a_lost_node_returns_and_goes_on_with_its_own_cells(ray_cluster, home, undisturbed, tmp_path):
    changes = drill.merged(SLOW, {"engine": {"lost_node_wait_s": 120}})
    sweep = drill.write_sweep(tmp_path, changes)
    with node(ray_cluster, "three") as third:
        ray_cluster.wait_for(["one", "two", "three"])
        job = drill.start(sweep)
        drill.until(lambda: "three" in answering(), "a record of the third node")
        kill_raylet(third)
        before = {cell for cell, engine_id in drill.records().items() if engine_id.startswith("three.")}
    with node(ray_cluster, "three"):
        table = job.wait().complete_like(undisturbed)
    # What it answered before was not given to another node: both answers of those pairs are its own.
    own = table[[cell in before for cell in table[drill.CELL].itertuples(index=False, name=None)]]["item_id"]
    assert set(table[table["item_id"].isin(own)]["node"]) == {"three"}
    assert table[table["node"] == "three"]["engine_id"].nunique() == 2
    drill.wait_until_nothing_runs()


def test_a_node_that_joins_late_gets_work(ray_cluster, home, undisturbed, tmp_path):
    # In a crossover of this length no pair is broken for a newcomer: it would gain less than a minute.
    sweep = drill.write_sweep(tmp_path, {"design": "dedicated", "engine": {"args": {"emulation-speed": 4}}})
    job = drill.start(sweep)
    drill.until(lambda: job.printed.exists() and "starting the engine" in job.printed.read_text(), "the first engine")
    with node(ray_cluster, "late"):
        table = job.wait().complete_like(undisturbed)
    assert {"one", "two", "late"} == set(table["node"])
    drill.wait_until_nothing_runs()


def answering():
    """The nodes that have answered so far."""
    folder = drill.results_folder()
    return {engine_id.partition(".")[0] for engine_id in drill.records(folder).values()} if drill.answered() else set()
