"""The demo model's tokenizer: byte-level pairs learnt on generated problems, digits one by one, and a chat template.

Any text can be tokenised (bytes are the fallback); text unlike the generated problems costs more tokens.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD, END, USER, ASSISTANT, SYSTEM = "<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"
THINK, END_THINK = "<think>", "</think>"
PAD_ID, END_ID = 0, 1

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|assistant|><think>\\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{- '\\n</think>\\n' }}{%- endif %}"
    "{%- endif %}"
)
"""Thinking is on unless a request turns it off: then the think section is closed in the prompt, empty."""


def prompt_text(question: str, *, thinking: bool) -> str:
    """What the chat template makes of one question."""
    return f"{USER}{question}{END}{ASSISTANT}{THINK}\n" + ("" if thinking else f"\n{END_THINK}\n")


def completion_text(answer: str, *, thinking: bool) -> str:
    """What the model is to say: with thinking the worked steps stand in the think section, `#### N` after it."""
    if not thinking:
        return answer + END
    steps, _, result = answer.rpartition("\n")
    return f"{steps}\n{END_THINK}\n{result}{END}"


def train_tokenizer(texts: Iterable[str], vocab: int) -> "Tokenizer":
    """Learn byte pairs from texts."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    # The think marks are no special tokens: they must survive `skip_special_tokens`, which clients use.
    special = [PAD, END, USER, ASSISTANT, SYSTEM]
    marks = [AddedToken(text, special=False, normalized=False) for text in (THINK, END_THINK)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - len(marks),
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens(marks)
    return tokenizer


def save_tokenizer(tokenizer: "Tokenizer", folder: Path, context: int) -> None:
    """Write tokenizer.json and tokenizer_config.json with the chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "eos_token": END,
        "pad_token": PAD,
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


def load_tokenizer(folder: Path) -> "Tokenizer":
    """The tokenizer of a model folder."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))
