"""A tokenizer that needs no file: token ids stand for text by arithmetic alone, so any process can read them back.

A frequent English word is one token, and any other word is cut into pieces of up to three letters; numbers are cut into
pieces of up to three digits; everything else is one token a byte. A piece may carry the space before it and a capital
first letter. English prose comes to about 1.4 tokens a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from string import ascii_lowercase
from typing import Final

_FREQUENT: Final = (
    "about|after|again|all|also|always|amount|and|another|answer|any|apples|are|around|away|back|"
    "because|been|before|being|between|both|bought|boxes|buys|by|called|came|can|cards|children|cost|"
    "costs|could|day|days|did|different|does|dollars|down|each|earns|eggs|end|enough|equal|even|"
    "every|find|first|five|for|four|friends|from|gave|gets|gives|go|good|great|had|half|has|have|"
    "he|her|here|him|his|hour|hours|house|how|however|if|in|into|is|it|its|just|know|large|last|"
    "left|less|let|like|line|little|long|made|make|makes|many|may|means|miles|minutes|money|month|"
    "months|more|morning|most|much|must|name|need|needs|never|new|next|night|not|now|number|of|off|"
    "old|on|one|only|or|other|our|out|over|own|page|pages|paid|part|pay|people|per|place|play|"
    "price|problem|question|right|room|said|same|saw|school|see|sells|she|should|since|six|small|so|"
    "sold|some|something|spends|start|step|still|students|such|take|takes|tell|ten|than|that|the|"
    "their|them|then|there|these|they|thing|things|think|this|those|three|through|time|times|to|"
    "together|too|total|twice|two|under|until|up|us|use|used|very|want|wants|was|water|way|week|"
    "weeks|well|went|were|what|when|where|which|while|who|why|will|with|without|work|works|world|"
    "would|write|year|years|yesterday|you|your|beginning|during|reason|solve|following|near|stood|knew|"
    "nobody|soldier|teacher|garden|market|window|table|final|alone|form|example|solved"
)

# Ids, in order: bytes, numbers, pieces of words in four spellings (bare or after a space, lower case or capitalised).
_PIECES: Final = list(
    dict.fromkeys(
        ["".join(letters) for size in (1, 2, 3) for letters in product(ascii_lowercase, repeat=size)]
        + _FREQUENT.split("|")
    )
)
_NUMBERS: Final = [f"{number:0{size}d}" for size in (1, 2, 3) for number in range(10**size)]
_FIRST_NUMBER: Final = 256
_FIRST_PIECE: Final = _FIRST_NUMBER + 2 * len(_NUMBERS)
_INDEX: Final = {piece: index for index, piece in enumerate(_PIECES)}
_NUMBER_INDEX: Final = {number: index for index, number in enumerate(_NUMBERS)}
_END_OF_PIECES: Final = _FIRST_PIECE + 4 * len(_PIECES)

END: Final = 156_895
SPECIAL: Final = {
    "<|role_end|>": END,
    "<think>": 156_896,
    "</think>": 156_897,
    "<role>SYSTEM</role>": 156_898,
    "<role>HUMAN</role>": 156_899,
    "<role>ASSISTANT</role>": 156_900,
}
THINK_START: Final = SPECIAL["<think>"]
THINK_END: Final = SPECIAL["</think>"]
_SPECIAL_TEXT: Final = {token: text for text, token in SPECIAL.items()}
_SKIPPED: Final = set(_SPECIAL_TEXT) - {THINK_START, THINK_END}  # what a think section is must stay to be seen
_SPECIAL_PATTERN: Final = re.compile("(" + "|".join(re.escape(text) for text in SPECIAL) + ")")
_PATTERN: Final = re.compile(r"( ?)(?:([A-Za-z][a-z]*)|([0-9]{1,3}))|(.)", re.DOTALL)
_ROLES: Final = {"system": "SYSTEM", "user": "HUMAN", "assistant": "ASSISTANT"}


def encode(text: str) -> list[int]:
    """Token ids of a text; names of special tokens in it become those tokens."""
    ids: list[int] = []
    for part in _SPECIAL_PATTERN.split(text):
        if part in SPECIAL:
            ids.append(SPECIAL[part])
        else:
            for space, word, number, other in _PATTERN.findall(part):
                if word:
                    ids += _word(word, bool(space))
                elif number:
                    ids.append(_FIRST_NUMBER + 2 * _NUMBER_INDEX[number] + bool(space))
                else:
                    ids += other.encode("utf-8", errors="replace")
    return ids


def decode(ids: Iterable[int], *, skip_special: bool = False) -> str:
    """Text of token ids; an id that stands for nothing reads as U+FFFD."""
    content = b"".join(_bytes(token, skip_special) for token in ids)
    return content.decode("utf-8", errors="replace")


def encode_chat(messages: Sequence[Mapping[str, str]], *, thinking: bool) -> list[int]:
    """Token ids of a conversation in the model's chat format, open for the assistant's next turn.

    With `thinking` the prompt ends inside an open think section; without, behind an empty one.
    """
    text = "".join(
        f"<role>{_ROLES.get(str(message.get('role')), 'HUMAN')}</role>{message.get('content')}<|role_end|>"
        for message in messages
    )
    return encode(text + "<role>ASSISTANT</role>" + ("<think>\n" if thinking else "<think>\n\n</think>\n\n"))


def _word(word: str, space: bool) -> list[int]:
    capital = word[0].isupper()
    lower = word.lower()
    if lower in _INDEX:
        return [_piece(lower, space, capital)]
    pieces = [lower[start : start + 3] for start in range(0, len(lower), 3)]
    return [_piece(piece, space and not position, capital and not position) for position, piece in enumerate(pieces)]


def _piece(piece: str, space: bool, capital: bool) -> int:
    return _FIRST_PIECE + 4 * _INDEX[piece] + 2 * space + capital


def _bytes(token: int, skip_special: bool) -> bytes:
    if 0 <= token < _FIRST_NUMBER:
        return bytes([token])
    if _FIRST_NUMBER <= token < _FIRST_PIECE:
        index, space = divmod(token - _FIRST_NUMBER, 2)
        return (" " * space + _NUMBERS[index]).encode()
    if _FIRST_PIECE <= token < _END_OF_PIECES:
        index, spelling = divmod(token - _FIRST_PIECE, 4)
        piece = _PIECES[index]
        return (" " * (spelling >> 1) + (piece.capitalize() if spelling & 1 else piece)).encode()
    if token in _SPECIAL_TEXT:
        return b"" if skip_special and token in _SKIPPED else _SPECIAL_TEXT[token].encode()
    return "\ufffd".encode()
