"""Whatever comes in, the server answers in its own words and goes on."""

from __future__ import annotations

import contextlib
import json
import socket

import httpx
import pytest

from esker.testing.broker import Broker
from tests.fronts.http.web import Refused, Web, listed

JSON = {"content-type": "application/json"}


def _post(web: Web, path: str, content: bytes) -> Refused:
    response = web.client.post(path, content=content, headers=JSON)
    assert response.status_code == 400, response.text
    return Refused(response.json())


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"nonsense", b"[]", b"5", b'"text"', b"null", b'{"records":[{"data":1}]}x', b'{"records":[{"data":01}]}',
        b'{"records":[{"data":NaN}]}', b'{"records":[{"data":"\xff\xfe"}]}', b"\xff\xfe\x00", b'{"records":[{"data":1}',
        b'{"records":' + b"[" * 100_000, b'{"records":[{"data":' + b"[" * 50_000 + b"]" * 50_000 + b"}]}",
        b'{"records":[{"data":"\\ud800"}]}', b'{"records":[{"data":"a\nb"}]}', b" " * 1000, b"\x00",
    ],
)  # fmt: skip
def test_what_is_no_json_object_is_refused(web: Web, topic: str, body: bytes) -> None:
    assert _post(web, f"/v0/topics/{topic}", body).code == "invalid_request"
    web.refused("GET", f"/v0/topics/{topic}", status=404)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "records"), ({"records": []}, "records"), ({"records": None}, "records"), ({"records": {}}, "records"),
        ({"records": [1]}, "records"), ({"records": [{}]}, "data"), ({"records": [{"data": 1, "tag": 5}]}, "tag"),
        ({"records": [{"data": 1, "tag": "x" * 257}]}, "records[0].tag"),
        ({"records": [{"data": 1}, {"data": 1, "node": "x" * 129}]}, "records[1].node"),
        ({"records": [{"data": 1}], "node": "é" * 65}, "node"),
        ({"records": [{"data": 1, "meta": []}]}, "meta"), ({"records": [{"data": 1, "meta": "x"}]}, "meta"),
        ({"records": [{"data": 1, "meta": {str(n): n for n in range(65)}}]}, "meta"),
        ({"records": [{"data": 1, "meta": {"k": "x" * 16_384}}]}, "meta"),
        ({"records": [{"data": 1}], "idempotency_key": "x" * 257}, "idempotency_key"),
        ({"records": [{"data": 1}], "create": "yes"}, "create"),
        ({"records": [{"data": 1}], "config": {"ttl_ms": -1}}, "ttl_ms"),
        ({"records": [{"data": 1}], "config": 5}, "config"),
    ],
)  # fmt: skip
def test_a_bad_field_is_refused_by_its_name(one: Web, topic: str, body: dict[str, object], named: str) -> None:
    refused = one.refused("POST", f"/v0/topics/{topic}", body, status=400)
    assert refused.code == "invalid_request"
    assert named in str(refused.message)
    one.refused("GET", f"/v0/topics/{topic}", status=404)


@pytest.mark.parametrize(
    "body",
    [
        {"from_seq": -1}, {"from_seq": "1"}, {"from_seq": 1.5}, {"limit": -1}, {"node": 5}, {"node": [5]},
        {"node": "x" * 129}, {"wait_ms": None}, {"include_tags": 1},
    ],
)  # fmt: skip
def test_a_bad_diff_is_refused(one: Web, topic: str, body: dict[str, object]) -> None:
    one.put(topic)
    refused = one.refused("POST", f"/v0/topics/{topic}/diff", body, status=400)
    assert refused.code == "invalid_request"
    assert next(iter(body)) in str(refused.message)


def test_unknown_fields_are_ignored_everywhere(one: Web, topic: str) -> None:
    more: dict[str, object] = {"whatever": [1, {"a": None}]}
    one.ask("PUT", f"/v0/topics/{topic}", {"type": "queue", **more}, 201)
    one.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": 1, **more}], **more})
    assert [record["$seq"] for record in listed(one.diff(topic, **more), "records")] == [1]
    assert len(one.claim(topic, "w", **more)) == 1


