"""Web pages of other sites cannot use a node that asks for no key; programs can, under the names it has."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest
from structlog.testing import capture_logs
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from esker.errors import SettingsError
from esker.fronts.http.doors import Doors
from esker.testing.broker import Broker
from tests.fronts.resp.wire import Wire, encoded

APP = "https://app.example"


@pytest.fixture(scope="module")
def open_node() -> Iterator[Broker]:
    with Broker(allowed_origins=f"{APP}, http://other.example:80/", allowed_hosts="Broker.example.") as running:
        yield running


@pytest.fixture
def web(open_node: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=open_node.http_url) as client:
        yield client


def _code(answer: httpx.Response) -> str:
    assert answer.status_code == 403, answer.text
    return str(answer.json()["error"]["code"])


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:4000", "127.0.0.1.evil.example", "localhost.evil.example", "localhostx", "x",
        "10.0.0.1", "[2001:db8::1]:80", "127.0.0.1@evil.example", "evil.example.",
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v0/topics", "/v0/topics/t/work?node=a", "/v0/health", "/docs"])
def test_a_name_that_is_not_ours_is_refused(web: httpx.Client, host: str, path: str) -> None:
    assert _code(web.get(path, headers={"host": host})) == "host_not_allowed"


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LOCALHOST:4000", "localhost.:1", "a.localhost", "127.0.0.1:4000", "127.8.9.10", "[::1]:4000",
        "[::1]", "broker.example", "BROKER.example:80", "[::ffff:127.0.0.1]:1",
    ],
)  # fmt: skip
def test_a_name_of_ours_is_served(web: httpx.Client, host: str) -> None:
    assert web.get("/v0/topics", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("http2", [False, True])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"}, {"origin": "null"}, {"origin": "http://localhost:1"}, {"origin": ""},
        {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"},
        {"origin": "https://app.example.evil.example"}, {"origin": "http://app.example"},
    ],
)  # fmt: skip
def test_a_page_of_another_site_is_refused(open_node: Broker, headers: dict[str, str], http2: bool) -> None:
    with httpx.Client(base_url=open_node.http_url, http1=not http2, http2=http2) as web:
        write = {"records": [{"data": 1}]}
        for method, path, body in (
            ("GET", "/v0/topics", None), ("POST", "/v0/topics/t", write), ("GET", "/v0/topics/t/work?node=a", None),
            ("DELETE", "/v0/topics/t", None), ("PUT", "/v0/topics/t", {}),
        ):  # fmt: skip
            answer = web.request(method, path, json=body, headers=headers)
            assert _code(answer) == "origin_not_allowed"
            assert "access-control-allow-origin" not in answer.headers
        assert web.get("/docs", headers=headers).status_code == 200, "whoever is led there may read it"
        assert web.get("/v0/topics/t").status_code == 404, "nothing was made"


def test_a_cross_site_request_for_work_leases_nothing(open_node: Broker, web: httpx.Client) -> None:
    with Wire(open_node.resp_port) as wire:
        wire("ADDJOB", "jobs", "x", 0)
        with web.stream("GET", "/v0/topics/jobs/work?node=a", headers={"sec-fetch-site": "cross-site"}) as answer:
            assert answer.status_code == 403
        assert wire("QLEN", "jobs") == 1


def test_our_own_pages_and_those_that_are_allowed_are_served(open_node: Broker, web: httpx.Client) -> None:
    own = {"origin": open_node.http_url, "sec-fetch-site": "same-origin"}
    assert web.get("/v0/topics", headers=own).status_code == 200
    assert "access-control-allow-origin" not in web.get("/v0/topics", headers=own).headers
    assert web.get("/v0/topics", headers={"sec-fetch-site": "none"}).status_code == 200
    for origin in (APP, "http://other.example"):
        allowed = web.get("/v0/topics", headers={"origin": origin, "sec-fetch-site": "cross-site"})
        assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, origin)
        assert allowed.headers["vary"] == "origin"
        refused = web.get("/v0/topics/none", headers={"origin": origin})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (404, origin)


def test_a_stream_can_be_read_by_a_page_that_is_allowed(web: httpx.Client) -> None:
    web.put("/v0/topics/streamed", json={"type": "queue"})
    with web.stream("GET", "/v0/topics/streamed/work?node=a", headers={"origin": APP}) as answer:
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, APP)


def test_a_preflight_is_answered_for_allowed_origins_alone(web: httpx.Client) -> None:
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    allowed = web.options("/v0/topics/t", headers={"origin": APP, **asks})
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == APP
    assert "POST" in allowed.headers["access-control-allow-methods"]
    assert allowed.headers["access-control-allow-headers"] == "authorization,content-type"
    refused = web.options("/v0/topics/t", headers={"origin": "https://evil.example", **asks})
    assert _code(refused) == "origin_not_allowed"
    assert not [name for name in refused.headers if name.startswith("access-control")]
    assert web.options("/v0/topics/t").status_code == 405, "it is no preflight"


def test_with_keys_a_preflight_needs_none_and_a_page_is_known_by_its_key() -> None:
    with Broker(api_keys="k", allowed_origins=APP) as broker, httpx.Client(base_url=broker.http_url) as web:
        asks = {
            "origin": APP,
            "access-control-request-method": "GET",
            "access-control-request-headers": "authorization",
        }
        assert web.options("/v0/topics", headers=asks).status_code == 200
        assert web.options("/v0/topics", headers={**asks, "origin": "https://evil.example"}).status_code == 403
        key = {"authorization": "Bearer k"}
        assert web.get("/v0/topics", headers={"host": "anything.example", **key}).status_code == 200
        readable = web.get("/v0/topics", headers={"origin": APP})
        assert (readable.status_code, readable.headers["access-control-allow-origin"]) == (401, APP)
        other = web.get("/v0/topics", headers={"origin": "https://evil.example", **key})
        assert (other.status_code, "access-control-allow-origin" in other.headers) == (200, False)


@pytest.mark.parametrize(("origin", "host"), [("https://evil.example", None), (None, "evil.example"), ("null", None)])
def test_a_web_socket_of_another_site_is_refused(open_node: Broker, origin: str | None, host: str | None) -> None:
    port = open_node.http_port
    with (
        socket.create_connection(("127.0.0.1", port)) as raw,
        pytest.raises(InvalidStatus) as refused,
        connect(f"ws://{host or '127.0.0.1'}:{port}/v0/ws", origin=origin, sock=raw),  # type: ignore[arg-type]
    ):
        pass
    assert refused.value.response.status_code == 403


def test_a_web_socket_of_our_own_and_of_an_allowed_page_opens(open_node: Broker) -> None:
    url = f"ws://127.0.0.1:{open_node.http_port}/v0/ws"
    for origin in (None, open_node.http_url, APP):
        with connect(url, origin=origin) as ours:  # type: ignore[arg-type]  # a str is one
            ours.send('{"op":"ping"}')
            assert "pong" in str(ours.recv(timeout=20))


@pytest.mark.parametrize(
    ("bound", "addresses", "host", "served"),
    [
        ("127.0.0.1", ["127.0.0.1"], b"broker", False),
        ("broker", ["127.0.0.1"], b"broker:4000", True),
        ("0.0.0.0", ["0.0.0.0"], b"broker:4000", True),  # a container's name
        ("0.0.0.0", ["0.0.0.0"], b"10.1.2.3:4000", True),  # a health check
        ("::", ["::"], b"[fd00::1]:4000", True),
        ("0.0.0.0", ["0.0.0.0"], b"broker.space.svc.cluster.local", True),
        ("0.0.0.0", ["0.0.0.0"], b"evil.example", False),
        ("broker.example", ["10.1.2.3"], b"broker.example:4000", True),
        ("0.0.0.0", ["0.0.0.0"], socket.gethostname().encode(), True),
    ],
)  # fmt: skip
def test_which_names_are_ours_depends_on_where_it_listens(
    bound: str, addresses: list[str], host: bytes, served: bool
) -> None:
    doors = Doors()
    doors.listens(bound, addresses)
    assert doors._is_ours(host) == served
    everything = Doors(allowed_hosts="*")
    everything.listens(bound, addresses)
    assert everything._is_ours(host)


@pytest.mark.parametrize("text", ["app.example", "https://", "https://app.example/path", "x"])
def test_an_origin_that_is_none_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(SettingsError, match="allowed_origins"):
        Doors(allowed_origins=text)


def test_a_request_without_a_host_comes_from_no_browser(open_node: Broker) -> None:
    with socket.create_connection(("127.0.0.1", open_node.http_port), timeout=20) as wire:
        wire.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert wire.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "request_",
    [
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1:7711\r\n\r\n", b"post / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"PUT /x HTTP/1.1\r\n\r\n", b"Host: x\r\n\r\n",
        b"POST /\r\n\r\n",  # without a version
    ],
)  # fmt: skip
def test_the_redis_port_executes_nothing_of_an_http_request(open_node: Broker, request_: bytes) -> None:
    with Wire(open_node.resp_port) as wire:
        wire.send(request_ + encoded("ADDJOB", "forged", "x", 0) + b"ADDJOB forged x 0\r\n")
        assert wire.ended()
    with Wire(open_node.resp_port) as wire:
        assert wire("QLEN", "forged") == 0
        assert wire("ADDJOB", "plain", "POST / HTTP/1.1", 0), "as a payload it is nothing special"


def test_an_http_request_to_the_redis_port_is_told_to_the_operator_once_a_minute() -> None:
    with Broker() as broker, capture_logs() as told:
        for _ in range(3):
            with Wire(broker.resp_port) as wire:
                wire.send(b"POST / HTTP/1.1\r\n")
                assert wire.ended()
        lines = [line for line in told if "HTTP request" in str(line["event"])]
        assert [line["log_level"] for line in lines] == ["warning"]


def test_the_authority_of_http_2_is_its_host(open_node: Broker) -> None:
    with httpx.Client(base_url=open_node.http_url, http1=False, http2=True) as web:
        assert _code(web.get("/v0/topics", headers={"host": "evil.example"})) == "host_not_allowed"
        assert web.get("/v0/topics", headers={"host": "broker.example"}).status_code == 200
