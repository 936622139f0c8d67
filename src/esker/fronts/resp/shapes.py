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
        payloads = _split(shape, data, shape.jobs)
        return None if payloads is None else (shape.queue, payloads)

    def split_alike(self, shape: Shape, chunks: list[bytes]) -> list[bytes] | None:
        """The payloads of chunks that are one job each, if all of them have this shape."""
        length = len(shape.head) + shape.size + len(TAIL)
        if set(map(len, chunks)) != {length}:
            return None
        return _split(shape, b"".join(chunks), len(chunks))


def _split(shape: Shape, data: bytes, count: int) -> list[bytes] | None:
    """`data` is as long as `count` jobs of the shape; whether it is such jobs is to be seen."""
    if not (data.startswith(shape.head) and data.endswith(TAIL)):
        return None
    payloads = data[shape.start : END].split(shape.between)
    # As many pieces as payloads, none longer than it should be: none is shorter either.
    if len(payloads) != count or max(map(len, payloads)) != shape.size:
        return None
    return payloads
