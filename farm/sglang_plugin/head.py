"""The online FP8 LM head: quantised from the loaded BF16 or FP16 head, W8A8, in place of it.

Weights have a scale for each output channel, activations a dynamic scale for each token, both to float8_e4m3fn. Each
rank of a tensor-parallel head quantises its own rows; rows of padding are zero and stay zero. Logits are FP32: what the
accumulator holds is not rounded again.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from sglang.srt.layers.quantization.base_config import QuantizeMethodBase
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

logger = logging.getLogger(__name__)

FP8 = torch.float8_e4m3fn
FP8_MAX = torch.finfo(FP8).max
_SMALLEST_SCALE = 1e-12  # of a row of zeros, which stays one
_ROWS_AT_ONCE = 8192  # bounds the FP32 copy while a head is quantised: 84 MB at K = 2,560


class HeadNotQuantisable(RuntimeError):
    """The model's head cannot become an FP8 head: the engine must not start as if it had one."""


def after_load_model(_result: Any, runner: Any) -> None:
    """Hook after `ModelRunner.load_model`: the target's head becomes FP8; a draft shares it later.

    Raises:
        HeadNotQuantisable: names what stands against it.
    """
    if runner.is_draft_worker or _is_absent(runner.model):
        return
    head = _find_head(runner.model)
    for reason in _obstacles(runner, head):
        raise HeadNotQuantisable(
            f"SGLANG_ENABLE_FP8_LM_HEAD is set and {type(runner.model).__name__} cannot take an FP8 LM head: {reason}"
        )
    before = head.weight.nbytes
    install(head)
    logger.info("FP8 LM head: %s, %d bytes instead of %d", tuple(head.weight.shape), live_bytes(head), before)


def install(head: Any) -> None:
    """Quantise a head module in place and free what it held."""
    wide_dtype = head.weight.dtype
    quantised, scale = quantise_rows(head.weight.data)
    weight = torch.nn.Parameter(quantised, requires_grad=False)
    # Weights that are loaded again (an update of a running engine) arrive as BF16 and are quantised again.
    weight.output_dim, weight.input_dim = 0, 1
    weight.weight_loader = _Reload(head, wide_dtype)
    del head.weight
    head.register_parameter("weight", weight)
    head.register_parameter("weight_scale", torch.nn.Parameter(scale, requires_grad=False))
    head.quant_method = Fp8HeadMethod()
    if quantised.is_cuda:
        torch.cuda.empty_cache()


def quantise_rows(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 rows [N, K] and their FP32 scales [N]."""
    quantised = torch.empty(matrix.shape, dtype=FP8, device=matrix.device)
    scale = torch.empty(matrix.shape[0], dtype=torch.float32, device=matrix.device)
    for start in range(0, matrix.shape[0], _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        wide = matrix[rows].float()
        scale[rows] = (wide.abs().amax(dim=1) / FP8_MAX).clamp_min(_SMALLEST_SCALE)
        quantised[rows] = (wide / scale[rows, None]).to(FP8)
    return quantised, scale


def live_bytes(head: Any) -> int:
    """Bytes of all parameters and buffers that the head holds now."""
    return sum(tensor.nbytes for tensor in (*head.parameters(), *head.buffers()))


class Fp8HeadMethod(QuantizeMethodBase):  # type: ignore[misc]
    """Logits of a quantised head."""

    def create_weights(self, *_args: Any, **_kwargs: Any) -> None:
        """Never called by SGLang: the head's parameters are made from the loaded ones."""
        raise NotImplementedError("an FP8 head is made from a loaded one")

    def process_weights_after_loading(self, layer: Any) -> None:
        """Nothing is left to do: loading goes through the weight's own loader."""

    def apply(self, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """FP32 logits [M, N] of hidden states [M, K]."""
        if x.is_cuda:
            from farm.sglang_plugin.kernel import head_logits

            logits = head_logits(x, layer.weight, layer.weight_scale)
        else:
            logits = reference_logits(x, layer.weight, layer.weight_scale)
        return logits if bias is None else logits + bias


def reference_logits(x: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor) -> torch.Tensor:
    """The same product without FP8 arithmetic, for CPUs: exact products of the quantised values, summed in FP32."""
    quantised, scale = quantise_rows(x)
    return torch.mm(quantised.float(), weight.float().T) * scale[:, None] * weight_scale[None, :]


class _Reload:
    """Loader of an FP8 head's weight: places a BF16 checkpoint tensor as SGLang does, then quantises it."""

    def __init__(self, head: Any, wide_dtype: torch.dtype) -> None:
        self._head = head
        self._wide_dtype = wide_dtype

    def __call__(self, param: torch.nn.Parameter, loaded_weight: torch.Tensor) -> None:
        wide = torch.nn.Parameter(
            torch.zeros(param.shape, dtype=self._wide_dtype, device=param.device), requires_grad=False
        )
        wide.output_dim = 0
        self._head.weight_loader(wide, loaded_weight)
        quantised, scale = quantise_rows(wide.data)
        param.data.copy_(quantised)
        self._head.weight_scale.data.copy_(scale)


def _is_absent(model: Any) -> bool:
    """Whether this rank of a pipeline has no head."""
    return type(getattr(model, "lm_head", None)).__name__ == "PPMissingLayer"


def _find_head(model: Any) -> Any:
    heads = {id(module): module for module in model.modules() if isinstance(module, ParallelLMHead)}
    if len(heads) != 1:
        found = f"{len(heads)} ParallelLMHead modules" if heads else "no ParallelLMHead of its own (a tied one?)"
        raise HeadNotQuantisable(
            f"SGLANG_ENABLE_FP8_LM_HEAD is set and {type(model).__name__} has {found}: one untied head is needed"
        )
    return next(iter(heads.values()))


def _obstacles(runner: Any, head: Any) -> list[str]:
    found = []
    weight = getattr(head, "weight", None)
    if weight is None or weight.dtype not in (torch.bfloat16, torch.float16):
        kind = "no weight tensor" if weight is None else f"a weight of {weight.dtype}"
        found.append(f"its head has {kind}, not BF16 or FP16; is it quantised already?")
    elif any(
        embedding is not head and getattr(embedding, "weight", None) is weight
        for embedding in runner.model.modules()
        if isinstance(embedding, VocabParallelEmbedding)
    ):
        found.append("its head is tied to its embeddings")
    if getattr(head, "use_intel_amx_backend", False):
        found.append("its head was packed for AMX")
    if getattr(runner.server_args, "enable_lora", False):
        found.append("LoRA is enabled, which wraps the head")
    if any(getattr(module, "use_fp32_lm_head", False) for module in runner.model.modules()):
        found.append("--enable-fp32-lm-head is set: an FP8 head and an FP32-output head exclude each other")
    return found
