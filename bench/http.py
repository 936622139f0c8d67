"""Talks with Esker's HTTP front: requests made beforehand, answers read no further than the load needs.

HTTP/1.1 with keep-alive, one request at a time on a connection. Of an answer only its length, its status and, for a
claim, the seqs are read.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable
from itertools import cycle
from random import Random

import msgspec

from bench.talk import Part, Talk, UnexpectedAnswer, expect, payload

PREBUILT = 8  # requests a writer takes in turns
PLACES = 64  # where a reader reads, in turns
LEASE_MS = 600_000  # longer than any run: nothing is delivered twice
_OK = b"HTTP/1.1 20"
_LENGTH = b"content-length:"
_SEQ = re.compile(rb'"\$seq":(\d+)')


def post(path: bytes, body: bytes) -> bytes:
    head = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (path, len(body)) + body


def complete(answer: bytes) -> bool:
    """Whether `answer` has its head and as many bytes after it as the head says."""
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = answer[:end].lower()
    begin = head.find(_LENGTH)
    if begin < 0:
        raise UnexpectedAnswer(f"an answer without a length: {answer[:120]!r}")
    return len(answer) >= end + 4 + int(head[begin + len(_LENGTH) :].split(b"\r\n", 1)[0])


def call(port: int, method: str, path: str, body: object = None) -> bytes:
    """One request on a connection of its own, for what is not timed. Raises UnexpectedAnswer unless it succeeds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        given = b"" if body is None else msgspec.json.encode(body)
        connection.request(method, path, given, {"content-type": "application/json", "accept": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if answer.status >= 300:
        raise UnexpectedAnswer(f"{method} {path}: {answer.status} {content[:200]!r}")
    return content


def records(first: int, count: int) -> bytes:
    """The body of a write."""
    return b'{"records":[%b]}' % b",".join(b'{"data":"%b"}' % payload(first + number) for number in range(count))


class EskerWrite:
    """`batch` records in a request."""

    def __init__(self, part: Part) -> None:
        path = b"/v0/topics/%b?return_seqs=false" % part.queue
        first = part.seed * 1_000_000
        self._requests = cycle(
            [post(path, records(first + number * part.batch, part.batch)) for number in range(PREBUILT)]
        )

    def begin(self) -> bytes:
        return next(self._requests)

    def follow(self, answer: bytes) -> bytes | None:
        expect(answer, _OK)
        return None

    def complete(self, answer: bytes) -> bool:
        return complete(answer)


class EskerDiff:
    """`batch` records from anywhere in a topic of `depth`."""

    def __init__(self, part: Part) -> None:
        self._last = b'"$seq":'
        self._batch = part.batch
        path = b"/v0/topics/%b/diff" % part.queue
        body = b'{"from_seq":%d,"limit":%d}'
        self._requests = cycle([post(path, body % (place, part.batch)) for place in self.places(part)])
        self._checked = False

    def places(self, part: Part) -> list[int]:
        random = Random(part.seed)
        return [random.randrange(part.depth - part.batch + 1) for _ in range(PLACES)]

    def begin(self) -> bytes:
        return next(self._requests)

    def follow(self, answer: bytes) -> bytes | None:
        expect(answer, _OK)
        if not self._checked:  # once is enough: it is the same question again and again
            self._checked = True
            if answer.count(self._last) != self._batch:
                raise UnexpectedAnswer(f"{answer.count(self._last)} records instead of {self._batch}")
        return None

    def complete(self, answer: bytes) -> bool:
        return complete(answer)


class EskerTail(EskerDiff):
    """The last `batch` records."""

    def places(self, part: Part) -> list[int]:
        return [part.depth - part.batch]


class EskerClaim:
    """A claim of `batch` jobs, then the ack of all of them."""

    def __init__(self, part: Part) -> None:
        self._worker = b"w%d" % part.seed
        self._batch = part.batch
        path = b"/v0/topics/%b" % part.queue
        self._claim = post(
            path + b"/claim", b'{"node":"%b","max":%d,"lease_ms":%d}' % (self._worker, part.batch, LEASE_MS)
        )
        self._ack = path + b"/ack"
        self._acked = b'"acked":%d,' % part.batch
        self._claiming = True

    def begin(self) -> bytes:
        self._claiming = True
        return self._claim

    def follow(self, answer: bytes) -> bytes | None:
        expect(answer, _OK)
        if not self._claiming:
            if self._acked not in answer:
                raise UnexpectedAnswer(f"not all were acked: {answer[-300:]!r}")
            return None
        seqs = _SEQ.findall(answer)
        if len(seqs) != self._batch:
            raise UnexpectedAnswer(f"a claim of {self._batch} gave {len(seqs)} jobs: {answer[-300:]!r}")
        self._claiming = False
        return post(self._ack, b'{"node":"%b","seqs":[%b]}' % (self._worker, b",".join(seqs)))

    def complete(self, answer: bytes) -> bool:
        return complete(answer)


TALKS: dict[str, Callable[[Part], Talk]] = {
    "esker-write": EskerWrite,
    "esker-diff": EskerDiff,
    "esker-tail": EskerTail,
    "esker-claim": EskerClaim,
}
