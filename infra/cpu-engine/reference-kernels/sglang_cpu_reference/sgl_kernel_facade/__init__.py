"""What SGLang sees as ``sgl_kernel`` on a CPU without the real one (see ``sglang_cpu_reference.bootstrap``)."""

import torch

from sglang_cpu_reference import attention as attention  # defines torch.ops.sgl_kernel operators
from sglang_cpu_reference.cache import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from sglang_cpu_reference.speculative import (
    build_tree_kernel_efficient_cpu,
    reconstruct_indices_from_tree_mask,
    verify_tree_greedy_cpu,
)

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "reconstruct_indices_from_tree_mask",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]

__version__ = "0+sglang.cpu.reference"

# NextN models call torch.cuda.synchronize() without asking for CUDA when they share the target's embeddings.
if not torch.cuda.is_available():
    torch.cuda.synchronize = lambda device=None: None
