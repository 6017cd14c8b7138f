"""What a `/generate` body asks for, checked as SGLang checks it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from farm.engine.emulated import shapes, tokenizer
from farm.engine.emulated.replies import longest_prompt

_FIELDS: Final = {"rid", "text", "input_ids", "sampling_params", "stream"}
_DEFAULT_NEW_TOKENS: Final = 128


class UnknownField(ValueError):
    """The body is refused before it is a request at all: HTTP 400 whether streamed or not."""


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


def asked(body: Mapping[str, Any], args: Mapping[str, Any]) -> Asked:
    """Check a body against the resolved server arguments.

    Raises:
        UnknownField: a field is not part of the protocol, as far as it is emulated.
        PromptTooLong: the prompt is longer than the KV cache.
        ValueError: a value is one that SGLang refuses; the message is of its kind.
    """
    unknown = sorted(set(body) - _FIELDS)
    if unknown:
        raise UnknownField(f"unknown field `{unknown[0]}`, expected one of {', '.join(sorted(_FIELDS))}")
    ids, sampling = body.get("input_ids"), body.get("sampling_params") or {}
    if ids is None and isinstance(body.get("text"), str):
        ids = tokenizer.encode(body["text"])
    if not are_ids(ids) or not ids:
        raise ValueError("Either text or input_ids should be provided, as one prompt that is not empty.")
    if not isinstance(sampling, dict):
        raise ValueError("sampling_params should be an object.")
    limit = sampling.get("max_new_tokens", _DEFAULT_NEW_TOKENS)
    if type(limit) is not int or limit < 1:
        raise ValueError(f"max_new_tokens must be at least 1, got {limit}.")
    temperature = sampling.get("temperature", 1.0)
    if not isinstance(temperature, int | float) or not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature must be a finite non-negative number, got {temperature}.")
    top_p = sampling.get("top_p", 1.0)
    if not isinstance(top_p, int | float) or not 0 < top_p <= 1:
        raise ValueError(f"top_p must be in (0, 1], got {top_p}.")
    context = args["context_length"]
    if len(ids) >= context:
        raise ValueError(f"The input ({len(ids)} tokens) is longer than the model's context length ({context} tokens).")
    if len(ids) + limit > context:
        raise ValueError(
            f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested "
            f"a total of {len(ids) + limit} tokens."
        )
    if len(ids) > longest_prompt(args):
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
