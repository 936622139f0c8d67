"""Talks with Redis Streams: pipelined XADD, XRANGE, XREADGROUP with XACK."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from random import Random

from bench.http import PLACES, PREBUILT
from bench.talk import Part, Talk, UnexpectedAnswer, expect, payload, resp

GROUP = b"workers"
FIRST_ID = 1_000_000_000  # ids of one length, so that a page's length is known once one was counted
_ENTRY_LINES = 8  # *2 $ id *2 $ d $ payload
_GROUP_LINES = 5  # *1 *2 $ stream *n, before the entries
_ID_LINE = 2  # of an entry's lines, from 0


class RedisWrite:
    """`batch` XADDs in one go."""

    def __init__(self, part: Part) -> None:
        first = part.seed * 1_000_000
        self._batch = part.batch
        self._requests = cycle(
            [
                b"".join(
                    resp(b"XADD", part.queue, b"*", b"d", payload(first + number * part.batch + place))
                    for place in range(part.batch)
                )
                for number in range(PREBUILT)
            ]
        )

    def begin(self) -> bytes:
        return next(self._requests)

    def follow(self, answer: bytes) -> bytes | None:
        expect(answer, b"$")
        return None

    def complete(self, answer: bytes) -> bool:
        if answer.startswith(b"-"):
            raise UnexpectedAnswer(f"XADD: {answer[:120]!r}")
        return answer.endswith(b"\r\n") and answer.count(b"\n") >= 2 * self._batch  # a length and an id each


class RedisFill(RedisWrite):
    """The same with ids of our own, so that a reader knows them. One connection only: ids must rise."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self._queue = part.queue
        self._next = FIRST_ID

    def begin(self) -> bytes:
        first = self._next
        self._next += self._batch
        ids = range(first, self._next)
        return b"".join(resp(b"XADD", self._queue, b"%d-0" % number, b"d", payload(number)) for number in ids)


class RedisRange:
    """XRANGE COUNT `batch` from anywhere in a stream of `depth`."""

    def __init__(self, part: Part) -> None:
        random = Random(part.seed)
        places = [FIRST_ID + random.randrange(part.depth - part.batch + 1) for _ in range(PLACES)]
        count = b"%d" % part.batch
        self._requests = cycle(
            [resp(b"XRANGE", part.queue, b"%d-0" % place, b"+", b"COUNT", count) for place in places]
        )
        self._head = b"*%d\r\n" % part.batch
        self._lines = 1 + part.batch * _ENTRY_LINES
        self._bytes = 0  # of an answer, once known

    def begin(self) -> bytes:
        return next(self._requests)

    def follow(self, answer: bytes) -> bytes | None:
        expect(answer, self._head)
        return None

    def complete(self, answer: bytes) -> bool:
        if self._bytes:
            return len(answer) >= self._bytes
        if answer.count(b"\n") < self._lines:
            return False
        self._bytes = len(answer)
        return True


class RedisClaim:
    """XREADGROUP COUNT `batch`, then XACK of all of them."""

    def __init__(self, part: Part) -> None:
        self._queue = part.queue
        self._batch = part.batch
        worker = b"w%d" % part.seed
        self._read = resp(
            b"XREADGROUP", b"GROUP", GROUP, worker, b"COUNT", b"%d" % part.batch, b"STREAMS", part.queue, b">"
        )
        self._lines = _GROUP_LINES + part.batch * _ENTRY_LINES
        self._reading = True

    def begin(self) -> bytes:
        self._reading = True
        return self._read

    def follow(self, answer: bytes) -> bytes | None:
        if not self._reading:
            expect(answer, b":%d\r\n" % self._batch)
            return None
        ids = answer.split(b"\r\n")[_GROUP_LINES + _ID_LINE :: _ENTRY_LINES]
        self._reading = False
        return resp(b"XACK", self._queue, GROUP, *ids[: self._batch])

    def complete(self, answer: bytes) -> bool:
        if not self._reading:
            return answer.endswith(b"\r\n")
        if not answer.startswith(b"*1"):
            raise UnexpectedAnswer(f"XREADGROUP: {answer[:120]!r}")
        return answer.endswith(b"\r\n") and answer.count(b"\n") >= self._lines


TALKS: dict[str, Callable[[Part], Talk]] = {
    "redis-write": RedisWrite,
    "redis-fill": RedisFill,
    "redis-range": RedisRange,
    "redis-claim": RedisClaim,
}
