"""Why an engine ended: what its log says, and what no log can say."""

import asyncio
import os
import signal
import sys

import pytest

from farm.engines import process
from farm.engines.base import EngineCommand
from farm.engines.sglang.running import launch
from farm.errors import EngineStartError

SCRIPT = "import sys, time; print('ConnectionError: an old complaint', flush=True); {}"


@pytest.fixture
def ended(tmp_path):
    def run(body, number=None):
        command = EngineCommand((sys.executable, "-c", SCRIPT.format(body)), {})
        engine = process.start(command, tmp_path / "engine.log")
        try:
            while "complaint" not in (tmp_path / "engine.log").read_text():
                assert engine.alive
            if number is not None:
                [pid] = engine.pids()
                os.kill(pid, number)
            engine.guard.wait(30)
        finally:
            engine.stop()
        return engine.explain()

    return run


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_signal_is_named_before_what_the_log_says(ended, number):
    assert ended("time.sleep(60)", number) == (
        f"it was ended by {number.name}; its log says last: ConnectionError: an old complaint"
    )


def test_an_error_after_which_it_killed_itself_is_told(ended):
    said = ended("print('ValueError: these exclude each other', flush=True); import os; os.kill(os.getpid(), 9)")
    assert "exclude each other" in said


def test_an_error_of_its_own_is_told_in_the_logs_words(ended):
    assert ended("raise RuntimeError('not enough memory')") == "RuntimeError: not enough memory"


def test_an_engine_that_never_gets_ready_is_ended(tmp_path):
    command = EngineCommand((sys.executable, "-c", "import time; time.sleep(600)"), {})
    with pytest.raises(EngineStartError, match="not ready after 1 s"):
        asyncio.run(launch(command, tmp_path / "log", start_timeout_s=1, request_timeout_s=10))
