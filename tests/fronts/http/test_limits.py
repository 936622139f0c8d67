"""Caps: refused with 429 before anything is made, and only what would be new."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator

import httpx
import pytest

from esker.fronts.http import census
from esker.testing.broker import Broker
from tests.fronts.http.web import Refused, Web


@pytest.fixture
def capped() -> Iterator[Web]:
    with Broker(max_topics="3", max_routers="1", max_total_bytes="1000") as broker, Web(broker.http_url) as web:
        yield web


def _throttled(web: Web, method: str, path: str, body: object) -> object:
    response = web.client.request(method, path, json=body)
    assert response.status_code == 429, response.text
    assert response.headers["retry-after"] == "1"
    refused = Refused(response.json())
    assert refused.code == "throttled"
    return refused.detail


def test_topics_are_capped_however_they_are_made(capped: Web) -> None:
    for name in "abc":
        capped.put(name)
    detail = {"limit": "max_topics", "max": 3}
    assert _throttled(capped, "PUT", "/v0/topics/d", {}) == detail
    assert _throttled(capped, "POST", "/v0/topics/d", {"records": [{"data": 1}]}) == detail
    assert _throttled(capped, "PUT", "/v0/routers/r", {"source": "a", "dest": "d"}) == detail
    assert _throttled(capped, "PUT", "/v0/routers/r", {"source": "d", "dest": "e"}) == detail
    capped.put("a", status=200, ttl_ms=5)
    capped.write("a", 1)
    capped.ask("PUT", "/v0/routers/r", {"source": "a", "dest": "b"}, 201)
    capped.ask("DELETE", "/v0/topics/c")
    capped.put("d")


def test_routers_are_capped_before_their_topics_are_made(capped: Web) -> None:
    capped.ask("PUT", "/v0/routers/r", {"source": "a", "dest": "b"}, 201)
    detail = _throttled(capped, "PUT", "/v0/routers/s", {"source": "a", "dest": "c"})
    assert detail == {"limit": "max_routers", "max": 1}
    capped.refused("GET", "/v0/topics/c", status=404)
    capped.ask("PUT", "/v0/routers/r", {"source": "a", "dest": "b"}, 200)


def test_the_bytes_of_all_topics_are_capped(capped: Web) -> None:
    capped.write("a", "x" * 600, status=201)
    detail = _throttled(capped, "POST", "/v0/topics/b", {"records": [{"data": "x" * 600}]})
    assert detail == {"limit": "max_total_bytes", "max": 1000}
    capped.refused("GET", "/v0/topics/b", status=404)
    capped.write("b", "x" * 100, status=201)


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
def test_a_key_has_so_many_requests_at_a_time_and_one_that_hung_up_is_forgotten(version: str) -> None:
    with (
        Broker(api_keys="k,other", max_inflight_per_key="1") as broker,
        httpx.Client(base_url=broker.http_url, headers={"authorization": "Bearer k"}) as client,
    ):
        client.put("/v0/topics/t").raise_for_status()
        waiting = subprocess.Popen(
            ["curl", "-s", version, "-H", "Authorization: Bearer k", "--json", '{"wait_ms": 30000}',
             f"{broker.http_url}/v0/topics/t/diff"],
        )  # fmt: skip
        try:
            response = _until(client, 429)
            assert response.headers["retry-after"] == "1"
            refused = Refused(response.json())
            assert (refused.code, refused.detail) == ("throttled", None)
            assert client.get("/v0/topics", headers={"authorization": "Bearer other"}).status_code == 200
        finally:
            waiting.kill()
            waiting.wait()
        assert _until(client, 200).json()["topics"][0]["topic"] == "t"


def test_a_request_counts_until_it_was_answered_and_not_longer() -> None:
    """Not even for the one that begins when it ends: requests that follow each other are one at a time."""
    body = b'{"records":[{"data":1}],"config":{"durability":"fsync"}}'
    head = b"POST /v0/topics/t HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\nContent-Type: application/json\r\n"
    request = head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    with (
        Broker(api_keys="k", max_inflight_per_key="1") as broker,
        socket.create_connection(("127.0.0.1", broker.http_port), timeout=10) as connection,
    ):
        answers = b""
        connection.sendall(request * 5)
        while answers.count(b"HTTP/1.1") < 5:
            answers += connection.recv(65536)
        assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"201", b"200", b"200", b"200", b"200"]


def _until(client: httpx.Client, status: int) -> httpx.Response:
    deadline = time.monotonic() + 10
    while True:
        response = client.get("/v0/topics")
        if response.status_code == status:
            return response
        assert time.monotonic() < deadline, response.text
        time.sleep(0.01)  # another process comes or goes: its effect is the signal


def test_room_that_a_delete_made_can_be_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "_KEPT", 1e9)  # a walk that took long, as on a busy machine
    with Broker(max_total_bytes="2000") as broker, Web(broker.http_url) as web:
        web.put("a")
        web.write("a", "x" * 1500)
        assert web.refused("POST", "/v0/topics/a", {"records": [{"data": "x" * 1500}]}, status=429).code == "throttled"
        web.ask("POST", "/v0/topics/a/delete", {"before_seq": 2})
        web.write("a", "x" * 1500)


def test_a_cap_of_zero_is_none() -> None:
    with Broker(max_topics="0", max_routers="0") as broker, Web(broker.http_url) as web:
        web.put("a")
        assert web.ask("PUT", "/v0/routers/r", {"source": "a", "dest": "b"}, 201)["created"] is True
