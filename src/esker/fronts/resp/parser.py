"""RESP requests: bytes in, commands out; no sockets.

The problem: nearly all traffic is whole commands in one chunk, and for those every microsecond counts; but a chunk may
also end anywhere, be typed by a human, or be hostile.
The idea: two parsers that agree. `Parser` gives a chunk that starts on a boundary with `*` to hiredis (C); whatever
hiredis leaves (a torn end, an error, anything odd) goes to `PatientParser`, which is plain Python, incremental, and
the authority on limits and errors. The next chunk that starts on a boundary is hiredis's again.

Invariants:
* hiredis sees one chunk at a time and keeps nothing from one to the next. It reads *replies*, so it would take element
  types that a request may not have, and believe any array length. `_is_odd` keeps those away: a chunk with a simple
  string, verbatim string or integer after a line end, or an array of 10,000 and more, is read patiently. A payload that
  looks like one costs time, not correctness.
* hiredis cannot say whether it stands between commands, so an integer is fed behind every chunk: if it comes back as
  the next item and nothing is left, the chunk was whole. A torn argument may swallow that mark; then its command is
  longer than the chunk, and is not believed.
* A protocol error ends the stream: commands before it are given out first, nothing after it.
* A waiting bulk only compares lengths; what is searched again when more arrives is at most one line of 64 KiB.
"""

from __future__ import annotations

import re
from typing import Final

import hiredis

from esker.fronts.resp.inline import UnbalancedQuotes, split_line

Arguments = list[bytes]

INLINE_BYTES_MAX: Final = 64 * 1024  # Redis's PROTO_INLINE_MAX_SIZE; also the longest length line
ARGUMENTS_MAX: Final = 1024 * 1024  # Redis's bound of one command
BULK_BYTES_MAX: Final = 512 * 1024 * 1024  # Redis's proto-max-bulk-len
QUERY_BYTES_MAX: Final = 1024 * 1024 * 1024  # Redis's client-query-buffer-limit: one unfinished command
# Before a password was given, as in Redis: nobody needs more to log in.
ARGUMENTS_MAX_UNTRUSTED: Final = 10
BULK_BYTES_MAX_UNTRUSTED: Final = 16 * 1024

_is_odd = re.compile(rb"\r\n(?:[+=:]|\*[0-9]{5})").search
_END_MARK = b":0\r\n"
_NUMBER = re.compile(rb"(?:0|-?[1-9][0-9]{0,18})\Z")
_STAR, _DOLLAR = ord("*"), ord("$")
_join = b"".join


class ProtocolError(Exception):
    """The client does not speak RESP; the text is Redis's. The connection ends after it."""


class Parser:
    """Feed it chunks; it gives the commands that are complete.

    `error` is set once the stream broke; the commands returned with that call came before the break and are valid.
    `trusted` False tightens the limits until the client has said who it is. Then one call gives one command at most,
    since that command may be the password; while `more` is true, `feed(b"")` gives the next.
    """

    __slots__ = ("_feed", "_gets", "_has_data", "_patient", "_rest", "attention", "error", "torn", "trusted")

    def __init__(self, trusted: bool = True) -> None:
        self.error: ProtocolError | None = None
        self.trusted = trusted
        self.attention = False  # `more` or `error`, in one cheap look
        self._patient = PatientParser()
        self.torn = False  # the patient parser is in the middle of a command
        self._rest = b""
        self._renew_reader()

    @property
    def buffered(self) -> int:
        """Bytes of the unfinished command."""
        return self._patient.buffered + len(self._rest)

    @property
    def more(self) -> bool:
        return len(self._rest) > 0 and self.error is None

    def feed(self, data: bytes) -> list[Arguments]:
        commands: list[Arguments] = []
        if self.attention or self.torn or not self.trusted:
            data = self._finish(data, commands)
        if data and data[0] == _STAR and data.find(b"\r", 1, 6) > 0 and not _is_odd(data):
            data = self._feed_reader(data, commands)
        if data:
            self._feed_patient(data, commands)
        return commands

    def defer(self, data: bytes) -> None:
        """Keeps a chunk unread until the next `feed`."""
        self._rest += data
        self.attention = True

    def _finish(self, data: bytes, commands: list[Arguments]) -> bytes:
        """Before hiredis may look: the rest of a torn command, or all that a stranger sends, one command at a time."""
        if self.error is not None:
            return b""
        if self._rest:
            data, self._rest = self._rest + data, b""
        if not self.trusted:
            self.attention = False
            self._rest = self._feed_patient(data, commands, one=True)
            self.attention |= len(self._rest) > 0
            return b""
        self.attention = False
        return self._feed_patient(data, commands, one=True) if self.torn else data

    def _feed_patient(self, data: bytes, commands: list[Arguments], one: bool = False) -> bytes:
        patient = self._patient
        patient.trusted = self.trusted
        try:
            data = patient.feed(data, commands, one)
        except ProtocolError as broken:
            self.error = broken
            self.attention = True
            return b""
        self.torn = patient.unfinished
        return data

    def _feed_reader(self, data: bytes, commands: list[Arguments]) -> bytes:
        """Appends the whole commands at the start of `data`, and returns what is left."""
        gets = self._gets
        self._feed(data)
        self._feed(_END_MARK)
        first, empty = len(commands), 0
        try:
            item = gets()
            while type(item) is list:
                if item:
                    _join(item)  # the cheapest test that every element is a byte string
                    commands.append(item)
                else:
                    empty += 1
                item = gets()
        except (hiredis.ProtocolError, TypeError):
            item = None  # the patient parser will meet it again, and knows its name
        if type(item) is int and not self._has_data():
            return b""
        self._renew_reader()
        used = sum(map(_encoded_length, commands[first:])) + empty * len(b"*0\r\n")
        if used > len(data):  # a torn argument took the mark for its own end
            used -= _encoded_length(commands.pop())
        return data[used:]

    def _renew_reader(self) -> None:
        reader = hiredis.Reader()
        self._feed, self._gets, self._has_data = reader.feed, reader.gets, reader.has_data


