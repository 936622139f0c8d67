"""One HTTP/1.1 connection, event by event: what it reads, holds and lets go of, whatever the client does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import cast

from esker.fronts.http.calls import Message, Receive, Send, Whole
from esker.fronts.http.server import HttpServer
from esker.fronts.http.unsent import Unsent
from esker.fronts.http.wire.connection import WAITING_MAX, Connection
from esker.fronts.http.wire.exchange import BUFFER_MAX
from esker.fronts.http.wire.heads import HEAD_BYTES_MAX, Heads

STALL_S = 30.0
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


class Transport:
    """Keeps what is written. `unsent` is for the test to say."""

    def __init__(self) -> None:
        self.written = b""
        self.reading = True
        self.unsent = 0
        self.ended = ""  # how

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return ("127.0.0.1", 1) if name == "peername" else None

    def write(self, data: bytes) -> None:
        assert not self.ended, "nothing is written behind the end"
        self.written += data

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = self.ended or "said"

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def is_closing(self) -> bool:
        return self.ended in ("closed", "aborted")


class Client:
    """A connection and what a test needs around it. Requests are answered as `allow` says."""

    def __init__(self, heads: Heads | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.seen: list[tuple[object, bytes]] = []  # requests that were run, with their bodies
        self.bodies = True  # are asked for before the answer
        self.answer = b"fine"
        self.allow = asyncio.Event()
        self.allow.set()
        self.run: Callable[[Mapping[str, object], Receive, Send], Awaitable[None]] = self._run
        self.unsent = Unsent(0, self.loop)
        server = SimpleNamespace(
            loop=self.loop, front=self, heads=heads or Heads(), head_s=60.0, body_s=30.0, body_bytes_min=1024,
            idle_s=300.0, stall_s=STALL_S, unsent=self.unsent, connections={}, ended=lambda _: None,
            admits_tunnel=lambda: True,
        )  # fmt: skip
        self.connection = Connection(cast("HttpServer", server))
        self.transport = Transport()
        self.connection.connection_made(cast(asyncio.BaseTransport, self.transport))

    def at_once(self, request: Whole) -> Awaitable[None]:
        return self(request.scope(), request.receive, request.send)

    async def __call__(self, scope: Mapping[str, object], receive: Receive, send: Send) -> None:
        await self.run(scope, receive, send)

    async def _run(self, scope: Mapping[str, object], receive: Receive, send: Send) -> None:
        body, more = b"", self.bodies
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            chunk = message["body"]
            assert isinstance(chunk, bytes)
            body += chunk
            more = bool(message["more_body"])
        self.seen.append((scope["method"], body))
        await self.allow.wait()
        start: Message = {"type": "http.response.start", "status": 200, "headers": []}
        start["headers"] = [(b"content-length", b"%d" % len(self.answer))]
        await send(start)
        await send({"type": "http.response.body", "body": self.answer})

    async def say(self, *data: bytes, turns: int = 100) -> None:
        """And gives the connection time to answer."""
        for each in data:
            self.connection.data_received(each)
        for _ in range(turns):
            await asyncio.sleep(0)

    def reads(self) -> bool:
        return self.transport.reading

    def ended(self) -> str:
        return self.transport.ended

    @property
    def statuses(self) -> list[int]:
        return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d+)", self.transport.written)]


def case(test: Callable[[Client], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def talk() -> None:
            await test(Client())

        asyncio.run(talk())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@case
async def test_a_body_behind_an_offer_of_another_protocol_is_a_body(client: Client) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: foo\r\nContent-Length: %d\r\n\r\n" % len(GET)
    await client.say((head + GET) * 2 + GET)
    assert client.seen == [("POST", GET), ("POST", GET), ("GET", b"")]
    assert client.statuses == [200, 200, 200]


@case
async def test_many_offers_in_one_read_are_declined_one_by_one(client: Client) -> None:
    count = 5000
    await client.say(
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n" * count, turns=4 * count
    )
    assert client.statuses == [200] * count


@case
async def test_nobody_is_a_proxy(client: Client) -> None:
    await client.say(b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert client.statuses == [400]
    assert client.seen == []


@case
async def test_a_client_that_reads_nothing_is_answered_nothing_more(client: Client) -> None:
    client.connection.pause_writing()
    await client.say(GET * 5)
    assert client.seen == []
    client.connection.resume_writing()
    await client.say()
    assert len(client.seen) == 5


@case
async def test_requests_that_wait_are_bounded_in_number_and_in_sum(client: Client) -> None:
    client.allow.clear()
    await client.say(GET * (WAITING_MAX + 3))
    assert not client.reads()
    client.allow.set()
    await client.say()
    assert client.reads()
    assert len(client.seen) == WAITING_MAX + 3

    client.allow.clear()
    chunk = b"10\r\nxxxxxxxxxxxxxxxx\r\n" * 5000
    await client.say(GET, CHUNKED, chunk, b"0\r\n\r\n", CHUNKED, chunk, b"0\r\n\r\n", CHUNKED)
    assert client.reads()
    await client.say(chunk, chunk, chunk)
    assert not client.reads(), "small chunks cost more than what they hold"
    client.allow.set()
    await client.say()
    assert client.reads()


@case
async def test_what_breaks_off_while_it_waits_is_refused_in_its_turn(client: Client) -> None:
    client.allow.clear()
    await client.say(GET + CHUNKED + b"zz\r\n")
    assert client.statuses == []
    client.allow.set()
    await client.say()
    assert client.statuses == [200, 400]
    assert client.ended() == "said"


@case
async def test_a_request_with_an_impossible_body_is_not_executed(client: Client) -> None:
    client.bodies = False
    await client.say(b"DELETE / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n")
    assert client.seen == []
    assert client.statuses == [400]


@case
async def test_a_client_that_goes_before_its_body_is_let_go(client: Client) -> None:
    client.bodies = False
    await client.say(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
    assert client.statuses == [200]
    assert not client.connection.eof_received(), "nothing is owed: the transport may close"


@case
async def test_reading_goes_on_behind_a_large_body_nobody_asked_for(client: Client) -> None:
    client.bodies = False
    client.allow.clear()
    body = b"x" * (BUFFER_MAX + 1)
    await client.say(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body), body)
    client.allow.set()
    await client.say()
    assert client.reads()
    await client.say(GET)
    assert client.statuses == [200, 200]


@case
async def test_trailers_without_end_are_refused(client: Client) -> None:
    piece = b"a" * 10_000
    await client.say(CHUNKED + b"2\r\n{}\r\n0\r\nX: ", *[piece] * (HEAD_BYTES_MAX // len(piece) + 2))
    assert client.ended()
    assert client.seen == []


@case
async def test_a_head_is_measured_from_its_own_beginning(client: Client) -> None:
    body = b"x" * HEAD_BYTES_MAX
    await client.say(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%bGET" % (len(body), body))
    await client.say(b" / HTTP/1.1\r\nHost: x\r\nA: %b\r\n\r\n" % (b"b" * 7000))
    assert client.statuses == [200, 200]


@case
async def test_a_slow_body_is_given_out_as_it_comes(client: Client) -> None:
    client.bodies = False
    got: list[Message] = []

    async def front(_: object, receive: Receive, send: Send) -> None:
        got.append(await receive())

    client.run = front
    await client.say(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nsome")
    assert got == []
    client.connection.look(client.loop.time())
    await client.say()
    assert got == [{"type": "http.request", "body": b"some", "more_body": True}]


@case
async def test_an_answer_that_has_begun_is_all_there_is_to_say(client: Client) -> None:
    async def front(_: object, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
        await receive()

    client.run = front
    await client.say(b"GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
    assert client.statuses == [200]
    assert b"connection: close" in client.transport.written


@case
async def test_the_time_for_a_head_does_not_run_while_we_do_not_read(client: Client) -> None:
    client.allow.clear()
    await client.say(GET * (WAITING_MAX + 3) + b"GET / HT")
    client.connection.look(client.loop.time() + 1000)
    assert not client.ended()
    client.allow.set()
    await client.say(b"TP/1.1\r\n\r\n")
    assert len(client.statuses) == WAITING_MAX + 4


@case
async def test_a_client_that_takes_nothing_is_cut(client: Client) -> None:
    await client.say(GET)
    now, client.transport.unsent = client.loop.time(), 5000
    client.connection.look(now)
    client.transport.unsent = 4000
    client.connection.look(now + STALL_S - 1)
    client.connection.look(now + 2 * STALL_S - 2)
    assert not client.ended(), "it took some of it in between"
    client.connection.look(now + 2 * STALL_S)
    assert client.ended() == "aborted"


@case
async def test_whoever_takes_its_last_answer_slowly_is_not_idle(client: Client) -> None:
    await client.say(GET)
    connection, now = client.connection, client.loop.time()
    connection.look(now - 1)
    for second in range(400):  # longer than an idle connection may stay
        client.transport.unsent = 50_000 - 100 * second
        assert connection.idle_since >= now
        connection.look(now + second)
        assert not client.ended()
    for second in range(400, 702):
        client.transport.unsent = 0
        connection.look(now + second)
    assert client.ended() == "aborted", "it has taken all, and rests"


@case
async def test_whoever_has_not_taken_its_answers_stays_in_http(client: Client) -> None:
    """Others would not know that it takes nothing, and what it leaves would be counted for ever."""
    client.answer = b"x" * 100_000
    await client.say(GET)
    client.transport.unsent = 100_000
    client.connection.pause_writing()
    await client.say(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert client.reads()
    client.connection.resume_writing()
    await client.say()
    assert client.statuses == [200, 200]
    client.connection.connection_lost(None)
    assert not client.unsent.used


@case
async def test_an_answer_that_breaks_off_ends_the_connection(client: Client) -> None:
    async def front(_: object, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
        await send({"type": "http.response.body", "body": b"part", "more_body": True})

    client.run = front
    await client.say(GET)
    assert client.ended() == "aborted"


@case
async def test_nothing_is_read_between_the_hand_on_and_the_others(client: Client) -> None:
    client.connection.server.others = SimpleNamespace(  # type: ignore[assignment]
        address=b"\0nobody", tunnels={}, loop=client.loop
    )
    await client.say(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert not client.reads()
    assert client.ended() == "aborted", "there is nobody there"


@case
async def test_requests_that_come_in_one_piece_are_not_all_parsed_at_once(client: Client) -> None:
    client.allow.clear()
    await client.say(GET * 5000)
    assert not client.reads()
    assert len(client.connection._waiting) < 500
    client.allow.set()
    await client.say(turns=100_000)
    assert len(client.seen) == 5000
    assert client.reads()


@case
async def test_requests_that_were_kept_are_answered_behind_the_last_word(client: Client) -> None:
    client.allow.clear()
    await client.say(GET * 2000)
    assert client.connection.eof_received()
    client.allow.set()
    await client.say(turns=50_000)
    assert len(client.seen) == 2000
    assert client.ended() == "closed"
