"""Keeps secrets out of what is logged: by the names of settings, and by the shapes that tokens and URLs have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

# "token" counts only as the last word: max_new_tokens and simulate_token_mode are settings, HF_TOKEN is a secret.
_SECRET_NAME: Final = re.compile(
    r"secret|passw|passphrase|credential|authorization|cookie|bearer|(?:api|access|private|auth|master|signing)[-_.]?key"
    r"|(?:^|[-_.])(?:token|auth|pwd|key)$",
    re.IGNORECASE,
)
_URL_USER: Final = re.compile(r"(\w+://)[^/\s:@]+(?::[^/\s@]*)?@")
_TOKEN_SHAPE: Final = re.compile(r"\b(?:hf_|sk-|ghp_|github_pat_|nvapi-|xox[abp]-)[A-Za-z0-9_-]{12,}")
# In running text: `api_key='...'`, `--api-key ...`, `HF_TOKEN=...`, `"password": "..."`.
_ASSIGNMENT: Final = re.compile(
    r"([A-Za-z][\w.-]*)(['\"]?(?:\s*[=:]\s*|\s+))((?:Bearer\s+)?(?:'[^']*'|\"[^\"]*\"|[^\s,;)}\]]+))"
)
_HIDDEN: Final = "[redacted]"


def is_secret(name: str) -> bool:
    """Whether a setting of this name holds something that must not be shown."""
    return bool(_SECRET_NAME.search(name))


def redacted(value: Any) -> Any:
    """A copy of JSON-like data: entries with secret names are dropped, tokens and URL credentials are blanked."""
    if isinstance(value, Mapping):
        return {key: redacted(entry) for key, entry in value.items() if not is_secret(str(key))}
    if isinstance(value, list | tuple):
        return _redacted_list(list(value))
    return redacted_text(value) if isinstance(value, str) else value


def redacted_text(text: str) -> str:
    """Running text, such as a log or a command line, without the values of secret settings."""
    text = _TOKEN_SHAPE.sub(_HIDDEN, _URL_USER.sub(r"\1", text))
    return _ASSIGNMENT.sub(_hide_value, text)


def _hide_value(match: re.Match[str]) -> str:
    name, between, value = match.groups()
    if not is_secret(name) or value in ("None", "null", "True", "False"):
        return match.group()
    # "password: x" and "--password x" give a value away; "the key is" is only prose.
    if not re.search(r"[=:]", between) and match.string[max(match.start() - 2, 0) : match.start()] != "--":
        return match.group()
    return f"{name}{between}{_HIDDEN}"


def _redacted_list(values: list[Any]) -> list[Any]:
    """A list, or a command line: `--api-key VALUE` is dropped with its value."""
    kept: list[Any] = []
    drop_next = False
    for value in values:
        flag = isinstance(value, str) and value.startswith("-")
        if drop_next and not flag:
            drop_next = False
            continue
        drop_next = False
        if isinstance(value, str) and flag and is_secret(value.partition("=")[0].lstrip("-")):
            drop_next = "=" not in value
            continue
        kept.append(redacted(value))
    return kept
