"""Speculative decoding on the CPU: draft trees and their greedy verification.

A draft tree of one request has ``n`` nodes; node 0 is the last token that was accepted. Its shape is held as three
rows: the flat index of each node, its first child and its next sibling (-1 for none). "retrive" is SGLang's spelling.
"""

from __future__ import annotations

import torch
from torch import Tensor

# SGLang's tree mask has several layouts; on the CPU it asks for the one among the draft tokens alone.
MASK_AMONG_DRAFTS = 1


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Walk each tree along the target's own choices; write the path, its length without the root, and its tokens."""
    batch, longest = accept_index.shape
    width = candidates.shape[1]
    drafts, index, child, sibling = (
        tensor.reshape(batch, width).tolist()
        for tensor in (candidates, retrive_index, retrive_next_token, retrive_next_sibling)
    )
    chosen = target_predict.reshape(-1).tolist()
    for b in range(batch):
        node, here = 0, index[b][0]
        path = [here]
        while len(path) < longest:
            node = child[b][node]
            while node != -1 and drafts[b][node] != chosen[here]:
                node = sibling[b][node]
            if node == -1:
                break
            here = index[b][node]
            path.append(here)
        for position in path:
            predicts[position] = chosen[position]
        accept_index[b, : len(path)] = torch.tensor(path, dtype=accept_index.dtype)
        accept_token_num[b] = len(path) - 1


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    verified_seq_len: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Build the tree of the selected drafts: who sees whom, at which position, and the links between nodes."""
    if int(tree_mask_mode) != MASK_AMONG_DRAFTS:
        raise NotImplementedError(f"tree mask mode {tree_mask_mode}")
    batch, n = verified_seq_len.shape[0], draft_token_num
    mask = tree_mask.view(batch, n, n)
    selected = selected_index.reshape(batch, -1).tolist()
    parents_of = parent_list.reshape(batch, -1).tolist()
    for b, start in enumerate(verified_seq_len.tolist()):
        node_of = {draft: node for node, draft in enumerate(selected[b], start=1)}
        parent = [-1]
        for draft in selected[b][: n - 1]:
            row = draft // topk
            parent.append(0 if row == 0 else node_of.get(parents_of[b][row], -1))
        child, sibling = [-1] * n, [-1] * n
        for node in range(n - 1, 0, -1):
            above = parent[node]
            if above >= 0:
                sibling[node], child[above] = child[above], node
        sees = torch.eye(n, dtype=torch.bool)
        sees[:, 0] = True
        node_depth = [0] * n
        for node in range(1, n):
            above = parent[node]
            if above >= 0:
                sees[node] |= sees[above]
                node_depth[node] = node_depth[above] + 1
            else:
                node_depth[node] = 1
        mask[b] = sees.to(mask.dtype)
        positions.view(batch, n)[b] = torch.tensor(node_depth) + start
        retrive_index[b] = torch.arange(b * n, (b + 1) * n)
        retrive_next_token[b] = torch.tensor(child)
        retrive_next_sibling[b] = torch.tensor(sibling)


def reconstruct_indices_from_tree_mask(
    tree_mask: Tensor,
    verified_seq_len: Tensor,
    positions: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """The inverse: positions and links from a tree mask (n-gram speculation has only the mask)."""
    n = draft_token_num
    ancestors = tree_mask.view(batch_size, n, n).bool().tril(-1)
    positions.view(batch_size, n).copy_(ancestors.sum(-1) + verified_seq_len.view(-1, 1))
    retrive_index.view(batch_size, n).copy_(torch.arange(batch_size * n).view(batch_size, n))
    for b, rows in enumerate(ancestors.tolist()):
        # The nearest ancestor is the parent: nodes are in topological order.
        parent = [max((j for j in range(n) if row[j]), default=-1) for row in rows]
        child, sibling = [-1] * n, [-1] * n
        for node in range(n - 1, 0, -1):
            above = parent[node]
            if above >= 0:
                sibling[node], child[above] = child[above], node
        retrive_next_token.view(batch_size, n)[b] = torch.tensor(child)
        retrive_next_sibling.view(batch_size, n)[b] = torch.tensor(sibling)
