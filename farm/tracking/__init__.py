"""A sweep in MLflow, made from its results folder alone: it can be made again at any time.

results    the results folder, read
entries    what MLflow is told about a run: names, parameters, tags, metrics, series
views      the comparison, as the runs show it
mlflow_internals what is known of MLflow beyond its interface: the runs table with the columns that decide
describe   the texts that people read first
artifacts  the files of a run
store      MLflow, with bounded waiting and errors that say what to do
sync       the three brought together: one parent run, and a child for each variant and workload
watch      the last word on a sweep whose driver was killed
"""

from farm.tracking.sync import Synced, resync, sync

__all__ = ["Synced", "resync", "sync"]
