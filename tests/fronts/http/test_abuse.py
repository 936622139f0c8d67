"""Clients that take nothing, send without end, or are too many: what they are refused, and that others are served."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import ClassVar

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
import uvloop

from esker.fronts.access import ANYONE
from esker.fronts.http import server as serving
from esker.fronts.http.metrics import collect
from esker.fronts.http.options import HttpOptions
from esker.fronts.http.server import HttpServer
from esker.fronts.http.wire import others
from esker.fronts.http.wire.heads import HEAD_BYTES_MAX, HEADERS_MAX
from esker.fronts.listening import listen
from esker.node.runtime import Node
from esker.node.settings import Settings

HEALTH = b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
JSON = b"Host: localhost\r\nContent-Type: application/json\r\n"
MIB = 1 << 20


@contextlib.asynccontextmanager
async def running(folder: Path, options: HttpOptions) -> AsyncIterator[HttpServer]:
    node = Node(Settings(data=str(folder / "data")))
    server = HttpServer(node, options)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        while Client.opened:
            Client.opened.pop().writer.transport.abort()
        await server.close()
        await node.close()


class Client:
    """One connection. `small`: what it does not read stays with the server."""

    opened: ClassVar[list[Client]] = []  # each is closed with the server of its test

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.opened.append(self)

    @classmethod
    async def to(cls, server: HttpServer, small: bool = False) -> Client:
        opened = socket.socket()
        if small:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        opened.setblocking(False)
        await asyncio.get_running_loop().sock_connect(opened, ("127.0.0.1", server.port))
        return cls(*await asyncio.open_connection(sock=opened, limit=1024 if small else 1 << 16))

    def say(self, *data: bytes) -> Client:
        for each in data:
            self.writer.write(each)
        return self

    async def status(self) -> int:
        """Of the next answer, which is read to its end."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await self.reader.readexactly(int(length or 0))
        return int(head.split()[1])

    async def ended(self) -> bytes:
        """What was left to read when it ended."""
        found = b""
        with contextlib.suppress(ConnectionError):
            while data := await self.reader.read(1 << 16):
                found += data
        return found

    async def flood(self, data: bytes, most: int) -> int:
        """Sends it again and again until the connection is cut: how often that was, at most `most`."""
        with contextlib.suppress(ConnectionError):
            for count in range(most):
                self.writer.write(data)
                await self.writer.drain()
                if self.reader.at_eof():
                    return count
            return most
        return 0


async def until(condition: Callable[[], bool]) -> None:
    for _ in iter(condition, True):
        await asyncio.sleep(0.005)


def shown(server: HttpServer, name: str) -> float:
    """A number of the whole front, as a scraper sees it."""
    (found,) = [each for family in collect(server.front, ANYONE) for each in family.samples if each.name == name]
    return found.value


def post(path: str, body: object) -> bytes:
    text = json.dumps(body).encode()
    return b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (path.encode(), JSON, len(text), text)


async def fill(server: HttpServer) -> None:
    """A log of 6 MB."""
    client = await Client.to(server)
    for _ in range(6):
        assert await client.say(post("/v0/topics/log", {"records": [{"data": "x" * 100_000}] * 10})).status() < 300


DIFF = post("/v0/topics/log/diff", {"limit": 1000, "max_batch_bytes": 8 * MIB})


def case(options: HttpOptions) -> Callable[[Callable[[HttpServer], Awaitable[None]]], Callable[[Path], None]]:
    def wrapped(test: Callable[[HttpServer], Awaitable[None]]) -> Callable[[Path], None]:
        def run(tmp_path: Path) -> None:
            async def talk() -> None:
                async with running(tmp_path, options) as server, asyncio.timeout(30):
                    await test(server)
                    assert await (await Client.to(server)).say(HEALTH).status() == 200, "others are served"

            uvloop.run(talk())

        return run

    return wrapped


# -- clients that take nothing


async def _websocket(server: HttpServer) -> Client:
    client = await Client.to(server, small=True)
    client.say(
        b"GET /v0/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n" % base64.b64encode(os.urandom(16))
    )
    assert b" 101 " in await client.reader.readuntil(b"\r\n\r\n")
    return client


