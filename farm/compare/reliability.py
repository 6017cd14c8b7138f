"""How reliably a variant answered: its failed and repeated answers, and what became of its engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from scipy import stats

from farm.compare.codes import Code
from farm.compare.metrics import WorkloadTable
from farm.compare.model import Reliability
from farm.results.summary import EngineSummary

MOST_ERRORS: Final = 0.01
"""A variant that fails more often, as a share of its answers, is not deployed."""
SURE_P: Final = 0.01


def reliability(table: WorkloadTable, variant: str, engines: Sequence[EngineSummary], ended: bool) -> Reliability:
    """Of one variant: answers on this workload, engines over the whole sweep.

    Args:
        table: the workload.
        variant: its name.
        engines: the reports of all engines.
        ended: nothing of the variant is still to be answered, so an engine without an end was lost.
    """
    own = table.frame[(table.frame["variant"] == variant).to_numpy()]
    of_status = Counter(one.status for one in engines if one.variant == variant)
    return Reliability(
        answers=len(own),
        errors=int((~own["ok"]).sum()),
        attempted_again=int((own["attempts"] > 1).sum()),
        engines_died=of_status["died"],
        engines_lost=of_status["started"] if ended else 0,
        starts_failed=of_status["failed"],
        starts_refused=of_status["not-active"],
    )


def shortcomings(variant: Reliability, baseline: Reliability) -> list[Code]:
    """Why a variant is too unreliable to be deployed: above 1 % errors, or attempts repeated more than by chance.

    Repeats are compared with the baseline's by Fisher's exact test, two-sided at 1 %.
    """
    found = [Code.TOO_MANY_ERRORS] * (variant.errors > MOST_ERRORS * variant.answers)
    again = [[one.attempted_again, one.answers - one.attempted_again] for one in (variant, baseline)]
    more = variant.attempted_again * baseline.answers > baseline.attempted_again * variant.answers
    if more and stats.fisher_exact(again).pvalue < SURE_P:
        found.append(Code.ATTEMPTS_REPEATED)
    return found
