"""Caps of a node: what is refused at them, with which detail, and what goes on working."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.contracts.http.api import Api, Json, eventually, part
from tests.contracts.http.events import Events
from tests.crash.process import NodeProcess

CAPS = {
    "max_topics": "6", "max_routers": "1", "max_watch_sessions": "3", "max_sse_connections": "2",
    "max_total_bytes": "2000", "max_body_bytes": "5000",
}  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    options = [word for name, value in CAPS.items() for word in ("--set", f"{name}={value}")]
    with NodeProcess(tmp_path_factory.mktemp("small") / "data", *options) as node:
        yield node


@pytest.fixture(scope="module")
def tight(small: NodeProcess) -> Iterator[Api]:
    with Api(small.http_port) as api:
        yield api


def _throttled(api: Api, method: str, path: str, body: object) -> dict[str, object]:
    response = api.http.request(method, path, json=body)
    assert int(response.headers["retry-after"]) >= 1
    return api.refused(method, path, body, status=429, code="throttled")


def test_caps_refuse_creations_with_their_name_and_nothing_else(tight: Api) -> None:
    for name in "abcd":
        tight.put(name)
    tight.router("r", "a", "b")
    # The cap of routers is looked at before any topic is made.
    assert _throttled(tight, "PUT", "/routers/s", {"source": "c", "dest": "x"}) == {"limit": "max_routers", "max": 1}
    tight.refused("GET", "/topics/x", status=404, code="topic_not_found")
    tight.router("r", "a", "b", 200)
    tight.put("e")
    tight.put("f")
    assert _throttled(tight, "PUT", "/topics/g", {}) == {"limit": "max_topics", "max": 6}
    assert _throttled(tight, "POST", "/topics/g", {"records": [{"data": 1}]}) == {"limit": "max_topics", "max": 6}
    tight.put("f", 200)
    tight.write("f", 1)
    tight.ask("DELETE", "/topics/f")
    tight.put("g")


def test_the_bytes_of_all_topics_are_capped(tight: Api) -> None:
    tight.write("c", "x" * 1500)
    detail = _throttled(tight, "POST", "/topics/d", {"records": [{"data": "x" * 1500}]})
    assert detail == {"limit": "max_total_bytes", "max": 2000}
    tight.delete("c", before_seq=100)
    tight.write("d", "x" * 1500)


def test_sessions_and_streams_are_capped(tight: Api) -> None:
    body: Json = {"topics": {"a": {}}}
    wids = [tight.ask("POST", "/watch", body)["wid"] for _ in range(3)]
    assert _throttled(tight, "POST", "/watch", body) == {"limit": "max_watch_sessions", "max": 3}
    with ExitStack() as opened:
        for wid in wids[:2]:
            opened.enter_context(Events(tight, f"/watch/{wid}")).next("caught-up")
        third = opened.enter_context(Events(tight, f"/watch/{wids[2]}"))
        assert third.response.headers["retry-after"]
        assert part(third.refused(429), "error")["code"] == "throttled"
        with pytest.raises(InvalidStatus) as refused, connect(f"ws://127.0.0.1:{tight.port}/v0/ws"):
            raise AssertionError("a socket over the cap was opened")
        assert refused.value.response.status_code == 429


def test_the_limit_of_a_body_is_a_setting(tight: Api) -> None:
    tight.refused("POST", "/topics/c", {"records": [{"data": "x" * 6000}]}, status=413, code="payload_too_large")


@pytest.fixture(scope="module")
def per_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    caps = ("api_keys=k,other", "max_sse_connections_per_key=1", "max_inflight_per_key=1", "probe_auth=1")
    options = [word for cap in caps for word in ("--set", cap)]
    with NodeProcess(tmp_path_factory.mktemp("per-key") / "data", *options) as node:
        yield node


def test_a_key_has_so_many_streams_and_requests_at_a_time_and_others_are_not_touched(per_key: NodeProcess) -> None:
    with Api(per_key.http_port, key="k") as api, Api(per_key.http_port, key="other") as other:
        api.put("t")
        waiting = threading.Thread(target=api.diff, args=("t",), kwargs={"wait_ms": 700})
        waiting.start()
        eventually(lambda: api.http.get("/topics/t?touch=false").status_code == 429)
        assert other.state("t")["topic"] == "t"
        waiting.join()
        assert api.state("t")["topic"] == "t"
        wids = [api.ask("POST", "/watch", {"topics": {"t": {}}})["wid"] for _ in range(2)]
        with Events(api, f"/watch/{wids[0]}", key="k") as first, Events(api, f"/watch/{wids[1]}", key="k") as second:
            first.next("caught-up")
            assert part(second.refused(429), "error").keys() == {"code", "message"}
            assert api.state("t")["topic"] == "t", "an open stream holds no slot of a request"


def test_probes_can_be_made_to_need_a_key(per_key: NodeProcess) -> None:
    with Api(per_key.http_port) as nobody, Api(per_key.http_port, key="k") as api:
        for path in ("/health", "/ready"):
            nobody.refused("GET", path, status=401, code="unauthorized")
            assert api.http.get(path).status_code == 200
