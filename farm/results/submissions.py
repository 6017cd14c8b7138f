"""What each submission of a sweep was of: `sweep.json` keeps what the first said, and gains an entry for each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from farm.results.origin import Origin, differences, origin_of
from farm.results.summary import SweepSummary

# How the results are looked at: the newest submission says it.
_ANALYSIS: Final = ("about", "baseline", "margin_pp", "failed_variants")


def continued(
    before: Mapping[str, Any] | None, now: Mapping[str, Any], submission: Mapping[str, Any]
) -> dict[str, Any]:
    """`sweep.json` after a submission: the provenance that was there stays, `submission` is appended."""
    if before is None:
        return dict(now) | {"submissions": [dict(submission)]}
    newest = {name: now[name] for name in _ANALYSIS if name in now}
    earlier = before.get("submissions")
    return dict(before) | newest | {"submissions": [*(earlier if isinstance(earlier, list) else []), dict(submission)]}


def mixes(
    before: SweepSummary, engines: Sequence[Mapping[str, Any]], now: Origin, node_labels: Mapping[str, str]
) -> list[str]:
    """How answers of this submission would differ in origin from those that are there, each as `what: then -> now`."""
    found = differences(origins(before, engines), now)
    places = [one.node_labels for one in before.submissions] or [before.resolved.engine.node_labels]
    if dict(node_labels) not in places:
        found.append(f"engine.node_labels: {_labels(places[-1])} -> {_labels(node_labels)}")
    return found


def origins(before: SweepSummary, engines: Sequence[Mapping[str, Any]]) -> list[Origin]:
    """Where the records there are came from."""
    told = [one.origin for one in before.submissions]
    return told + [one for report in engines if (one := origin_of(report)) is not None]


def known_packages(known: Collection[Origin]) -> set[str]:
    """The packages whose versions the earlier engines told."""
    return {name for one in known for name in one.versions} - {"driver"}


def _labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(labels.items())) or "any node"
