"""The WebSocket: follow topics and write to them on one connection, `GET /v0/ws`.

Messages are JSON texts both ways. A request may carry a `request_id`, any JSON, which its answer echoes. One half of a
conversation reads requests and decides them in order, the other writes. Answers queue up to `QUEUE_MAX`; past that no
more requests are read, so a client that does not read its answers is not listened to. Records are read for sending only
when the transport took the last message: a slow reader is behind, and costs no memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

import msgspec
from msgspec import Raw

from esker.engine.replies import Written
from esker.errors import EskerError
from esker.fronts.access import Scope
from esker.fronts.http.answers import WrittenAnswer
from esker.fronts.http.bodies import Nodes, Unsigned, WriteBody
from esker.fronts.http.calls import Call, decoded
from esker.fronts.http.departures import Opening, passed
from esker.fronts.http.errors import HttpError, expect, invalid
from esker.fronts.http.names import topic_name
from esker.fronts.http.reading import wire_reason
from esker.fronts.http.streams.followers import Batch, CaughtUp, Follower, Gap, Notice
from esker.fronts.http.streams.outlets import GOOD_BYE, SHUTTING_DOWN, Outlet, ReaderStalled, Streams
from esker.fronts.http.streams.pages import view_of
from esker.fronts.http.streams.sessions import TOPICS_MAX
from esker.fronts.http.streams.watch import StartAnswer, StartBody, find_starts
from esker.fronts.http.turns import LARGE_BYTES
from esker.fronts.http.writing import to_append, written_answer
from esker.node.interface import Waiter

QUEUE_MAX: Final = 4  # answers that wait for the transport
LIMIT: Final = 1000  # records in a message, unless a subscription says otherwise
_NULL: Final = Raw(b"null")

_encode = msgspec.json.Encoder().encode


class Request(msgspec.Struct):
    op: str = ""
    request_id: Raw = _NULL


class SubscribeBody(msgspec.Struct, kw_only=True):
    topic: str | None = None
    from_seq: Unsigned = 0
    tail: bool = False
    topics: dict[str, StartBody] | None = None
    node: Nodes | None = None
    limit: Unsigned = LIMIT
    max_batch_bytes: Unsigned = 1 << 20
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    lenient: bool = False


class UnsubscribeBody(msgspec.Struct, kw_only=True):
    topic: str | None = None
    topics: list[str] | None = None


class PublishBody(WriteBody, kw_only=True):
    topic: str
    return_seqs: bool = True


class Subscribed(msgspec.Struct):
    op: str
    request_id: Raw
    topics: dict[str, StartAnswer]


class Unsubscribed(msgspec.Struct):
    op: str
    request_id: Raw
    topics: list[str]


class Performance(msgspec.Struct):
    server_total_ms: float


class Ack(WrittenAnswer, kw_only=True):
    op: str = "ack"
    request_id: Raw
    performance: Performance


class Pong(msgspec.Struct):
    op: str
    request_id: Raw


class Failure(msgspec.Struct):
    op: str
    request_id: Raw
    code: str
    message: str


_request = msgspec.json.Decoder(Request)
_subscribe = msgspec.json.Decoder(SubscribeBody)
_unsubscribe = msgspec.json.Decoder(UnsubscribeBody)
_publish = msgspec.json.Decoder(PublishBody)


async def socket(call: Call) -> None:
    """Serves one WebSocket."""
    streams = call.front.streams
    with streams.admitted(call) as outlet:
        await call.receive()  # websocket.connect
        call.started = True
        await outlet.send({"type": "websocket.accept"})
        try:
            await Conversation(streams, outlet).run()
        except ReaderStalled:
            return


class Conversation:
    """What one socket follows, and the answers it has not been sent yet."""

    def __init__(self, streams: Streams, outlet: Outlet) -> None:
        self._streams = streams
        self._broker = streams.broker
        self._outlet = outlet
        self._call = outlet.call
        self._followers: dict[str, Follower] = {}
        self._watchers: dict[str, Waiter] = {}
        self._answers: deque[tuple[Opening | None, Callable[[], str]]] = deque()
        self._room = asyncio.Event()  # for another answer
        self._room.set()
        self._reader: asyncio.Task[None] | None = None
        self._ops: dict[str, Callable[[Raw, bytes], None]] = {
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "publish": self._publish,
            "ping": self._ping,
        }

    async def run(self) -> None:
        reader = self._reader = asyncio.create_task(self._read())
        try:
            await self._write()
        except EskerError as error:
            if isinstance(error, ReaderStalled):
                raise
            await self._close("internal", str(error), 1011)
        finally:
            reader.cancel()
            for watcher in self._watchers.values():
                watcher.cancel()

    # -- what goes out

    async def _write(self) -> None:
        outlet = self._outlet
        while not outlet.left:
            if self._streams.stopping:
                await self._close(SHUTTING_DOWN, GOOD_BYE, 1012)
                return
            idle = True
            while self._answers:  # those that come meanwhile too: nothing is delivered before its `subscribed`
                opening, answer = self._answers.popleft()
                if opening is not None:
                    await passed(opening)
                await self._send(answer())
                self._room.set()
                idle = False
            for follower in list(self._followers.values()):
                if not follower.idle(self._broker.revision(follower.name)):
                    await self._deliver(follower)
                    idle = False
                    if self._answers:
                        break
            if idle:
                await outlet.wait()

    async def _deliver(self, follower: Follower) -> None:
        if follower.view.max_bytes > LARGE_BYTES:
            await self._streams.front.turns.take()
        notices = follower.read(self._streams.pages)
        if notices is None:
            notices = await follower.fetch(self._streams.pages)
        opening = self._streams.front.departures.next()
        if opening is not None:
            await passed(opening)
        for notice in notices:
            if self._followers.get(follower.topic) is not follower:
                return  # unsubscribed, or subscribed anew, while an earlier one was on its way
            await self._send(message_of(notice))
        if follower.gone and self._followers.get(follower.topic) is follower:
            self._forget(follower.topic)
        if not follower.idle(self._broker.revision(follower.name)):
            await asyncio.sleep(0)  # a transport that has room takes at once: others must have their turn

    async def _send(self, text: str) -> None:
        await self._outlet.send({"type": "websocket.send", "text": text})

    async def _close(self, code: str, message: str, status: int) -> None:
        if not self._outlet.left:
            await self._send(_text(Failure("error", _NULL, code, message)))
            await self._end_reading()  # granian closes only when nobody reads
            await self._outlet.send({"type": "websocket.close", "code": status, "reason": code})

    async def _end_reading(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])

    # -- what comes in

    async def _read(self) -> None:
        """Until the client leaves. Whatever ends this ends the conversation."""
        try:
            while True:
                await self._room.wait()
                message = await self._call.receive()
                if message["type"] == "websocket.disconnect":
                    return
                if message["type"] == "websocket.receive":
                    text = message.get("text")
                    self._handle(text if isinstance(text, str) else None)
        finally:
            self._outlet.left = True
            self._outlet.wake()

    def _handle(self, text: str | None) -> None:
        """Decides one request; its answer goes out in its turn."""
        request_id = _NULL
        try:
            if text is None:
                raise HttpError(400, "unsupported_message", "messages are JSON texts; this one is binary")
            body = text.encode()
            request_id, op = _envelope(body)
            run = self._ops.get(op)
            if run is None:
                raise invalid(f"op is {op[:40]!r}; expected {', '.join(self._ops)}")
            run(request_id, body)
        except HttpError as error:
            self._answer(Failure("error", request_id, error.code, error.message))
        except EskerError as error:
            self._answer(Failure("error", request_id, "internal", str(error)))

    def _answer(self, answer: Subscribed | Unsubscribed | Pong | Failure) -> None:
        self._queue(lambda: _text(answer))

    def _queue(self, answer: Callable[[], str]) -> None:
        """It leaves when all that was decided until now is as durable as promised."""
        self._answers.append((self._streams.front.departures.next(), answer))
        if len(self._answers) >= QUEUE_MAX:
            self._room.clear()
        self._outlet.wake()

    def _subscribe(self, request_id: Raw, body: bytes) -> None:
        self._call.need(Scope.READ)
        asked = decoded(_subscribe, body)
        topics = dict(asked.topics or {})
        if asked.topic is not None:
            topics[asked.topic] = StartBody(asked.from_seq, asked.tail)
        view = view_of(
            asked.node,
            asked.limit or LIMIT,
            asked.max_batch_bytes,
            data=asked.include_data,
            tags=asked.include_tags,
            meta=asked.include_meta,
        )
        starts = find_starts(self._call, topics, asked.lenient)
        if len(self._followers.keys() | starts.keys()) > TOPICS_MAX:
            raise invalid(f"a socket follows at most {TOPICS_MAX} topics")
        self._answer(Subscribed("subscribed", request_id, starts))
        for topic, start in starts.items():
            self._followers[topic] = Follower(topic, start.from_seq, view)
            if topic not in self._watchers:
                self._watchers[topic] = self._broker.watch([topic.encode()], self._outlet.wake)

    def _unsubscribe(self, request_id: Raw, body: bytes) -> None:
        asked = decoded(_unsubscribe, body)
        topics = [*(asked.topics or []), *([] if asked.topic is None else [asked.topic])]
        if not topics:
            raise invalid("topic or topics is needed")
        gone = [topic for topic in dict.fromkeys(topics) if topic in self._followers]
        for topic in gone:
            self._forget(topic)
        self._answer(Unsubscribed("unsubscribed", request_id, gone))

    def _forget(self, topic: str) -> None:
        del self._followers[topic]
        self._watchers.pop(topic).cancel()

    def _publish(self, request_id: Raw, body: bytes) -> None:
        began_ns = perf_counter_ns()
        self._call.need(Scope.WRITE)
        asked = decoded(_publish, body)
        name = topic_name(asked.topic)
        self._call.reach(name, in_body=True)
        append = to_append(self._call, name, asked)
        written = written_answer(asked.topic, expect(Written, self._broker.handle(append), name), asked.return_seqs)

        def answer() -> str:
            spent_ms = (perf_counter_ns() - began_ns) / 1e6
            return _text(
                Ack(
                    request_id=request_id,
                    performance=Performance(round(spent_ms, 3)),
                    **msgspec.structs.asdict(written),
                )
            )

        self._queue(answer)

    def _ping(self, request_id: Raw, body: bytes) -> None:
        self._answer(Pong("pong", request_id))


def message_of(notice: Notice) -> str:
    """What a follower is told, as this protocol says it. Batches are made once for all who share the page."""
    if isinstance(notice, Batch):
        shared = notice.page.shared
        known = shared.get("ws")
        if not isinstance(known, str):
            fields = notice.page.fields(notice.from_seq, notice.to_seq)
            known = shared["ws"] = (b'{"op":"record",%b}' % fields).decode()
        return known
    if isinstance(notice, Gap):
        gap = notice.tombstone
        return _text({
            "op": "tombstone", "topic": notice.topic, "reason": wire_reason(gap), "gap_from": gap.gap_from,
            "gap_to": gap.gap_to, "earliest_seq": gap.earliest_seq, "head_seq": gap.head_seq,
        })  # fmt: skip
    if isinstance(notice, CaughtUp):
        return _text({"op": "caught_up", "topic": notice.topic, "head_seq": notice.head_seq})
    return _text({"op": "topic_deleted", "topic": notice.topic, "head_seq": notice.head_seq, "reason": "deleted"})


def _envelope(body: bytes) -> tuple[Raw, str]:
    """What a message wants, and the id its answer carries."""
    try:
        request = _request.decode(body)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise HttpError(400, "invalid_json", f"the message is not JSON: {error}") from error
    return request.request_id, request.op


def _text(message: object) -> str:
    return _encode(message).decode()
