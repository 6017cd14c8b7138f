"""Which folder a sweep goes on in: that of its id, of its newest run, or of an earlier farm's id for the same."""

from __future__ import annotations

from pathlib import Path

from farm.errors import InputError
from farm.results.folder import SWEEP, ResultsFolder, folders_below, newest_run
from farm.spec.identity import SCHEMA, identity
from farm.spec.models import Sweep


def run_of(root: Path, sweep: Sweep, sweep_id: str, *, fresh: bool) -> str:
    """The name of the folder to go on in, or of a new one when it shall be `fresh`."""
    newest = newest_run(root, sweep_id)
    if newest is not None:
        number = newest + fresh
        return f"{sweep_id}.{number}" if number else sweep_id
    if fresh:
        return sweep_id
    earlier = [
        one
        for one in folders_below(root)
        if one.path.name.startswith(f"{sweep.name}-") and one.has_sweep and _identity_before(one) == sweep_id
    ]
    return max(earlier, key=lambda one: one.changed_s(SWEEP)).path.name if earlier else sweep_id


def _identity_before(folder: ResultsFolder) -> str | None:
    """What the id of an earlier farm's sweep would be today; None for today's, and where it cannot be told."""
    try:
        described = folder.sweep()
        if described is None or described.schema_version >= SCHEMA:
            return None
        digests = {name: one.digest for name, one in described.workloads.items()}
        return identity(Sweep.model_validate(described.resolved.model_dump(mode="json", exclude_unset=True)), digests)
    except (InputError, KeyError, ValueError):
        return None
