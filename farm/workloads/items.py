"""The content of items as a digest, and the seeds of their requests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict

from farm.types import Item


def digest(items: Iterable[Item]) -> str:
    """SHA-256 over the content of items, in order: part of a sweep's identity."""
    state = hashlib.sha256()
    for item in items:
        state.update(json.dumps(asdict(item), sort_keys=True, ensure_ascii=False).encode())
        state.update(b"\n")
    return state.hexdigest()


def request_seed(workload_seed: int, item_id: str, repeat: int) -> int:
    """The sampling seed of one item and repeat, the same for all variants: 31 bits of a hash, so that order is free."""
    material = f"{workload_seed}/{item_id}/{repeat}".encode()
    return int.from_bytes(hashlib.sha256(material).digest()[:4]) & 0x7FFFFFFF
