"""The story families. Each turns a plan (what happens, in which order) and random numbers into a problem.

A family function takes (rng, plan, scale) and returns (question, worksheet, result); it raises `DoesNotFitError` when
the numbers do not come out whole, and is then called again.
"""

import random
from collections.abc import Callable

from demo_model.sums import DoesNotFitError, Scale, Worksheet, draw, draw_towards
from demo_model.words import DAYS, PEOPLE, PRICED, THINGS, Person, Thing

Told = tuple[str, Worksheet, int]
Plan = tuple[str, str, tuple[str, ...], str]
"""family, key of the thing counted, what happens, what is asked."""

THING_OF = {thing.key: thing for thing in THINGS}

CHAIN_DIVISOR = {"half": 2, "third": 3}
CHAIN_COST = {"add": 1, "sub": 1, "double": 1, "times": 1, "half": 1, "third": 2, "packs": 2}


def _age(rng: random.Random, who: Person) -> str:
    return f" {who.pronoun} is {rng.randint(8, 60)} years old."


def _chain_event(
    rng: random.Random, op: str, value: int, divisor: int, who: Person, thing: Thing, sheet: Worksheet
) -> tuple[str, int]:
    """One change to what `who` has: the sentence that tells it and the new number, a multiple of `divisor`."""
    scale, many = sheet.scale, thing.many
    low, high = scale.change
    now = f"{who.name} now has"
    if op == "add":
        k = draw_towards(rng, low, high, value, 1, divisor)
        verb = rng.choice(("buys", "finds", "gets"))
        return f"{who.pronoun} {verb} {k} more {many}.", sheet.step(now, value, "+", k, f" {many}.")
    if op == "sub":
        k = draw_towards(rng, low, min(high, value - 1), value, -1, divisor)
        other = rng.choice([p.name for p in PEOPLE if p is not who])
        told = rng.choice((f"{who.pronoun} gives {k} {many} to {other}.", f"{who.pronoun} loses {k} {many}."))
        return told, sheet.step(now, value, "-", k, f" {many}.")
    if op == "double":
        told = rng.choice((f"Then the number of {many} doubles.", f"{who.pronoun} buys as many {many} again."))
        return told, sheet.step(now, value, "*", 2, f" {many}.")
    if op == "times":
        k = draw(rng, max(3, scale.factor[0]), scale.factor[1])
        return f"Soon {who.pronoun.lower()} has {k} times as many {many}.", sheet.step(now, value, "*", k, f" {many}.")
    if op == "half":
        told = rng.choice((f"{who.pronoun} gives away half of the {many}.", f"Half of the {many} get lost."))
        return told, sheet.step(now, value, "/", 2, f" {many}.")
    if op == "third":
        part = sheet.step("One third is", value, "/", 3, f" {many}.")
        return f"{who.pronoun} sells a third of the {many}.", sheet.step(now, value, "-", part, f" {many}.")
    if op == "packs":
        packs = draw(rng, *scale.factor)
        each = draw(rng, 2, max(3, scale.factor[1]))
        more = sheet.step(f"The {thing.packs} hold", packs, "*", each, f" {many}.")
        told = f"{who.pronoun} buys {packs} {thing.packs} with {each} {many} in each {thing.pack}."
        return told, sheet.step(now, value, "+", more, f" {many}.")
    raise ValueError(f"unknown event {op!r}")


def chain(rng: random.Random, plan: Plan, scale: Scale) -> Told:
    """One person's number of things changes over time."""
    _, key, ops, ask = plan
    thing, who, sheet = THING_OF[key], rng.choice(PEOPLE), Worksheet(scale)
    events = [op for op in ops if op != "age"]
    divisors = [CHAIN_DIVISOR.get(op, 1) for op in events] + [1]
    first = divisors[0]
    value = draw(rng, *scale.start) // first * first
    told = [f"{who.name} has {value} {thing.many}." + (_age(rng, who) if "age" in ops else "")]
    for op, divisor in zip(events, divisors[1:], strict=True):
        sentence, value = _chain_event(rng, op, value, divisor, who, thing, sheet)
        told.append(sentence)
    if ask == "now":
        told.append(f"How many {thing.many} does {who.name} have now?")
    elif ask == "share":
        friends = rng.choice([k for k in range(2, 13) if value % k == 0] or [0])
        told.append(f"{who.pronoun} shares them equally among {friends} friends. How many does each friend get?")
        value = sheet.step("Each friend gets", value, "/", friends, f" {thing.many}.")
    elif ask == "price":
        price = draw(rng, 2, 9)
        told.append(f"{who.pronoun} sells them all for ${price} each. How much money does {who.name} get?")
        value = sheet.step(f"{who.name} gets", value, "*", price, " dollars.")
    elif ask == "goal":
        goal = draw(rng, value + scale.change[0], min(scale.cap, value + scale.change[1]))
        told.append(f"{who.pronoun} wants to have {goal}. How many more {thing.many} does {who.name} need?")
        value = sheet.step(f"{who.name} needs", goal, "-", value, f" more {thing.many}.")
    return " ".join(told), sheet, value


