"""The streamed answer of SGLang's native `/generate`, parsed and checked. Pure: bytes and times in, an `Answer` out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from farm.errors import RequestRefused, StreamBroken


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

    def feed(self, line: bytes, at_s: float) -> None:
        """Take one line of the event stream, received `at_s` seconds after the request was sent.

        Raises:
            RequestRefused: the engine reports an error of its own.
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
            event = json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise StreamBroken(f"a chunk is not JSON: {payload[:80]!r}") from error
        if isinstance(event, dict) and "error" in event:
            raise RequestRefused(_message(event["error"]))
        try:
            meta = event["meta_info"]
            tokens = meta["completion_tokens"]
            text = event.get("text", "")
            ids = event.get("output_ids")
            finished = meta["finish_reason"] is not None
        except (TypeError, KeyError, AttributeError) as error:
            raise StreamBroken(f"a chunk lacks what SGLang sends: {payload[:120]!r}") from error
        before = self._tokens[-1] if self._tokens else 0
        if type(tokens) is not int or tokens < before or not isinstance(text, str):
            raise StreamBroken(f"impossible token count {tokens!r} after {before}")
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
        """
        meta = self._meta
        if meta is None or not self._done or meta["finish_reason"] is None:
            raise StreamBroken(f"the stream ended early, after {self._tokens[-1] if self._tokens else 0} tokens")
        reason = meta["finish_reason"]
        if not isinstance(reason, dict) or not isinstance(reason.get("type"), str):
            raise StreamBroken(f"unknown finish reason {reason!r:.80}")
        if reason["type"] == "abort":
            raise RequestRefused(str(reason.get("message") or "the engine aborted the request"))
        counts = [meta.get(name) for name in ("prompt_tokens", "cached_tokens")]
        if any(type(count) is not int or count < 0 for count in counts):
            raise StreamBroken(f"impossible prompt and cached token counts {counts}")
        if self._tokens[-1] < 1:
            raise StreamBroken("an answer of no tokens")
        if self._ids and self._ids != self._tokens[-1]:
            raise StreamBroken(f"{self._ids} token ids were sent and {self._tokens[-1]} counted")
        return Answer("".join(self._texts), self._times[0], self._times[-1], meta, self._times, self._tokens)


def _message(error: Any) -> str:
    message = error.get("message", error) if isinstance(error, dict) else error
    return str(message)[:500]
