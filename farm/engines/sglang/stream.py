"""The streamed answer of SGLang's native `/generate`, parsed and checked. Pure: bytes and times in, an `Answer` out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from farm.engines.base import Generation
from farm.errors import EngineError, EngineGone, RequestRefused, StreamBroken

_COUNTS: Final = ("reasoning_tokens", "spec_verify_ct", "spec_num_proposed_drafts", "spec_num_correct_drafts")
_HISTOGRAM: Final = "spec_correct_drafts_histogram"
_SECONDS: Final = ("e2e_latency", "first_token_latency")
# Tables hold counts in 32 bits; no answer comes near.
_MOST: Final = 2**31 - 1


@dataclass
class Answer:
    """One whole answer. Seconds count from the sending of the request, on the client's monotonic clock."""

    text: str
    ttft_s: float
    latency_s: float
    meta: dict[str, Any]  # meta_info of the last chunk
    chunk_times_s: list[float]
    chunk_tokens: list[int]  # completion tokens up to and with each chunk

    @property
    def completion_tokens(self) -> int:
        """Tokens generated, by the engine's count."""
        return int(self.meta["completion_tokens"])


@dataclass
class StreamReader:
    """Collects the events of one stream. Feed each line with its arrival time, then call `finish`."""

    _texts: list[str] = field(default_factory=list)
    _times: list[float] = field(default_factory=list)
    _tokens: list[int] = field(default_factory=list)
    _meta: dict[str, Any] | None = None
    _ids: int = 0
    _done: bool = False

    @property
    def tokens(self) -> int:
        """Tokens received so far, by the engine's count."""
        return self._tokens[-1] if self._tokens else 0

    def feed(self, line: bytes, at_s: float) -> None:
        """Take one line of the event stream, received `at_s` seconds after the request was sent.

        Raises:
            RequestRefused: the engine refuses the request.
            EngineGone: the engine failed inside.
            StreamBroken: the line is not what SGLang sends.
        """
        if not line.startswith(b"data:"):
            if line.strip() and not line.startswith(b":"):
                raise StreamBroken(f"unexpected line in the stream: {line[:80]!r}")
            return
        payload = line[5:].strip()
        if self._done:
            raise StreamBroken("data after the end of the stream")
        if payload == b"[DONE]":
            self._done = True
            return
        try:
            event = _JSON.decode(payload.decode())
        except (ValueError, RecursionError) as error:
            raise StreamBroken(f"a chunk is not JSON: {payload[:80]!r}") from error
        if isinstance(event, dict) and "error" in event:
            reported = event["error"]
            raise _reported_error(reported, "code") if isinstance(reported, dict) else RequestRefused(_cut(reported))
        try:
            meta = event["meta_info"]
            tokens = meta["completion_tokens"]
            text = event.get("text", "")
            ids = event.get("output_ids")
            finished = meta["finish_reason"] is not None
        except (TypeError, KeyError, AttributeError) as error:
            raise StreamBroken(f"a chunk lacks what SGLang sends: {payload[:120]!r}") from error
        before = self.tokens
        if type(tokens) is not int or not before <= tokens <= _MOST or not isinstance(text, str):
            raise StreamBroken(f"impossible token count {tokens!r:.40} after {before}")
        if self._meta is not None and self._meta["finish_reason"] is not None:
            raise StreamBroken("a chunk after the one that finished")
        if isinstance(ids, list):
            self._ids += len(ids)
            if self._ids > tokens:
                raise StreamBroken(f"{self._ids} token ids were sent and {tokens} counted")
        self._meta = meta
        self._texts.append(text)
        # An empty first chunk is no token; the last chunk counts even when it only carries the finish reason.
        if tokens > before or finished:
            self._times.append(at_s)
            self._tokens.append(tokens)

    def finish(self) -> Answer:
        """The whole answer.

        Raises:
            StreamBroken: the stream ended early, without its counts, or with impossible ones.
            RequestRefused: the engine aborted the request.
            EngineGone: it did so because it failed inside.
        """
        meta = self._meta
        if meta is None or not self._done or meta["finish_reason"] is None:
            raise StreamBroken(f"the stream ended early, after {self.tokens} tokens")
        reason = meta["finish_reason"]
        if not isinstance(reason, dict) or not isinstance(reason.get("type"), str):
            raise StreamBroken(f"unknown finish reason {reason!r:.80}")
        if reason["type"] == "abort":
            raise _reported_error(reason, "status_code")
        _check_counts(meta)
        if self._tokens[-1] < 1:
            raise StreamBroken("an answer of no tokens")
        if self._ids and self._ids != self._tokens[-1]:
            raise StreamBroken(f"{self._ids} token ids were sent and {self._tokens[-1]} counted")
        text = "".join(self._texts)
        if not text.isascii() and text.encode(errors="replace").decode() != text:
            raise StreamBroken("its text is no Unicode: it holds half of a surrogate pair")
        return Answer(text, self._times[0], self._times[-1], meta, self._times, self._tokens)


