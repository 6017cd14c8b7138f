"""The checkpoint layout that SGLang reads for BailingMoeV2: the NEXTN layer comes after the last decoder layer."""

# mypy: disable-error-code="misc,untyped-decorator"
# torch is not installed where mypy runs: its classes and decorators are untyped there.

import json
from collections.abc import Iterator
from pathlib import Path

from demo_model.network import Block, Dense, Experts, NextN, Trunk
from demo_model.shape import Shape, hf_config, shape_of

import torch  # isort: skip  (after network, whose error says how to get it)
from torch import Tensor, nn

WEIGHTS = "model.safetensors"


def _block_tensors(prefix: str, block: Block) -> Iterator[tuple[str, Tensor]]:
    """Checkpoint names of one decoder layer's weights, with views of the weights themselves."""
    mlp = block.mlp
    yield f"{prefix}input_layernorm.weight", block.input_layernorm.weight
    yield f"{prefix}post_attention_layernorm.weight", block.post_attention_layernorm.weight
    for name, parameter in block.attention.named_parameters():
        yield f"{prefix}attention.{name}", parameter
    if isinstance(mlp, Dense):
        for name, parameter in mlp.named_parameters():
            yield f"{prefix}mlp.{name}", parameter
        return
    assert isinstance(mlp, Experts)
    yield f"{prefix}mlp.gate.weight", mlp.gate.weight
    yield f"{prefix}mlp.gate.expert_bias", mlp.expert_bias
    for name, parameter in mlp.shared_experts.named_parameters():
        yield f"{prefix}mlp.shared_experts.{name}", parameter
    for kind in ("gate_proj", "up_proj", "down_proj"):
        for expert, weight in enumerate(getattr(mlp, kind)):
            yield f"{prefix}mlp.experts.{expert}.{kind}.weight", weight


def tensors(trunk: Trunk, nextn: NextN) -> Iterator[tuple[str, Tensor]]:
    """Every weight by its checkpoint name."""
    yield "model.word_embeddings.weight", trunk.word_embeddings.weight
    for index, block in enumerate(trunk.layers):
        assert isinstance(block, Block)
        yield from _block_tensors(f"model.layers.{index}.", block)
    yield "model.norm.weight", trunk.norm.weight
    yield "lm_head.weight", trunk.lm_head.weight
    prefix = f"model.layers.{len(trunk.layers)}."
    for name in ("enorm", "hnorm", "eh_proj", "final_layernorm"):
        module = getattr(nextn, name)
        assert isinstance(module, nn.Module)
        yield f"{prefix}{name}.weight", module.get_parameter("weight")
    yield from _block_tensors(prefix, nextn.block)


@torch.no_grad()
def round_to_bf16(trunk: Trunk, nextn: NextN) -> None:
    """Round the weights to what the checkpoint holds, so that figures measured before the export hold after it."""
    for name, tensor in tensors(trunk, nextn):
        if not name.endswith("expert_bias"):
            tensor.copy_(tensor.bfloat16().to(tensor.dtype))


@torch.no_grad()
def save(folder: Path, trunk: Trunk, nextn: NextN, *, pad_id: int, end_id: int) -> None:
    """Write config.json, generation_config.json and the weights (bfloat16; the selection bias stays float32)."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    stored = {
        name: tensor.detach().cpu().to(torch.float32 if name.endswith("expert_bias") else torch.bfloat16).contiguous()
        for name, tensor in tensors(trunk, nextn)
    }
    save_file(stored, str(folder / WEIGHTS), metadata={"format": "pt"})
    config = hf_config(trunk.shape, pad_id=pad_id, end_id=end_id)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    # Greedy unless a request says otherwise, so that a plain request is repeatable.
    generation = {"eos_token_id": end_id, "pad_token_id": pad_id, "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=1) + "\n")


@torch.no_grad()
def load(folder: Path) -> tuple[Trunk, NextN]:
    """The model of a checkpoint in float32, for reference computations."""
    from safetensors.torch import load_file

    shape: Shape = shape_of(json.loads((folder / "config.json").read_text()))
    trunk, nextn = Trunk(shape).eval(), NextN(shape).eval()
    stored = load_file(str(folder / WEIGHTS))
    for name, tensor in tensors(trunk, nextn):
        tensor.copy_(stored.pop(name).to(tensor.dtype))
    if stored:
        raise ValueError(f"{folder / WEIGHTS} holds weights that the demo model lacks: {sorted(stored)[:3]}")
    return trunk, nextn
