"""``sgl_kernel.mamba``: names that SGLang imports on the CPU.

The plug-in replaces KDA's; GDN's have no stand-in.
"""

from typing import Any, NoReturn


def _absent(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError("gated DeltaNet has no CPU reference kernel")


causal_conv1d_fn_cpu = _absent
causal_conv1d_update_cpu = _absent
chunk_gated_delta_rule_cpu = _absent
