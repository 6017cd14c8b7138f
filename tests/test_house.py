"""What import-linter and mypy do not see of the house."""

import re

from support import REPOSITORY

LOOSE = re.compile(r"\b(dict|Mapping|MutableMapping)\[str, ?(Any|object|JsonValue)\]")


def test_untyped_mappings_are_left_only_where_foreign_json_is_read():
    found = [
        f"{path.relative_to(REPOSITORY)}:{number}"
        for path in (REPOSITORY / "farm").rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for _ in LOOSE.finditer(line)
    ]
    assert len(found) <= 25, sorted(found)
