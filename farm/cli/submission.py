"""A submission of a sweep against those before it: whether it may go on, and what `sweep.json` says of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from farm.engines.registry import engine_of
from farm.errors import InputError
from farm.node.content import model_content
from farm.results.folder import SWEEP, ResultsFolder
from farm.results.journal import Journal
from farm.results.origin import Origin
from farm.results.submissions import continued, known_packages, mixes, origins
from farm.results.summary import Submission, SweepSummary
from farm.spec.models import Sweep


def submitted(
    sweep: Sweep,
    results: ResultsFolder,
    journal: Journal,
    described: SweepSummary,
    *,
    mix: bool,
    say: Callable[[str], None],
) -> tuple[SweepSummary, Sequence[Origin]]:
    """`sweep.json` with this submission, and the origins that its engines must be of; none of them allows any.

    Args:
        sweep: what is submitted.
        results: its folder.
        journal: its records.
        described: what `sweep.json` would say of a first submission.
        mix: answers of another origin may come to those that are there.
        say: tells the user.

    Raises:
        InputError: answers of another origin would be mixed with those there are, and the user did not want that.
    """
    before = _before(results, say)
    engines = journal.engines()
    known = origins(before, engines) if before and len(journal) else []
    versions = engine_of(sweep).versions(sweep, known_packages(known))
    here = Origin(model=model_content(sweep), versions=versions)
    mixed = mixes(before, engines, here, sweep.engine.node_labels) if before and len(journal) else []
    if mixed and not mix:
        raise InputError(
            f"the answers in {results.path} are of another origin: {'; '.join(mixed)}. Submit with --fresh to start "
            "anew beside them, or with --mix to have both in one table"
        )
    if known and here.model and not any(one.model for one in known):
        say("which content of the model the earlier answers came from is not known; from now on it is")
    for what in mixed:
        say(f"mixed: {what}")
    submission = Submission(
        at=described.created_at,
        farm_version=described.farm_version,
        python=sweep.engine.python,
        node_labels=sweep.engine.node_labels,
        origin=here,
        mixed=tuple(mixed),
    )
    return continued(before, described, submission), [] if mix else known


def _before(results: ResultsFolder, say: Callable[[str], None]) -> SweepSummary | None:
    """What `sweep.json` says; a broken one is kept under another name."""
    try:
        return results.sweep()
    except InputError as error:
        say(f"{error} It is kept as {results.set_aside(SWEEP)} and written anew")
        return None
