"""Where things live: everything that must last is under `FARM_HOME`, never in the folder that Ray ships with a job."""

from __future__ import annotations

import os
from pathlib import Path


def farm_home() -> Path:
    """`$FARM_HOME`, by default `~/.farm`."""
    return Path(os.environ.get("FARM_HOME") or "~/.farm").expanduser().absolute()


def results_root() -> Path:
    """The folder that holds one folder for each sweep."""
    return farm_home() / "results"


def expand(text: str) -> str:
    """Expand `~`, `$FARM_HOME` and other environment variables of the machine that calls it."""
    return os.path.expanduser(
        os.path.expandvars(text.replace("${FARM_HOME}", "$FARM_HOME").replace("$FARM_HOME", str(farm_home())))
    )


def is_path(text: str) -> bool:
    """Whether a text names a file or folder, rather than something of a hub or a builtin."""
    return text.startswith(("/", "~", "$", "."))


def absolute(folder: Path, text: str) -> str:
    """A path, expanded, and relative to `folder` unless it is absolute."""
    return str((folder / expand(text)).absolute())


def not_shipped() -> str:
    """What to add where a file is not there: nothing, or in a job that Ray shipped here, what it was shipped with."""
    if "runtime_resources" not in Path.cwd().parts:
        return ""
    return "; of the machine that submitted the job, only what lies in its --working-dir is here: put the file into it"
