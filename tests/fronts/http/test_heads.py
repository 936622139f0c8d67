"""Requests with known heads: what is not parsed again is understood as if it were."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from esker.fronts.http.wire.heads import Head, Heads
from tests.fronts.http.test_connection import Client

POST = b"POST /v0/topics/t?a=%%20b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b"


class Remembering(Heads):
    """Counts what it knew."""

    def __init__(self) -> None:
        super().__init__()
        self.found = 0

    def split(self, data: bytes) -> tuple[Head, bytes] | None:
        known = super().split(data)
        self.found += known is not None
        return known


class Forgetful(Heads):
    def split(self, data: bytes) -> tuple[Head, bytes] | None:
        return None


def answered(heads: Heads, *chunks: bytes) -> Client:
    async def talk() -> Client:
        client = Client(heads)
        for chunk in chunks:
            if not client.ended():
                await client.say(chunk)
        return client

    return asyncio.run(talk())


def post(body: bytes) -> bytes:
    return POST % (len(body), body)


def test_a_request_with_a_known_head_is_not_parsed_again() -> None:
    heads = Remembering()
    client = answered(heads, post(b"abc"), post(b"def"), post(b"ghi"))
    assert client.seen == [("POST", b"abc"), ("POST", b"def"), ("POST", b"ghi")]
    assert client.statuses == [200] * 3
    assert heads.found == 2


def test_a_known_head_is_known_to_every_connection() -> None:
    heads = Remembering()
    answered(heads, post(b"abc"))
    assert answered(heads, post(b"def")).seen == [("POST", b"def")]
    assert heads.found == 1


def test_a_body_of_another_length_is_parsed() -> None:
    heads = Remembering()
    assert answered(heads, post(b"abc"), post(b"defg")).seen == [("POST", b"abc"), ("POST", b"defg")]
    assert heads.found == 0


def test_a_request_with_a_known_head_may_come_torn_or_with_others() -> None:
    first, second, third = post(b"abc"), post(b"def"), post(b"ghi")
    for at in range(1, len(second)):
        client = answered(Heads(), first, second[:at], second[at:] + third, third)
        assert client.seen == [("POST", body) for body in (b"abc", b"def", b"ghi", b"ghi")], at


def test_the_end_of_a_head_is_never_taken_for_a_head() -> None:
    """What came in two pieces must not leave its second piece behind: a client could send that alone."""
    for at in range(1, len(post(b"")) - 1):
        heads = Remembering()
        head, tail = post(b"")[:at], post(b"")[at:]
        client = answered(heads, head, tail)
        assert client.seen == [("POST", b"")], at
        if at > 4:
            assert heads.split(tail) is None, tail


@pytest.mark.parametrize(
    "request_",
    [
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nX: %b\r\n\r\nabc" % (b"x" * 2100),
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n%b\r\n" % (b"a: b\r\n" * 40),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_what_is_not_plain_is_always_parsed(request_: bytes) -> None:
    heads = Remembering()
    answered(heads, request_)
    answered(heads, request_)
    assert heads.found == 0


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nCookie: secret\r\n\r\n",
        b"GET /v0/topics/q/work?node=a&token=secret HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_no_secret_outlives_its_request(request_: bytes) -> None:
    heads = Remembering()
    answered(heads, request_)
    assert heads._known == {}


def test_heads_are_bounded() -> None:
    heads = Remembering()
    for number in range(1100):
        answered(heads, b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number)
    assert len(heads._known) <= 1024
    answered(heads, b"GET /0 HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /1099 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert heads.found == 1, "the oldest went first"


pieces = st.sampled_from([
    b"POST /a HTTP/1.1\r\n", b"GET / HTTP/1.1\r\n", b"Host: x\r\n", b"content-length: 3\r\n", b"Content-Length: 0\r\n",
    b"Content-Length: 28\r\n", b"\r\n", b"\n", b"abc", b"Connection: keep-alive\r\n", b"Transfer-Encoding: chunked\r\n",
    b"3\r\nabc\r\n0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", post(b"abc"), post(b"\r\n\r\n"),
    b"Connection: close\r\n",
])  # fmt: skip


@given(st.lists(st.lists(pieces, max_size=5).map(b"".join).filter(bool), max_size=5))
@example([b"GET / HTTP/1.1\r\nHost: x\r\ncontent-length: 3\r\n\nabc", b"\r\n", post(b"\r\n\r\n")])
def test_with_and_without_a_memory_clients_are_understood_alike(chunks: list[bytes]) -> None:
    heads = Remembering()
    answered(heads, *chunks)
    again, plain = answered(heads, *chunks), answered(Forgetful(), *chunks)
    assert (again.seen, again.statuses, again.ended()) == (plain.seen, plain.statuses, plain.ended())
