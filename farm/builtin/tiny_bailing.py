"""A tiny model with the architecture of Ling-3.0-flash (BailingMoeV3), for machines without a GPU.

KDA and gated MLA layers in turn, a mixture of experts with a shared one, one NextN draft layer, and a byte-level BPE
tokenizer with a thinking switch in its chat template. It is made in seconds with numpy alone. Only the tokenizer is
trained; embedding and head are arranged so that the text has the shape of an answer, and no sense.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from farm.builtin.tiny_text import problems

# Raise it when the same parameters give another model, so that existing folders are made again.
FORMAT = 2
IDENTITY_FILE = "tiny_model.json"

STORY_WORDS = 48
# The logit of the token that follows, where others are around 0.
CONFIDENCE = 8.0
# An answer that was begun is ended, mostly.
ENDING_EMPHASIS = 2.0

END_OF_TEXT, END_OF_TURN = "<|endoftext|>", "<|role_end|>"
SPECIAL_TOKENS = [END_OF_TEXT, END_OF_TURN, "<role>", "</role>", "<think>", "</think>"]

CHAT_TEMPLATE = """\
{%- set thinking = enable_thinking is defined and enable_thinking -%}
<role>SYSTEM</role>
{%- if messages[0].role == 'system' %}{{ messages[0].content + '\\n' }}{% endif -%}
detailed thinking {{ 'on' if thinking else 'off' }}<|role_end|>
{%- for message in messages -%}
{%- if message.role == 'user' -%}
<role>HUMAN</role>{{ message.content }}<|role_end|>
{%- elif message.role == 'assistant' -%}
<role>ASSISTANT</role>{{ message.content.split('</think>')[-1].lstrip('\\n') }}<|role_end|>
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<role>ASSISTANT</role>{{ '<think>\\n' if thinking }}
{%- endif -%}
"""


@dataclass(frozen=True)
class Shape:
    """Sizes of the model; the names are the configuration's."""

    vocab_size: int = 1152
    hidden_size: int = 64
    intermediate_size: int = 128
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    head_dim: int = 16
    num_experts: int = 8
    num_experts_per_tok: int = 2
    moe_intermediate_size: int = 32
    layer_group_size: int = 2
    kv_lora_rank: int = 32
    qk_nope_head_dim: int = 16
    qk_rope_head_dim: int = 8
    v_head_dim: int = 16
    short_conv_kernel_size: int = 4
    max_position_embeddings: int = 262144


SHAPE = Shape()


def make_tiny_bailing_v3(path: Path, seed: int = 0, *, context_weight: float = 0.8) -> None:
    """Write the model to ``path``; an existing complete one with the same parameters is left alone.

    ``context_weight`` says how much of each layer's output counts. At 0 the next token depends on the last one alone,
    and the draft layer is always right; the larger it is, the fewer drafts are accepted.
    """
    identity = {"format": FORMAT, "seed": seed, "context_weight": context_weight, "shape": asdict(SHAPE)}
    if _identity(path) == identity:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    unfinished.mkdir()
    try:
        _write(unfinished, seed, context_weight)
        _write_json(unfinished / IDENTITY_FILE, identity)
        _put_in_place(unfinished, path, identity)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _identity(path: Path) -> dict[str, object] | None:
    try:
        identity: dict[str, object] = json.loads((path / IDENTITY_FILE).read_text())
    except (OSError, ValueError):
        return None
    return identity


def _put_in_place(new: Path, path: Path, identity: dict[str, object]) -> None:
    """Rename, so that nobody sees half a model; of two makers of the same model, either may win."""
    old = new.with_name(new.name + ".old")
    if path.exists():
        os.rename(path, old)
    try:
        os.rename(new, path)
    except OSError:
        if _identity(path) != identity:
            raise
    shutil.rmtree(old, ignore_errors=True)


