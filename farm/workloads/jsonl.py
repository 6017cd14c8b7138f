"""JSONL files of the user's, read strictly: every error names the file, the line and the fix."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from farm.errors import InputError
from farm.paths import not_shipped

# Items travel to every node and stay in memory: 64 MiB of prompts is far more than one sweep can answer.
MAX_FILE_BYTES: Final = 64 << 20
MAX_ID_CHARACTERS: Final = 200


class Row(NamedTuple):
    """A row of a user's file or data set, unchecked, and the place that an error about it begins with."""

    place: str
    fields: dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """The rows of a JSONL file, each with the place (`FILE, line N`) that an error about it begins with.

    Blank lines are skipped.

    Raises:
        InputError: the file is missing, unreadable, too large, not UTF-8, empty, or a line is no JSON object.
    """
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise InputError(f"{path}: is {size >> 20} MiB; at most {MAX_FILE_BYTES >> 20} MiB are read: split it")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}{not_shipped()}") from error
    rows = []
    # Lines end at \n alone: str.splitlines would also break at characters that JSON strings may hold, such as U+2028.
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            location = f"{path}, line {number}"
            rows.append(_row(location, line))
    if not rows:
        raise InputError(f"{path}: is empty; write one JSON object a line")
    return rows


def _row(location: str, line: bytes) -> Row:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{location}: is not UTF-8 at byte {error.start + 1}: save the file as UTF-8") from error
    try:
        row = json.loads(text, parse_constant=_no_constant)
        # A lone surrogate is legal in JSON, but no text: it could be neither sent nor stored.
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{location}: holds half of a surrogate pair (\\ud800 to \\udfff): write the whole character"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{location}: is not valid JSON: {error}; write one JSON object a line") from error
    if not isinstance(row, dict):
        raise InputError(f"{location}: is not a JSON object; write {{...}} with named fields")
    return Row(location, row)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def checked_id(location: str, value: Any) -> str:
    """A row's own id, as text.

    Raises:
        InputError: it could not name a question in a table, a file name or a run.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise InputError(f"{location}: id: write a text or a whole number, not {value!r:.80}")
    if not value.strip() or value != value.strip() or value in (".", ".."):
        raise InputError(
            f"{location}: id: {value!r:.80} is no name; write at least one visible character, no outer spaces"
        )
    if len(value) > MAX_ID_CHARACTERS:
        raise InputError(f"{location}: id: {len(value)} characters; at most {MAX_ID_CHARACTERS}")
    # Cc and Cf: control and invisible formatting characters; Zl and Zp: Unicode line and paragraph separators.
    wrong = [c for c in value if c in "/\\" or unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]
    if wrong:
        raise InputError(f"{location}: id: holds {wrong[0]!r}; ids hold no slash, backslash or control character")
    return value
