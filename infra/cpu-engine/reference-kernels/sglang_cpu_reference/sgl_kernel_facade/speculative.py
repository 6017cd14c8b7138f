"""``sgl_kernel.speculative``: SGLang imports some names from here."""

from sglang_cpu_reference.speculative import (
    build_tree_kernel_efficient_cpu,
    reconstruct_indices_from_tree_mask,
    verify_tree_greedy_cpu,
)

__all__ = ["build_tree_kernel_efficient_cpu", "reconstruct_indices_from_tree_mask", "verify_tree_greedy_cpu"]
