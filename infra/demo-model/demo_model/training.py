"""Trunk and NEXTN training steps, shared by the CPU rehearsal and the GPU run."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from demo_model.corpus import Rows
from demo_model.masks import document_mask, pass_masks
from demo_model.network import Experts, KeysValues, NextN, Trunk

import torch  # isort: skip  (after network, whose error says how to get it)
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

PASSES = 3
"""Draft steps trained for: NEXTN's default is three."""
BALANCE_RATE = 1e-3
IGNORED = -100


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows on the training device: `tokens`, `document` and `scored`, each [B, T]."""

    tokens: Tensor
    document: Tensor
    scored: Tensor


def to_device(rows: Rows, device: torch.device) -> Batch:
    """Rows as tensors."""
    return Batch(
        torch.from_numpy(rows.tokens.astype("int64")).to(device, non_blocking=True),
        torch.from_numpy(rows.document).to(device, non_blocking=True),
        torch.from_numpy(rows.scored).to(device, non_blocking=True),
    )


def trunk_loss(trunk: Trunk, batch: Batch) -> Tensor:
    """Mean cross-entropy of the completions' tokens."""
    logits = trunk(batch.tokens, document_mask(batch.document))[:, :-1]
    wanted = batch.tokens[:, 1:].masked_fill(~batch.scored[:, 1:], IGNORED)
    return F.cross_entropy(logits.flatten(0, 1).float(), wanted.flatten(), ignore_index=IGNORED)


def draft_logits(trunk: Trunk, nextn: NextN, batch: Batch, features: Tensor, passes: int) -> list[Tensor]:
    """The draft's logits after 1 to `passes` steps, each [B, T-1, V]: at slot s they predict token s + 2.

    Slot s of the first pass reads the trunk's features at s and token s + 1; slot s of a later pass reads, instead of
    the trunk's features, those that the pass before gave at s - 1: what an engine that drafts several tokens does.
    """
    embedded = trunk.word_embeddings(batch.tokens[:, 1:])
    masks = pass_masks(document_mask(batch.document)[..., :-1, :-1], passes)
    current = features[:, :-1]
    logits: list[Tensor] = []
    seen: tuple[KeysValues, ...] = ()
    for mask in masks:
        out, own = nextn(embedded, current, trunk.rotary, mask, seen)
        logits.append(trunk.lm_head(out))
        seen = (*seen, own)
        current = F.pad(out[:, :-1], (0, 0, 1, 0))
    return logits


def nextn_loss(trunk: Trunk, nextn: NextN, batch: Batch) -> Tensor:
    """Cross-entropy of the drafts against the trunk's own distribution, mean over passes and completion tokens."""
    with torch.no_grad():
        features = trunk.features(batch.tokens, document_mask(batch.document))
        target = trunk.lm_head(features).float().softmax(-1)[:, 1:-1]
    # Every scored token is further into its document than the drafts reach back: a prompt is longer than that.
    weight = batch.scored[:, 2:] / batch.scored[:, 2:].sum()
    losses = []
    for logits in draft_logits(trunk, nextn, batch, features, PASSES):
        shown = logits[:, :-1].float().log_softmax(-1)
        losses.append(-((target * shown).sum(-1) * weight).sum())
    return torch.stack(losses).mean()


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Short linear warm-up, then a cosine down to a fiftieth of the peak."""
    warm = max(1, min(300, steps // 10))
    if step < warm:
        return peak * (step + 1) / warm
    progress = (step - warm) / max(1, steps - warm)
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))


def make_optimiser(module: nn.Module, peak: float) -> torch.optim.AdamW:
    """AdamW; weight decay for matrices only."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.05},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95), fused=next(module.parameters()).is_cuda)


def run_steps(
    module: nn.Module,
    loss_of: Callable[[Batch], Tensor],
    batches: Iterable[Batch],
    optimiser: torch.optim.Optimizer,
    *,
    first: int,
    steps: int,
    peak: float,
    after: Callable[[int, Tensor], bool],
) -> int:
    """Train from step `first` to `steps`; returns the next step. Stops early when `after(step, loss)` is false."""
    experts = [m for m in module.modules() if isinstance(m, Experts)]
    device = next(module.parameters()).device
    step = first
    for step, batch in zip(range(first, steps), batches, strict=False):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, steps, peak)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            loss = loss_of(batch)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimiser.step()
        for layer in experts:
            layer.balance(BALANCE_RATE)
        if not after(step, loss.detach()):
            return step + 1
    return max(first, steps)
