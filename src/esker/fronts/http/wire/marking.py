"""Tells the server behind a tunnel which connection a request of HTTP/2 came by.

It sees no address: all tunnels look the same to it. So every block of headers a client sends gets one header more, in
a CONTINUATION frame of its own. It is a literal that is never indexed, so the state of the compression on both ends
stays what it was. Frames are not decoded beyond their first nine bytes.
"""

from __future__ import annotations

from typing import Final

NAME: Final = b"esker-tunnel"
_HEAD_BYTES: Final = 9  # of a frame: length, type, flags, stream
_HEADERS: Final = 1
_CONTINUATION: Final = 9
_BLOCKS: Final = frozenset({_HEADERS, _CONTINUATION})
_END_HEADERS: Final = 4
_NEVER_INDEXED: Final = 0x10


class Marking:
    """One connection's bytes to its server; `skip` of them are no frames yet."""

    __slots__ = ("_head", "_left", "_literal", "_then")

    def __init__(self, mark: bytes, skip: int) -> None:
        literal = bytes((_NEVER_INDEXED, len(NAME))) + NAME + bytes((len(mark),)) + mark
        self._literal = len(literal).to_bytes(3, "big") + bytes((_CONTINUATION, _END_HEADERS)), literal
        self._head = bytearray()  # of a frame that has not come whole
        self._left = skip  # bytes of the frame under way
        self._then = b""  # behind it

    def marked(self, data: bytes) -> bytes:
        at, size = 0, len(data)
        parts: list[bytes | memoryview] = []
        view = memoryview(data)
        begun = 0  # of what is passed on as it is
        while at < size:
            if self._left:
                step = min(self._left, size - at)
                at += step
                self._left -= step
                if not self._left and self._then:
                    parts += (view[begun:at], self._then)
                    begun, self._then = at, b""
                continue
            if not self._head:
                at = self._passed(data, at)
                if at == size:
                    break
            parts.append(view[begun:at])
            step = min(_HEAD_BYTES - len(self._head), size - at)
            self._head += view[at : at + step]
            at += step
            begun = at
            if len(self._head) == _HEAD_BYTES:
                parts.append(self._opened())
        if not parts:
            return data
        parts.append(view[begun:])
        return b"".join(parts)

    def _passed(self, data: bytes, at: int) -> int:
        """Where the next frame begins that has headers or did not come whole: many may be small."""
        size = len(data)
        last = size - _HEAD_BYTES
        while at <= last and data[at + 3] not in _BLOCKS:
            at += _HEAD_BYTES + (data[at] << 16 | data[at + 1] << 8 | data[at + 2])
        if at > size:
            self._left, at = at - size, size
        return at

    def _opened(self) -> bytes:
        """The head of a frame, as it is passed on."""
        head = self._head
        self._left = int.from_bytes(head[:3], "big")
        if head[3] in _BLOCKS and head[4] & _END_HEADERS:
            head[4] &= ~_END_HEADERS
            opening, literal = self._literal
            self._then = opening + bytes(head[5:]) + literal
        passed = bytes(head)
        head.clear()
        if not self._left:
            passed, self._then = passed + self._then, b""
        return passed
