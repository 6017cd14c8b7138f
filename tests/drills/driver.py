"""The sweep job in a forked process. Importing this module imports what the job needs."""

import os
import sys

import mlflow
import pandas as pd
import ray
from support import REPOSITORY

from farm import tracking
from farm.cli import sweep as farm_job
from farm.compare import compare
from farm.driver import dispatch
from farm.driver import workers as cluster
from farm.report import html as report
from farm.report import terminal

PRELOADED = (mlflow, pd, ray, cluster, dispatch, tracking, compare, terminal)


def job(arguments, env, printed, settings):
    """Run `jobs/sweep.py` with these arguments and this environment, its output in a file; never returns.

    `settings` are values of modules that no user needs to change, such as how often MLflow is brought up to date.
    """
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    output = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", buffering=1) for descriptor in (1, 2))
    for name, value in settings.items():
        module, _, attribute = name.rpartition(".")
        setattr(sys.modules[module], attribute, value)
    # Plots take seconds, and have tests of their own.
    report.render = lambda *_: "<!doctype html><title>report</title>"
    sys.exit(farm_job.main(arguments, REPOSITORY / "jobs" / "sweeps"))
