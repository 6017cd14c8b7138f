"""The words that the generated problems are made of: people, things, and the wrappers that they come in."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody in a story, with the pronoun that a second sentence uses."""

    name: str
    pronoun: str


@dataclass(frozen=True, slots=True)
class Thing:
    """What is counted in a story.

    `key` stands in template names, `many` and `one` are the noun, `pack` and `packs` what it is sold in.
    """

    key: str
    many: str
    one: str
    pack: str
    packs: str


_WOMEN = "Ada Anna Bella Clara Dana Emma Fatima Grace Hana Ines Julia Kira Lena Maya Nora Olga Priya Rosa Sofia Tina"
_MEN = "Adam Ben Carlos David Elias Felix George Hugo Ivan Jonas Karim Leo Marco Noah Omar Paul Raj Samir Tom Victor"
PEOPLE: tuple[Person, ...] = (
    *(Person(name, "She") for name in _WOMEN.split()),
    *(Person(name, "He") for name in _MEN.split()),
)

THINGS: tuple[Thing, ...] = (
    Thing("apple", "apples", "apple", "basket", "baskets"),
    Thing("marble", "marbles", "marble", "bag", "bags"),
    Thing("sticker", "stickers", "sticker", "sheet", "sheets"),
    Thing("book", "books", "book", "shelf", "shelves"),
    Thing("cookie", "cookies", "cookie", "tray", "trays"),
    Thing("pencil", "pencils", "pencil", "pack", "packs"),
    Thing("card", "cards", "card", "deck", "decks"),
    Thing("stamp", "stamps", "stamp", "page", "pages"),
    Thing("shell", "shells", "shell", "jar", "jars"),
    Thing("flower", "flowers", "flower", "bunch", "bunches"),
    Thing("egg", "eggs", "egg", "carton", "cartons"),
    Thing("balloon", "balloons", "balloon", "packet", "packets"),
    Thing("bead", "beads", "bead", "box", "boxes"),
    Thing("toy", "toys", "toy", "crate", "crates"),
    Thing("candle", "candles", "candle", "case", "cases"),
    Thing("lemon", "lemons", "lemon", "net", "nets"),
)

_GOODS = "pens notebooks shirts cups plates lamps hats chairs socks ropes brushes maps"
PRICED: tuple[str, ...] = tuple(_GOODS.split())

DAYS: tuple[str, ...] = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
