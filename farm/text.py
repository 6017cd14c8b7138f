"""Text from models, files and users made harmless for where it is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# Escape sequences first (CSI, OSC and the short ones), then whatever single control characters are left; the last
# ranges turn the reading direction around or hide text, or may not stand in XML.
_SEQUENCES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_].*?\x1b\\|\x1b.", re.S
)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff]")
_LONE_SURROGATES: Final = re.compile(r"[\ud800-\udfff]")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def plain(text: str) -> str:
    """Without terminal sequences, control characters and invisible direction marks; newline and tab stay."""
    return _LONE_SURROGATES.sub("\N{REPLACEMENT CHARACTER}", _CONTROLS.sub("", _SEQUENCES.sub("", text)))


def one_line(text: str) -> str:
    """`plain`, with white space folded to single blanks."""
    return " ".join(plain(text).split())


def for_markdown(text: str) -> str:
    """One line in which nothing is markup, for a table cell or a sentence."""
    return re.sub(r"([\\`*_\[\]|#~!])", r"\\\1", one_line(text).replace("&", "&amp;").replace("<", "&lt;"))


def for_csv(text: str) -> str:
    """One line that no spreadsheet takes for a formula."""
    line = one_line(text)
    return f"'{line}" if line.startswith(_FORMULA) else line


def is_on(environment: Mapping[str, str], name: str) -> bool:
    """Whether a switch in an environment is on. The plug-in, which may import nothing of this, reads it alike."""
    return environment.get(name, "").lower() in ("1", "true", "yes", "on")