class PatientParser:
    """The plain parser: any stream, cut anywhere. Raises `ProtocolError` from `feed`."""

    __slots__ = ("_arguments", "_buffer", "_bulk", "_held", "_missing", "trusted")

    def __init__(self) -> None:
        self.trusted = True
        self._buffer = bytearray()
        self._arguments: Arguments = []
        self._missing = 0  # arguments still to come of the command that has begun
        self._bulk = -1  # length of the argument that has begun
        self._held = 0  # bytes of `_arguments`

    @property
    def unfinished(self) -> bool:
        return self._missing > 0 or len(self._buffer) > 0

    @property
    def buffered(self) -> int:
        return len(self._buffer) + self._held

    def feed(self, data: bytes, commands: list[Arguments], one: bool = False) -> bytes:
        """Appends complete commands. With `one` it stops after the first and returns the bytes behind it."""
        self._buffer += data
        at = 0
        try:
            while True:
                began = at
                at, finished = self._step(at)
                if finished:
                    commands.append(finished)
                if at < 0:
                    at = began
                    break
                if one and not self._missing:
                    rest = bytes(self._buffer[at:])
                    at = len(self._buffer)
                    return rest
        finally:
            del self._buffer[:at]
        if self.buffered > QUERY_BYTES_MAX:
            raise ProtocolError("Protocol error: query buffer limit exceeded")
        return b""

    def _step(self, at: int) -> tuple[int, Arguments | None]:
        """Takes one unit (a header or an argument) at `at`: (where it ends or -1 for "not yet", a finished command)."""
        if self._missing == 0:
            if at >= len(self._buffer):
                return -1, None
            if self._buffer[at] == _STAR:
                return self._multibulk_header(at), None
            return self._inline(at)
        if self._bulk < 0:
            return self._bulk_header(at), None
        end = at + self._bulk
        if len(self._buffer) < end + 2:
            return -1, None
        self._arguments.append(bytes(self._buffer[at:end]))
        self._held += self._bulk
        self._bulk = -1
        self._missing -= 1
        if self._missing:
            return end + 2, None
        finished, self._arguments, self._held = self._arguments, [], 0
        return end + 2, finished

    def _multibulk_header(self, at: int) -> int:
        end = self._line_end(at, "mbulk")
        if end < 0:
            return -1
        count = _number(self._buffer[at + 1 : end])
        if count is None or count > ARGUMENTS_MAX:
            raise ProtocolError("Protocol error: invalid multibulk length")
        if not self.trusted and count > ARGUMENTS_MAX_UNTRUSTED:
            raise ProtocolError("Protocol error: unauthenticated multibulk length")
        self._missing = max(count, 0)
        return end + 2

    def _bulk_header(self, at: int) -> int:
        end = self._line_end(at, "bulk")
        if end < 0:
            return -1
        if self._buffer[at] != _DOLLAR:
            raise ProtocolError(f"Protocol error: expected '$', got '{chr(self._buffer[at])}'")
        length = _number(self._buffer[at + 1 : end])
        if length is None or not 0 <= length <= BULK_BYTES_MAX:
            raise ProtocolError("Protocol error: invalid bulk length")
        if not self.trusted and length > BULK_BYTES_MAX_UNTRUSTED:
            raise ProtocolError("Protocol error: unauthenticated bulk length")
        self._bulk = length
        return end + 2

    def _line_end(self, at: int, what: str) -> int:
        """Where the `\\r` of a length line is, or -1. Like Redis, the byte behind it is taken unseen."""
        end = self._buffer.find(b"\r", at, at + INLINE_BYTES_MAX + 1)
        if end < 0:
            if len(self._buffer) - at > INLINE_BYTES_MAX:
                raise ProtocolError(f"Protocol error: too big {what} count string")
            return -1
        return end if end + 1 < len(self._buffer) else -1

    def _inline(self, at: int) -> tuple[int, Arguments | None]:
        end = self._buffer.find(b"\n", at, at + INLINE_BYTES_MAX + 1)
        if end < 0:
            if len(self._buffer) - at > INLINE_BYTES_MAX:
                raise ProtocolError("Protocol error: too big inline request")
            return -1, None
        line = bytes(self._buffer[at:end])
        try:
            return end + 1, split_line(line.removesuffix(b"\r"))
        except UnbalancedQuotes:
            raise ProtocolError("Protocol error: unbalanced quotes in request") from None


def _number(text: bytearray) -> int | None:
    return int(text) if _NUMBER.match(text) else None


def _encoded_length(arguments: Arguments) -> int:
    """How many bytes a command took on the wire: lengths have one spelling, so it follows from the arguments."""
    total = 3 + len(str(len(arguments)))
    for argument in arguments:
        length = len(argument)
        total += length + len(str(length)) + 5
    return total
