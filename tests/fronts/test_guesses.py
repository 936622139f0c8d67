"""Secrets can be tried slowly, and well-behaved clients hardly notice those who try."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from time import monotonic

import h2.connection
import h2.events
import httpx
import pytest
import redis

from esker.fronts import guesses
from esker.fronts.guesses import (
    ADDRESS_BURST,
    ADDRESS_PER_S,
    ADDRESSES_MAX,
    PENALTY_S_MAX,
    WAIT_S_MAX,
    Guesses,
    Place,
    penalty_s,
)
from esker.testing.broker import Broker
from tests.fronts.resp.wire import Failure, Simple, Wire, encoded

WRONG = Failure("WRONGPASS invalid username-password pair or user is disabled.")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def _places(found: Guesses, address: str, count: int) -> list[Place]:
    return [place for _ in range(count) if (place := found.place(address)) is not None]


def test_an_address_has_a_burst_and_then_a_rate() -> None:
    clock = Clock()
    found = Guesses(clock)
    assert [place.wait_s for place in _places(found, "a", ADDRESS_BURST)] == [0.0] * ADDRESS_BURST
    waiting = _places(found, "a", 1000)
    assert len(waiting) == pytest.approx(WAIT_S_MAX * ADDRESS_PER_S, abs=1), "others are refused, not queued"
    assert waiting[0].wait_s == pytest.approx(1 / ADDRESS_PER_S)
    assert max(place.wait_s for place in waiting) <= WAIT_S_MAX
    looked_at = 0
    for _ in range(1000):  # ten seconds
        clock.now += 0.01
        looked_at += len(_places(found, "a", 100))
    assert looked_at == pytest.approx(10 * ADDRESS_PER_S, abs=2)


def test_a_right_secret_costs_nothing() -> None:
    found = Guesses(Clock())
    for _ in range(10 * ADDRESS_BURST):
        place = found.place("a")
        assert place is not None
        assert place.wait_s == 0
        place.cancel()
        place.cancel()  # once is enough


def test_one_address_does_not_slow_another() -> None:
    found = Guesses(Clock())
    _places(found, "guesser", 1000)
    place = found.place("other")
    assert place is not None
    assert place.wait_s == 0


def test_all_addresses_together_have_a_rate_that_a_new_one_is_not_under() -> None:
    clock = Clock()
    found = Guesses(clock)
    for number in range(2 * guesses.ALL_BURST):
        _places(found, f"guesser {number}", 2)
    again = found.place("guesser 0")
    fresh = found.place("other")
    assert again is None or again.wait_s > 0
    assert fresh is not None
    assert fresh.wait_s == 0


def test_memory_is_bounded_and_a_crowd_is_under_the_common_rate() -> None:
    clock = Clock()
    found = Guesses(clock)
    looked_at = sum(len(_places(found, str(number), 1)) for number in range(3 * ADDRESSES_MAX))
    assert len(found._addresses) == ADDRESSES_MAX
    most = ADDRESSES_MAX + guesses.ALL_BURST + WAIT_S_MAX * guesses.ALL_PER_S
    assert looked_at <= most + 1


@pytest.mark.parametrize(
    ("peername", "address"),
    [
        (("10.0.0.1", 5), "10.0.0.1"), (("::ffff:10.0.0.1", 5, 0, 0), "10.0.0.1"),
        (("2001:db8:1:2:3:4:5:6", 5, 0, 0), "20010db800010002"), (("2001:db8:1:2::9", 5, 0, 0), "20010db800010002"),
        (("fe80::1%eth0", 5, 0, 2), "fe80000000000000"), (None, "?"),
    ],
)  # fmt: skip
def test_an_address_is_what_one_owner_has(peername: object, address: str) -> None:
    assert guesses.address_of(peername) == address


@pytest.fixture(scope="module")
def locked() -> Iterator[Broker]:
    with Broker(api_keys="right") as running:
        yield running


def test_a_guesser_gets_few_answers_while_another_of_its_address_logs_in(locked: Broker) -> None:
    with Wire(locked.resp_port) as guesser, Wire(locked.resp_port) as inside:
        assert inside("AUTH", "right") == Simple("OK")
        guesser.send(encoded("AUTH", "wrong") * 500 + encoded("AUTH", "right") + encoded("PING"))
        assert guesser.reply() == WRONG
        for _ in range(20):
            assert redis.Redis(port=locked.resp_port, password="right", protocol=3).ping()
            assert inside("PING") == Simple("PONG")
        guesser.socket.settimeout(0)
        answered = b""
        with contextlib.suppress(BlockingIOError):
            answered = guesser.socket.recv(1 << 20)
        assert answered.count(b"WRONGPASS") < 50


def test_each_failure_of_a_connection_is_told_later_than_the_one_before() -> None:
    assert [penalty_s(failures) for failures in (1, 2, 3, 4)] == pytest.approx([0.05, 0.1, 0.2, 0.4])
    assert penalty_s(6) == penalty_s(10_000) == PENALTY_S_MAX
    least_s = penalty_s(1) + penalty_s(2) + penalty_s(3)
    with Broker(api_keys="right") as node, Wire(node.resp_port) as wire:
        began = monotonic()
        assert [wire("AUTH", "wrong") for _ in range(3)] == [WRONG] * 3
        assert monotonic() - began >= least_s
        with httpx.Client(base_url=node.http_url, headers={"authorization": "Bearer wrong"}) as web:
            began = monotonic()
            assert [web.get("/v0/topics").status_code for _ in range(3)] == [401] * 3
            assert monotonic() - began >= least_s


def test_what_comes_behind_a_login_waits_for_it_and_is_then_trusted(locked: Broker) -> None:
    """A failure is told late; meanwhile nothing of what follows is read as a stranger's."""
    with Wire(locked.resp_port) as wire:
        wire.send(encoded("AUTH", "wrong") + encoded("AUTH", "right") + encoded("ADDJOB", "q", "x" * 100_000, 0))
        wire.send(encoded("QLEN", "q"))
        assert wire.reply() == WRONG
        assert wire.reply() == Simple("OK")
        assert isinstance(wire.reply(), Simple)
        assert wire.reply() == 1


