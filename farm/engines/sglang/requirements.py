"""What a variant needs of its node, checked before its engine is started: package, GPU architecture, memory, drafts."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from farm.engines.nvml import Gpu, find_gpu
from farm.spec.optimisations import ArgValue, Needs

# A stopped engine's memory comes back late, and starting beside it can wedge a machine whose GPU shares the memory.
_MEMORY_WAIT_S: Final = 120.0
_POLL_S: Final = 2.0
# What an engine takes beside its static fraction: its host processes and the compilation of kernels.
_BESIDE_STATIC_GIB: Final = 2.7
_GIB: Final = 1 << 30
_TIMEOUT_S: Final = 60.0
_TELL_VERSIONS: Final = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def check_needs(
    needs: Mapping[str, Needs],
    args: Mapping[str, ArgValue],
    *,
    python: str,
    model_path: str,
    device: str,
) -> list[str]:
    """What this node lacks, each as a sentence; waits for memory that is being given back.

    Args:
        needs: what each part of the variant needs, by the part's name.
        args: resolved server arguments.
        python: interpreter of the engine's environment.
        model_path: the model, a folder or a hub name.
        device: `cuda` or `cpu`.
    """
    missing = missing_packages(
        needs, installed(python, {need.package for need in needs.values() if need.package}) or {}
    )
    if any(need.draft_layer for need in needs.values()):
        missing += missing_draft_layer(_config(Path(model_path)), model_path)
    missing += missing_drafter(args)
    if device == "cuda":
        gpu = find_gpu()
        missing += wrong_architecture(needs, gpu)
        missing += missing or _wait_for_memory(args)
    return missing


def missing_packages(needs: Mapping[str, Needs], installed: Mapping[str, str]) -> list[str]:
    """Packages that the engine's environment lacks. Pure."""
    return [
        f"'{part}' needs {need.package}, which the engine's environment lacks: pip install '.[engine]' there"
        for part, need in needs.items()
        if need.package and need.package not in installed
    ]


def missing_draft_layer(config: Mapping[str, Any] | None, model_path: str) -> list[str]:
    """Why the model cannot draft for itself. Pure; a model whose configuration is not at hand may."""
    if config is None:
        return []
    configs = (config, config.get("text_config") or {})
    names = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
    if any(isinstance(config_.get(name), int) and config_[name] > 0 for config_ in configs for name in names):
        return []
    return [f"'nextn' needs a model with a layer that predicts several tokens, and {model_path} has none"]


def missing_drafter(args: Mapping[str, ArgValue]) -> list[str]:
    """A draft model named by folder that is not there."""
    drafter = args.get("speculative-draft-model-path")
    if not isinstance(drafter, str) or not drafter.startswith(("/", "~", ".")):
        return []
    folder = Path(drafter).expanduser()
    if (folder / "config.json").is_file():
        return []
    return [f"--speculative-draft-model-path {folder} is not a folder with a model (no config.json)"]


def wrong_architecture(needs: Mapping[str, Needs], gpu: Gpu | None) -> list[str]:
    """Parts that the GPU is too old for. Pure; of a GPU that NVML does not show nothing is known."""
    if gpu is None:
        return []
    return [
        f"'{part}' needs compute capability {_dotted(need.capability)} and {gpu.name} has {_dotted(gpu.capability)}; "
        "leave the variant out on this node"
        for part, need in needs.items()
        if need.capability and gpu.capability < need.capability
    ]


def missing_memory(
    args: Mapping[str, ArgValue], gpu: Gpu | None, host_total_gib: float, host_free_gib: float
) -> list[str]:
    """Why the engine's static memory does not fit. Pure; without `mem-fraction-static` SGLang chooses by itself."""
    fraction = args.get("mem-fraction-static")
    if gpu is None or not isinstance(fraction, int | float):
        return []
    unified = gpu.total_gib is None or gpu.free_gib is None
    total_gib, free_gib = (host_total_gib, host_free_gib) if unified else (gpu.total_gib, gpu.free_gib)
    assert total_gib is not None
    assert free_gib is not None
    needed_gib = fraction * total_gib + (_BESIDE_STATIC_GIB if unified else 0.0)
    if free_gib >= needed_gib:
        return []
    return [
        f"{free_gib:.1f} GiB of memory are free and --mem-fraction-static {fraction:g} needs {needed_gib:.1f}: the "
        "memory of the last engine did not come back, or something else runs here: stop it, or lower the fraction"
    ]


def _wait_for_memory(args: Mapping[str, ArgValue]) -> list[str]:
    deadline = time.monotonic() + _MEMORY_WAIT_S
    while missing := missing_memory(args, find_gpu(), *_host_memory_gib()):
        if time.monotonic() > deadline:
            return missing
        time.sleep(_POLL_S)
    return []


def _host_memory_gib() -> tuple[float, float]:
    host = psutil.virtual_memory()
    return host.total / _GIB, host.available / _GIB


def installed(python: str, packages: Collection[str]) -> dict[str, str] | None:
    """Versions of those of the packages that an environment has, as its own interpreter finds them; None where it
    cannot tell."""
    if not packages:
        return {}
    try:
        answer = subprocess.run(
            [python, "-c", _TELL_VERSIONS, *sorted(packages)],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
        found: dict[str, str] = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return found


def _config(folder: Path) -> dict[str, Any] | None:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) else None


def _dotted(capability: tuple[int, int] | None) -> str:
    return ".".join(map(str, capability or ()))
