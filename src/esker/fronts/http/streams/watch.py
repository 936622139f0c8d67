"""Watching topics as server-sent events: `POST /v0/watch` makes a session, `GET /v0/watch/{wid}` streams it.

A stream sends what it owes as one write: for every topic that moved, the gaps, records and turning points that fit.
Then it waits until one of its topics changes. It never reads ahead of what the transport has taken.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Final, Literal

import msgspec

from esker.engine.commands import TopicState
from esker.engine.replies import TopicStatus
from esker.fronts.http.answers import encode
from esker.fronts.http.bodies import Nodes, TopicName, Unsigned, check_unsigned, extra
from esker.fronts.http.calls import Answer, Call
from esker.fronts.http.errors import HttpError, expect, invalid
from esker.fronts.http.names import topic_name
from esker.fronts.http.queries import Switch
from esker.fronts.http.streams.followers import Batch, CaughtUp, Follower, Gap, Notice, resume_seq
from esker.fronts.http.streams.frames import decode_position, encode_position, frame, heartbeat, json_frame
from esker.fronts.http.streams.outlets import GOOD_BYE, SHUTTING_DOWN, Outlet, ReaderStalled, Streams
from esker.fronts.http.streams.pages import view_of
from esker.fronts.http.streams.sessions import SESSION_TTL_MS, TOPICS_MAX, Session
from esker.fronts.http.turns import LARGE_BYTES

HEARTBEAT_MS_MAX = 60_000
LENIENT: Final = Switch("lenient", "leave out topics that do not exist", default=False)


class StartBody(msgspec.Struct):
    from_seq: Unsigned = 0
    tail: bool = False

    def __post_init__(self) -> None:
        check_unsigned(from_seq=self.from_seq)


class WatchBody(msgspec.Struct, kw_only=True):
    topics: Annotated[dict[TopicName, StartBody], extra(minProperties=1, maxProperties=TOPICS_MAX)]
    node: Nodes | None = None
    limit: Unsigned = 256
    max_batch_bytes: Unsigned = 262_144
    heartbeat_ms: Unsigned = 15_000
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    # Only what is as durable as promised is ever sent, so both mean the same.
    consistency: Literal["eventual", "strong"] = "eventual"

    def __post_init__(self) -> None:
        check_unsigned(limit=self.limit, max_batch_bytes=self.max_batch_bytes, heartbeat_ms=self.heartbeat_ms)


class StartAnswer(msgspec.Struct):
    from_seq: int
    head_seq: int
    earliest_seq: int


class WatchAnswer(msgspec.Struct):
    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: dict[str, StartAnswer]


_watch_body = msgspec.json.Decoder(WatchBody)


async def watch(call: Call) -> Answer:
    """Makes a session."""
    body = await call.json(_watch_body)
    view = view_of(
        body.node,
        body.limit,
        body.max_batch_bytes,
        data=body.include_data,
        tags=body.include_tags,
        meta=body.include_meta,
    )
    starts = find_starts(call, body.topics, LENIENT.read(call))
    options = call.front.options
    session = call.front.streams.sessions.make(
        call.key,
        {topic: start.from_seq for topic, start in starts.items()},
        view,
        min(max(body.heartbeat_ms, options.min_heartbeat_ms), HEARTBEAT_MS_MAX),
    )
    return Answer(encode(WatchAnswer(session.wid, f"/v0/watch/{session.wid}", SESSION_TTL_MS, starts)))


def find_starts(call: Call, topics: dict[str, StartBody], lenient: bool) -> dict[str, StartAnswer]:
    """Where each topic begins. Raises 400, 403 and, unless `lenient`, 404."""
    if not 1 <= len(topics) <= TOPICS_MAX:
        raise invalid(f"topics has {len(topics)} entries; expected 1 to {TOPICS_MAX}")
    for topic in topics:
        call.reach(topic_name(topic), in_body=True)
    starts: dict[str, StartAnswer] = {}
    for topic, start in topics.items():
        name = topic.encode()
        reply = call.front.broker.handle(TopicState(name))
        if lenient and not isinstance(reply, TopicStatus):
            continue
        status = expect(TopicStatus, reply, name)
        after = status.head_seq if start.tail else start.from_seq
        starts[topic] = StartAnswer(after, status.head_seq, status.earliest_seq)
    return starts


async def stream(call: Call) -> None:
    """Streams a session."""
    accepts_events(call)
    streams = call.front.streams
    session = streams.sessions.open(call.params["wid"], call.key)
    try:
        session.rewind(decode_position(call.header(b"last-event-id") or b""))
        with streams.admitted(call) as outlet:
            await WatchStream(streams, outlet, session).run()
    except ReaderStalled:
        return  # it may come back, and goes on where it was
    finally:
        streams.sessions.closed(session)


def accepts_events(call: Call) -> None:
    """Raises 406 when the client wants something else than an event stream."""
    accept = call.header(b"accept")
    if accept is not None and b"*/*" not in accept and b"text/event-stream" not in accept.lower():
        raise HttpError(406, "not_acceptable", "this is a stream: accept text/event-stream, or anything")


class WatchStream:
    def __init__(self, streams: Streams, outlet: Outlet, session: Session) -> None:
        self._streams = streams
        self._outlet = outlet
        self._session = session
        self._followers = [Follower(topic, cursor, session.view) for topic, cursor in session.cursors.items()]
        self._alone = len(self._followers) == 1
        self._position = dict(session.cursors)  # of the last frame made, sent or not
        self._next = 0  # whose turn it is when not everything fits one write
        self._more = False  # there is something to send that did not fit

    async def run(self) -> None:
        outlet = self._outlet
        await outlet.begin()
        names = [follower.name for follower in self._followers]
        watcher = self._streams.broker.watch(names, outlet.wake)
        outlet.beat(self._session.heartbeat_ms)
        try:
            await outlet.converse(self._deliver)
        finally:
            watcher.cancel()

    async def _deliver(self) -> None:
        outlet, streams = self._outlet, self._streams
        while not outlet.left:
            if streams.stopping:
                await outlet.end(json_frame(b"error", {"code": SHUTTING_DOWN, "message": GOOD_BYE}))
                return
            body = await self._collect()
            if body:
                await outlet.depart()
                await outlet.push(body)
                self._keep()
            elif outlet.beat_due:
                outlet.beat_due = False
                await outlet.push(heartbeat(streams.broker.now_ms()))
            if not self._followers:
                await outlet.end()
                return
            if self._more:
                await asyncio.sleep(0)  # a transport that has room takes at once: others must have their turn
            else:
                await outlet.wait()

    async def _collect(self) -> bytes:
        """The next write; `_more` says whether there is more behind it."""
        followers, broker = self._followers, self._streams.broker
        frames: list[bytes] = []
        size = 0
        count = len(followers)
        self._more = False
        for step in range(count):
            follower = followers[(self._next + step) % count]
            if follower.idle(broker.revision(follower.name)):
                continue
            if size >= self._session.view.max_bytes:
                self._next = (self._next + step) % count
                self._more = True
                break
            if self._session.view.max_bytes > LARGE_BYTES and not frames:
                await self._streams.front.turns.take()
            notices = follower.read(self._streams.pages)
            if notices is None:
                notices = await follower.fetch(self._streams.pages)
            for notice in notices:
                frames.append(self._frame(notice))
                size += len(frames[-1])
            self._position[follower.topic] = follower.cursor
            self._more = self._more or not follower.idle(broker.revision(follower.name))
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def _keep(self) -> None:
        """What was sent is where the session goes on; a topic that went is followed no more."""
        cursors, gone = self._session.cursors, False
        for follower in self._followers:
            gone = gone or follower.gone
            if follower.topic in cursors:
                cursors[follower.topic] = follower.cursor
        if gone:
            for follower in self._followers:
                if follower.gone:
                    cursors.pop(follower.topic, None)
            self._followers = [follower for follower in self._followers if not follower.gone]
            self._next = 0

    def _frame(self, notice: Notice) -> bytes:
        position = self._position
        if isinstance(notice, Batch):
            position[notice.topic] = notice.to_seq
            return self._batch_frame(notice)
        if isinstance(notice, Gap):
            gap = notice.tombstone
            position[notice.topic] = resume_seq(gap)
            event = b"tombstone"
            data: dict[str, object] = {
                "topic": notice.topic, "reason": notice.reason, "gap_from": gap.gap_from, "gap_to": gap.gap_to,
                "earliest_seq": gap.earliest_seq, "head_seq": gap.head_seq,
            }  # fmt: skip
        elif isinstance(notice, CaughtUp):
            position[notice.topic] = notice.head_seq
            event, data = b"caught-up", {"topic": notice.topic, "head_seq": notice.head_seq}
        else:
            event, data = b"topic-deleted", {"topic": notice.topic, "head_seq": notice.head_seq, "reason": "deleted"}
        return json_frame(event, data, encode_position(position))

    def _batch_frame(self, batch: Batch) -> bytes:
        """Whoever follows this topic alone gets the very same bytes; others the same data under an id of their own."""
        shared = batch.page.shared
        known = shared.get("sse") if self._alone else None
        if isinstance(known, bytes):
            return known
        data = b"{%b}" % batch.page.fields(batch.from_seq, batch.to_seq)
        made = frame(b"record", data, encode_position(self._position))
        if self._alone:
            shared["sse"] = made
        return made
