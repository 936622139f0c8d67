"""The id of a job or record carries its place, so that it is found and routed without an index.

    128 bits:  48 milliseconds | 24 topic number | 10 partition | 46 seq

A topic number is new for each epoch of a name, so an id is never given twice. As an integer it sorts by time.
The text form is a ULID (26 characters of Crockford base 32).

Where the topic is known, the last 56 bits name a job: its *slot*. In a topic of one partition the slot is the seq.
"""

from __future__ import annotations

from typing import NamedTuple

from esker.engine.limits import SEQ_BITS, SEQ_MAX

PARTITION_SHIFT = SEQ_BITS
TOPIC_SHIFT = SEQ_BITS + 10
TIME_SHIFT = SEQ_BITS + 10 + 24
PARTITION_MASK = 0x3FF
TOPIC_MASK = 0xFFFFFF
PLACE_MASK = TOPIC_MASK << 10 | PARTITION_MASK  # of both
SLOT_MASK = (1 << TOPIC_SHIFT) - 1  # partition and seq: what names a job within its topic
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ULID_PATTERN = f"[0-7][{_ALPHABET}{_ALPHABET[10:].lower()}]{{25}}"  # either case
_VALUES = {letter: value for value, letter in enumerate(_ALPHABET)}


class Place(NamedTuple):
    """What an id says: when the job was made, and where it is."""

    created_ms: int
    topic: int
    partition: int
    seq: int


def message_id(created_ms: int, topic: int, partition: int, seq: int) -> int:
    return created_ms << TIME_SHIFT | topic << TOPIC_SHIFT | partition << PARTITION_SHIFT | seq


def place(message_id: int) -> Place:
    return Place(
        message_id >> TIME_SHIFT,
        (message_id >> TOPIC_SHIFT) & TOPIC_MASK,
        (message_id >> PARTITION_SHIFT) & PARTITION_MASK,
        message_id & SEQ_MAX,
    )


def slot(partition: int, seq: int) -> int:
    """What names a job within its topic. `message_id & SLOT_MASK` gives the same."""
    return partition << PARTITION_SHIFT | seq


def to_ulid(message_id: int) -> str:
    return "".join(_ALPHABET[(message_id >> shift) & 31] for shift in range(125, -1, -5))


def from_ulid(text: str) -> int:
    """Raises ValueError when `text` is not a ULID."""
    if len(text) != 26 or not text.isascii() or text[0] > "7":
        raise ValueError(f"not a ULID: {text!r}")
    value = 0
    for letter in text.upper():
        digit = _VALUES.get(letter)
        if digit is None:
            raise ValueError(f"not a ULID: {text!r}")
        value = value << 5 | digit
    return value
