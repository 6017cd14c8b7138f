"""What is active in an SGLang process, read from its live objects and written as JSON to `FARM_EVIDENCE_DIR`.

One file for each process, `<pid>.json`. Only schedulers have `models`; the other processes show that the plug-in is
loaded in them. Nothing here is taken from the arguments that were asked for.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from farm.sglang_plugin import EVIDENCE_VARIABLE, active_features
from farm.sglang_plugin.caches import cache_state

_PACKAGES = ("sglang", "sglang-kernel", "torch", "triton", "humming-kernels", "flashinfer-python", "spark-farm")


# Forms of what is written; `class` is a keyword, hence the calls.
HeadEvidence = TypedDict(
    "HeadEvidence",
    {
        "class": str,
        "method": str,
        "dtype": "str | None",
        "shape": "list[int] | None",
        "bytes": int,
        "fp32_output": bool,
    },
)
MoeEvidence = TypedDict("MoeEvidence", {"class": str, "method": str, "backend": "str | None", "layers": int})
ModelEvidence = TypedDict(
    "ModelEvidence",
    {
        "role": str,
        "class": str,
        "lm_head": "HeadEvidence | None",
        "shares_target_head": "bool | None",
        "moe": "list[MoeEvidence]",
        "attention": str,
        "decode_graphs": bool,
    },
)


class SpeculationEvidence(TypedDict):
    """The draft worker, and with how many steps and tokens it drafts."""

    worker: str
    algorithm: str
    steps: int | None
    draft_tokens: int | None
    simulated_accept_length: float | None


class GpuEvidence(TypedDict):
    """The GPU as this process sees it."""

    name: str
    uuid: str
    capability: str
    cuda: str | None
    driver: str | None


class ProcessEvidence(TypedDict):
    """The file of one process."""

    pid: int
    plugin: dict[str, list[str]]
    versions: dict[str, str | None]
    models: list[ModelEvidence]
    speculation: SpeculationEvidence | None
    gpu: NotRequired[GpuEvidence | None]
    kernel_caches: NotRequired[dict[str, dict[str, int]]]


def after_scheduler_init(_result: Any, scheduler: Any, *_args: Any, **_kwargs: Any) -> None:
    """Hook after `Scheduler.__init__`: models are loaded, heads shared, graphs captured; nothing is served yet."""
    target = scheduler.tp_worker.model_runner
    drafts = _draft_runners(scheduler.draft_worker)
    models = [model_evidence("target", target)]
    models += [model_evidence("draft", runner, target.model) for runner in drafts]
    write(models, speculation=_speculation(scheduler))


def after_init_lm_head(_result: Any, worker: Any) -> None:
    """Hook after a draft worker's `init_lm_head`: what is known by then, should the engine not live to say more."""
    from farm.sglang_plugin.draft import draft_runners

    target = worker.target_worker.model_runner
    models = [model_evidence("target", target)]
    write(models + [model_evidence("draft", runner, target.model) for runner in draft_runners(worker)])


def write(models: list[ModelEvidence], *, speculation: SpeculationEvidence | None = None) -> None:
    """Replace this process's evidence file; without `FARM_EVIDENCE_DIR` nothing is written."""
    folder = os.environ.get(EVIDENCE_VARIABLE)
    if not folder:
        return
    content: ProcessEvidence = {
        "pid": os.getpid(),
        "plugin": {"features": active_features()},
        "versions": _versions(),
        "models": models,
        "speculation": speculation,
    }
    if models:
        content["gpu"] = _gpu()
        content["kernel_caches"] = cache_state(os.environ)
    path = Path(folder) / f"{os.getpid()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
    partial.replace(path)


def model_evidence(role: str, runner: Any, target: Any = None) -> ModelEvidence:
    """What one model runs with.

    Args:
        role: `target` or `draft`.
        runner: SGLang's ModelRunner.
        target: for a draft, the target model whose head it may share.
    """
    model = runner.model
    head = getattr(model, "lm_head", None)
    target_head = getattr(target, "lm_head", None)
    return {
        "role": role,
        "class": type(model).__name__,
        "lm_head": None if head is None else _head_evidence(model, head),
        "shares_target_head": None if target is None else head is not None and head is target_head,
        "moe": _moe_evidence(model),
        "attention": type(getattr(runner, "attn_backend", None)).__name__,
        "decode_graphs": bool(getattr(runner, "decode_cuda_graph_captured", False)),
    }


def _head_evidence(model: Any, head: Any) -> HeadEvidence:
    weight = getattr(head, "weight", None)
    return {
        "class": type(head).__name__,
        "method": type(getattr(head, "quant_method", None)).__name__,
        "dtype": None if weight is None else str(weight.dtype).removeprefix("torch."),
        "shape": None if weight is None else list(weight.shape),
        "bytes": sum(tensor.nbytes for tensor in (*head.parameters(), *head.buffers())),
        "fp32_output": any(getattr(module, "use_fp32_lm_head", False) for module in model.modules()),
    }


def _moe_evidence(model: Any) -> list[MoeEvidence]:
    """The kinds of MoE layers that were instantiated, with the backend of the runner that each one holds."""
    kinds = Counter(
        (type(module).__name__, type(module.quant_method).__name__, _backend(module))
        for module in model.modules()
        if hasattr(module, "num_local_experts") and hasattr(module, "quant_method")
    )
    return [
        {"class": name, "method": method, "backend": backend, "layers": layers}
        for (name, method, backend), layers in sorted(kinds.items(), key=str)
    ]


def _backend(layer: Any) -> str | None:
    backend = getattr(layer, "runner_backend", None)
    return None if backend is None else str(getattr(backend, "value", backend))


def _draft_runners(worker: Any) -> list[Any]:
    """The draft's model runners; the worker that SGLang's scheduler holds may wrap the one that has them."""
    from farm.sglang_plugin.draft import draft_runners

    for candidate in (getattr(worker, "_draft_worker", None), worker):
        if candidate is not None and (runners := draft_runners(candidate)):
            return runners
    return []


def _speculation(scheduler: Any) -> SpeculationEvidence | None:
    worker = scheduler.draft_worker
    if worker is None:
        return None
    drafting = getattr(worker, "_draft_worker", None) or worker
    simulated = float(os.environ.get("SGLANG_SIMULATE_ACC_LEN") or 0)
    return {
        "worker": type(worker).__name__,
        "algorithm": getattr(scheduler.spec_algorithm, "name", str(scheduler.spec_algorithm)),
        "steps": getattr(drafting, "speculative_num_steps", None),
        "draft_tokens": getattr(drafting, "speculative_num_draft_tokens", None),
        "simulated_accept_length": simulated if simulated > 0 else None,
    }


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def _gpu() -> GpuEvidence | None:
    import torch

    if not torch.cuda.is_available():
        return None
    return {
        "name": torch.cuda.get_device_name(),
        "uuid": str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid),
        "capability": ".".join(map(str, torch.cuda.get_device_capability())),
        "cuda": torch.version.cuda,
        "driver": _driver(),
    }


def _driver() -> str | None:
    try:
        import pynvml  # type: ignore[import-untyped,unused-ignore]  # SGLang brings it

        pynvml.nvmlInit()
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        pynvml.nvmlShutdown()
    except Exception:  # no package, no library: only this one field is null
        return None
    return driver
