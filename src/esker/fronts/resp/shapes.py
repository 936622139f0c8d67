"""Reading plain ADDJOBs without parsing them.

Clients send the same thing again and again: the same command to the same queue, payloads of the same size. A chunk that
was parsed leaves its shape behind: where the payloads are in a chunk of that length. The next chunk of the length is
compared with it, which takes the place of parsing. The comparison is exact: a chunk with the same bytes around payloads
of the same size is the same commands with other payloads, whatever the payloads hold.
"""

from __future__ import annotations

from typing import Final, NamedTuple

TAIL: Final = b"\r\n$1\r\n0\r\n"
END: Final = -len(TAIL)  # where the last payload of a chunk ends

_SHAPES_MAX: Final = 1024  # lengths of chunks that are remembered
_CHUNK_BYTES_MAX: Final = 64 * 1024  # of a chunk that is worth it: beyond, copying costs more than parsing


class Shape(NamedTuple):
    head: bytes
    between: bytes  # two payloads
    start: int
    size: int  # of each payload
    jobs: int
    queue: bytes


class Shapes:
    """Chunks of `ADDJOB queue payload 0`, all to one queue, all of one size."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[int, Shape] = {}  # by length of chunk, oldest first

    def learn(self, queue: bytes, payloads: list[bytes], data: bytes) -> None:
        """`data` was parsed to these; it is remembered if all payloads have one size."""
        size = len(payloads[0])
        head = b"*4\r\n$6\r\nADDJOB\r\n$%d\r\n%b\r\n$%d\r\n" % (len(queue), queue, size)
        shape = Shape(head, TAIL + head, len(head), size, len(payloads), queue)
        if len(data) <= _CHUNK_BYTES_MAX and data == head + shape.between.join(payloads) + TAIL:
            if len(self.known) >= _SHAPES_MAX:
                del self.known[next(iter(self.known))]
            self.known[len(data)] = shape

    def split(self, data: bytes) -> tuple[bytes, list[bytes]] | None:
        """The queue and the payloads of a chunk of a known shape."""
        shape = self.known.get(len(data))
        if shape is None:
            return None
        head, between, start, size, count, queue = shape
        if not (data.startswith(head) and data.endswith(TAIL)):
            return None
        if count == 1:
            return queue, [data[start:END]]
        payloads = data[start:END].split(between)
        # As many pieces as payloads, none longer than it should be: none is shorter either.
        if len(payloads) != count or max(map(len, payloads)) != size:
            return None
        return queue, payloads