def generation_of(answer: Answer) -> Generation:
    """What the words of SGLang's answer mean."""
    meta = answer.meta
    return Generation(
        text=answer.text,
        finish_reason=meta["finish_reason"]["type"],
        prompt_tokens=meta["prompt_tokens"],
        completion_tokens=answer.completion_tokens,
        cached_tokens=meta["cached_tokens"],
        reasoning_tokens=meta.get("reasoning_tokens") or 0,
        ttft_s=answer.ttft_s,
        latency_s=answer.latency_s,
        asked_s=answer.latency_s,
        chunk_times_s=answer.chunk_times_s,
        chunk_tokens=answer.chunk_tokens,
        verify_rounds=meta.get("spec_verify_ct"),
        draft_tokens_proposed=meta.get("spec_num_proposed_drafts"),
        draft_tokens_accepted=meta.get("spec_num_correct_drafts"),
        accept_histogram=meta.get(_HISTOGRAM),
        engine_latency_s=meta.get("e2e_latency"),
        engine_ttft_s=meta.get("first_token_latency"),
    )


def _check_counts(meta: Mapping[str, Any]) -> None:
    """Hold the counts that become figures against what is possible."""
    prompt, cached = meta.get("prompt_tokens"), meta.get("cached_tokens")
    if not _are_counts((prompt, cached)) or cached > prompt:  # type: ignore[operator]
        raise StreamBroken(f"impossible prompt and cached token counts {prompt!r:.40}, {cached!r:.40}")
    # Null where the engine does not tell them, as without speculation or without --enable-metrics.
    reported = {name: meta[name] for name in (*_COUNTS, *_SECONDS, _HISTOGRAM) if meta.get(name) is not None}
    histogram = reported.pop(_HISTOGRAM, [])
    if not _are_counts(reported[name] for name in _COUNTS if name in reported):
        raise StreamBroken(f"impossible counts of reasoning or speculation {reported!r:.200}")
    if not isinstance(histogram, list) or not _are_counts(histogram):
        raise StreamBroken(f"impossible histogram of accepted drafts {histogram!r:.80}")
    if reported.get("spec_num_correct_drafts", 0) > reported.get("spec_num_proposed_drafts", _MOST):
        raise StreamBroken(f"more drafts accepted than proposed {reported!r:.200}")
    seconds = [reported[name] for name in _SECONDS if name in reported]
    if not all(type(value) in (int, float) and 0 <= value <= _MOST for value in seconds):
        raise StreamBroken(f"impossible seconds {seconds!r:.80}")


def _are_counts(values: Iterable[Any]) -> bool:
    return all(type(value) is int and 0 <= value <= _MOST for value in values)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


# One for all chunks: `json.loads` would make one for each.
_JSON: Final = json.JSONDecoder(parse_constant=_no_constant)


def _reported_error(error: Any, code: str) -> EngineError:
    """The engine's own account of an error, whose HTTP code tells a refusal from a failure inside the engine."""
    message = _cut(error.get("message") or "the engine aborted the request")
    return EngineGone(message) if isinstance(error.get(code), int) and error[code] >= 500 else RequestRefused(message)


def _cut(message: Any) -> str:
    return str(message)[:500].encode(errors="replace").decode()
