"""What must not be shown, and the one rule that finds it: by the names of settings, and by the shapes of tokens. Pure.

Used wherever something leaves the process that needs it: engine reports, logs, the resolved sweep, messages, MLflow.
The engine itself is given what the sweep says.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

HIDDEN: Final = "***"
# Shorter values, such as `1` or `none`, are parts of too many other words to be blanked by their text.
_SHORTEST: Final = 6

# "token" counts only as the last word: max_new_tokens and simulate_token_mode are settings, HF_TOKEN is a secret.
_SECRET_NAME: Final = re.compile(
    r"secret|passw|passphrase|credential|authorization|cookie|bearer|(?:api|access|private|auth|master|signing)[-_.]?key"
    r"|(?:^|[-_.])(?:token|auth|pwd|key)$",
    re.IGNORECASE,
)
# Every repetition is bounded, so that no text takes more than linear time.
_URL_USER: Final = re.compile(r"\b(\w{1,20}://)[^/\s:@]{1,200}(?::[^/\s@]{0,1000})?@")
_TOKEN_SHAPE: Final = re.compile(r"\b(?:hf_|sk-|ghp_|github_pat_|nvapi-|xox[abp]-)[A-Za-z0-9_-]{12,}")
# In running text: `api_key='...'`, `--api-key ...`, `HF_TOKEN=...`, `"password": "..."`.
_ASSIGNMENT: Final = re.compile(
    r"(?<![A-Za-z0-9_])([A-Za-z][\w.-]{0,79})(['\"]?(?:\s{0,9}[=:]\s{0,9}|\s{1,9}))"
    r"((?:Bearer\s{1,9})?(?:'[^']{0,4000}'|\"[^\"]{0,4000}\"|[^\s,;)}\]]+))"
)

# Counts, as in `#token: 1234`, and what says that there is none.
_NO_SECRET: Final = re.compile(r"None|null|True|False|[0-9.]+%?|['\"]?\*{3}['\"]?")


def is_secret(name: str) -> bool:
    """Whether a setting of this name holds something that must not be shown."""
    return bool(_SECRET_NAME.search(name))


def masked(value: Any, values: Collection[str] = ()) -> Any:
    """A copy of JSON-like data that keeps its form and shows no secret.

    Text under a secret name, at any depth, and the words behind a flag of such a name become `***`; numbers and nulls
    are no secrets. Other text is treated by `masked_text`, which is given the `values` that are known.
    """
    if isinstance(value, Mapping):
        return {key: _hidden(entry) if is_secret(str(key)) else masked(entry, values) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return _masked_list(value, values)
    return masked_text(value, values) if isinstance(value, str) else value


def masked_text(text: str, values: Collection[str] = ()) -> str:
    """Running text, such as a log or a command line, without the values of secret settings.

    Args:
        text: any text.
        values: secrets that are known, blanked wherever they stand.
    """
    # The longest first: one secret may be the beginning of another.
    for secret in sorted(values, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    text = _TOKEN_SHAPE.sub(HIDDEN, _URL_USER.sub(r"\1", text))
    return _ASSIGNMENT.sub(_hide_value, text)


def secret_values(value: Any) -> set[str]:
    """The secrets that JSON-like data holds under secret names and behind secret flags."""
    if isinstance(value, Mapping):
        inside = [_texts(entry) if is_secret(str(key)) else secret_values(entry) for key, entry in value.items()]
        return set().union(*inside)
    if not isinstance(value, list | tuple):
        return set()
    found: set[str] = set()
    for word, secret in _words(value):
        name, equals, text = word.partition("=") if _is_flag(word) else ("", "", "")
        if equals and is_secret(name):
            found |= _texts(text)
        else:
            found |= _texts(word) if secret else secret_values(word)
    return found


def _masked_list(words: Iterable[Any], values: Collection[str]) -> list[Any]:
    """A list, or a command line: `--api-key VALUE` keeps its flag."""
    shown: list[Any] = []
    for word, secret in _words(words):
        name, equals, _ = word.partition("=") if _is_flag(word) else ("", "", "")
        if equals and is_secret(name):
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(_hidden(word) if secret else masked(word, values))
    return shown


def _words(values: Iterable[Any]) -> Iterator[tuple[Any, bool]]:
    """Each entry of a list, and whether it stands behind a flag with a secret name."""
    behind = False
    for value in values:
        if _is_flag(value):
            behind = "=" not in value and is_secret(value)
            yield value, False
        else:
            yield value, behind


def _is_flag(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("--")


def _hidden(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _hidden(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(entry) for entry in value]
    return HIDDEN if isinstance(value, str) and value else value


def _texts(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return set().union(*map(_texts, value))
    return {value} if isinstance(value, str) and len(value) >= _SHORTEST else set()


def _hide_value(match: re.Match[str]) -> str:
    name, between, value = match.groups()
    if not is_secret(name) or _NO_SECRET.fullmatch(value):
        return match.group()
    # "password: x" and "--password x" give a value away; "the key is" is only prose.
    if not re.search(r"[=:]", between) and match.string[max(match.start() - 2, 0) : match.start()] != "--":
        return match.group()
    return f"{name}{between}{HIDDEN}"