def test_limits_are_met_exactly(web: Web, topic: str) -> None:
    web.put(topic)
    largest = "x" * (1024 * 1024 - 2)
    web.write(topic, largest)
    refused = web.refused("POST", f"/v0/topics/{topic}", {"records": [{"data": largest + "x"}]}, status=400)
    assert refused.code == "record_too_large"
    with_meta = {"records": [{"data": largest, "meta": {"a": 1}}]}
    assert web.refused("POST", f"/v0/topics/{topic}", with_meta, status=400).code == "record_too_large"
    web.ask("POST", f"/v0/topics/{topic}?return_seqs=0", {"records": [{"data": 1}] * 10_000})
    refused = web.refused("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}] * 10_001}, status=400)
    assert (refused.code, refused.detail) == ("batch_too_large", {"records": 10_001, "max": 10_000})
    edges = {"data": 1, "tag": "t" * 256, "node": "n" * 128, "meta": {str(n): n for n in range(64)}}
    web.ask("POST", f"/v0/topics/{topic}", {"records": [edges], "idempotency_key": "k" * 256})
    assert web.state(topic)["head_seq"] == 10_002


def test_a_body_past_the_limit_is_413_and_never_parsed(one: Web, topic: str) -> None:
    junk = b"\xff" * (64 * 1024 * 1024)
    assert _post(one, f"/v0/topics/{topic}", junk).code == "invalid_request", "exactly at the limit: it is looked at"
    response = one.client.post(f"/v0/topics/{topic}", content=junk + b"x", headers=JSON)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "payload_too_large")
    assert one.client.get("/v0/health").status_code == 200


def test_a_body_of_unknown_length_is_measured_as_it_comes() -> None:
    with Broker(max_body_bytes="1000") as broker:
        for http2 in (False, True):
            with httpx.Client(base_url=broker.http_url, http1=not http2, http2=http2) as client:
                chunks = (b"x" * 300 for _ in range(10))
                response = client.post("/v0/topics/t", content=chunks, headers=JSON)
                assert (response.status_code, response.json()["error"]["code"]) == (413, "payload_too_large")


def test_a_client_that_asks_first_is_told_before_it_sends(shared_broker: Broker) -> None:
    with socket.create_connection(("127.0.0.1", shared_broker.http_port), timeout=10) as wire:
        wire.sendall(
            b"POST /v0/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n"
        )
        assert wire.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_write_that_breaks_off_appends_nothing(one: Web, shared_broker: Broker, topic: str) -> None:
    one.put(topic)
    body = json.dumps({"records": [{"data": "x" * 1000}]}).encode()
    for cut in (1, len(body) // 2, len(body) - 1):
        with socket.create_connection(("127.0.0.1", shared_broker.http_port)) as wire:
            head = f"POST /v0/topics/{topic} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            wire.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:cut])
    assert one.write(topic, "whole")["seqs"] == [1]


@pytest.mark.parametrize(
    "line",
    [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"NONSENSE / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n" * 3 + b"\r\n"],
)
def test_what_is_no_http_harms_nobody(one: Web, shared_broker: Broker, line: bytes) -> None:
    with socket.create_connection(("127.0.0.1", shared_broker.http_port), timeout=10) as wire:
        wire.sendall(line)
        with contextlib.suppress(OSError):  # it may have hung up on us already
            wire.shutdown(socket.SHUT_WR)
            while wire.recv(4096):
                continue
    assert one.client.get("/v0/health").status_code == 200


def test_odd_paths_and_queries_harm_nobody(one: Web) -> None:
    for path in ("/%ff", "/v0/topics/%ff", "/v0/topics/a%00b", "/v0//topics", "/v0/topics/a/", "/v0/topics//diff"):
        assert one.client.get(path).status_code in (400, 404, 405)
    for query in ("?touch=%ff", "?&&==&a", "?prefix=%ff%fe", "?page_size=", "?cursor="):
        assert one.client.get(f"/v0/topics{query}").status_code == 200


def test_a_key_in_the_header_has_its_bound_even_where_the_body_has_one(one: Web, topic: str) -> None:
    body = {"records": [{"data": 1}], "idempotency_key": "k"}
    refused = one.refused("POST", f"/v0/topics/{topic}", body, status=400, Idempotency_Key="k" * 257)
    assert "Idempotency-Key has 257 bytes" in str(refused.message)