def test_over_http_a_connection_with_a_right_key_does_not_wait_with_those_who_guess() -> None:
    with Broker(api_keys="right") as broker, contextlib.ExitStack() as opened:
        web = opened.enter_context(httpx.Client(base_url=broker.http_url, headers={"authorization": "Bearer right"}))
        assert web.get("/v0/topics").status_code == 200
        head = b"GET /v0/topics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n\r\n"
        guessers = []
        for _ in range(int(ADDRESS_BURST + WAIT_S_MAX * ADDRESS_PER_S) + 40):
            guessers.append(opened.enter_context(socket.create_connection(("127.0.0.1", broker.http_port), timeout=20)))
            guessers[-1].sendall(head)
        assert guessers[-1].recv(1000).startswith(b"HTTP/1.1 429 "), "not even looked at"
        for _ in range(20):
            assert web.get("/v0/topics").status_code == 200
        assert guessers[0].recv(1000).startswith(b"HTTP/1.1 401 ")


def _guess_over_http2(port: int, count: int) -> Iterator[bytes]:
    """Wrong keys, all at once; the statuses that they are answered with."""
    wire = h2.connection.H2Connection()
    wire.initiate_connection()
    head = {":method": "GET", ":path": "/v0/topics", ":scheme": "http", ":authority": "localhost"}
    for _ in range(count):
        stream = wire.get_next_available_stream_id()
        wire.send_headers(stream, [*head.items(), ("authorization", "Bearer wrong")], end_stream=True)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as guesser:
        guesser.sendall(wire.data_to_send())
        while count:
            for event in wire.receive_data(guesser.recv(1 << 16)):
                if isinstance(event, h2.events.ResponseReceived):
                    count -= 1
                    yield dict(event.headers)[b":status"]


def test_over_http2_a_connection_with_a_right_key_does_not_wait_with_those_who_guess() -> None:
    with Broker(api_keys="right") as broker, contextlib.ExitStack() as opened:
        web = httpx.Client(base_url=broker.http_url, headers={"authorization": "Bearer right"}, http1=False, http2=True)
        opened.enter_context(web)
        assert web.get("/v0/topics").status_code == 200
        guessers = [_guess_over_http2(broker.http_port, 100) for _ in range(2)]
        assert next(guessers[0]) == b"401"
        assert b"429" in guessers[1], "not even looked at"
        for _ in range(20):
            assert web.get("/v0/topics").status_code == 200


def test_over_http_a_wrong_key_on_a_proven_connection_is_wrong(locked: Broker) -> None:
    with httpx.Client(base_url=locked.http_url) as web:
        for key, status in (("right", 200), ("wrong", 401), ("right", 200)):
            headers = {"authorization": f"Bearer {key}"}
            assert web.get("/v0/topics", headers=headers).status_code == status
            assert web.post("/v0/topics/t", json={"records": [{"data": 1}]}, headers=headers).status_code in (
                (200, 201) if status == 200 else (401,)
            )


def test_a_key_opens_the_redis_front_and_the_password_the_http_front() -> None:
    with Broker(api_keys="a-key", password="a-password") as broker:
        for secret in ("a-key", "a-password"):
            assert redis.Redis(port=broker.resp_port, password=secret).ping()
            answer = httpx.get(f"{broker.http_url}/v0/topics", headers={"authorization": f"Bearer {secret}"})
            assert answer.status_code == 200
        assert httpx.get(f"{broker.http_url}/v0/topics").status_code == 401
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=broker.resp_port).ping()


def test_a_password_alone_closes_the_http_front_and_keys_alone_the_redis_front() -> None:
    with Broker(password="only") as broker:
        assert httpx.get(f"{broker.http_url}/v0/topics").status_code == 401
    with Broker(api_keys="only") as broker, Wire(broker.resp_port) as wire:
        assert wire("ADDJOB", "q", "x", 0) == Failure("NOAUTH Authentication required.")
