"""Reading arguments: numbers with Redis's strictness, and options of the form `NAME value`."""

from __future__ import annotations

import re
from typing import Final

from esker.fronts.resp.errors import CommandError, syntax_error

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
_INTEGER = re.compile(rb"-?[0-9]{1,19}\Z")


def number(value: bytes) -> int | None:
    """A 64-bit integer, or None. No blanks, no plus, no leading zeros, as in Redis."""
    if _INTEGER.match(value) is None or (value[0] == 48 and len(value) > 1) or value[:2] == b"-0":
        return None
    found = int(value)
    return found if INT64_MIN <= found <= INT64_MAX else None


def integer(value: bytes, lowest: int, highest: int, message: str) -> int:
    """Raises `CommandError` with `message` when `value` is no integer or out of bounds."""
    found = number(value)
    if found is None or not lowest <= found <= highest:
        raise CommandError(message)
    return found


def timeout_ms(value: bytes) -> int:
    found = number(value)
    if found is None:
        raise CommandError("ERR timeout is not an integer or out of range")
    if found < 0:
        raise CommandError("ERR timeout is negative")
    return found


def shown(value: bytes) -> str:
    """An argument in a message: never longer than a line."""
    return value[:128].decode("utf-8", "backslashreplace")


class Options:
    """Walks over the options of a command, whose names are case-insensitive.

    >>> options = Options([b"QSCAN", b"count", b"5", b"busyloop"], 1)
    >>> while (name := options.next()):
    ...     print(name, options.value() if name == b"COUNT" else "-")
    b'COUNT' b'5'
    b'BUSYLOOP' -
    """

    __slots__ = ("_arguments", "_at")

    def __init__(self, arguments: list[bytes], at: int) -> None:
        self._arguments = arguments
        self._at = at

    def next(self) -> bytes | None:
        """The next option's name in upper case; None at the end."""
        if self._at >= len(self._arguments):
            return None
        self._at += 1
        return self._arguments[self._at - 1].upper()

    def value(self) -> bytes:
        """The argument behind the name. A name without one is a syntax error."""
        if self._at >= len(self._arguments):
            raise syntax_error()
        self._at += 1
        return self._arguments[self._at - 1]

    def integer(self, lowest: int, highest: int, message: str) -> int:
        return integer(self.value(), lowest, highest, message)

    def rest(self) -> list[bytes]:
        left = self._arguments[self._at :]
        self._at = len(self._arguments)
        return left
