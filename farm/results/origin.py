"""What records came from, and whether those to come would be of the same: model content, versions, place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict

_SHOWN: Final = 12


class Origin(BaseModel):
    """Where answers come from. What is not known is left out, and is not compared.

    Attributes:
        model: digests of the model's content, by how much of it they hold.
        versions: of the packages and the driver that an engine ran on.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    model: Mapping[str, str] = {}
    versions: Mapping[str, str] = {}


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
