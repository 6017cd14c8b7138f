"""Models that the farm brings itself, so that it can be tried without a download. A sweep names them `builtin:NAME`."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Final

from farm.errors import InputError
from farm.paths import farm_home

TINY: Final = "tiny-bailing-v3"
BUILTINS: Final = (TINY,)


def builtin_model(name: str) -> Path:
    """The folder of a builtin model on this machine, made if it is not there yet.

    Raises:
        InputError: there is no such builtin.
    """
    if name not in BUILTINS:
        near = get_close_matches(name, BUILTINS, n=1)
        raise InputError(
            f"model.path: no builtin model '{name}'; "
            + (f"did you mean '{near[0]}'?" if near else f"known are {', '.join(BUILTINS)}")
        )
    from farm.models.tiny import make_tiny_bailing_v3

    folder = farm_home() / "models" / name
    make_tiny_bailing_v3(folder)
    return folder
