"""How many sessions and streams there may be, and who may open them."""

from __future__ import annotations

import time

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from esker.fronts.http.streams import sessions
from esker.testing.broker import Broker
from tests.fronts.http.streams.conftest import Opener
from tests.fronts.http.streams.wire import Api, Events, eventually

STREAM = "/v0/watch/{}"


def test_a_session_nobody_made_is_not_found(api: Api, follow: Opener) -> None:
    assert follow("wid_nothing").status == 404


def test_a_client_that_wants_something_else_is_refused(api: Api, topic: str) -> None:
    api.write(topic, 1)
    wid = api.watch({topic: {}})
    response = api._client.get(STREAM.format(wid), headers={"accept": "application/json"})
    assert (response.status_code, response.json()["error"]["code"]) == (406, "not_acceptable")


def test_what_is_wrong_with_a_watch_is_said(api: Api, topic: str) -> None:
    api.write(topic, 1)
    many: dict[str, object] = {f"{topic}.{number}": {} for number in range(257)}
    wrong: list[dict[str, object]] = [
        {}, {"topics": {}}, {"topics": {"!bad": {}}}, {"topics": many}, {"topics": {topic: {"from_seq": -1}}},
        {"topics": {topic: {}}, "limit": "many"},
    ]  # fmt: skip
    for body in wrong:
        assert "error" in api("POST", "/v0/watch", body, status=400)
    missing = api("POST", "/v0/watch", {"topics": {topic: {}, "not-there": {}}}, status=404)["error"]
    assert isinstance(missing, dict)
    assert (missing["code"], missing["detail"]) == ("topic_not_found", {"topic": "not-there"})
    made = api("POST", "/v0/watch?lenient=true", {"topics": {topic: {}, "not-there": {}}})
    assert list(made["topics"]) == [topic]  # type: ignore[arg-type]


def test_only_the_key_that_made_a_session_opens_it() -> None:
    with Broker(api_keys="one:r,two:r,none-w:w,narrow:r:mine.,root") as node:
        with Api(node.http_port, "root") as root:
            root.write("mine.a", 1)
            root.write("yours.a", 1)
        with Api(node.http_port, "one") as one:
            wid = one.watch({"mine.a": {}})
        for key, status in ((None, 401), ("wrong", 401), ("two", 401), ("one", 200)):
            with Events(node.http_port, STREAM.format(wid), key=key) as stream:
                assert stream.status == status, key
        with Events(node.http_port, STREAM.format(wid) + "?token=one") as stream:
            assert stream.status == 200
        for key, status in (("none-w", 403), ("narrow", 403)):
            with Api(node.http_port, key) as other:
                error = other("POST", "/v0/watch", {"topics": {"mine.a": {}, "yours.a": {}}}, status=status)["error"]
                assert isinstance(error, dict)
                assert error["code"] == "forbidden"


def test_there_are_no_more_sessions_than_allowed() -> None:
    with Broker(max_watch_sessions="2") as node, Api(node.http_port) as api:
        api.write("t", 1)
        for _ in range(2):
            api.watch({"t": {}})
        error = api("POST", "/v0/watch", {"topics": {"t": {}}}, status=429)["error"]
        assert isinstance(error, dict)
        assert (error["code"], error["detail"]) == ("throttled", {"limit": "max_watch_sessions", "max": 2})


def test_there_are_no_more_streams_than_allowed_and_one_that_ends_makes_room() -> None:
    with Broker(max_sse_connections="2") as node, Api(node.http_port) as api:
        api.write("t", 1)
        api.put("q", type="queue")
        wid = api.watch({"t": {}})
        url = f"ws://127.0.0.1:{node.http_port}/v0/ws"
        with Events(node.http_port, STREAM.format(wid)) as first, connect(url):
            assert first.status == 200
            for path in (STREAM.format(wid), "/v0/topics/q/work?node=w"):
                with Events(node.http_port, path) as refused:
                    assert refused.status == 429
                    assert refused.headers["retry-after"] == "1"
            with pytest.raises(InvalidStatus) as no_room, connect(url):
                pass
            assert no_room.value.response.status_code == 429

        def admitted() -> bool:
            with Events(node.http_port, STREAM.format(wid)) as again:
                return again.status == 200

        eventually(admitted)


def test_a_key_has_no_more_streams_than_allowed() -> None:
    with Broker(max_sse_connections_per_key="1", api_keys="one,two") as node:
        with Api(node.http_port, "one") as one, Api(node.http_port, "two") as two:
            one.write("t", 1)
            wids = {"one": one.watch({"t": {}}), "two": two.watch({"t": {}})}
        with Events(node.http_port, STREAM.format(wids["one"]), key="one") as first:
            assert first.status == 200
            with Events(node.http_port, STREAM.format(wids["one"]), key="one") as second:
                assert second.status == 429
            with Events(node.http_port, STREAM.format(wids["two"]), key="two") as other:
                assert other.status == 200


def test_a_session_without_a_stream_is_collected_and_an_open_one_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSION_TTL_MS", 100)
    with Broker() as node, Api(node.http_port) as api:
        api.write("t", 1)
        left, kept = api.watch({"t": {}}), api.watch({"t": {}})
        with Events(node.http_port, STREAM.format(kept)) as stream:
            stream.next("record")
            time.sleep(0.3)  # the lifetime of a session
            api.watch({"t": {}})
            with Events(node.http_port, STREAM.format(left)) as gone:
                assert gone.status == 404
            with Events(node.http_port, STREAM.format(kept)) as second:
                assert second.status == 200
            api.write("t", 2)
            stream.next("caught-up")
            assert stream.seqs(1) == [2]
