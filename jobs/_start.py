"""How every job begins: with the farm beside it, in the farm's own environment."""

import importlib.util
import os
import sys
from pathlib import Path


def use_farm() -> None:
    """Make the farm beside this file importable, in an interpreter that has what it needs.

    `ray job submit jobs/sweep.py` runs the first `python3` on the PATH that Ray was started with, which need not be the
    farm's: then the job goes on in `$FARM_HOME/envs/farm`, where there is one.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    environment = Path(os.environ.get("FARM_HOME") or "~/.farm").expanduser() / "envs" / "farm"
    python = environment / "bin" / "python"
    if importlib.util.find_spec("pydantic") and importlib.util.find_spec("ray"):
        return
    if python.exists() and Path(sys.prefix).resolve() != environment.resolve():
        os.execv(python, [str(python), *sys.argv])  # noqa: S606 - the same job again, no shell
    sys.exit(f"error: {sys.executable} lacks the farm's packages; set its environment up with: bash infra/setup.sh")
