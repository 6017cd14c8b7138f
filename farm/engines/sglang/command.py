"""The command line and environment of an engine, from a sweep's settings. Pure, and shown by `--dry-run`."""

from __future__ import annotations

from collections.abc import Mapping

from farm.engines.base import EngineCommand
from farm.spec.models import Sweep, Variant
from farm.spec.optimisations import ArgValue


def server_command(
    sweep: Sweep, variant: Variant, *, module: str, env: Mapping[str, str], model_path: str, python: str
) -> EngineCommand:
    """Resolve a variant to the command that starts a server which takes SGLang's arguments.

    Args:
        sweep: the sweep whose settings are the ground.
        variant: the variant laid over them.
        module: the server, as Python runs it.
        env: environment that it needs, under the variant's own.
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
    argv = [python, "-m", module]
    for name, value in args.items():
        argv += _flag(name, value, model_path)
    fixed = {
        # Nothing is fetched while an engine starts: a missing file is an error at once, not a download.
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }
    return EngineCommand(tuple(argv), fixed | dict(env) | sweep.env_of(variant))


def _flag(name: str, value: ArgValue, model_path: str) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [f"--{name}"]
    values = value if isinstance(value, list) else [value]
    return [f"--{name}", *(str(entry).replace("{model}", model_path) for entry in values)]
