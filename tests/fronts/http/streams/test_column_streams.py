"""Arrow streams to clients that are slow, leave, or read what is lost meanwhile: the front without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from esker.columns.arrow import END
from esker.engine.commands import Append, DeleteRecords, NewRecord, PutTopic
from esker.engine.config import Durability, TopicConfig, TopicType
from esker.engine.logs.partition import LogPartition
from esker.errors import ArchiveError
from esker.fronts.access import KeyRing
from esker.fronts.http.calls import Call, Message
from esker.fronts.http.front import Front
from esker.fronts.http.options import HttpOptions
from esker.fronts.http.streams import columns
from esker.fronts.http.streams.columns import stream_arrow
from esker.fronts.http.table import ROUTES
from esker.node.ranges import CHUNK_BYTES, Chunk, Room, captured
from esker.node.runtime import Node
from esker.node.settings import Settings

TOPIC = b"log"
MB = 1_000_000


class Client:
    """Takes `room` bodies and then no more, until it is told to go on."""

    def __init__(self, front: Front, query: str = "", room: int = 1_000_000) -> None:
        self.front = front
        self.query = query
        self.status = 0
        self.bodies: list[bytes] = []
        self.ended = False
        self.room = asyncio.Semaphore(room)
        self.blocked = asyncio.Event()
        self.leaving = asyncio.Event()
        self._asked = False

    async def receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.leaving.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            status = message["status"]
            assert isinstance(status, int)
            self.status = status
            return
        if self.room.locked():
            self.blocked.set()
        await self.room.acquire()
        body = message.get("body", b"")
        assert isinstance(body, bytes)
        self.bodies.append(body)
        self.ended = not message.get("more_body", False)

    def scope(self) -> dict[str, object]:
        return {
            "type": "http", "method": "GET", "path": "/v0/topics/log/records", "query_string": self.query.encode(),
            "headers": [],
        }  # fmt: skip

    async def ask(self) -> None:
        await self.front(self.scope(), self.receive, self.send)

    def go_on(self) -> None:
        for _ in range(1000):
            self.room.release()

    @property
    def data(self) -> bytes:
        return b"".join(self.bodies)

    @property
    def whole(self) -> bool:
        return self.ended and self.data.endswith(END)


def _run(tmp_path: Path, use: Callable[[Front], Awaitable[None]]) -> None:
    """With a log of 40 records of a megabyte, which keeps no more of them."""

    async def run() -> None:
        node = Node(Settings(data=str(tmp_path / "data")))
        try:
            config = TopicConfig(type=TopicType.LOG, durability=Durability.EPHEMERAL, cap_records=40)
            node.handle(PutTopic(TOPIC, config))
            _append(node, 40)
            front = Front(node, HttpOptions(), KeyRing(), ROUTES)
            await asyncio.wait_for(use(front), 60)
            assert front.streams.columns_open == 0
            await front.streams.close()
        finally:
            await node.close()

    asyncio.run(run())


def _append(node: Node, count: int) -> None:
    for _ in range(count):
        node.handle(Append(TOPIC, [NewRecord(b'"%b"' % (b"x" * MB))]))


async def _blocked(front: Front, room: int = 2) -> tuple[Client, asyncio.Task[None]]:
    client = Client(front, room=room)
    task = asyncio.ensure_future(client.ask())
    await client.blocked.wait()
    return client, task


def test_a_slow_reader_holds_two_chunks_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def capture(log: LogPartition, after: int, upto: int, most: Room) -> Chunk:
        chunk = captured(log, after, upto, most)
        seen.append(chunk.last)
        return chunk

    monkeypatch.setattr("esker.node.ranges.captured", capture)

    async def use(front: Front) -> None:
        client, task = await _blocked(front)
        for _ in range(50):  # whatever would run on without its client has the time to
            await asyncio.sleep(0.01)
        assert len(seen) == 2
        assert seen[-1] <= 2 * CHUNK_BYTES // MB
        client.go_on()
        await task
        assert client.whole
        assert seen[-1] == 40

    _run(tmp_path, use)


def test_a_reader_that_takes_nothing_is_cut(tmp_path: Path) -> None:
    async def use(front: Front) -> None:
        front.streams.stall_s = 0.05
        client, task = await _blocked(front)
        await task
        assert client.status == 200
        assert not client.ended

    _run(tmp_path, use)


def test_what_is_lost_under_way_cuts_the_stream(tmp_path: Path) -> None:
    async def use(front: Front) -> None:
        assert isinstance(front.broker, Node)
        client, task = await _blocked(front)
        _append(front.broker, 30)
        client.go_on()
        await task
        assert not client.ended, "neither Arrow's end nor that of HTTP"
        assert END not in client.data[-8:]
        again = Client(front)
        await again.ask()
        assert again.status == 410

    _run(tmp_path, use)


def test_deletes_under_way_do_not_cut_it(tmp_path: Path) -> None:
    async def use(front: Front) -> None:
        client, task = await _blocked(front)
        front.broker.handle(DeleteRecords(TOPIC, 36))
        client.go_on()
        await task
        assert client.whole

    _run(tmp_path, use)


def test_a_client_that_leaves_ends_it(tmp_path: Path) -> None:
    async def use(front: Front) -> None:
        client, task = await _blocked(front)
        client.leaving.set()
        client.room.release()
        await task
        assert not client.ended

    _run(tmp_path, use)


def test_a_node_that_stops_cuts_it(tmp_path: Path) -> None:
    async def use(front: Front) -> None:
        client, task = await _blocked(front)
        front.stopping.set()
        client.go_on()
        await task
        assert not client.ended

    _run(tmp_path, use)


def test_so_many_streams_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "STREAMS_MAX", 1)

    async def use(front: Front) -> None:
        first, task = await _blocked(front)
        second = Client(front)
        await second.ask()
        assert second.status == 429
        first.go_on()
        await task
        assert first.whole

    _run(tmp_path, use)


@pytest.mark.parametrize("sent", [0, 1])
def test_an_error_is_told_while_it_can_be(tmp_path: Path, sent: int) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(sent):
            yield b"piece"
        raise ArchiveError("the file is not there")

    async def use(front: Front) -> None:
        client = Client(front)
        call = Call(front, client.scope(), client.receive, client.send)
        if sent:
            await stream_arrow(call, (), chunks())
            assert (client.status, client.bodies, client.ended) == (200, [b"piece"], False)
        else:
            with pytest.raises(ArchiveError):
                await stream_arrow(call, (), chunks())
            assert client.status == 0

    _run(tmp_path, use)
