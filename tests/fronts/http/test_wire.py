"""HTTP/1.1 on the wire, as clients of every kind use and misuse it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from esker.fronts.http.options import HttpOptions
from esker.fronts.http.server import HttpServer
from esker.fronts.http.wire.connection import PREFACE, WAITING_MAX
from esker.fronts.http.wire.heads import HEAD_BYTES_MAX
from esker.fronts.http.wire.target import split_target
from esker.node.runtime import Node
from esker.node.settings import Settings
from esker.testing.broker import Broker

HEALTH = b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
JSON = b"Host: localhost\r\nContent-Type: application/json\r\n"


class Wire:
    """A bare connection: bytes out, whole answers in."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._file = self.socket.makefile("rb")

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.socket.sendall(part)

    def head(self) -> tuple[int, dict[str, str]]:
        status = int(self._file.readline().split()[1])
        lines = iter(self._file.readline, b"\r\n")
        return status, dict(line.decode().rstrip().lower().split(": ", 1) for line in lines)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        status, headers = self.head()
        return status, headers, self._file.read(int(headers["content-length"]))

    def ends(self) -> bool:
        return self._file.read() == b""

    def close(self) -> None:
        self._file.close()
        self.socket.close()


@pytest.fixture
def wire(shared_broker: Broker) -> Iterator[Wire]:
    with contextlib.closing(Wire(shared_broker.http_port)) as opened:
        yield opened