@case(HttpOptions(stall_ms=200))
async def test_a_websocket_whose_pongs_are_not_read_is_not_read_and_then_cut(server: HttpServer) -> None:
    client = await _websocket(server)
    pings = (b"\x89\xfd\0\0\0\0" + b"x" * 125) * 8000
    assert await client.flood(pings, 64) < 64, "64 MB of pings were taken in"


@case(HttpOptions(max_body_bytes=2 * MIB, max_arriving_bytes=2 * MIB))
async def test_a_websocket_message_that_does_not_end_is_cut(server: HttpServer) -> None:
    client = await _websocket(server)
    fragment = b"\x00\xff" + MIB.to_bytes(8, "big") + b"\0\0\0\0" + b"x" * MIB
    client.say(b"\x01" + fragment[1:])
    assert await client.flood(fragment, 64) < 64, "64 MB of a message were taken in"


def _http2(window: int) -> h2.connection.H2Connection:
    wire = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    wire.initiate_connection()
    wire.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
    return wire


def _ask(wire: h2.connection.H2Connection, method: str, path: str, *headers: tuple[str, str]) -> int:
    stream: int = wire.get_next_available_stream_id()
    wire.send_headers(
        stream, [(":method", method), (":path", path), (":scheme", "http"), (":authority", "localhost"), *headers],
        end_stream=method == "GET",
    )  # fmt: skip
    return stream


async def _events(client: Client, wire: h2.connection.H2Connection) -> AsyncIterator[h2.events.Event]:
    """Until the connection ends."""
    client.say(wire.data_to_send())
    with contextlib.suppress(ConnectionError):
        while data := await client.reader.read(1 << 16):
            for event in wire.receive_data(data):
                yield event
            client.say(wire.data_to_send())


@case(HttpOptions(stall_ms=200))
async def test_an_http2_client_that_gives_no_window_is_cut(server: HttpServer) -> None:
    await fill(server)
    client, wire = await Client.to(server), _http2(window=0)
    for _ in range(3):
        stream = _ask(wire, "POST", "/v0/topics/log/diff", ("content-type", "application/json"))
        wire.send_data(stream, b'{"max_batch_bytes":8000000,"limit":1000}', end_stream=True)
    data = [event async for event in _events(client, wire) if isinstance(event, h2.events.DataReceived)]
    assert not data, "it ended, and nothing was sent"
    await until(lambda: server.unsent.used == 0)


@case(HttpOptions(max_unsent_bytes=16 * MIB))
async def test_one_http2_connection_may_leave_a_part_of_all_unsent_answers(server: HttpServer) -> None:
    await fill(server)
    client, wire = await Client.to(server), _http2(window=0)
    statuses: list[bytes] = []
    for _ in range(2):
        stream = _ask(wire, "POST", "/v0/topics/log/diff", ("content-type", "application/json"))
        wire.send_data(stream, b'{"max_batch_bytes":8000000,"limit":1000}', end_stream=True)
        async for event in _events(client, wire):
            if isinstance(event, h2.events.ResponseReceived):
                statuses.append(dict(event.headers)[b":status"])
                break
    assert statuses == [b"200", b"503"], "6 MB wait, which is more than a quarter of 16"


@case(HttpOptions(max_unsent_bytes=8 * MIB))
async def test_whoever_takes_nothing_is_cut_when_answers_for_others_need_room(server: HttpServer) -> None:
    await fill(server)
    server.unsent.grace_s = 0.0
    idlers = [await Client.to(server, small=True) for _ in range(3)]
    for idler in idlers:
        idler.say(DIFF)
        assert b" 200 " in await idler.reader.readline()
    assert await (await Client.to(server)).say(DIFF).status() == 200
    assert shown(server, "topics_http_slow_readers_cut_total") >= 1, "one of those that do not read"
    cut = [await idler.ended() for idler in idlers[:1]]
    assert len(cut[0]) < 6 * MIB, "the first of them did not get all of its answer"


