"""One thing that was looked at on a node, and what it means. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

OK: Final = "pass"
WARN: Final = "warn"
FAIL: Final = "fail"
SKIPPED: Final = "skipped"
NOT_APPLICABLE: Final = "not applicable"  # it says nothing about this node, and is no pass


@dataclass(frozen=True)
class Check:
    """One thing looked at.

    Attributes:
        name: what was looked at.
        status: `pass`, `warn` (the node can run, but read this), `fail`, `skipped` or `not applicable`.
        found: what was seen, in words.
        do: what to do about it; only for `warn` and `fail`.
    """

    name: str
    status: str
    found: str
    do: str | None = None


def judged(name: str, found: str, problem: str | None, do: str, *, status: str = FAIL) -> Check:
    """A check that passes with what was found, unless there is a problem."""
    return Check(name, OK, found) if problem is None else Check(name, status, problem, do)


def not_applicable(name: str, reason: str) -> Check:
    """A check that says nothing about this node."""
    return Check(name, NOT_APPLICABLE, reason)


def problems(checks: Iterable[Check]) -> list[str]:
    """What stops a node, each as a sentence with what to do."""
    return [f"{check.name}: {check.found}; {check.do}" for check in checks if check.status == FAIL]
