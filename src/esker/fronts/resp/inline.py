"""Inline commands: a line typed by a human (or telnet), cut into arguments by Redis's quoting rules.

Blanks separate. `"..."` understands \\n \\r \\t \\b \\a \\xHH and a backslash before anything else; `'...'` understands
only \\'. A closing quote must be followed by a blank or the end.
"""

from __future__ import annotations

_BLANKS = b" \t\n\v\f\r\0"
_ESCAPES = {ord("n"): 10, ord("r"): 13, ord("t"): 9, ord("b"): 8, ord("a"): 7}
_HEX = frozenset(b"0123456789abcdefABCDEF")
_BACKSLASH, _DOUBLE, _SINGLE = ord("\\"), ord('"'), ord("'")


class UnbalancedQuotes(ValueError):
    """A quote was not closed, or something follows it without a blank."""


def split_line(line: bytes) -> list[bytes]:
    """The arguments of one line; none for a blank one. Raises `UnbalancedQuotes`."""
    if b'"' not in line and b"'" not in line and b"\0" not in line:
        return line.split()
    arguments: list[bytes] = []
    at, end = 0, len(line)
    while True:
        while at < end and line[at] in _BLANKS:
            at += 1
        if at == end:
            return arguments
        at, argument = _argument(line, at)
        arguments.append(argument)


def _argument(line: bytes, at: int) -> tuple[int, bytes]:
    taken = bytearray()
    while at < len(line):
        byte = line[at]
        if byte in _BLANKS:
            break
        if byte in (_DOUBLE, _SINGLE):
            at = (_double_quoted if byte == _DOUBLE else _single_quoted)(line, at + 1, taken)
            if at < len(line) and line[at] not in _BLANKS:
                raise UnbalancedQuotes
            break
        taken.append(byte)
        at += 1
    return at, bytes(taken)


def _double_quoted(line: bytes, at: int, taken: bytearray) -> int:
    while at < len(line):
        byte = line[at]
        if byte == _DOUBLE:
            return at + 1
        if byte == _BACKSLASH and at + 1 < len(line):
            if line[at + 1] == ord("x") and at + 3 < len(line) and line[at + 2] in _HEX and line[at + 3] in _HEX:
                taken.append(int(line[at + 2 : at + 4], 16))
                at += 4
                continue
            taken.append(_ESCAPES.get(line[at + 1], line[at + 1]))
            at += 2
            continue
        taken.append(byte)
        at += 1
    raise UnbalancedQuotes


def _single_quoted(line: bytes, at: int, taken: bytearray) -> int:
    while at < len(line):
        byte = line[at]
        if byte == _SINGLE:
            return at + 1
        if byte == _BACKSLASH and line[at + 1 : at + 2] == b"'":
            taken.append(_SINGLE)
            at += 2
            continue
        taken.append(byte)
        at += 1
    raise UnbalancedQuotes
