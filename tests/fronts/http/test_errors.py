"""Every row of the error table, in the one shape that errors have."""

from __future__ import annotations

import pytest

from esker.errors import Code
from esker.fronts.http.errors import STATUSES
from tests.fronts.http.web import Web

CODES = {
    "invalid_request", "batch_too_large", "record_too_large", "unauthorized", "forbidden", "topic_not_found",
    "router_not_found", "not_found", "method_not_allowed", "not_acceptable", "router_cycle",
    "topic_exists_incompatible", "topic_not_empty", "not_a_queue", "payload_too_large", "unsupported_media_type",
    "topic_full", "throttled", "internal", "not_ready", "shutting_down",
}  # fmt: skip


def test_every_refusal_of_the_engine_has_its_status_and_its_word() -> None:
    assert STATUSES.keys() == set(Code)
    assert {word for _, word in STATUSES.values()} <= CODES


@pytest.mark.parametrize("path", ["/", "/v0", "/v1/topics", "/v0/nothing", "/v0/topics/a/nothing", "/v0/topics/"])
def test_an_unknown_path_is_404(web: Web, path: str) -> None:
    assert web.refused("GET", path, status=404).code == "not_found"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v0/topics/a/diff", "POST"), ("GET", "/v0/topics/a/claim", "POST"), ("POST", "/v0/topics", "GET"),
        ("PATCH", "/v0/topics/a", "DELETE, GET, POST, PUT"), ("DELETE", "/v0/routers", "GET"),
        ("POST", "/v0/health", "GET"), ("OPTIONS", "/v0/metrics", "GET"),
    ],
)  # fmt: skip
def test_a_wrong_method_is_405_and_the_right_ones_are_named(web: Web, method: str, path: str, allowed: str) -> None:
    response = web.client.request(method, path)
    assert (response.status_code, response.json()["error"]["code"]) == (405, "method_not_allowed")
    assert response.headers["allow"] == allowed


@pytest.mark.parametrize("media", [None, "text/plain", "application/x-www-form-urlencoded", "application/jso"])
def test_a_body_of_another_type_is_415(web: Web, topic: str, media: str | None) -> None:
    headers = {} if media is None else {"content-type": media}
    for path in ("", "/diff", "/delete", "/claim", "/ack"):
        response = web.client.post(f"/v0/topics/{topic}{path}", content=b'{"records":[{"data":1}]}', headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize("media", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_json_is_taken_however_it_is_spelt(one: Web, topic: str, media: str) -> None:
    response = one.client.post(
        f"/v0/topics/{topic}", content=b'{"records":[{"data":1}]}', headers={"content-type": media}
    )
    assert response.status_code == 201


def test_an_empty_body_means_all_defaults_where_there_are_some(web: Web, topic: str) -> None:
    assert web.client.put(f"/v0/topics/{topic}").status_code == 201
    assert web.client.post(f"/v0/topics/{topic}/diff").status_code == 200
    assert web.refused("POST", f"/v0/topics/{topic}", status=400).code == "invalid_request"


def test_a_full_topic_refuses_and_appends_nothing(web: Web, topic: str) -> None:
    web.put(topic, cap_records=3, discard="reject")
    web.write(topic, 1, 2)
    body = {"records": [{"data": 1}, {"data": 2}]}
    refused = web.refused("POST", f"/v0/topics/{topic}", body, status=422)
    assert refused.code == "topic_full"
    assert refused.detail == {"cap_records": 3, "cap_bytes": 0, "head_seq": 2, "earliest_seq": 1}
    assert web.state(topic)["head_seq"] == 2
    never = web.refused("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}] * 4}, status=400)
    assert never.code == "record_too_large", "it would not fit an empty topic either"


@pytest.mark.parametrize("path", ["/v0/topics/t/file", "/v0/topics/t/records/nothing", "/v0/topics/t/claim/more"])
def test_a_path_that_is_nearly_one_of_ours_is_404(web: Web, path: str) -> None:
    for method in ("GET", "POST"):
        assert web.refused(method, path, status=404).code == "not_found"
