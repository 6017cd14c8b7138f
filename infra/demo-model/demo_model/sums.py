"""Worked steps in GSM8K's format, and numbers that keep every step whole and within bounds."""

import random
from dataclasses import dataclass, field


class DoesNotFitError(Exception):
    """The numbers drawn so far cannot make this template whole: draw again."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How large the numbers of a problem may be."""

    key: str
    cap: int
    """No intermediate result exceeds this."""
    start: tuple[int, int]
    change: tuple[int, int]
    factor: tuple[int, int]


SCALES: dict[str, Scale] = {
    "small": Scale("small", cap=120, start=(6, 40), change=(2, 30), factor=(2, 5)),
    "medium": Scale("medium", cap=1_000, start=(20, 300), change=(5, 200), factor=(2, 9)),
    "large": Scale("large", cap=10_000, start=(100, 2_000), change=(50, 1_500), factor=(3, 40)),
}


def apply(left: int, operator: str, right: int) -> int:
    """Exact whole-number arithmetic; `DoesNotFitError` where the result would not be a natural number."""
    if operator == "+":
        return left + right
    if operator == "-":
        if right > left:
            raise DoesNotFitError
        return left - right
    if operator == "*":
        return left * right
    if operator == "/":
        if right == 0 or left % right:
            raise DoesNotFitError
        return left // right
    raise ValueError(f"unknown operator {operator!r}")


@dataclass(slots=True)
class Worksheet:
    """The worked solution so far: one calculator step a line."""

    scale: Scale
    lines: list[str] = field(default_factory=list)

    def step(self, before: str, left: int, operator: str, right: int, after: str) -> int:
        """Append `before 3+4 = <<3+4=7>>7 after` and return the result, which is within the scale's cap."""
        result = apply(left, operator, right)
        if not 0 < result <= self.scale.cap:
            raise DoesNotFitError
        term = f"{left}{operator}{right}"
        self.lines.append(f"{before} {term} = <<{term}={result}>>{result}{after}")
        return result

    def answer(self, result: int) -> str:
        """The whole solution with GSM8K's last line."""
        return "\n".join([*self.lines, f"#### {result}"])


def draw(rng: random.Random, low: int, high: int) -> int:
    """A whole number of [low, high]; `DoesNotFitError` when there is none."""
    if low > high:
        raise DoesNotFitError
    return rng.randint(low, high)


def draw_towards(rng: random.Random, low: int, high: int, base: int, sign: int, divisor: int) -> int:
    """A number k of [low, high] such that `base + sign * k` is a multiple of `divisor`."""
    k = draw(rng, low, high)
    k -= sign * ((base + sign * k) % divisor)
    if k < low:
        k += divisor
    if not low <= k <= high:
        raise DoesNotFitError
    return k
