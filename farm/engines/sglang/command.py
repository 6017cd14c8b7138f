"""The command line and environment of an engine, from a sweep's settings. Pure, and shown by `--dry-run`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import farm
from farm.builtin.catalogue import builtin_model
from farm.paths import expand
from farm.redaction import masked
from farm.spec.models import Sweep, Variant
from farm.spec.optimisations import ArgValue


@dataclass(frozen=True)
class EngineCommand:
    """How to start one engine, apart from its port and key."""

    argv: tuple[str, ...]
    env: dict[str, str]

    def as_shell(self) -> str:
        """A line that starts the engine from a shell, in any folder."""
        settings = (f"{shlex.quote(name)}={shlex.quote(value)}" for name, value in self.env.items())
        return " ".join(["env", *settings, shlex.join(self.argv)])

    def masked(self) -> EngineCommand:
        """The same command without its secrets."""
        return EngineCommand(tuple(masked(list(self.argv))), masked(self.env))


def engine_command(sweep: Sweep, variant: Variant, *, model_path: str, python: str) -> EngineCommand:
    """Resolve a variant to the command that starts it.

    Args:
        sweep: the sweep whose settings are the ground.
        variant: the variant laid over them.
        model_path: the model as this node knows it; it also stands for `{model}` in the arguments.
        python: interpreter of the engine's environment.
    """
    args: dict[str, ArgValue] = {
        "model-path": model_path,
        "device": sweep.engine.device,
        "host": "127.0.0.1",
        # Deltas instead of the whole text in every chunk: an answer of 30,000 tokens would else send gigabytes.
        "incremental-streaming-output": True,
        "enable-metrics": True,
        "skip-server-warmup": True,
    }
    if sweep.engine.trust_remote_code:
        args["trust-remote-code"] = True
    args |= sweep.args_of(variant)
    if sweep.engine.kind == "emulated":
        argv = [python, "-m", "farm.engines.emulated"]
    else:
        argv = [python, "-m", "sglang.launch_server"]
    for name, value in args.items():
        argv += _flag(name, value, model_path)
    env = {
        # Nothing is fetched while an engine starts: a missing file is an error at once, not a download.
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }
    if sweep.engine.kind == "emulated":
        # It is part of the farm, which a job may have shipped here instead of installed.
        env["PYTHONPATH"] = str(Path(farm.__file__).parents[1])
    elif sweep.engine.device == "cpu":
        env["SGLANG_USE_CPU_ENGINE"] = "1"
    return EngineCommand(tuple(argv), env | sweep.env_of(variant))


def default_python() -> str:
    """The farm's own interpreter: where engines run when the sweep names no other."""
    return sys.executable


def python_of(sweep: Sweep) -> str:
    """The interpreter of the sweep's engines on this machine."""
    return expand(sweep.engine.python) if sweep.engine.python else default_python()


def model_of(sweep: Sweep) -> str:
    """What an engine on this machine is given as its model: a folder, or a hub's name."""
    path = sweep.model.path
    if path.startswith("builtin:"):
        return str(builtin_model(path.removeprefix("builtin:")))
    return expand(path) if sweep.model.is_local else path


def _flag(name: str, value: ArgValue, model_path: str) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [f"--{name}"]
    values = value if isinstance(value, list) else [value]
    return [f"--{name}", *(str(entry).replace("{model}", model_path) for entry in values)]
