"""The kinds of workloads there are, and all items of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from farm.errors import InputError
from farm.types import Item
from farm.workloads.gsm8k import Gsm8kWorkload
from farm.workloads.prompts import PromptsWorkload
from farm.workloads.synthetic import SyntheticWorkload

Workload = Annotated[Gsm8kWorkload | SyntheticWorkload | PromptsWorkload, Field(discriminator="kind")]


def build(workloads: Mapping[str, Workload]) -> dict[str, list[Item]]:
    """The items of every workload, by the workload's name.

    Raises:
        InputError: naming the workload, its field, and what to change.
    """
    built = {}
    for name, workload in workloads.items():
        try:
            built[name] = workload.items()
        except InputError as error:
            raise InputError(f"workloads.{name}.{error}") from error
    return built
