"""Refusals that belong to no single endpoint: routes, methods, media types, bodies, cursors."""

from __future__ import annotations

import pytest

from tests.contracts.http.api import Api, Json, parsed, refusal

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("path", ["/nothing", "/topics/a/nothing", "/topics/a/b/c", "/routers/a/b", "/watch/a/b"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_path_is_not_found(api: Api, method: str, path: str) -> None:
    body: Json | None = {} if method == "POST" else None
    api.refused(method, path, body, status=404, code="not_found")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/topics/a/diff"),
        ("GET", "/topics/a/diff"),
        ("GET", "/topics/a/delete"),
        ("GET", "/topics/a/claim"),
        ("POST", "/topics"),
        ("PATCH", "/topics/a"),
        ("POST", "/routers/a"),
        ("GET", "/watch"),
        ("POST", "/topics/a/work"),
        ("POST", "/health"),
        ("DELETE", "/metrics"),
    ],
)
def test_a_method_that_does_not_belong_there_is_told_so_in_json(api: Api, method: str, path: str) -> None:
    body: Json | None = {} if method in ("PUT", "POST", "PATCH") else None
    api.refused(method, path, body, status=405, code="method_not_allowed")


CALLS = [
    ("PUT", "/topics/{0}"), ("POST", "/topics/{0}"), ("POST", "/topics/{0}/diff"), ("POST", "/topics/{0}/delete"),
    ("PUT", "/routers/{0}"), ("POST", "/watch"), ("POST", "/topics/{0}/claim"), ("POST", "/topics/{0}/ack"),
    ("POST", "/topics/{0}/nack"), ("POST", "/topics/{0}/extend"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_a_body_must_call_itself_json(api: Api, topic: str, method: str, path: str) -> None:
    api.put(topic, type="queue")
    for headers in ({}, {"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"}):
        response = api.http.request(method, path.format(topic), content=b"{}", headers=headers)
        refusal(parsed(response, 415), "unsupported_media_type")


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "application/json;x=y"])
def test_a_content_type_that_begins_with_json_is_enough(api: Api, topic: str, kind: str) -> None:
    response = api.http.post(f"/topics/{topic}", content=b'{"records":[{"data":1}]}', headers={"content-type": kind})
    assert response.status_code == 201


@pytest.mark.parametrize(("method", "path"), CALLS)
@pytest.mark.parametrize("content", [b"{", b"nonsense", b'{"a":1}}', b"\xff\xfe", b"[1,]", b'"text"', b"3", b"null"])
def test_a_body_that_is_not_a_json_object_is_refused(
    one: Api, topic: str, method: str, path: str, content: bytes
) -> None:
    one.put(topic, type="queue")
    response = one.http.request(method, path.format(topic), content=content, headers=JSON)
    refusal(parsed(response, 400), "invalid_request")


@pytest.mark.parametrize(
    "config",
    [
        {"type": "heap"},
        {"ttl_ms": -1},
        {"ttl_ms": "1"},
        {"ttl_ms": 1.5},
        {"cap_records": -1},
        {"discard": "new"},
        {"durability": "stone"},
        {"durable": "yes"},
        {"priority": "high"},
        {"auto_create": 1},
        {"lease_ms": -5},
        {"max_deliveries": -1},
        {"dead_letter": 5},
        {"dead_letter": "bad name"},
    ],
)
def test_a_bad_config_is_refused(api: Api, topic: str, config: dict[str, object]) -> None:
    api.refused("PUT", f"/topics/{topic}", config, status=400, code="invalid_request")
    api.refused("GET", f"/topics/{topic}", status=404, code="topic_not_found")


@pytest.mark.parametrize("path", ["/topics", "/routers"])
@pytest.mark.parametrize("cursor", ["nonsense", "!!!!", "e30", "bm90IGpzb24="])
def test_a_corrupt_cursor_is_refused(api: Api, path: str, cursor: str) -> None:
    api.refused("GET", f"{path}?cursor={cursor}", status=400, code="invalid_request")


def test_a_body_over_the_limit_is_refused_before_it_is_read(one: Api, topic: str) -> None:
    huge = b'{"records":[{"data":"' + b"x" * (65 * 1024 * 1024) + b'"}]}'
    response = one.http.post(f"/topics/{topic}", content=huge, headers=JSON)
    refusal(parsed(response, 413), "payload_too_large")
    one.refused("GET", f"/topics/{topic}", status=404, code="topic_not_found")


def test_errors_carry_no_performance(api: Api, topic: str) -> None:
    assert api.ask("GET", f"/topics/{topic}", status=404).keys() == {"error"}


def test_a_stream_must_be_acceptable(api: Api, topic: str) -> None:
    api.put(topic, type="queue")
    wid = api.ask("POST", "/watch", {"topics": {topic: {}}})["wid"]
    for path in (f"/watch/{wid}", f"/topics/{topic}/work?node=w"):
        api.refused("GET", path, status=406, code="not_acceptable", headers={"accept": "application/json"})
