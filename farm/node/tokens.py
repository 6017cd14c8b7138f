"""Prompts as an engine's own tokenizer makes them, before anything is timed, and requests that warm an engine up."""

from __future__ import annotations

import contextlib
import hashlib
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from farm.engines.base import OnPhase, Phase, RunningEngine
from farm.errors import InputError, RequestRefused
from farm.types import CellKey, Item
from farm.workloads import synthetic
from farm.workloads.synthetic import SyntheticWorkload

_WARMUP_SEED: Final = 2**31 - 1
WARMUP_TOKENS: Final = 32
_TAIL_TOKENS: Final = 16


@dataclass(frozen=True)
class Prompt:
    """The token ids of one item, and their digest: 32-bit integers in the machine's order, hashed."""

    ids: array[int]
    sha256: str


@dataclass
class Prompts:
    """The prompts of a sweep's items, each tokenized once and then the same for every variant."""

    items: Mapping[str, Mapping[str, Item]]
    _known: dict[tuple[str, str], Prompt] = field(default_factory=dict)
    _opens_think: dict[str, bool] = field(default_factory=dict)

    def of(self, cell: CellKey) -> Prompt:
        """The prompt of a cell that was prepared."""
        return self._known[cell.workload, cell.item_id]

    def sha256_of(self, cell: CellKey) -> str | None:
        """The digest of a cell's prompt; null if no engine has tokenized it."""
        prompt = self._known.get((cell.workload, cell.item_id))
        return prompt.sha256 if prompt else None

    def opens_think(self, workload: str) -> bool:
        """Whether the chat template leaves a think section open at the end of the workload's prompts."""
        return self._opens_think[workload]

    async def prepare(self, engine: RunningEngine, cells: Iterable[CellKey]) -> None:
        """Tokenize what is not tokenized yet."""
        for cell in cells:
            key = (cell.workload, cell.item_id)
            if key not in self._known:
                ids = array("i", await _tokenize(engine, self.items[cell.workload][cell.item_id]))
                self._known[key] = Prompt(ids, hashlib.sha256(ids.tobytes()).hexdigest())
            if cell.workload not in self._opens_think:
                tail = await engine.detokenize(self._known[key].ids[-_TAIL_TOKENS:].tolist())
                self._opens_think[cell.workload] = tail.rfind("<think>") > tail.rfind("</think>")

    async def warm_up(
        self,
        engine: RunningEngine,
        cells: Iterable[CellKey],
        requests: int,
        *,
        start_timeout_s: float,
        on_phase: OnPhase = lambda phase: None,
    ) -> None:
        """For each workload, `requests` generations of its longest prompt's length and settings.

        The longest, for some kernels are compiled when a length is first met. The text begins no measured prompt, so
        that nothing useful is left in a prefix cache. A length that the engine refuses gives way to the next shorter
        one: whoever asks that prompt itself gets the refusal. The first may compile kernels: each request has the
        patience of an engine's start.
        """
        lengths: dict[str, dict[int, CellKey]] = {}
        for cell in cells:
            if (cell.workload, cell.item_id) in self._known:  # else the engine refused to tokenize it
                lengths.setdefault(cell.workload, {}).setdefault(len(self.of(cell).ids), cell)
        for number, by_length in enumerate(lengths.values() if requests else ()):
            on_phase(Phase("warming up", number / len(lengths)))
            for length in sorted(by_length, reverse=True):
                texts = _warm_up_texts(length, requests, _WARMUP_SEED - number)
                with contextlib.suppress(RequestRefused):
                    await self._warm_up_at(engine, by_length[length], length, texts, start_timeout_s)
                    break

    async def _warm_up_at(
        self, engine: RunningEngine, cell: CellKey, length: int, texts: list[str], start_timeout_s: float
    ) -> None:
        sampling = self.items[cell.workload][cell.item_id].sampling
        limits = {"max_new_tokens": min(WARMUP_TOKENS, int(sampling["max_new_tokens"])), "ignore_eos": True}
        for text in texts:
            ids = await engine.tokenize_text(text)
            await engine.generate(ids[:length], dict(sampling) | limits, start_timeout_s=start_timeout_s)


def _warm_up_texts(length: int, requests: int, seed: int) -> list[str]:
    """Texts of at least `length` tokens."""
    workload = SyntheticWorkload(
        kind="synthetic",
        requests=requests,
        input_tokens=max(8, length),
        output_tokens=WARMUP_TOKENS,
        text="varied",
        seed=seed,
    )
    return [item.text or "" for item in synthetic.items(workload)]


async def _tokenize(engine: RunningEngine, item: Item) -> list[int]:
    if item.messages is not None:
        return await engine.tokenize_chat(item.messages, item.template_kwargs)
    ids = await engine.tokenize_text(item.text or "")
    if item.exact_tokens is None:
        return ids
    if len(ids) < item.exact_tokens:
        raise InputError(
            f"item {item.item_id}: its text gives {len(ids)} tokens with this model's tokenizer and "
            f"{item.exact_tokens} were asked for"
        )
    return ids[: item.exact_tokens]
