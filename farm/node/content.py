"""A digest of a model's content, so that other weights under the same path are seen."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from farm.engines.base import model_of
from farm.node.preflight.weights import find_in_cache
from farm.spec.models import Sweep

SAMPLED: Final = "sampled"
FULL: Final = "full"
_SMALL: Final = ("*.json", "*.jinja", "*.model", "*.py")
_WEIGHTS: Final = ("*.safetensors", "*.bin", "*.gguf")
_HEADER: Final = 1 << 20
_SAMPLES: Final = 32
_SAMPLE: Final = 4096
_WHOLE: Final = 16 << 20


def model_content(sweep: Sweep) -> dict[str, str]:
    """Digests of the model on this machine, by how much of the weights they hold; empty where it is not here.

    `sampled` holds configuration and tokenizer, and of each file of weights its size, its beginning, where the headers
    are, and blocks from all over it: milliseconds for a hundred gigabytes. `full`, where the sweep asks for it, holds
    every byte.
    """
    folder = _folder(sweep)
    if folder is None:
        return {}
    try:
        found = {SAMPLED: _digest(folder, _sampled)}
        if sweep.model.digest == FULL:
            found[FULL] = _digest(folder, _whole)
    except OSError:
        return {}
    return found


def _folder(sweep: Sweep) -> Path | None:
    path = Path(model_of(sweep))
    if path.is_dir():
        return path
    if sweep.model.is_local:
        return None
    environment: Mapping[str, str] = {**os.environ, **sweep.engine.env}
    return find_in_cache(sweep.model.path, environment)


def _digest(folder: Path, of_weights: Callable[[Path], bytes]) -> str:
    state = hashlib.sha256()
    for patterns, content in ((_SMALL, _whole), (_WEIGHTS, of_weights)):
        for path in sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}):
            state.update(f"{path.name} {path.stat().st_size}\n".encode())
            state.update(content(path))
    return state.hexdigest()


def _whole(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _sampled(path: Path) -> bytes:
    size = path.stat().st_size
    if size <= _WHOLE:
        return _whole(path)
    state = hashlib.sha256()
    with path.open("rb") as file:
        state.update(file.read(_HEADER))
        for number in range(1, _SAMPLES + 1):
            file.seek((size - _SAMPLE) * number // _SAMPLES)
            state.update(file.read(_SAMPLE))
    return state.digest()
