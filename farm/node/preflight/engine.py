"""Checks of the engine's side: interpreter, packages, plug-in, weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from farm.engines.sglang.requirements import missing_draft_layer, missing_drafter, missing_packages
from farm.node.preflight.check import FAIL, OK, WARN, Check, judged, not_applicable
from farm.node.preflight.view import NO_GPU, Node
from farm.node.preflight.weights import weights_bytes, weights_problem
from farm.spec.optimisations import expected_state

_SCRIPT: Final = Path(__file__).with_name("inside.py")


class Inside(BaseModel):
    """What `inside.py` prints; errors of imports and what torch sees only where it was to import them."""

    python: str
    installed: dict[str, str]
    plugins: list[str]
    sgl_kernel_error: str | None = None
    torch_error: str | None = None
    torch_cuda: str | None = None
    gpu: str | None = None


def interpreter(node: Node, *, imports: bool) -> Iterator[Check]:
    """The engine's interpreter, its packages by the sweep's pins, the plug-in, and what only an import shows."""
    build = (
        "build it with: bash infra/cpu-engine/build.sh"
        if node.sweep.engine.device == "cpu"
        else "install it with: pip install '.[engine]' in an environment of its own"
    )
    if shutil.which(node.python) is None:
        yield Check("engine interpreter", FAIL, f"engine.python: there is no interpreter {node.python}", build)
        return
    if node.no_sglang:
        yield Check("engine interpreter", OK, node.python)
        yield not_applicable("engine packages", node.no_sglang)
        return
    inside = node.ask_engine(_SCRIPT, Inside, *(["--import"] if imports and node.on_gpu else []))
    if isinstance(inside, str):
        yield Check("engine interpreter", FAIL, f"{node.python} does not run: {inside}", build)
        return
    yield Check("engine interpreter", OK, f"{node.python}, Python {inside.python}")
    yield packages(node, inside.installed, build)
    yield plugin(node, inside.plugins)
    if imports:
        yield from _imports(node, inside)


def packages(node: Node, installed: Mapping[str, str], build: str) -> Check:
    """SGLang by the sweep's pin, and what the variants need beside it. Pure."""
    name, pin = "engine packages", node.sweep.engine.version
    sglang = installed.get("sglang")
    if sglang is None:
        return Check(name, FAIL, f"{node.python} has no sglang", build)
    if pin and sglang != pin:
        return Check(
            name,
            FAIL,
            f"{node.python} has sglang {sglang} and the sweep is pinned to {pin} (engine.version)",
            f"install sglang=={pin} there, or set engine.version",
        )
    missing = missing_packages(node.needs, installed)
    shown = ("sglang", "torch", "sglang-kernel", "sgl-kernel", "humming-kernels", "flashinfer-python", "triton")
    found = ", ".join(f"{package} {installed[package]}" for package in shown if package in installed)
    return judged(name, found, "; ".join(missing) or None, build)


def plugin(node: Node, plugins: list[str]) -> Check:
    """The farm's plug-in in the engine's environment. Pure."""
    name, do = "SGLang plug-in", f"bash infra/install-plugin.sh {node.python}"
    if "farm" in plugins:
        return Check(name, OK, "installed")
    sweep = node.sweep
    expected = [expected_state(sweep.args_of(variant), sweep.env_of(variant)) for variant in sweep.variants]
    if any(one.head == "fp8" or one.shared_head for one in expected):
        return Check(name, FAIL, "it is not installed, and stock SGLang has no FP8 head", do)
    return Check(name, WARN, "it is not installed: an engine then gives no evidence of its own", do)


def _imports(node: Node, inside: Inside) -> Iterator[Check]:
    if not node.on_gpu:
        yield not_applicable("sgl_kernel", NO_GPU)
        yield not_applicable("torch", NO_GPU)
        return
    again = "reinstall sglang-kernel for this machine's CUDA and architecture"
    yield judged("sgl_kernel", "imports", inside.sgl_kernel_error, again)
    problem = inside.torch_error or (None if inside.gpu else "torch sees no GPU")
    found = f"for CUDA {inside.torch_cuda}, sees {inside.gpu}"
    yield judged("torch", found, problem, "install a torch whose CUDA the driver runs")


def weights(node: Node) -> Check:
    """The model is there and whole, and so is what the variants draft with."""
    name, sweep = "weights", node.sweep
    if node.no_sglang:
        return not_applicable(name, node.no_sglang)
    if node.model is None:
        return Check(
            name, FAIL, f"{sweep.model.path} is not in the Hugging Face cache", f"hf download {sweep.model.path}"
        )
    config = node.model / "config.json"
    arguments = [sweep.args_of(variant) for variant in sweep.variants]
    dummy = all(args.get("load-format") == "dummy" for args in arguments)
    if dummy:
        missing = f"model.path: {node.model} is not a folder with a model (no config.json)"
        problem = None if config.is_file() else missing
    else:
        problem = weights_problem(node.model)
    again = "fetch or copy the model again"
    if problem is None and any(need.draft_layer for need in node.needs.values()):
        problem = next(iter(missing_draft_layer(json.loads(config.read_bytes()), str(node.model))), None)
        again = "leave nextn out, or take a model that drafts"
    if problem is None and (absent := [line for args in arguments for line in missing_drafter(args)]):
        problem = absent[0]
    found = (
        "dummy: no weights are read" if dummy else f"{weights_bytes(node.model) / 1e9:.2f} GB, whole, in {node.model}"
    )
    return judged(name, found, problem, again)
