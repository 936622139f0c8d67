"""The id of a job or record carries its place, so that it is found and routed without an index.

    128 bits:  48 milliseconds | 24 topic number | 10 partition | 46 seq

A topic number is new for each epoch of a name, so an id is never given twice. As an integer it sorts by time.
The text form is a ULID (26 characters of Crockford base 32).
"""

from __future__ import annotations

from typing import NamedTuple

from esker.engine.limits import SEQ_BITS, SEQ_MAX

_PARTITION_SHIFT = SEQ_BITS
_TOPIC_SHIFT = SEQ_BITS + 10
_TIME_SHIFT = SEQ_BITS + 10 + 24
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES = {letter: value for value, letter in enumerate(_ALPHABET)}


class Place(NamedTuple):
    """What an id says: when the job was made, and where it is."""

    created_ms: int
    topic: int
    partition: int
    seq: int


def message_id(created_ms: int, topic: int, partition: int, seq: int) -> int:
    return created_ms << _TIME_SHIFT | topic << _TOPIC_SHIFT | partition << _PARTITION_SHIFT | seq


def place(message_id: int) -> Place:
    return Place(
        message_id >> _TIME_SHIFT,
        (message_id >> _TOPIC_SHIFT) & 0xFFFFFF,
        (message_id >> _PARTITION_SHIFT) & 0x3FF,
        message_id & SEQ_MAX,
    )


def to_ulid(message_id: int) -> str:
    return "".join(_ALPHABET[(message_id >> shift) & 31] for shift in range(125, -1, -5))


def from_ulid(text: str) -> int:
    """Raises ValueError when `text` is not a ULID."""
    if len(text) != 26 or text[0] > "7":
        raise ValueError(f"not a ULID: {text!r}")
    value = 0
    for letter in text.upper():
        digit = _VALUES.get(letter)
        if digit is None:
            raise ValueError(f"not a ULID: {text!r}")
        value = value << 5 | digit
    return value
