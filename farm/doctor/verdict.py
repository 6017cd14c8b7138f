"""What the doctor says of a node. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from farm.node.preflight.check import FAIL, Check


@dataclass(frozen=True)
class Verdict:
    """One node, or one of its GPUs: it can run the sweep when none of its checks failed."""

    node: str
    checks: list[Check] = field(default_factory=list)

    @property
    def can_run(self) -> bool:
        """Whether the sweep can run here."""
        return all(check.status != FAIL for check in self.checks)

    def as_json(self) -> object:
        """For other programs."""
        return {
            "node": self.node,
            "can_run": self.can_run,
            "to_do": [f"{check.name}: {check.do}" for check in self.checks if check.status == FAIL],
            "checks": [asdict(check) for check in self.checks],
        }
