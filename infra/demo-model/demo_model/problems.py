"""Grade-school word problems with worked solutions in GSM8K's format, split by template.

A template is what happens in a problem, without names, numbers and wording: the story family, the thing counted, the
sequence of events and the question asked. One template in eight belongs to the test split, by a hash of its name, so
no test problem has the shape of a training problem. The same seed gives the same problems on every machine.
"""

import random
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from demo_model.stories import CHAIN_COST, FAMILIES, Plan
from demo_model.sums import SCALES, DoesNotFitError
from demo_model.words import THINGS

Split = Literal["train", "test"]
MAX_STEPS = 8
TEST_SHARE = 8
"""One template in this many is a test template."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One word problem."""

    question: str
    answer: str
    """Worked steps, one a line, then `#### N`: GSM8K's format."""
    template: str
    scale: str
    steps: int


def split_of(template: str) -> Split:
    """The split that a template belongs to."""
    return "test" if zlib.crc32(template.encode()) % TEST_SHARE == 0 else "train"


def template_name(plan: Plan) -> str:
    """What identifies a template, e.g. `chain/egg/third-add/price`."""
    family, thing, ops, ask = plan
    return "/".join((family, thing or "-", "-".join(ops), ask))


def _draw_plan(rng: random.Random, steps: int) -> Plan:
    """A random plan with about `steps` worked steps."""
    family = rng.choice(("chain", "chain", "chain", "compare", "compare", "shop", "work", "save"))
    thing = rng.choice(THINGS).key
    noise = ("age",) if rng.random() < 0.15 else ()
    if family == "chain":
        ask = rng.choice(("now", "now", "share", "price", "goal"))
        left, ops = steps - (ask != "now"), []
        while left > 0:
            op = rng.choice([op for op, cost in CHAIN_COST.items() if cost <= left])
            ops.append(op)
            left -= CHAIN_COST[op]
        return family, thing, (*(ops or ["add"]), *noise), ask
    if family == "compare":
        ask = rng.choice(("last", "total", "gap"))
        count = {"last": steps, "total": steps // 2, "gap": steps - 1}[ask]
        relations = [rng.choice(("more", "fewer", "twice", "times", "half")) for _ in range(max(1, min(count, 7)))]
        return family, thing, (*relations, *noise), ask
    if family == "shop":
        coupon = ("coupon",) if rng.random() < 0.5 else ()
        ask = rng.choice(("cost", "change"))
        kinds = (steps + 1 - len(coupon) - (ask == "change")) // 2
        return family, "", (*("kind",) * max(1, min(kinds, 4)), *coupon, *noise), ask
    if family == "work":
        spoiled = ("spoiled",) if rng.random() < 0.5 else ()
        ask = rng.choice(("made", "packs"))
        days = steps - len(spoiled) - (ask == "packs")
        return family, thing, (*("day",) * max(1, min(days, 6)), *spoiled, *noise), ask
    spends = max(0, min(3, steps - 1 - rng.randrange(3)))
    start = ("start",) if rng.random() < 0.5 else ()
    return "save", "", (*("spend",) * spends, *start, *noise), rng.choice(("saved", "goal"))


def _tell(rng: random.Random, plan: Plan, scale: str) -> Problem | None:
    """A problem of this plan, or None when no numbers were found for it."""
    for _ in range(12):
        try:
            question, sheet, result = FAMILIES[plan[0]](rng, plan, SCALES[scale])
        except DoesNotFitError:
            continue
        return Problem(question, sheet.answer(result), template_name(plan), scale, len(sheet.lines))
    return None


def problems(
    seed: int,
    split: Split,
    scales: Mapping[str, float],
    steps: Mapping[int, float] | None = None,
) -> Iterator[Problem]:
    """An endless stream of problems of one split.

    `scales` and `steps` weigh how large the numbers are and how many worked steps are aimed at (default: 1 to 8 alike).
    """
    rng = random.Random(f"{seed}/{split}")  # noqa: S311  (no secret)
    wanted = steps or dict.fromkeys(range(1, MAX_STEPS + 1), 1.0)
    while True:
        aim = rng.choices(list(wanted), list(wanted.values()))[0]
        scale = rng.choices(list(scales), list(scales.values()))[0]
        for _ in range(200):
            plan = _draw_plan(rng, aim)
            if split_of(template_name(plan)) != split:
                continue
            problem = _tell(rng, plan, scale)
            if problem is not None and problem.steps <= MAX_STEPS:
                yield problem
                break
