"""Where kernels that were compiled on this node are kept, and how many there are. Standard library only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_COMPILED = (".cubin", ".so")


def cache_folders(environment: Mapping[str, str]) -> dict[str, Path]:
    """The kernel caches by the name of what fills them, as each of them reads its own variables."""
    home = Path(environment.get("HOME") or Path.home())
    flashinfer = Path(environment.get("FLASHINFER_WORKSPACE_BASE") or home) / ".cache" / "flashinfer"
    return {
        "flashinfer": flashinfer,
        "humming": Path(environment.get("HUMMING_CACHE_DIR") or home / ".humming" / "cache"),
        "triton": Path(environment.get("TRITON_CACHE_DIR") or home / ".triton" / "cache"),
    }


def cache_state(environment: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Compiled kernels and bytes in each cache: `{"humming": {"kernels": 45, "bytes": 9000000}, ...}`."""
    return {name: _measure(folder) for name, folder in cache_folders(environment).items()}


def _measure(folder: Path) -> dict[str, int]:
    kernels = size = 0
    for directory, _, files in os.walk(folder):
        for name in files:
            try:
                size += os.stat(os.path.join(directory, name)).st_size
            except OSError:
                continue  # another process may clean up beside us
            kernels += name.endswith(_COMPILED)
    return {"kernels": kernels, "bytes": size}
