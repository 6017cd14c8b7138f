"""Make SGLang importable without its compiled CPU kernels: two import finders, installed by a ``.pth`` file.

``StandInFinder`` serves the stand-in as ``sgl_kernel`` where there is no real one. The stand-in must never hide the
real kernels, so it is not installed under their name: the finder stands at the end of ``sys.meta_path`` and asks all
others first, including any that came later.

``TorchvisionFinder`` lets a torchvision import whose compiled part does not load. SGLang imports torchvision for models
with vision; PyPI's build of it is linked against CUDA, and its Python code then fails on operators that do not exist.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

SERVED_NAME = "sgl_kernel"
FACADE = Path(__file__).with_name("sgl_kernel_facade")


class StandInFinder:
    """The finder of last resort for ``sgl_kernel``; its submodules are then found through the package's own path."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The real ``sgl_kernel`` if any finder knows one, else the stand-in; nothing for other names."""
        if fullname != SERVED_NAME or os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
            return None
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            if finder is StandInFinder or find_spec is None:
                continue
            real = find_spec(fullname, path, target)
            if real is not None:
                return real
        return importlib.util.spec_from_file_location(
            fullname, FACADE / "__init__.py", submodule_search_locations=[str(FACADE)]
        )


class TorchvisionFinder:
    """Finds nothing: it declares the missing operators at the moment when torchvision is about to refer to them.

    By then torchvision has tried to load its compiled part, so a build that loads keeps its own operators.
    """

    _library: object = None

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Never a module: declares the operators when the name that refers to them comes by."""
        if fullname == "torchvision._meta_registrations" and cls._library is None:
            extension = sys.modules.get("torchvision.extension")
            if extension is not None and not extension._has_ops():
                import torch

                library = torch.library.Library("torchvision", "FRAGMENT")
                for name in ("nms", "qnms"):
                    library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
                cls._library = library  # its definitions end with it
        return None


def install() -> None:
    """Install both finders, once."""
    if StandInFinder not in sys.meta_path:
        sys.meta_path.insert(0, TorchvisionFinder)
        sys.meta_path.append(StandInFinder)
