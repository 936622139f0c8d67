"""What must be the same over HTTP/1.1 and HTTP/2, and what each owes its clients."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator

import httpx
import pytest

from esker.fronts.http.wire.connection import PREFACE
from esker.testing.broker import Broker

PING = 6  # the type of a frame


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
def client(request: pytest.FixtureRequest, shared_broker: Broker) -> Iterator[httpx.Client]:
    http2 = request.param == "HTTP/2"
    with httpx.Client(base_url=shared_broker.http_url, http1=not http2, http2=http2, timeout=20) as made:
        yield made


@pytest.mark.parametrize("path", ["/v0/health", "/v0/topics", "/openapi.json"])
def test_head_is_get_without_the_body(client: httpx.Client, path: str) -> None:
    whole, head = client.get(path), client.head(path)
    assert head.status_code == whole.status_code == 200
    assert head.content == b""
    assert head.headers["content-type"] == whole.headers["content-type"]
    assert client.get(path).status_code == 200, "the connection goes on"


@pytest.mark.parametrize(("path", "status"), [("/v0/nothing", 404), ("/v0/topics/t/diff", 405), ("/v0/work", 404)])
def test_a_refused_head_has_no_body_either(client: httpx.Client, path: str, status: int) -> None:
    head = client.head(path)
    assert (head.status_code, head.content) == (status, b"")
    assert client.get("/v0/health").status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/v0/topics/a%2Fb"), ("GET", "/v0/topics/a%2fdiff"), ("POST", "/v0/topics/a%2Fb/diff"),
     ("PUT", "/v0/routers/a%2Fb")],
)  # fmt: skip
def test_a_slash_within_a_name_is_a_bad_name_and_no_path(client: httpx.Client, method: str, path: str) -> None:
    answer = client.request(method, path, json={"source": "a", "dest": "b"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v0/topics/{}/diff", {"from_seq": 1 << 64}), ("/v0/topics/{}/delete", {"before_seq": 1 << 64}),
     ("/v0/topics/{}/ack", {"node": "w", "seqs": [1 << 64]}), ("/v0/topics/{}/claim", {"node": "w", "max": 1 << 64}),
     ("/v0/topics/{}", {"records": [{"data": 1}], "config": {"ttl_ms": 1 << 64}})],
)  # fmt: skip
def test_numbers_beyond_64_bits_are_refused(
    client: httpx.Client, topic: str, path: str, body: dict[str, object]
) -> None:
    answer = client.post(path.format(topic), json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert client.get(f"/v0/topics/{topic}").status_code == 404, "and nothing is made"


@pytest.mark.parametrize(("value", "shown"), [("false", False), ("0", False), ("FALSE", True), ("no", True)])
def test_a_switch_has_four_spellings(client: httpx.Client, topic: str, value: str, shown: bool) -> None:
    answer = client.post(f"/v0/topics/{topic}", params={"return_seqs": value}, json={"records": [{"data": 1}]})
    assert ("seqs" in answer.json()) == shown


def test_a_refusal_waits_for_a_large_body(client: httpx.Client) -> None:
    for _ in range(3):
        answer = client.post("/v0/nothing", content=b"x" * 5_000_000, headers={"content-type": "application/json"})
        assert answer.status_code == 404


def test_an_idle_http2_connection_is_left_alone(shared_broker: Broker) -> None:
    with contextlib.closing(socket.create_connection(("127.0.0.1", shared_broker.http_port))) as idle:
        idle.sendall(PREFACE + b"\0\0\0\4\0\0\0\0\0")
        idle.settimeout(0.4)
        came = b""
        with contextlib.suppress(TimeoutError):
            while part := idle.recv(65536):
                came += part
        kinds = []
        while came:
            size = int.from_bytes(came[:3], "big")
            kinds.append(came[3])
            came = came[9 + size :]
        assert kinds
        assert PING not in kinds, "its interval is 20 s"


def test_a_socket_without_an_upgrade_is_told_what_is_missing(client: httpx.Client) -> None:
    answer = client.get("/v0/ws")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert client.post("/v0/ws").status_code == 405


def test_errors_name_topics_as_clients_do(client: httpx.Client, topic: str) -> None:
    message = client.get(f"/v0/topics/{topic}").json()["error"]["message"]
    assert topic in message
    assert "b'" not in message, json.dumps(message)
