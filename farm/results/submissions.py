"""What each submission of a sweep was of: `sweep.json` keeps what the first said, and gains an entry for each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from farm.results.origin import Origin, differences
from farm.results.summary import EngineSummary, Submission, SweepSummary

# How the results are looked at: the newest submission says it.
_ANALYSIS: Final = ("about", "baseline", "margin_pp", "min_gain", "failed_variants")


def continued(before: SweepSummary | None, now: SweepSummary, submission: Submission) -> SweepSummary:
    """`sweep.json` after a submission: the provenance that was there stays, `submission` is appended."""
    if before is None:
        return now.model_copy(update={"submissions": (submission,)})
    newest = {name: getattr(now, name) for name in _ANALYSIS}
    return before.model_copy(update=newest | {"submissions": (*before.submissions, submission)})


def mixes(
    before: SweepSummary, engines: Sequence[EngineSummary], now: Origin, node_labels: Mapping[str, str]
) -> list[str]:
    """How answers of this submission would differ in origin from those that are there, each as `what: then -> now`."""
    found = differences(origins(before, engines), now)
    places = [one.node_labels for one in before.submissions] or [before.resolved.engine.node_labels]
    if dict(node_labels) not in places:
        found.append(f"engine.node_labels: {_labels(places[-1])} -> {_labels(node_labels)}")
    return found


def origins(before: SweepSummary, engines: Sequence[EngineSummary]) -> list[Origin]:
    """Where the records there are came from."""
    told = [one.origin for one in before.submissions]
    return told + [one.origin for one in engines if one.origin is not None]


def known_packages(known: Collection[Origin]) -> set[str]:
    """The packages whose versions the earlier engines told."""
    return {name for one in known for name in one.versions} - {"driver"}


def _labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(labels.items())) or "any node"
