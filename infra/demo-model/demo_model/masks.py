"""Which keys a query may see, in packed rows."""

import torch
from torch import Tensor


def document_mask(document: Tensor) -> Tensor:
    """[B, 1, T, T]: earlier positions of the same document. `document` is [B, T], 0 for padding."""
    same = document[:, :, None] == document[:, None, :]
    return same.tril()[:, None]


def pass_masks(causal: Tensor, passes: int) -> list[Tensor]:
    """Masks of successive draft passes, [B, 1, T, k T] for pass k.

    A later pass drafts from its own features. At slot s of pass k the slots up to s - k + 1 are known from the target
    (keys of pass 1), and each slot after them from the pass that drafted it: slot s - k + j comes from pass j.
    """
    length = causal.shape[-1]
    everything = torch.ones(length, length, dtype=torch.bool, device=causal.device)
    masks = [causal]
    for k in range(2, passes + 1):
        known = causal & everything.tril(1 - k)
        drafted = [causal & (everything.tril(j - k) & everything.triu(j - k)) for j in range(2, k + 1)]
        masks.append(torch.cat([known, *drafted], dim=-1))
    return masks
