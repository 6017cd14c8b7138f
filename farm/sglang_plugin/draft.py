"""A draft model that shares the target's LM head shares the module, not the weight tensor alone.

SGLang's draft worker hands the target's head tensor to the draft, then the head module to those draft classes that
have `set_lm_head_from_target`. A class without it keeps its own quantisation method over a tensor of another kind: BF16
arithmetic over FP8 bytes, drafts that are never accepted, and no error. So the method is given to every draft class
that SGLang runs and that lacks it, at the moment when the worker is about to ask for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

WORKERS = (
    "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker",
    "sglang.srt.speculative.multi_layer_eagle_worker_v2.MultiLayerEagleDraftWorker",
)


def around_init_lm_head(original: Callable[..., None], worker: Any) -> None:
    """Hook around a draft worker's `init_lm_head`: complete the draft classes before, bind what is left unbound after.

    The EAGLE worker binds the module itself; the multi-layer worker shares tensors only and never asks for the method.
    """
    runners = draft_runners(worker)
    for runner in runners:
        _complete(type(runner.model))
    original(worker)
    if hasattr(worker, "draft_runner_list"):
        target_head = getattr(worker.target_worker.model_runner.model, "lm_head", None)
        for runner in runners:
            if target_head is not None and getattr(runner.model, "hot_token_id", None) is None:
                runner.model.set_lm_head_from_target(target_head)


def draft_runners(worker: Any) -> list[Any]:
    """The model runners of a draft worker: one, or one for each step of a multi-layer draft."""
    several = getattr(worker, "draft_runner_list", None)
    if several is not None:
        return list(several)
    runner = getattr(worker, "draft_runner", None) or getattr(worker, "draft_model_runner", None)
    return [] if runner is None else [runner]


def set_lm_head_from_target(self: Any, target_lm_head: Any) -> None:
    """Make the target's LM head module this draft's own, weights and quantisation method alike.

    A draft that kept a head of its own when the target's tensor was offered keeps the module too.

    Raises:
        RuntimeError: the draft ties its head to its embeddings, which then cannot be the target's module.
    """
    if getattr(self.config, "tie_word_embeddings", False):
        if _is_plain(target_lm_head):
            return  # the tensor that was shared already is all there is to a plain head
        raise RuntimeError(
            f"{type(self).__name__} ties its LM head to its embeddings, and the target's head is "
            f"{type(target_lm_head.quant_method).__name__}: the two cannot share one head; run without speculation, or "
            "without the head's quantisation"
        )
    own = getattr(getattr(self, "lm_head", None), "weight", None)
    if own is not None and own is getattr(target_lm_head, "weight", None):
        self.lm_head = target_lm_head


def _complete(draft_class: type) -> None:
    if not hasattr(draft_class, "set_lm_head_from_target"):
        logger.info("%s gets set_lm_head_from_target: it shares the target's whole LM head", draft_class.__name__)
        draft_class.set_lm_head_from_target = set_lm_head_from_target  # type: ignore[attr-defined]


def _is_plain(lm_head: Any) -> bool:
    weight = getattr(lm_head, "weight", None)
    return weight is not None and weight.is_floating_point() and weight.element_size() > 1