def _write(topic: str, *data: object, chunked: bool = False) -> bytes:
    body = json.dumps({"records": [{"data": each} for each in data]}).encode()
    line = b"POST /v0/topics/%b HTTP/1.1\r\n" % topic.encode()
    if not chunked:
        return line + JSON + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    pieces = [body[at : at + 7] for at in range(0, len(body), 7)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return line + JSON + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def test_requests_that_come_together_are_answered_in_order(wire: Wire, topic: str) -> None:
    wire.send(b"".join(_write(topic, number) for number in range(3 * WAITING_MAX)))
    for number in range(3 * WAITING_MAX):
        status, _, body = wire.answer()
        assert status in (200, 201)
        assert json.loads(body)["seqs"] == [number + 1]


def test_a_request_may_come_byte_by_byte(wire: Wire, topic: str) -> None:
    for chunked in (False, True):
        request = _write(topic, "x", chunked=chunked)
        wire.send(*(request[at : at + 1] for at in range(len(request))))
        assert json.loads(wire.answer()[2])["count"] == 1


def test_http2_is_known_by_its_first_bytes_however_they_come(shared_broker: Broker) -> None:
    with contextlib.closing(Wire(shared_broker.http_port)) as wire:
        settings = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
        wire.send(*(PREFACE[at : at + 1] for at in range(len(PREFACE))), settings)
        assert wire.socket.recv(9)[3] == 4, "a frame of settings"


def test_a_request_that_only_begins_like_http2_is_none(wire: Wire) -> None:
    wire.send(b"PRI", b" * HTTP/2.0\r\n\r\nXX")
    status, headers, body = wire.answer()
    assert (status, headers["connection"], json.loads(body)["error"]["code"]) == (400, "close", "invalid_request")


def test_a_client_that_asks_first_is_told_to_go_on(wire: Wire, topic: str) -> None:
    head, _, body = _write(topic, "x").partition(b"\r\n\r\n")
    wire.send(head + b"\r\nExpect: 100-continue\r\n\r\n")
    assert wire.head() == (100, {})
    wire.send(body)
    assert wire.answer()[0] == 201


def test_a_refusal_before_the_body_ends_a_connection_that_asked_first(wire: Wire) -> None:
    wire.send(b"POST /v0/nothing HTTP/1.1\r\n" + JSON + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    status, headers, _ = wire.answer()
    assert (status, headers["connection"]) == (404, "close")
    assert wire.ends()


def test_a_body_nobody_asks_for_is_passed_over(wire: Wire) -> None:
    wire.send(b"POST /v0/nothing HTTP/1.1\r\n" + JSON + b"Content-Length: 3000000\r\n\r\n")
    assert wire.answer()[0] == 404
    wire.send(b"x" * 3_000_000 + HEALTH)
    assert wire.answer()[0] == 200


def test_old_clients_get_the_end_they_expect(shared_broker: Broker) -> None:
    with contextlib.closing(Wire(shared_broker.http_port)) as wire:
        wire.send(b"GET /v0/health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert wire.answer()[1]["connection"] == "keep-alive"
        wire.send(b"GET /v0/health HTTP/1.0\r\n\r\n")
        assert wire.answer()[1]["connection"] == "close"
        assert wire.ends()


def test_connection_close_is_kept(wire: Wire) -> None:
    wire.send(HEALTH[:-2] + b"Connection: close\r\n\r\n" + HEALTH)
    assert wire.answer()[1]["connection"] == "close"
    assert wire.ends(), "what came behind it is not answered"


def test_an_answer_to_head_has_no_body(wire: Wire) -> None:
    wire.send(b"HEAD /v0/health HTTP/1.1\r\nHost: localhost\r\n\r\n" + HEALTH)
    status, headers = wire.head()
    assert status == 200
    assert int(headers["content-length"]) > 0
    assert wire.answer()[0] == 200


def test_an_answer_says_when(wire: Wire) -> None:
    wire.send(HEALTH)
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d gmt", wire.answer()[1]["date"])


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nno header\r\n\r\n", b"GET / HTTP/1.1\r\nA: b\r\n c: folded?\x01\r\n\r\n",
        b"GET / HTTPS/1.1\r\n\r\n", b"POST /v0/nothing HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /v0/nothing HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /v0/nothing HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)  # fmt: skip
def test_what_cannot_be_understood_is_answered_once_and_ends(wire: Wire, request_bytes: bytes) -> None:
    wire.send(HEALTH + request_bytes)
    assert wire.answer()[0] == 200, "what came before it counts"
    status, headers, body = wire.answer()
    assert (status, headers["connection"]) == (400, "close")
    assert json.loads(body)["error"]["code"] == "invalid_request"
    assert wire.ends()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /v0/health HTTP/1.1\r\n\r\n", 400), (b"GET /v0/health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET /v0/health HTTP/2.0\r\nHost: localhost\r\n\r\n", 505), (b"GET /v0/health\r\n\r\n", 505),
        (b"POST /v0/topics/t HTTP/1.1\r\n" + JSON + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
    ],
)  # fmt: skip
def test_heads_that_the_parser_lets_pass_are_refused(wire: Wire, request_bytes: bytes, status: int) -> None:
    wire.send(HEALTH + request_bytes)
    assert wire.answer()[0] == 200, "what came before it counts"
    found, headers, body = wire.answer()
    assert (found, headers["connection"]) == (status, "close")
    assert json.loads(body)["error"]["message"]
    assert wire.ends()


def test_an_old_client_need_not_name_its_host(wire: Wire) -> None:
    wire.send(b"GET /v0/health HTTP/1.0\r\n\r\n")
    assert wire.answer()[0] == 200


def test_a_chunk_that_is_none_applies_nothing(shared_broker: Broker, topic: str) -> None:
    with contextlib.closing(Wire(shared_broker.http_port)) as wire:
        whole = _write(topic, "x", chunked=True)
        wire.send(whole.replace(b"\r\n7\r\n", b"\r\nz\r\n", 1))
        with contextlib.suppress(ConnectionResetError):
            assert wire.socket.recv(4096)[:12] in (b"", b"HTTP/1.1 400")
    assert httpx.get(f"{shared_broker.http_url}/v0/topics/{topic}").status_code == 404


def test_a_head_without_end_is_refused(wire: Wire) -> None:
    wire.send(
        b"GET /v0/health HTTP/1.1\r\n",
        *[b"X-%d: %b\r\n" % (at, b"y" * 1000) for at in range(2 * HEAD_BYTES_MAX // 1000)],
    )
    assert wire.answer()[0] == 431


async def _ended(stream: asyncio.StreamReader) -> bool:
    """Whether it ends without a word."""
    try:
        return await stream.read() == b""
    except ConnectionResetError:
        return True


def test_a_head_that_does_not_come_is_cut_and_an_idle_connection_is_kept(tmp_path: Path) -> None:
    async def talk() -> None:
        node = Node(Settings(data=str(tmp_path / "data")))
        server = HttpServer(node, HttpOptions(header_read_timeout_ms=50))
        await server.start("127.0.0.1", 0)
        try:
            reader, idle = await asyncio.open_connection("127.0.0.1", server.port)
            idle.write(HEALTH)
            assert b"200" in await reader.readline()
            for begun in (b"", b"GET /v0/health HTTP/1.1\r\nX", PREFACE[:4]):
                silent, slow = await asyncio.open_connection("127.0.0.1", server.port)
                slow.write(begun)
                assert await _ended(silent)
                slow.close()
            idle.write(HEALTH)
            assert b"ok" in await reader.readuntil(b"ok"), "the first answer"
            assert b"ok" in await reader.readuntil(b"ok"), "and another one, after all this time"
            idle.close()
        finally:
            await server.close()
            await node.close()

    asyncio.run(talk())


def test_who_has_said_everything_is_still_answered(wire: Wire, topic: str) -> None:
    wire.send(_write(topic, 1) + _write(topic, 2))
    wire.socket.shutdown(socket.SHUT_WR)
    assert [json.loads(wire.answer()[2])["seqs"] for _ in range(2)] == [[1], [2]]
    assert wire.ends()


def test_an_offer_of_another_protocol_is_not_taken_up(wire: Wire) -> None:
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    wire.send(HEALTH[:-2] + offer + b"\r\n" + HEALTH)
    assert [wire.answer()[0] for _ in range(2)] == [200, 200]


def test_a_kept_connection_may_become_a_websocket(shared_broker: Broker) -> None:
    with socket.create_connection(("127.0.0.1", shared_broker.http_port), timeout=10) as used:
        used.sendall(HEALTH)
        assert used.recv(4096).startswith(b"HTTP/1.1 200 ")
        with connect(f"ws://127.0.0.1:{shared_broker.http_port}/v0/ws", sock=used) as web_socket:
            web_socket.send('{"op":"ping","request_id":7}')
            assert json.loads(web_socket.recv()) == {"op": "pong", "request_id": 7}


def test_a_trailer_is_no_header(guarded_broker: Broker) -> None:
    with contextlib.closing(Wire(guarded_broker.http_port)) as wire:
        body = _write("t", "x", chunked=True)
        wire.send(body.replace(b"0\r\n\r\n", b"0\r\nAuthorization: Bearer anything\r\n\r\n"))
        assert wire.answer()[0] == 401


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/a/b?c=d#e", "/a/b", b"c=d"), (b"http://host:1/a?b", "/a", b"b"), (b"http://host", "/", b""),
        (b"*", "*", b""), (b"/%C3%A9?%41", "/é", b"%41"), (b"/%ff", "/�", b""), (b"/a//b/", "/a//b/", b""),
        (b"http://host:1?a=/v0/health", "/", b"a=/v0/health"), (b"/a%2Fb%2fc", "/a%2Fb%2fc", b""),
    ],
)  # fmt: skip
def test_targets(target: bytes, path: str, query: bytes) -> None:
    assert split_target(target) == (path, query)
