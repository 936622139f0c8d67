"""One connection's dialogue with a peer, without sockets: bytes out, bytes in.

A *unit* is what is counted and timed: one enqueue, one lease with its ack, one whole life of a job. A talk never has
more than one request on its way, so an answer is complete when it has as many line ends as its shape asks for; payloads
hold no line end. This is all the parsing a load needs, and the same little work for every peer, so the client is
neither peer's limit.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random
from typing import Protocol

import msgspec

PAYLOAD_BYTES = 200
PRIORITIES = 100
_GETJOB_LINES, _ID_LINE = 7, 5  # of a job, behind the first line: *3 $ queue $ id $ payload, a line each


class UnexpectedAnswer(Exception):
    """The peer said something that is no success; the message holds the beginning of it."""


class Part(msgspec.Struct, frozen=True):
    """What one connection is told. `seed` makes its payloads, priorities and places its own.

    `batch` is how many records or jobs one unit is about, `depth` how many there are where it reads.
    """

    queue: bytes
    seed: int
    batch: int = 1
    depth: int = 0


class Talk(Protocol):
    def begin(self) -> bytes:
        """The first request of the next unit."""

    def follow(self, answer: bytes) -> bytes | None:
        """The next request of this unit; None when `answer` ended it. Called only with a complete answer."""

    def complete(self, answer: bytes) -> bool:
        """Whether `answer` is all the peer will say to the last request."""


def payload(number: int) -> bytes:
    """200 printable bytes, different for every number, so that no peer can share them."""
    return (b"%018d" % number).ljust(PAYLOAD_BYTES, b"x")


def resp(*arguments: bytes) -> bytes:
    """A command in the Redis protocol."""
    return b"*%d\r\n" % len(arguments) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in arguments)


def addjob(queue: bytes, number: int, priority: int | None = None) -> bytes:
    options = () if priority is None else (b"PRIORITY", b"%d" % priority)
    return resp(b"ADDJOB", queue, payload(number), b"0", *options)


class EskerEnqueue:
    """ADDJOB with random priorities."""

    def __init__(self, part: Part) -> None:
        self._queue = part.queue
        self._numbers = count(part.seed * 1_000_000_000)
        self._random = Random(part.seed)

    def begin(self) -> bytes:
        return addjob(self._queue, next(self._numbers), self._random.randrange(PRIORITIES))

    def follow(self, answer: bytes) -> bytes | None:
        expect(answer, b"+D")
        return None

    def complete(self, answer: bytes) -> bool:
        return answer.endswith(b"\r\n")


class EskerLease:
    """GETJOB of `batch` jobs, then ACKJOB of what it gave."""

    def __init__(self, part: Part) -> None:
        self._batch = part.batch
        self._getjob = resp(b"GETJOB", b"COUNT", b"%d" % part.batch, b"FROM", part.queue)
        self._leasing = True

    def begin(self) -> bytes:
        self._leasing = True
        return self._getjob

    def follow(self, answer: bytes) -> bytes | None:
        if not self._leasing:
            expect(answer, b":%d" % self._batch)
            return None
        expect(answer, b"*%d" % self._batch)
        self._leasing = False
        return resp(b"ACKJOB", *answer.split(b"\r\n")[_ID_LINE::_GETJOB_LINES])

    def complete(self, answer: bytes) -> bool:
        if self._leasing and answer.startswith(b"*"):
            return answer.count(b"\r\n") == 1 + self._batch * _GETJOB_LINES
        return answer.endswith(b"\r\n")


class EskerLife:
    """ADDJOB, GETJOB, ACKJOB."""

    def __init__(self, part: Part) -> None:
        self._queue = part.queue
        self._numbers = count(part.seed * 1_000_000_000)
        self._lease = EskerLease(part)
        self._adding = True

    def begin(self) -> bytes:
        self._adding = True
        return addjob(self._queue, next(self._numbers))

    def follow(self, answer: bytes) -> bytes | None:
        if not self._adding:
            return self._lease.follow(answer)
        expect(answer, b"+D")
        self._adding = False
        return self._lease.begin()

    def complete(self, answer: bytes) -> bool:
        return answer.endswith(b"\r\n") if self._adding else self._lease.complete(answer)


class BeanstalkLife:
    """put, reserve, delete: the same three steps in beanstalkd's words. The default tube is the queue."""

    def __init__(self, part: Part) -> None:
        self._numbers = count(part.seed * 1_000_000_000)
        self._step = b"put"

    def begin(self) -> bytes:
        self._step = b"put"
        return b"put 0 0 300 %d\r\n%b\r\n" % (PAYLOAD_BYTES, payload(next(self._numbers)))

    def follow(self, answer: bytes) -> bytes | None:
        if self._step == b"put":
            expect(answer, b"INSERTED ")
            self._step = b"reserve"
            return b"reserve\r\n"
        if self._step == b"reserve":
            expect(answer, b"RESERVED ")
            self._step = b"delete"
            return b"delete %b\r\n" % answer.split(b" ", 2)[1]
        expect(answer, b"DELETED\r\n")
        return None

    def complete(self, answer: bytes) -> bool:
        if self._step == b"reserve" and answer.startswith(b"RESERVED "):
            return answer.count(b"\r\n") == 2
        return answer.endswith(b"\r\n")


TALKS: dict[str, Callable[[Part], Talk]] = {
    "esker-enqueue": EskerEnqueue,
    "esker-lease": EskerLease,
    "esker-life": EskerLife,
    "beanstalkd-life": BeanstalkLife,
}


def expect(answer: bytes, start: bytes) -> None:
    """Raises UnexpectedAnswer unless `answer` begins with `start`."""
    if not answer.startswith(start):
        raise UnexpectedAnswer(f"expected {start!r}, got {answer[:120]!r}")