def _write(path: Path, seed: int, context_weight: float) -> None:
    transcripts = _transcripts(seed)
    tokenizer = _tokenizer(transcripts)
    tokenizer.save(str(path / "tokenizer.json"))
    vocabulary = tokenizer.get_vocab()
    eos, pad = vocabulary[END_OF_TURN], vocabulary[END_OF_TEXT]
    _write_json(
        path / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": SHAPE.max_position_embeddings,
            "eos_token": END_OF_TURN,
            "pad_token": END_OF_TEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    _write_json(path / "config.json", _config(eos, pad))
    _write_json(path / "generation_config.json", {"eos_token_id": eos, "pad_token_id": pad})
    rng = np.random.default_rng(seed)
    weights = _weights(rng, _follow_ups(tokenizer, transcripts, rng), context_weight)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    # safetensors leaves it readable by its owner alone.
    (path / "model.safetensors").chmod(0o644)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def _transcripts(seed: int) -> list[str]:
    return [
        f"<role>SYSTEM</role>detailed thinking on<|role_end|><role>HUMAN</role>{question}<|role_end|><role>ASSISTANT"
        f"</role><think>\n{reasoning}\n</think>\n\nThe answer is {result}.\n#### {result}<|role_end|>"
        for question, reasoning, result in problems(4000, seed)
    ]


def _tokenizer(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    trainer = trainers.BpeTrainer(
        vocab_size=SHAPE.vocab_size,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _config(eos: int, pad: int) -> dict[str, object]:
    return {
        "architectures": ["BailingMoeV3ForCausalLM"],
        "model_type": "bailing_hybrid",
        "dtype": "float32",
        **asdict(SHAPE),
        "num_key_value_heads": SHAPE.num_attention_heads,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 600000.0,
        "rope_scaling": None,
        "eos_token_id": eos,
        "pad_token_id": pad,
        "first_k_dense_replace": 1,
        "num_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "score_function": "sigmoid",
        "norm_topk_prob": True,
        "moe_router_enable_expert_bias": True,
        "routed_scaling_factor": 1.0,
        "num_nextn_predict_layers": 1,
        "q_lora_rank": None,
        "use_qk_norm": True,
        "use_mla_nope": False,
        "gated_attention_proj_granularity_type": "element_wise",
        "no_kda_lora": True,
        "kda_safe_gate": False,
        "tie_word_embeddings": False,
    }


@dataclass(frozen=True)
class FollowUps:
    """What the model says after each token when the context does not change its mind."""

    pairs: list[tuple[int, int]]
    ending: list[int]
    """The tokens from the end of thinking to the last one of an answer."""


def _follow_ups(tokenizer: Tokenizer, texts: list[str], rng: np.random.Generator) -> FollowUps:
    """Compose stories.

    Whole words form stories, each word once and mostly where it was seen to follow the one before, so that no text runs
    in circles. A new line starts one. Each ends in the same way: thinking is closed, an answer is given, the turn ends.
    The digits of the answer are equally near, and the context chooses. All other tokens lead into some story.
    """
    vocabulary = tokenizer.get_vocab()
    size = len(vocabulary)
    words = sorted(
        index for token, index in vocabulary.items() if token.startswith("Ġ") and len(token) > 3 and token[1:].isalpha()
    )
    follows = np.zeros((size, size))
    for encoding in tokenizer.encode_batch(texts):
        np.add.at(follows, (encoding.ids[:-1], encoding.ids[1:]), 1)
    unused = np.zeros(size, dtype=bool)
    unused[words] = True
    frequency = follows.sum(0)
    walk = [words[int(frequency[words].argmax())]]
    unused[walk[0]] = False
    while unused.any():
        # The word seen most often after this one, else the most frequent of those left.
        score = np.where(unused, follows[walk[-1]] * 1e6 + frequency, -1)
        walk.append(int(score.argmax()))
        unused[walk[-1]] = False

    closing, hashes, space, end = (vocabulary[token] for token in ("</think>", "####", "Ġ", END_OF_TURN))
    digits = [vocabulary[digit] for digit in "0123456789"]
    pairs = [(vocabulary["Ċ"], walk[0]), (closing, hashes), (hashes, space)]
    pairs += [(space, digit) for digit in digits] + [(digit, end) for digit in digits]
    for start in range(0, len(walk), STORY_WORDS):
        story = walk[start : start + STORY_WORDS]
        pairs += zip(story, [*story[1:], closing], strict=True)
    paired = {token for token, _ in pairs}
    pairs += [(token, int(rng.choice(walk))) for token in range(size) if token not in paired]
    return FollowUps(pairs, [closing, hashes, space, *digits])


def _unit(rows: np.ndarray) -> np.ndarray:
    """Scale each row to a mean square of one."""
    unit: np.ndarray = rows / np.sqrt(np.square(rows).mean(1, keepdims=True))
    return unit


def _weights(rng: np.random.Generator, follow_ups: FollowUps, context_weight: float) -> dict[str, np.ndarray]:
    shape, hidden, heads = SHAPE, SHAPE.hidden_size, SHAPE.num_attention_heads
    weights: dict[str, np.ndarray] = {}

    def normal(name: str, *size: int, scale: float = 0.15) -> None:
        weights[name] = rng.standard_normal(size) * scale

    def ones(name: str, size: int) -> None:
        weights[name] = np.ones(size)

    def mla(prefix: str) -> None:
        normal(prefix + "q_proj.weight", heads * (shape.qk_nope_head_dim + shape.qk_rope_head_dim), hidden)
        normal(prefix + "kv_a_proj_with_mqa.weight", shape.kv_lora_rank + shape.qk_rope_head_dim, hidden)
        ones(prefix + "kv_a_layernorm.weight", shape.kv_lora_rank)
        normal(prefix + "kv_b_proj.weight", heads * (shape.qk_nope_head_dim + shape.v_head_dim), shape.kv_lora_rank)
        normal(prefix + "g_proj.weight", heads * shape.v_head_dim, hidden)
        normal(prefix + "dense.weight", hidden, heads * shape.v_head_dim, scale=0.15 * context_weight)

    def kda(prefix: str) -> None:
        width = heads * shape.head_dim
        for part in "qkv":
            normal(prefix + f"{part}_proj.weight", width, hidden)
            normal(prefix + f"{part}_conv1d.weight", width, 1, shape.short_conv_kernel_size)
        normal(prefix + "b_proj.weight", heads, hidden)
        normal(prefix + "f_proj.weight", width, hidden)
        normal(prefix + "g_proj.weight", width, hidden)
        # The heads remember for one to a thousand tokens.
        weights[prefix + "A_log"] = np.log(np.geomspace(0.001, 1.0, heads))
        weights[prefix + "dt_bias"] = np.zeros(width)
        ones(prefix + "o_norm.weight", shape.head_dim)
        normal(prefix + "o_proj.weight", hidden, width, scale=0.15 * context_weight)

    def mlp(prefix: str, size: int) -> None:
        normal(prefix + "gate_proj.weight", size, hidden)
        normal(prefix + "up_proj.weight", size, hidden)
        normal(prefix + "down_proj.weight", hidden, size, scale=0.15 * context_weight)

    def moe(prefix: str) -> None:
        normal(prefix + "gate.weight", shape.num_experts, hidden)
        weights[prefix + "gate.expert_bias"] = np.zeros(shape.num_experts)
        for expert in range(shape.num_experts):
            mlp(f"{prefix}experts.{expert}.", shape.moe_intermediate_size)
        mlp(prefix + "shared_experts.", shape.moe_intermediate_size)

    # Random directions are nearly orthogonal: a head row along a token's embedding answers to that token alone. Tokens
    # that lead to the same one share most of their direction, so its row need not be longer than others and win by
    # chance. Embeddings of unit mean square are left as they are by the final norm.
    direction = _unit(rng.standard_normal((shape.vocab_size, hidden)))
    leads_to = dict(follow_ups.pairs)
    shared = np.array([leads_to[token] for token in range(shape.vocab_size)])
    embedding = _unit(0.95 * direction[shared] + 0.3 * _unit(rng.standard_normal(direction.shape)))
    # Rows have a part of their own too: among tokens that may follow equally well, the context chooses.
    head = 0.25 * _unit(rng.standard_normal(direction.shape))
    for following, token in {following: token for token, following in follow_ups.pairs}.items():
        head[following] += direction[leads_to[token]]
    head *= CONFIDENCE / hidden
    # Layers add the same to a longer embedding: the context changes less of what follows.
    embedding[follow_ups.ending] *= ENDING_EMPHASIS
    weights["model.word_embeddings.weight"] = embedding
    weights["lm_head.weight"] = head
    ones("model.norm.weight", hidden)

    draft = shape.num_hidden_layers
    for layer in range(draft + 1):
        prefix = f"model.layers.{layer}."
        ones(prefix + "input_layernorm.weight", hidden)
        ones(prefix + "post_attention_layernorm.weight", hidden)
        full_attention = layer == draft or (layer + 1) % shape.layer_group_size == 0
        (mla if full_attention else kda)(prefix + "attention.")
        if layer == 0:
            mlp(prefix + "mlp.", shape.intermediate_size)
        else:
            moe(prefix + "mlp.")
    prefix = f"model.layers.{draft}."
    for norm in ("enorm", "hnorm", "final_layernorm"):
        ones(prefix + norm + ".weight", hidden)
    # The draft reads the last token and not the target's hidden state: it knows what follows, not the context.
    weights[prefix + "eh_proj.weight"] = np.concatenate([np.eye(hidden), np.zeros((hidden, hidden))], 1)
    return {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in weights.items()}
