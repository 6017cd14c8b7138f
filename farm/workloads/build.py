"""All items of a sweep."""

from __future__ import annotations

from farm.errors import InputError
from farm.spec.models import Gsm8kWorkload, Sweep, SyntheticWorkload, Workload
from farm.workloads import gsm8k, prompts, synthetic
from farm.workloads.items import Item


def build(sweep: Sweep) -> dict[str, list[Item]]:
    """The items of every workload, by the workload's name.

    Raises:
        InputError: naming the workload, its field, and what to change.
    """
    built = {}
    for name, workload in sweep.workloads.items():
        try:
            built[name] = _items(workload)
        except InputError as error:
            raise InputError(f"workloads.{name}.{error}") from error
    return built


def _items(workload: Workload) -> list[Item]:
    if isinstance(workload, Gsm8kWorkload):
        return gsm8k.items(workload)
    if isinstance(workload, SyntheticWorkload):
        return synthetic.items(workload)
    return prompts.items(workload)
