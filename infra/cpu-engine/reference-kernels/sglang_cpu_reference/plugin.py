"""The general SGLang plug-in (entry point group ``sglang.srt.plugins``) that gives BailingMoeV3 its KDA on a CPU.

SGLang calls ``register`` in each of its processes, before a model is built. The Triton functions are replaced where
they are looked up: in the modules that imported them.
"""

from __future__ import annotations

import os

from sglang_cpu_reference import kda


def register() -> None:
    """Replace KDA's Triton kernels, unless this is not the CPU platform or CUDA is there."""
    if os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
        return
    import torch

    if torch.cuda.is_available():
        return

    import sglang.kernels.ops.attention.fla.fused_norm_gate as gated_norm
    import sglang.kernels.ops.mamba.mamba_state_scatter_triton as scatter
    import sglang.srt.layers.attention.hybrid_linear_attn_backend as hybrid_backend
    import sglang.srt.layers.attention.linear.kda_backend as kda_backend
    import sglang.srt.layers.attention.linear.kernels.kda_triton as kda_kernels

    kda_backend.causal_conv1d_fn = kda.causal_conv1d_fn
    kda_backend.causal_conv1d_update = kda.causal_conv1d_update
    kda_kernels.chunk_kda = kda.chunk_kda
    kda_kernels.fused_sigmoid_gating_delta_rule_update = kda.fused_sigmoid_gating_delta_rule_update
    gated_norm.FusedRMSNormGated.forward = kda.gated_rms_norm
    # The single-launch variant of the commit is Triton too: declare nothing eligible for it.
    scatter._conv_multi_eligible = lambda pairs: False
    for module in (scatter, hybrid_backend):
        module.fused_mamba_state_scatter_with_mask = kda.commit_states
        module.fused_conv_window_scatter_with_mask = kda.commit_states
