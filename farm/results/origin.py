"""What records came from, and whether those to come would be of the same: model content, versions, place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

_STARTED: Final = ("started", "stopped", "died")
_SHOWN: Final = 12
_OWN: Final = "spark-farm"  # of each submission `sweep.json` says it anyway


class Origin(BaseModel):
    """Where answers come from. What is not known is left out, and is not compared.

    Attributes:
        model: digests of the model's content, by how much of it they hold.
        versions: of the packages and the driver that an engine ran on.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    model: Mapping[str, str] = {}
    versions: Mapping[str, str] = {}


def origin_of(report: Mapping[str, object]) -> Origin | None:
    """The origin of an engine's answers, by its entry in `engines.json`; None of one that never started."""
    if report.get("status", "started") not in _STARTED:
        return None
    hardware = report.get("hardware")
    driver = {"driver": hardware["driver"]} if isinstance(hardware, dict) and hardware.get("driver") else {}
    versions = report.get("versions")
    found = (versions if isinstance(versions, dict) else {}) | driver
    try:
        return Origin.model_validate(
            {
                "model": report.get("model_digest") or {},
                "versions": {name: told for name, told in found.items() if told and name != _OWN},
            }
        )
    except ValidationError:
        return None


def differences(earlier: Collection[Origin], now: Origin) -> list[str]:
    """What `now` has that none of the origins of earlier records has, as `what: then -> now`; empty is no mix."""
    found: list[str] = []
    for name, value in sorted(now.model.items()):
        known = {one.model[name] for one in earlier if name in one.model}
        if known and value not in known:
            found.append(f"model content ({name}): {_words(known)} -> {value[:_SHOWN]}")
    for name, value in sorted(now.versions.items()):
        known = {one.versions[name] for one in earlier if name in one.versions}
        if known and value not in known:
            found.append(f"{name}: {_words(known)} -> {value}")
    return found


def _words(values: Iterable[str]) -> str:
    return " or ".join(sorted(value[:_SHOWN] for value in values))
