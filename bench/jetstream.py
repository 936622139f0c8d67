"""Talks with NATS JetStream in its own protocol: publish, direct get, pull with double acks.

The server speaks first (INFO) and answers CONNECT with nothing, so the first request of a talk carries the greeting,
and what precedes the first answer is skipped. It may also PING at any time, right behind an answer too; within the
minutes that it waits for a PONG every talk is over.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import cycle
from random import Random

from bench.http import PLACES, PREBUILT
from bench.talk import Part, Talk, UnexpectedAnswer, payload

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"lang":"bench"}\r\n'
CONSUMER = b"workers"
_PULL_NS = 20_000_000_000  # how long a pull waits for jobs
_PAGE_END = b"NATS/1.0 204 EOB"  # the status line of the message behind a page
_PING = b"PING\r\n"
_ACK = re.compile(rb"MSG \S+ \d+ (\$JS\.ACK\.\S+) ")  # where a delivered message is acked


def publish(subject: bytes, reply: bytes, body: bytes) -> bytes:
    return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(body), body)


class _Connected:
    """Greets with the first request."""

    def __init__(self, part: Part) -> None:
        self.inbox = b"_INBOX.%d" % part.seed
        self._greeting = CONNECT + b"SUB %b 1\r\n" % self.inbox

    def greeted(self, request: bytes) -> bytes:
        greeting, self._greeting = self._greeting, b""
        return greeting + request


class NatsWrite(_Connected):
    """`batch` messages in one go, each with an ack of its own."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self._batch = part.batch
        first = part.seed * 1_000_000
        self._requests = cycle(
            [
                b"".join(
                    publish(part.queue, self.inbox, payload(first + number * part.batch + place))
                    for place in range(part.batch)
                )
                for number in range(PREBUILT)
            ]
        )

    def begin(self) -> bytes:
        return self.greeted(next(self._requests))

    def follow(self, answer: bytes) -> bytes | None:
        if b'"error"' in answer or b"-ERR" in answer:
            raise UnexpectedAnswer(f"a publish: {answer[-300:]!r}")
        return None

    def complete(self, answer: bytes) -> bool:
        return answer.count(b"MSG _INBOX") >= self._batch and answer.removesuffix(_PING).endswith(b"}\r\n")


class NatsBatch(_Connected):
    """`batch` messages as one atomic batch with one ack: JetStream's own form of a write of many records."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self._requests = cycle([self._made(part, number) for number in range(PREBUILT)])

    def _made(self, part: Part, number: int) -> bytes:
        first = part.seed * 1_000_000 + number * part.batch
        messages = []
        for place in range(1, part.batch + 1):
            head = b"NATS/1.0\r\nNats-Batch-Id: %d-%d\r\nNats-Batch-Sequence: %d\r\n" % (part.seed, number, place)
            reply = b""
            if place == part.batch:
                head += b"Nats-Batch-Commit: 1\r\n"
                reply = self.inbox + b" "
            head += b"\r\n"
            whole = head + payload(first + place)
            messages.append(b"HPUB %b %b%d %d\r\n%b\r\n" % (part.queue, reply, len(head), len(whole), whole))
        return b"".join(messages)

    def begin(self) -> bytes:
        return self.greeted(next(self._requests))

    def follow(self, answer: bytes) -> bytes | None:
        if b'"error"' in answer or b"-ERR" in answer:
            raise UnexpectedAnswer(f"a batch: {answer[-300:]!r}")
        return None

    def complete(self, answer: bytes) -> bool:
        return b"MSG _INBOX" in answer and answer.removesuffix(_PING).endswith(b"}\r\n")


class NatsGet(_Connected):
    """A direct get of `batch` messages from anywhere in a stream of `depth`."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        random = Random(part.seed)
        subject = b"$JS.API.DIRECT.GET.%b" % part.queue
        places = [1 + random.randrange(part.depth - part.batch + 1) for _ in range(PLACES)]
        body = b'{"seq":%d,"batch":%d}'
        self._requests = cycle([publish(subject, self.inbox, body % (place, part.batch)) for place in places])
        self._batch = part.batch
        self._checked = False

    def begin(self) -> bytes:
        return self.greeted(next(self._requests))

    def follow(self, answer: bytes) -> bytes | None:
        if not self._checked:
            self._checked = True
            if answer.count(b"Nats-Sequence:") != self._batch:
                raise UnexpectedAnswer(f"no page of {self._batch}: {answer[-300:]!r}")
        return None

    def complete(self, answer: bytes) -> bool:
        return answer.rfind(_PAGE_END, -300) > 0 and answer.removesuffix(_PING).endswith(b"\r\n\r\n\r\n")


class NatsClaim(_Connected):
    """A pull of `batch` messages, then the ack of each; an ack with a reply subject is confirmed when it is stored."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self._batch = part.batch
        subject = b"$JS.API.CONSUMER.MSG.NEXT.%b.%b" % (part.queue, CONSUMER)
        self._pull = publish(subject, self.inbox, b'{"batch":%d,"expires":%d}' % (part.batch, _PULL_NS))
        self._pulling = True

    def begin(self) -> bytes:
        self._pulling = True
        return self.greeted(self._pull)

    def follow(self, answer: bytes) -> bytes | None:
        if not self._pulling:
            return None
        self._pulling = False
        return b"".join(publish(subject, self.inbox, b"+ACK") for subject in _ACK.findall(answer))

    def complete(self, answer: bytes) -> bool:
        if b"NATS/1.0 4" in answer:
            raise UnexpectedAnswer(f"a pull: {answer[-300:]!r}")
        whole = answer.removesuffix(_PING)
        if self._pulling:  # the last payload has come as well
            return answer.count(b"$JS.ACK.") >= self._batch and whole.endswith(b"x\r\n")
        return answer.count(b"MSG _INBOX") >= self._batch and whole.endswith(b"\r\n\r\n")


TALKS: dict[str, Callable[[Part], Talk]] = {
    "nats-write": NatsWrite,
    "nats-batch": NatsBatch,
    "nats-get": NatsGet,
    "nats-claim": NatsClaim,
}