def _relation(
    rng: random.Random, relation: str, base: int, other: str, scale: Scale, many: str
) -> tuple[str, str, int]:
    """What a person has compared with `other`, who has `base`: the words, the operator and its right side."""
    if relation == "more":
        k = draw(rng, *scale.change)
        return f"{k} more {many} than {other}", "+", k
    if relation == "fewer":
        k = draw(rng, scale.change[0], min(scale.change[1], base - 1))
        return f"{k} fewer {many} than {other}", "-", k
    if relation == "twice":
        return f"twice as many {many} as {other}", "*", 2
    if relation == "times":
        k = draw(rng, max(3, scale.factor[0]), scale.factor[1])
        return f"{k} times as many {many} as {other}", "*", k
    if relation == "half":
        return f"half as many {many} as {other}", "/", 2
    raise ValueError(f"unknown relation {relation!r}")


def compare(rng: random.Random, plan: Plan, scale: Scale) -> Told:
    """Several people, each compared with somebody named before."""
    _, key, ops, ask = plan
    thing, sheet = THING_OF[key], Worksheet(scale)
    relations = [op for op in ops if op != "age"]
    people = rng.sample(PEOPLE, len(relations) + 1)
    have = [draw(rng, *scale.start)]
    told = [f"{people[0].name} has {have[0]} {thing.many}." + (_age(rng, people[0]) if "age" in ops else "")]
    for who, relation in zip(people[1:], relations, strict=True):
        # Mostly the person just named; sometimes an earlier one, so that the number has to be looked up.
        at = len(have) - 1 if rng.random() < 0.6 else rng.randrange(len(have))
        words, operator, right = _relation(rng, relation, have[at], people[at].name, scale, thing.many)
        told.append(f"{who.name} has {words}.")
        have.append(sheet.step(f"{who.name} has", have[at], operator, right, f" {thing.many}."))
    if ask == "last":
        told.append(f"How many {thing.many} does {people[-1].name} have?")
        return " ".join(told), sheet, have[-1]
    if ask == "gap":
        told.append(f"How many more {thing.many} does {people[-1].name} have than {people[0].name}?")
        gap = sheet.step(f"{people[-1].name} has", have[-1], "-", have[0], f" more {thing.many}.")
        return " ".join(told), sheet, gap
    told.append(f"How many {thing.many} do they have altogether?")
    total = have[0]
    for k in have[1:]:
        total = sheet.step("Together that is", total, "+", k, f" {thing.many}.")
    return " ".join(told), sheet, total


