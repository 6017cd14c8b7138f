"""Whether a node has the driver's versions."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import ray

import farm
from farm.node.preflight.check import Check, judged


@dataclass(frozen=True)
class Driver:
    """What the driver's side has, which every node must match."""

    ray: str
    python: str
    farm: str

    @classmethod
    def here(cls) -> Driver:
        """Of this process."""
        return cls(ray.__version__, platform.python_version(), farm.__version__)


def same_versions(driver: Driver) -> Check:
    """Ray and Python as the driver has them: Ray's workers talk in pickles of both."""
    here = Driver.here()
    both = (("Ray", here.ray, driver.ray), ("Python", _minor(here.python), _minor(driver.python)))
    differ = [f"{what} is {own} here and {theirs} at the driver" for what, own, theirs in both if own != theirs]
    found = f"Ray {here.ray}, Python {here.python}, farm {here.farm}"
    do = "run infra/setup.sh of the same checkout on both"
    return judged("versions as the driver's", found, "; ".join(differ) or None, do)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
