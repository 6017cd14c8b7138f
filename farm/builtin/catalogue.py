"""Models that the farm brings itself, so that it can be tried without a download. A sweep names them `builtin:NAME`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from farm.builtin import demo
from farm.paths import farm_home
from farm.types import Label

DEMO: Final = "demo"
TINY: Final = "tiny-bailing-v3"
# Each with the label that its results must carry.
BUILTINS: Final[dict[str, Label]] = {DEMO: "demo-model", TINY: "dummy-weights"}


def builtin_model(name: str) -> Path:
    """The folder of a builtin model on this machine, made if it is not there yet."""
    if name == DEMO:
        return demo.model_path()
    assert name == TINY
    from farm.builtin.tiny_bailing import make_tiny_bailing_v3

    folder = farm_home() / "models" / name
    make_tiny_bailing_v3(folder)
    return folder
