"""Made-up grade-school word problems: text with the vocabulary and rhythm of GSM8K, none of it taken from there.

The tiny model's tokenizer and word statistics are learnt from it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

NAMES = """
Anna Ben Carla David Emma Frank Grace Henry Irene Jack Karen Leo Maria Nathan Olivia Peter Rachel Samuel Tina Victor
Wendy James John Sarah Tom Lisa Mark Julia Kevin Alice Bob Jenny Mike Sam Amy Paul Jerry Tim Josh Janet
"""

PLACES = """
school, the market, the farm, a bakery, the library, the park, town, the zoo, a toy store, the beach, home, work
"""

THINGS = """
apples, books, pencils, cookies, marbles, eggs, flowers, stickers, cards, cupcakes, balloons, oranges, bottles of water,
pages, toys, shirts, tickets, chairs, bags of rice, boxes of crayons, pounds of meat, gallons of milk, pieces of candy,
slices of pizza, pairs of shoes, plants, fish, chickens, cows, sandwiches, glasses, coins, puzzles, video games, cars,
bananas, candles
"""

# Question, reasoning, and the result from the numbers a, b and c.
PROBLEMS: tuple[tuple[str, str, Callable[[int, int, int], int]], ...] = (
    (
        "{n} has {a} {x} and buys {b} more {x} at {p}. How many {x} does {n} have now?",
        "{n} starts with {a} {x}. After buying {b} more, there are {a} + {b} = {r} {x} in total.",
        lambda a, b, c: a + b,
    ),
    (
        "{n} bought {a} boxes of {x} for a party. Each box contains {b} {x}, and the guests used {c} of them. "
        "What is the number of {x} that are left over?",
        "The boxes contain {a} * {b} = {s} {x}. Since the guests used {c}, the number left is {s} - {c} = {r}.",
        lambda a, b, c: a * b - c,
    ),
    (
        "There are {a} students in a class. If every student brings {b} {x} to {p} each week, how many {x} will they "
        "bring altogether in {c} weeks?",
        "Every week the students bring {a} * {b} = {s} {x}. In {c} weeks they bring {s} * {c} = {r} {x} altogether.",
        lambda a, b, c: a * b * c,
    ),
    (
        "{n} earns ${a} an hour and works {b} hours a day for {c} days. How much money, in dollars, does {n} make?",
        "{n} works for {b} * {c} = {t} hours. At ${a} per hour, that makes {a} * {t} = ${r}.",
        lambda a, b, c: a * b * c,
    ),
    (
        "{n} is {a} years old. {m} is {b} times as old as {n}. In {c} years, how old will {m} be?",
        "Now {m} is {a} * {b} = {s} years old. In {c} years {m} will be {s} + {c} = {r} years old.",
        lambda a, b, c: a * b + c,
    ),
    (
        "A store sells {x} for ${a} each. {n} wants to buy {b} of them but first spends ${c} on lunch. What is the "
        "total cost of the day?",
        "The {x} cost {a} * {b} = ${s}. Together with lunch, the total cost is {s} + {c} = ${r}.",
        lambda a, b, c: a * b + c,
    ),
    (
        "{n} drives from home to {p} at a speed of {a} miles per hour. The trip takes {b} hours, and then {n} rides a "
        "bike for another {c} miles. How far did {n} travel from the start?",
        "Driving covers {a} * {b} = {s} miles. With the bike the total distance is {s} + {c} = {r} miles.",
        lambda a, b, c: a * b + c,
    ),
    (
        "Each day {n} reads {a} pages before breakfast and {b} pages in the evening. How many pages does {n} read "
        "during the next {c} days?",
        "In one day {n} reads {a} + {b} = {u} pages. During {c} days that is {u} * {c} = {r} pages.",
        lambda a, b, c: (a + b) * c,
    ),
    (
        "{n} collected {a} {x} on Monday, twice as many on Tuesday, and {b} fewer on Wednesday than on Tuesday. What "
        "is the total for all three days?",
        "On Tuesday {n} collected {a} * 2 = {d} {x}. The total for the first two days is {a} + {d}. On Wednesday there "
        "were {b} fewer than {d}. Adding all three days gives {r}.",
        lambda a, b, c: 5 * a - b,
    ),
    (
        "{n} and {m} share {a} {x} equally with {b} of their friends, so that each person gets the same amount. If "
        "their mother gives them {c} more, how many more {x} are there?",
        "The friends first shared {a} {x}. Their mother gave {c} more, so there are {a} + {c} = {r} {x}.",
        lambda a, b, c: a + c,
    ),
    (
        "A farmer has {a} rows of vegetables with {b} plants in each row. Half of the plants are tomatoes and the rest "
        "are potatoes. If {c} plants die because of the cold weather, how many remain?",
        "First find the number of plants: {a} * {b} = {s}. Then subtract the ones that die: {s} - {c} = {r} remain.",
        lambda a, b, c: a * b - c,
    ),
    (
        "{n} saves ${a} every month from a job. After {b} months, {n} pays ${c} for a new phone, which is less than "
        "the price last year. How much money is left in the bank?",
        "After {b} months {n} has saved {a} * {b} = ${s}. After paying ${c} there is {s} - {c} = ${r} left.",
        lambda a, b, c: a * b - c,
    ),
    (
        "A bus can carry {a} people and a train carries {b} times more people than the bus. If {c} people are already "
        "on the train, how many empty seats does it have?",
        "The train carries {a} * {b} = {s} people. Because {c} seats are taken, {s} - {c} = {r} seats are empty.",
        lambda a, b, c: a * b - c,
    ),
    (
        "It takes {n} {a} minutes to clean one room and {b} minutes to wash the dishes. If the house has {c} rooms, "
        "how long, in minutes, will it take to finish the work?",
        "Cleaning takes {a} * {c} = {w} minutes. Washing takes {b} minutes, so it takes {w} + {b} = {r} minutes.",
        lambda a, b, c: a * c + b,
    ),
    (
        "{n}'s brother gave away {a} {x}, which were {b} less than what {n} had. {m} has {c} {x}. How many {x} do {n} "
        "and {m} have between the two of them?",
        "{n} had {a} + {b} = {u} {x}. Together with {m} they have {u} + {c} = {r} {x}.",
        lambda a, b, c: a + b + c,
    ),
    (
        "The height of a wall is {a} feet and its length is {b} feet. One can of paint covers some of it, but {c} "
        "square feet are a window that should not be painted. What area needs paint?",
        "The area of the wall is {a} * {b} = {s} square feet. Without the window that leaves {s} - {c} = {r}.",
        lambda a, b, c: a * b - c,
    ),
    (
        "A baker makes {a} loaves of bread in the morning and {b} cakes in the afternoon. He sells each loaf for $2 "
        "and each cake for ${c}. How many dollars does he earn per day if everything is sold?",
        "The bread earns {a} * 2 = ${d}. The cakes earn {b} * {c} = ${v}. The total is {d} + {v} = ${r}.",
        lambda a, b, c: 2 * a + b * c,
    ),
    (
        "{n} weighs {a} pounds, and {n}'s dog weighs {b} pounds. While the cat sleeps, they both step on a scale along "
        "with a bag of food that weighs {c} pounds. What weight does the scale show?",
        "We add the weights: {a} + {b} + {c} = {r} pounds.",
        lambda a, b, c: a + b + c,
    ),
)

OPENINGS = (
    "Let us think step by step.",
    "First, we need to find what is given.",
    "We are asked for the total, so let's work it out.",
    "To solve this problem, we should look at each part.",
)


def problems(count: int, seed: int) -> Iterator[tuple[str, str, int]]:
    """``count`` problems: question, reasoning, result."""
    rng = random.Random(seed)  # noqa: S311 (nothing secret is made)
    places, things = (" ".join(text.split()).split(", ") for text in (PLACES, THINGS))
    for _ in range(count):
        question, reasoning, solve = rng.choice(PROBLEMS)
        a, b, c = rng.randint(2, 60), rng.randint(2, 20), rng.randint(2, 12)
        n, m = rng.sample(NAMES.split(), 2)
        derived = {"s": a * b, "t": b * c, "u": a + b, "d": 2 * a, "w": a * c, "v": b * c}
        result = solve(a, b, c)
        words = {"n": n, "m": m, "x": rng.choice(things), "p": rng.choice(places), "r": result, **derived}
        fields = {"a": a, "b": b, "c": c, **words}
        yield question.format(**fields), f"{rng.choice(OPENINGS)} {reasoning.format(**fields)}", result
