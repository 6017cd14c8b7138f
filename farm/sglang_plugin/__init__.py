"""What SGLang 0.5.23 lacks for the farm's variants, supplied from outside through its plug-in hooks.

SGLang calls `register` in each of its processes (entry point group `sglang.srt.plugins`). It adds

- `head`: the online FP8 LM head, switched on by `SGLANG_ENABLE_FP8_LM_HEAD=1`;
- `draft`: a draft model that shares the target's whole LM head module, not the weight tensor alone;
- `evidence`: what is active in the process, read from its live objects and written to `FARM_EVIDENCE_DIR`.

This package runs in the engine's environment: it imports the standard library, torch, Triton and SGLang, nothing else
of the farm, and nothing heavy before a hook needs it.
"""

from __future__ import annotations

import os
import sys

FP8_HEAD_VARIABLE = "SGLANG_ENABLE_FP8_LM_HEAD"
EVIDENCE_VARIABLE = "FARM_EVIDENCE_DIR"
# Names of features that must not be registered, for tests of what happens without them.
DISABLED_VARIABLE = "FARM_SGLANG_PLUGIN_DISABLE"
FEATURES = ("fp8-head", "shared-draft-head")

_SCHEDULER = "sglang.srt.managers.scheduler"


def register() -> None:
    """Register the hooks, in the processes that hold models; write first evidence in all of them."""
    from farm.sglang_plugin import evidence

    # Hooks import what they hook. Only a scheduler has models, and it has imported its own module by now; the others
    # (launcher, detokenizer) are spared the import.
    if _SCHEDULER in sys.modules:
        _hook_models()
    evidence.write([])


def active_features() -> list[str]:
    """The features that this process registers."""
    disabled = os.environ.get(DISABLED_VARIABLE, "").split(",")
    return [name for name in FEATURES if name not in disabled]


def fp8_head_asked() -> bool:
    """Whether the environment asks for the FP8 LM head."""
    return os.environ.get(FP8_HEAD_VARIABLE, "").lower() in ("1", "true", "yes", "on")


def _hook_models() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from farm.sglang_plugin import draft, evidence, head

    features = active_features()
    if "fp8-head" in features and fp8_head_asked():
        runner = "sglang.srt.model_executor.model_runner.ModelRunner"
        HookRegistry.register(f"{runner}.load_model", head.after_load_model, HookType.AFTER)
    for worker in draft.WORKERS:
        if "shared-draft-head" in features:
            HookRegistry.register(f"{worker}.init_lm_head", draft.around_init_lm_head, HookType.AROUND)
        HookRegistry.register(f"{worker}.init_lm_head", evidence.after_init_lm_head, HookType.AFTER)
    HookRegistry.register(f"{_SCHEDULER}.Scheduler.__init__", evidence.after_scheduler_init, HookType.AFTER)
