"""The prefix cache, as far as it shows: how many tokens of a prompt are there already, in whole pages."""

from __future__ import annotations

from collections.abc import Sequence


class PrefixCache:
    """Remembers token sequences by page; the pages stored first go first when it is full."""

    def __init__(self, page_size: int, capacity_tokens: int) -> None:
        """`capacity_tokens` of 0 disables it."""
        self._page_size = page_size
        self._capacity_pages = capacity_tokens // page_size
        self._pages: dict[int, None] = {}

    def match(self, ids: Sequence[int]) -> int:
        """Cached tokens at the start of a prompt; its last token is always computed."""
        matched = 0
        for page in self._chain(ids[:-1]):
            if page not in self._pages:
                break
            matched += self._page_size
        return matched

    def insert(self, ids: Sequence[int]) -> None:
        """Keep a sequence that has been computed."""
        for page in self._chain(ids):
            self._pages[page] = None
        while len(self._pages) > self._capacity_pages:
            del self._pages[next(iter(self._pages))]

    def clear(self) -> None:
        """Forget everything."""
        self._pages.clear()

    def _chain(self, ids: Sequence[int]) -> list[int]:
        """One hash for each whole page, of the page and all before it."""
        hashes: list[int] = []
        before = 0
        for start in range(0, len(ids) - self._page_size + 1, self._page_size):
            before = hash((before, *ids[start : start + self._page_size]))
            hashes.append(before)
        return hashes
