"""Whether a model's weights are there and whole, by the headers of its files: gigabytes are judged in milliseconds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open

INDEX: Final = "model.safetensors.index.json"
_SHOWN: Final = 3


def find_in_cache(model: str, environment: Mapping[str, str]) -> Path | None:
    """The newest snapshot of a hub's model in the Hugging Face cache that `environment` names; None without one."""
    from huggingface_hub import try_to_load_from_cache

    home = Path(environment.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    cache = environment.get("HF_HUB_CACHE") or str(home / "hub")
    found = try_to_load_from_cache(model, "config.json", cache_dir=cache)
    return Path(found).parent if isinstance(found, str) else None


def weights_problem(folder: Path) -> str | None:
    """Why the weights in this folder cannot be loaded; None when they are whole.

    Files of another format than safetensors have no header that tells their size, and are only looked for.
    """
    if not (folder / "config.json").is_file():
        return f"model.path: {folder} is not a folder with a model (no config.json)"
    if (folder / INDEX).is_file():
        return _indexed_problem(folder)
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return _first(filter(None, (_file_problem(path) for path in files)))
    if any(folder.glob("pytorch_model*.bin")) or any(folder.glob("*.gguf")):
        return None
    return f"{folder} holds no weights"


def weights_bytes(folder: Path) -> int:
    """Size of the weight files."""
    kinds = ("*.safetensors", "pytorch_model*.bin", "*.gguf")
    return sum(path.stat().st_size for kind in kinds for path in folder.glob(kind) if path.is_file())


def _indexed_problem(folder: Path) -> str | None:
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        file_of: dict[str, str] = dict(index["weight_map"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{folder / INDEX} cannot be read: {error}"
    shards = sorted(set(file_of.values()))
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        shown = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
        return f"{len(missing)} of {len(shards)} weight files are missing in {folder}: {shown}"
    for shard in shards:
        held = _tensors(folder / shard)
        if isinstance(held, str):
            return held
        absent = [name for name, file_name in file_of.items() if file_name == shard and name not in held]
        if absent:
            return f"{folder / shard} lacks {len(absent)} of its tensors, {absent[0]} for one"
    return None


def _file_problem(path: Path) -> str | None:
    """Why a safetensors file is not whole."""
    held = _tensors(path)
    return held if isinstance(held, str) else None


def _tensors(path: Path) -> frozenset[str] | str:
    """Names of the tensors in a safetensors file, or why it is not whole: its reader holds the header against the
    file's size and reads no tensor."""
    try:
        with safe_open(path, framework="numpy") as file:
            return frozenset(file.keys())
    except (OSError, SafetensorError) as error:
        size = path.stat().st_size if path.is_file() else 0
        return f"{path} ({size:,} bytes) is cut off, or not a safetensors file: {error}"


def _first(found: Any) -> str | None:
    return next(iter(found), None)
