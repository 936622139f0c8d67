"""Replies as bytes. RESP2, and the few types of RESP3 (null, map) that a client gets after `HELLO 3`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

OK: Final = b"+OK\r\n"
PONG: Final = b"+PONG\r\n"
NULL_BULK: Final = b"$-1\r\n"
NULL_ARRAY: Final = b"*-1\r\n"
NULL: Final = b"_\r\n"  # RESP3 has one null for both
EMPTY_ARRAY: Final = b"*0\r\n"

_SMALL: Final = tuple(b":%d\r\n" % number for number in range(1024))


def integer(number: int) -> bytes:
    return _SMALL[number] if 0 <= number < 1024 else b":%d\r\n" % number


def simple(text: bytes) -> bytes:
    return b"+%b\r\n" % text


def error(text: str) -> bytes:
    """`text` begins with its prefix (`ERR `, `BADID ` …). Line ends in it would break the protocol."""
    return b"-%b\r\n" % text.replace("\r", " ").replace("\n", " ").encode("utf-8", "surrogateescape")


def bulk(value: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(value), value)


def text(value: str) -> bytes:
    return bulk(value.encode("utf-8", "surrogateescape"))


def array(items: Sequence[bytes]) -> bytes:
    """An array of items that are encoded already."""
    return b"*%d\r\n" % len(items) + b"".join(items)


def bulks(values: Iterable[bytes]) -> bytes:
    return array([bulk(value) for value in values])


def mapping(pairs: Mapping[str, bytes], proto: int) -> bytes:
    """Encoded values under text keys: a map in RESP3, a flat array before."""
    head = b"%%%d\r\n" % len(pairs) if proto == 3 else b"*%d\r\n" % (2 * len(pairs))
    return head + b"".join([text(key) + value for key, value in pairs.items()])
