"""Pure-torch stand-ins for the kernels that SGLang 0.5.23 needs on a plain CPU.

SGLang has a CPU platform, but its kernels (the CPU build of ``sgl_kernel``) are not published, and Kimi Delta Attention
(KDA) exists for GPUs only. This package fills both gaps slowly and readably:

- ``bootstrap``    serves a module named ``sgl_kernel``, only on the CPU platform and only if there is no real one
- ``attention``    prefill and decode attention over SGLang's token pool, as ``torch.ops.sgl_kernel`` operators
- ``speculative``  draft trees, greedy verification
- ``cache``        moves of cache locations and cached rows
- ``kda``          KDA: causal convolution and gated delta rule, recurrent and in chunks
- ``plugin``       puts ``kda`` in place of the Triton kernels; a general SGLang plug-in, idle where CUDA is present

This module imports nothing: it is loaded at every start of the interpreter.
"""