def shop(rng: random.Random, plan: Plan, scale: Scale) -> Told:
    """A purchase of several kinds of goods, perhaps with a coupon, perhaps paid with a larger sum."""
    _, _, ops, ask = plan
    who, sheet = rng.choice(PEOPLE), Worksheet(scale)
    goods = rng.sample(PRICED, ops.count("kind"))
    top = {"small": 9, "medium": 30, "large": 99}[scale.key]
    bought, costs = [], []
    for good in goods:
        count, price = draw(rng, *scale.factor), draw(rng, 2, top)
        bought.append(f"{count} {good} for ${price} each")
        costs.append(sheet.step(f"The {good} cost", count, "*", price, " dollars."))
    total = costs[0]
    for cost in costs[1:]:
        total = sheet.step("Together that is", total, "+", cost, " dollars.")
    listed = bought[0] if len(bought) == 1 else ", ".join(bought[:-1]) + " and " + bought[-1]
    told = [f"{who.name} buys {listed}." + (_age(rng, who) if "age" in ops else "")]
    if "coupon" in ops:
        off = draw(rng, 2, min(total - 1, top))
        told.append(f"A coupon takes ${off} off.")
        total = sheet.step("With the coupon it is", total, "-", off, " dollars.")
    if ask == "cost":
        told.append(f"How much does {who.name} pay?")
        return " ".join(told), sheet, total
    paid = min(scale.cap, (total // 10 + 1 + rng.randrange(5)) * 10)
    told.append(f"{who.pronoun} pays with ${paid}. How much change does {who.name} get?")
    return " ".join(told), sheet, sheet.step(f"{who.name} gets", paid, "-", total, " dollars back.")


def work(rng: random.Random, plan: Plan, scale: Scale) -> Told:
    """Things made at a rate over some days, perhaps some spoiled, perhaps packed."""
    _, key, ops, ask = plan
    thing, who, sheet = THING_OF[key], rng.choice(PEOPLE), Worksheet(scale)
    rate = draw(rng, *scale.factor)
    days = DAYS[: ops.count("day")]
    hours = [draw(rng, 2, 10 if scale.key != "large" else 30) for _ in days]
    spent = " and ".join(f"{h} hours on {day}" for h, day in zip(hours, days, strict=True))
    told = [
        f"{who.name} makes {rate} {thing.many} an hour and works {spent}." + (_age(rng, who) if "age" in ops else "")
    ]
    total = hours[0]
    for h in hours[1:]:
        total = sheet.step("The hours are", total, "+", h, ".")
    made = sheet.step(f"{who.name} makes", rate, "*", total, f" {thing.many}.")
    if "spoiled" in ops:
        k = draw(rng, 1, min(made - 1, scale.change[1]))
        told.append(f"Of these, {k} are spoiled.")
        made = sheet.step("There remain", made, "-", k, f" {thing.many}.")
    if ask == "made":
        told.append(f"How many good {thing.many} are there in the end?")
        return " ".join(told), sheet, made
    each = rng.choice([k for k in range(2, 13) if made % k == 0] or [0])
    told.append(f"{who.pronoun} puts {each} {thing.many} in each {thing.pack}. How many {thing.packs} are filled?")
    return " ".join(told), sheet, sheet.step("There are", made, "/", each, f" {thing.packs}.")


def save(rng: random.Random, plan: Plan, scale: Scale) -> Told:
    """Money earned and spent each week, perhaps on top of what was there, perhaps towards a goal."""
    _, _, ops, ask = plan
    who, sheet = rng.choice(PEOPLE), Worksheet(scale)
    earned = draw(rng, *scale.start)
    told = [f"{who.name} earns ${earned} a week." + (_age(rng, who) if "age" in ops else "")]
    kept = earned
    for what in ("food", "rent", "books")[: ops.count("spend")]:
        spent = draw(rng, 1, kept - 1)
        told.append(f"{who.pronoun} spends ${spent} a week on {what}.")
        kept = sheet.step(f"After {what} {who.name} keeps", kept, "-", spent, " dollars a week.")
    weeks = draw(rng, 2, scale.factor[1])
    told.append(f"{who.pronoun} saves the rest for {weeks} weeks.")
    saved = sheet.step(f"{who.name} saves", kept, "*", weeks, " dollars.")
    if "start" in ops:
        before = draw(rng, *scale.change)
        told.append(f"{who.pronoun} already had ${before}.")
        saved = sheet.step(f"{who.name} now has", before, "+", saved, " dollars.")
    if ask == "saved":
        told.append(f"How much money does {who.name} have then?")
        return " ".join(told), sheet, saved
    goal = draw(rng, saved + 1, min(scale.cap, saved + scale.change[1]))
    told.append(f"A bicycle costs ${goal}. How much more does {who.name} need?")
    return " ".join(told), sheet, sheet.step(f"{who.name} needs", goal, "-", saved, " dollars more.")


FAMILIES: dict[str, Callable[[random.Random, Plan, Scale], Told]] = {
    "chain": chain,
    "compare": compare,
    "shop": shop,
    "work": work,
    "save": save,
}

__all__ = ["FAMILIES", "DoesNotFitError", "Plan", "chain", "compare", "save", "shop", "work"]
