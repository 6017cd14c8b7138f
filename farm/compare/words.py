"""How numbers read in sentences and cells, the same in every view."""

from __future__ import annotations

from collections.abc import Callable

from farm.compare.model import AccuracyContrast, Ends, Estimate

MINUS = "\N{MINUS SIGN}"


def number(value: float | None, digits: int = 2) -> str:
    """A plain number, or a dash."""
    return "-" if value is None else f"{value:.{digits}f}"


def signed(value: float, digits: int = 1) -> str:
    """With a sign, and a real minus."""
    text = f"{abs(value):.{digits}f}"
    if float(text) == 0:
        return text
    return ("+" if value > 0 else MINUS) + text


def percent(share: float | None, digits: int = 1) -> str:
    """A share as a signed percentage."""
    return "-" if share is None else f"{signed(100 * share, digits)} %"


def ratio_parts(estimate: Estimate | None) -> tuple[str, str]:
    """`1.43x` and `[1.41, 1.44]`; one more digit where the interval is too narrow to show with two."""
    if estimate is None or estimate.value is None:
        return "", ""
    low, high = estimate.ci or (None, None)
    digits = 3 if low is not None and high is not None and high - low < 0.03 else 2
    return f"{estimate.value:.{digits}f}x", _bracket(estimate.ci, lambda end: f"{end:.{digits}f}")


def change_parts(estimate: Estimate | None) -> tuple[str, str]:
    """`-24.5 %` and `[-28.1, -20.7]`."""
    if estimate is None or estimate.value is None:
        return "", ""
    return percent(estimate.value), _bracket(estimate.ci, lambda end: signed(100 * end))


def ratio(estimate: Estimate) -> str:
    """`1.43x [1.41, 1.44]`."""
    return " ".join(part for part in ratio_parts(estimate) if part) or "-"


def change(estimate: Estimate) -> str:
    """`-24.5 % [-28.1, -20.7]`."""
    return " ".join(part for part in change_parts(estimate) if part) or "-"


def _bracket(ci: Ends | None, form: Callable[[float], str]) -> str:
    low, high = ci or (None, None)
    return "" if low is None and high is None else f"[{_end(low, form)}, {_end(high, form)}]"


def _end(value: float | None, form: Callable[[float], str]) -> str:
    return "?" if value is None else form(value)


def points(accuracy: AccuracyContrast) -> str:
    """`-0.08 pp [-0.85, +0.70]`."""
    sure = _bracket(accuracy.ci, lambda end: signed(end, 2))
    return f"{signed(accuracy.difference_pp, 2)} pp {sure}".rstrip()


def p_value(p: float | None) -> str:
    """`p 0.0095`, `p < 0.0001`."""
    if p is None:
        return "p ?"
    if p < 0.0001:
        return "p < 0.0001"
    return f"p {p:.4f}" if p < 0.01 else f"p {p:.2f}"


def count(value: float) -> str:
    """A large count, rounded to what matters."""
    return f"{value:,.0f}" if value >= 1 else "1"


def excludes(ci: Ends | None, value: float) -> bool:
    """Does the interval leave this value out?"""
    if not ci:
        return False
    low, high = ci
    return (low is not None and low > value) or (high is not None and high < value)
