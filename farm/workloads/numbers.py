"""Numbers as people and models write them, read exactly.

A number's canonical text is the same for all ways of writing it (`1,234.50`, `$1234.5`, `1 234.5`), and different for
different numbers: `18`, `-0.75`, and `1/3` where no decimal fraction is exact. Equality of numbers is equality of these
texts, so that no rounding decides, and a number of five thousand digits costs no arithmetic.

Currency and percent signs are units, and units are never converted: `50%` reads as 50. Scale words (`2 million`) are
units as well. Every pattern here takes linear time: whatever repeats is possessive or bounded.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from typing import Final

_THIN: Final = "\u202f"  # stands for every space that only groups digits
_CHARACTERS: Final = str.maketrans(
    dict.fromkeys("\u2212\u2010\u2011\u2012\u2013\ufe63\uff0d", "-")
    | dict.fromkeys("\u00a0\u2007\u2009\u202f", _THIN)
    | dict.fromkeys("\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u00ad")
    | {"\uff0b": "+", "\uff0c": ",", "\uff0e": ".", "\uff05": "%", "\uff04": "$", "\uff1d": "=", "\uff1a": ":"}
    | {"½": " 1/2", "¼": " 1/4", "¾": " 3/4", "⅓": " 1/3", "⅔": " 2/3", "\u2044": "/", "\u00d7": "*", "\u2248": "="}
)
_FOREIGN_DIGIT: Final = re.compile(r"(?![0-9])\d")
# What LaTeX writes around numbers, in the order in which it is taken away.
_LATEX: Final = (
    (re.compile(r"\\,|(?<=\d)~(?=\d)"), _THIN),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\!"), ""),
    (re.compile(r"\\([$%&#])"), r"\1"),
    (re.compile(r"(?<=\d)\s?\\[dtc]?frac\s?\{\s?(-?[\d.,]{1,60})\s?\}\s?\{\s?([\d.,]{1,60})\s?\}"), r" \1/\2"),
    (re.compile(r"\\[dtc]?frac\s?\{\s?(-?[\d.,]{1,60})\s?\}\s?\{\s?([\d.,]{1,60})\s?\}"), r"\1/\2"),
    (re.compile(r"\\[dtc]?frac\s?([0-9])([0-9])"), r"\1/\2"),
    (re.compile(r"\\(?:times|cdot)(?![A-Za-z])"), "*"),
    (re.compile(r"\\approx(?![A-Za-z])"), "="),
    (re.compile(r"\\(?:[A-Za-z]++|[()\[\];: ])"), " "),
    (re.compile(r"\^\s?\{"), "^"),
    (re.compile(r"[{}]"), ""),
)
# One group behind a period would be a decimal fraction; two cannot be.
_PLAIN: Final = r"[0-9]{1,3}(?:(?:,[0-9]{3}){1,40}|(?:\u202f[0-9]{3}){1,40}|(?:\.[0-9]{3}){2,40})(?![0-9])"
_INDIAN: Final = r"[0-9]{1,2}(?:,[0-9]{2}){1,12},[0-9]{3}(?![0-9])"
_SPACED: Final = r"[0-9]{1,3}(?: [0-9]{3}){1,40}(?![0-9])"


def _pattern(grouped: str) -> re.Pattern[str]:
    return re.compile(
        # A minus between operands is a subtraction, and one after a letter a hyphen.
        r"(?P<sign>(?<![\w)%.])[-+](?=[$€£¥₹0-9.]))?(?:[$€£¥₹]{1,2}\s?(?P<inner>-)?)?"
        # Digits after a letter, a power or a subscript belong to a name or a unit: H2O, m^2, x_1.
        r"(?<![A-Za-z0-9^])(?<![A-Za-z]_)"
        r"(?:(?P<units>[0-9]{1,15})[ \u202f](?P<top>[0-9]{1,15})/(?P<bottom>[0-9]{1,15})(?![0-9])"
        rf"|(?:(?P<whole>{grouped}|[0-9]++)(?:\.(?P<part>[0-9]++))?|(?<![0-9])\.(?P<bare>[0-9]++))"
        r"(?!(?:st|nd|rd|th)\b)"
        r"(?:\s?\*\s?10\s?\^\s?(?P<power>-?[0-9]{1,3})(?![0-9])|[eE](?P<exponent>[+-]?[0-9]{1,3})(?!\w)"
        r"|\s?/\s?\$?(?P<over>[0-9]{1,50})(?![0-9]|[.,][0-9]))?)"
    )


# In running text, two numbers may stand beside each other; where one answer is expected, a space groups its digits.
NUMBER: Final = _pattern(f"{_PLAIN}|{_INDIAN}")
LONE_NUMBER: Final = _pattern(f"{_PLAIN}|{_INDIAN}|{_SPACED}")
ORDINAL: Final = re.compile(r"(?<![\w^.,])([0-9]{1,15})(?:st|nd|rd|th)\b")


def plain(text: str) -> str:
    """Text with LaTeX, invisible characters and foreign signs and digits made plain; what is bold stays marked."""
    text = _FOREIGN_DIGIT.sub(lambda found: str(unicodedata.decimal(found[0])), text.translate(_CHARACTERS))
    if "\\" in text or "{" in text:
        for pattern, replacement in _LATEX:
            text = pattern.sub(replacement, text)
    return text


def number(text: str) -> str | None:
    """The canonical form of a text that is one number and nothing else, but for `$`, `%` and a final period."""
    found = LONE_NUMBER.fullmatch(plain(text).strip().removesuffix(".").removesuffix("%").strip(" $*"))
    return canonical(found) if found and not _by_zero(found) else None


def _by_zero(found: re.Match[str]) -> bool:
    return any(found[part] and not int(found[part]) for part in ("over", "bottom"))


def ordinal(found: re.Match[str]) -> str:
    """The canonical form of a match of `ORDINAL`."""
    return _decimal("", found[1], "", 0)


def canonical(found: re.Match[str]) -> str:
    """The canonical form of a match of `NUMBER` or `LONE_NUMBER`."""
    sign = "-" if (found["sign"] == "-") != (found["inner"] == "-") else ""
    if found["top"]:
        if int(found["bottom"]):
            return _fraction(sign, int(found["units"]) + Fraction(int(found["top"]), int(found["bottom"])))
        return _decimal(sign, found["units"], "", 0)
    whole = re.sub(r"[,. \u202f]", "", found["whole"] or "")
    part = found["part"] or found["bare"] or ""
    over = found["over"]
    if over and int(over) and len(whole) + len(part) <= 50:
        return _fraction(sign, Fraction(f"{whole or 0}.{part or 0}") / int(over))
    return _decimal(sign, whole, part, int(found["power"] or found["exponent"] or 0))


def _decimal(sign: str, whole: str, part: str, exponent: int) -> str:
    digits, point = whole + part, len(whole) + exponent
    digits = digits.rjust(len(digits) - point, "0") if point < 0 else digits.ljust(point, "0")
    point = max(point, 0)
    whole, part = digits[:point].lstrip("0") or "0", digits[point:].rstrip("0")
    text = f"{whole}.{part}" if part else whole
    return text if text == "0" else sign + text


def _fraction(sign: str, value: Fraction) -> str:
    rest, places = value.denominator, 0
    for prime in (2, 5):
        count = 0
        while rest % prime == 0:
            rest //= prime
            count += 1
        places = max(places, count)
    if rest != 1:
        return f"{sign}{value.numerator}/{value.denominator}"
    digits = str(value.numerator * 10**places // value.denominator).rjust(places + 1, "0")
    return _decimal(sign, digits[: len(digits) - places], digits[len(digits) - places :], 0)