@case(HttpOptions(max_unsent_bytes=8 * MIB))
async def test_large_answers_wait_for_room_while_nobody_can_be_cut(server: HttpServer) -> None:
    await fill(server)
    server.unsent.grace_s = 1e9
    slow = [await Client.to(server, small=True) for _ in range(2)]
    for each in slow:
        each.say(DIFF)
        assert b" 200 " in await each.reader.readline()
    waiting = (await Client.to(server)).say(DIFF)
    answer = asyncio.create_task(waiting.status())
    assert await (await Client.to(server)).say(post("/v0/topics/log/diff", {"from_seq": 59})).status() == 200
    assert not answer.done(), "a small answer needs no room"
    for each in slow:
        each.writer.close()
    assert await answer == 200


# -- clients that are too many


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is idle may be closed for a newcomer, however short that is."""
    monkeypatch.setattr(serving, "_QUIET_S", 0.0)


@pytest.mark.usefixtures("at_once")
@case(HttpOptions(max_connections=4))
async def test_an_idle_connection_makes_room_for_a_new_one(server: HttpServer) -> None:
    idle = [await Client.to(server) for _ in range(4)]
    assert await idle[3].say(HEALTH).status() == 200
    new = await Client.to(server)
    assert await new.say(HEALTH).status() == 200
    assert await idle[0].ended() == b""


@pytest.mark.usefixtures("at_once")
def test_whoever_asks_is_not_closed_for_a_new_one(tmp_path: Path) -> None:
    async def talk() -> None:
        async with running(tmp_path, HttpOptions(max_connections=3)) as server, asyncio.timeout(30):
            writer = await Client.to(server)
            assert await writer.say(post("/v0/topics/log", {"records": [{"data": 1}]})).status() == 201
            wait = post("/v0/topics/log/diff", {"from_seq": 1, "wait_ms": 30_000})
            waiting = [(await Client.to(server)).say(wait) for _ in range(2)]
            writer.say(wait)
            await until(lambda: sum(not each.idle for each in server.connections) == 3)
            refused = await Client.to(server)
            assert await refused.status() == 503
            assert await refused.ended() == b""
            assert shown(server, "topics_http_connections_refused_total") == 1
            waiting[0].writer.close()
            await until(lambda: len(server.connections) == 2)
            again = await Client.to(server)
            assert await again.say(post("/v0/topics/log", {"records": [{"data": 2}]})).status() == 200
            assert await waiting[1].status() == 200

    uvloop.run(talk())


@pytest.mark.usefixtures("at_once")
def test_a_websocket_counts_for_all_its_descriptors(tmp_path: Path) -> None:
    async def talk() -> None:
        async with running(tmp_path, HttpOptions(max_connections=4)) as server, asyncio.timeout(30):
            first = await _websocket(server)
            second = await _websocket(server)
            assert await first.ended() == b"", "each takes three of four"
            second.say(b"\x81\x8d\0\0\0\0" + b'{"op":"ping"}')
            assert b"pong" in await second.reader.readuntil(b"}")

    uvloop.run(talk())


class Full(socket.socket):
    """Listens in a system that has no descriptor left, the first time."""

    failed = False

    def accept(self) -> tuple[socket.socket, object]:
        if not self.failed:
            self.failed = True
            raise OSError(errno.EMFILE, "too many open files")
        return super().accept()


def test_an_accept_that_finds_no_descriptor_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def listen_full(host: str, port: int, backlog: int) -> list[socket.socket]:
        return [Full(fileno=each.detach()) for each in await listen(host, port, backlog)]

    monkeypatch.setattr(serving, "listen", listen_full)

    async def talk() -> None:
        async with running(tmp_path, HttpOptions()) as server, asyncio.timeout(30):
            assert await (await Client.to(server)).say(HEALTH).status() == 200
            assert shown(server, "topics_http_accept_failures_total") == 1

    uvloop.run(talk())


# -- clients that do not get on


@case(HttpOptions(keep_alive_s=0.05))
async def test_an_idle_connection_is_closed_after_its_time(server: HttpServer) -> None:
    client = (await Client.to(server)).say(HEALTH)
    assert await client.status() == 200
    assert await client.ended() == b""


@case(HttpOptions(body_read_timeout_ms=50))
async def test_a_body_that_does_not_get_on_is_cut(server: HttpServer) -> None:
    for path in ("/v0/topics/log", "/v0/nothing"):
        client = await Client.to(server)
        client.say(b"POST %b HTTP/1.1\r\n%bContent-Length: 1000000\r\n\r\n{" % (path.encode(), JSON))
        await client.ended()


@case(HttpOptions(body_read_timeout_ms=50))
async def test_an_http2_body_that_does_not_get_on_is_refused(server: HttpServer) -> None:
    client, wire = await Client.to(server), _http2(window=65_535)
    stream = _ask(wire, "POST", "/v0/topics/log", ("content-type", "application/json"))
    wire.send_data(stream, b"{")
    async for event in _events(client, wire):
        if isinstance(event, h2.events.ResponseReceived):
            assert dict(event.headers)[b":status"] == b"408"
            return
    raise AssertionError("it was not answered")


@case(HttpOptions(max_body_bytes=4 * MIB, max_arriving_bytes=4 * MIB))
async def test_bodies_that_stopped_make_room_for_one_that_comes(server: HttpServer) -> None:
    server.arrivals.window_s = 0.0
    stopped = []
    for _ in range(2):
        client = await Client.to(server)
        client.say(b"POST /v0/topics/log HTTP/1.1\r\n%bContent-Length: 3000000\r\n\r\n" % JSON, b"x" * 1_900_000)
        stopped.append(client)
    await until(lambda: server.arrivals.used > 3_000_000)
    whole = post("/v0/topics/log", {"records": [{"data": "x" * 900_000}] * 2})
    assert await (await Client.to(server)).say(whole).status() == 201
    assert shown(server, "topics_http_slow_bodies_cut_total") >= 1
    done, _ = await asyncio.wait(
        [asyncio.create_task(each.status()) for each in stopped], return_when=asyncio.FIRST_COMPLETED
    )
    assert [task.result() for task in done] == [503]


# -- heads and chunks


def _head(size: int) -> bytes:
    """A request of exactly so many bytes, in a few headers."""
    begun = b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\n"
    left = size - len(begun) - len(b"\r\n")
    lines = []
    while left:
        line = min(left, 60_000) if left - 60_000 > 10 or left <= 60_000 else left - 100
        lines.append(b"X-A: " + b"a" * (line - 7) + b"\r\n")
        left -= line
    return begun + b"".join(lines) + b"\r\n"


@case(HttpOptions())
async def test_the_head_limit_is_exact(server: HttpServer) -> None:
    for size, status in ((HEAD_BYTES_MAX, 200), (HEAD_BYTES_MAX + 1, 431), (300_000, 431)):
        head = _head(size)
        assert len(head) == size
        for parts in ((head,), (head[:1000], head[1000:]), (HEALTH + head[:70_000], head[70_000:])):
            client = (await Client.to(server)).say(*parts)
            if parts[0].startswith(HEALTH):
                assert await client.status() == 200
            assert await client.status() == status, (size, [len(part) for part in parts])


@case(HttpOptions())
async def test_a_websocket_with_too_large_a_head_is_refused(server: HttpServer) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert await (await Client.to(server)).say(_head(300_000)[:-2] + upgrade).status() == 431


@case(HttpOptions())
async def test_an_http2_request_with_too_large_a_head_is_refused(server: HttpServer) -> None:
    client, wire = await Client.to(server), _http2(window=65_535)
    _ask(wire, "GET", "/v0/health", *((f"x-{at}", "a" * 10_000) for at in range(30)))
    async for event in _events(client, wire):
        if isinstance(event, h2.events.ResponseReceived):
            assert dict(event.headers)[b":status"] == b"431"
            return
        if isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
            return


@case(HttpOptions())
async def test_headers_are_bounded_in_number(server: HttpServer) -> None:
    for count, status in ((HEADERS_MAX - 1, 200), (HEADERS_MAX, 431)):
        assert await (await Client.to(server)).say(HEALTH[:-2] + b"a:\r\n" * count + b"\r\n").status() == status


@case(HttpOptions())
async def test_a_body_in_very_small_chunks_is_refused(server: HttpServer) -> None:
    head = b"POST /v0/topics/log HTTP/1.1\r\n" + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
    client = (await Client.to(server)).say(head, b"1\r\nx\r\n" * 10_000)
    found = await client.ended()
    assert found[:12] in (b"", b"HTTP/1.1 400")


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are looked at every few milliseconds."""
    monkeypatch.setattr(serving, "_LOOK_S", 0.05)
    monkeypatch.setattr(others, "_LOOK_S", 0.05)
