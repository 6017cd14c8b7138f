"""What a `/generate` body asks for, checked as SGLang checks it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from farm.engines.emulated import shapes, tokenizer
from farm.engines.emulated.arguments import ServerArgs
from farm.engines.emulated.replies import longest_prompt

# SGLang ignores a field that it does not know beside these, and refuses one within them.
_SAMPLING: Final = (
    "max_new_tokens", "stop", "stop_token_ids", "stop_regex", "temperature", "top_p", "top_k", "min_p",
    "frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens", "n", "json_schema", "regex",
    "ebnf", "structural_tag", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim",
    "stream_interval", "logit_bias", "sampling_seed", "custom_params", "beam_width", "watermark", "choice",
)  # fmt: skip
_DEFAULT_NEW_TOKENS: Final = 128


class Malformed(ValueError):
    """The body is refused before it is a request at all: HTTP 400 whether streamed or not."""


class UnknownField(Malformed):
    """The same, with a shorter answer."""


class PromptTooLong(ValueError):
    """The prompt fits the context and not the KV cache: the request is accepted and then aborted."""


@dataclass(frozen=True)
class Asked:
    """One checked request."""

    rid: str
    ids: list[int]
    limit: int
    temperature: float
    ignore_eos: bool
    seed: int | None

    @property
    def kills(self) -> bool:
        """A token id outside of the vocabulary ends SGLang's scheduler, and the whole engine with it."""
        return max(self.ids) >= shapes.VOCABULARY


def asked(body: Mapping[str, Any], args: ServerArgs) -> Asked:
    """Check a body against the resolved server arguments.

    Raises:
        Malformed: a field has another type than SGLang declares.
        UnknownField: a sampling parameter that does not exist.
        PromptTooLong: the prompt is longer than the KV cache.
        ValueError: a value is one that SGLang refuses; the message is its own.
    """
    ids, sampling = body.get("input_ids"), body.get("sampling_params") or {}
    if ids is None and isinstance(body.get("text"), str):
        ids = tokenizer.encode(body["text"])
    if ids is None:
        raise ValueError("Either text, input_ids or input_embeds should be provided.")
    if not are_ids(ids):
        raise Malformed("input_ids: elements must be int or list")
    if not isinstance(sampling, dict):
        raise Malformed("sampling_params: input should be an object")
    if unknown := sorted(set(sampling) - set(_SAMPLING)):
        expected = ", ".join(f"`{name}`" for name in _SAMPLING)
        raise UnknownField(f"unknown field `{unknown[0]}`, expected one of {expected}")
    if not ids:
        raise ValueError("input_ids cannot be empty.")
    limit = sampling.get("max_new_tokens", _DEFAULT_NEW_TOKENS)
    if type(limit) is not int or limit < 0:
        raise ValueError(f"max_new_tokens must be at least 0, got {limit}.")
    temperature = sampling.get("temperature", 1.0)
    if not isinstance(temperature, int | float) or not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature must be a non-negative finite number, got {temperature}.")
    top_p = sampling.get("top_p", 1.0)
    if not isinstance(top_p, int | float) or not 0 < top_p <= 1:
        raise ValueError(f"top_p must be in (0, 1], got {top_p}.")
    context, tokens = args.context_length, len(ids) + _reserved_tokens(args)
    if tokens >= context:
        raise ValueError(f"The input ({tokens} tokens) is longer than the model's context length ({context} tokens).")
    if tokens + limit > context:
        raise ValueError(
            f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested a "
            f"total of {tokens + limit} tokens: {tokens} tokens from the input messages and {limit} tokens for the "
            "completion."
        )
    if len(ids) >= longest_prompt(args):
        raise PromptTooLong(
            f"Input length ({len(ids)} tokens) exceeds the maximum allowed length ({longest_prompt(args)} tokens)."
        )
    return Asked(
        rid=str(body.get("rid") or uuid.uuid4().hex),
        ids=ids,
        limit=limit,
        temperature=float(temperature),
        ignore_eos=bool(sampling.get("ignore_eos")),
        seed=sampling.get("sampling_seed"),
    )


def are_ids(value: Any) -> bool:
    """Whether a value is a list of token ids."""
    return isinstance(value, list) and all(type(token) is int and 0 <= token < 2**31 for token in value)


def _reserved_tokens(args: ServerArgs) -> int:
    """What SGLang counts to a prompt under speculation: drafts are kept where output tokens go."""
    if args.speculative_algorithm is None:
        return 0
    drafted = (args.speculative_eagle_topk or 0) * (args.speculative_num_steps or 0)
    return max(drafted, args.speculative_num_draft_tokens or 0)
