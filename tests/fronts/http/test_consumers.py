"""Consumers elsewhere report how far they are; their lag is told against the topic as it is."""

from __future__ import annotations

import httpx
import pytest

from esker.fronts.http import consumers as registry
from esker.testing.broker import Broker
from tests.fronts.http.web import Web, listed, part


def test_a_lag_is_what_a_consumer_has_yet_to_read(web: Web, topic: str) -> None:
    web.put(topic)
    web.write(topic, 1, 2, 3)
    told = web.ask("POST", f"/v0/consumers/{topic}", {"topics": {topic: {"0": 2}}, "rows": 1, "info": {"batch": 7}})
    assert told["partitions"] == [{"topic": topic, "partition": "0", "offset": 2, "lag": 2}]
    web.write(topic, 4)
    found = [each for each in listed(web.ask("GET", "/v0/consumers"), "consumers") if each["consumer"] == topic]
    assert [(each["rows"], each["info"]) for each in found] == [(1, {"batch": 7})]
    assert [each["lag"] for each in listed(found[0], "partitions")] == [3]


def test_lags_are_among_the_metrics() -> None:
    with Broker() as broker, Web(broker.http_url) as web:
        web.put("t")
        web.write("t", 1, 2)
        assert "consumer_lag" not in web.client.get("/metrics").text
        web.ask("POST", "/v0/consumers/spark", {"topics": {"t": {"0": 1}, "gone": {"0": 1}}})
        lines = web.client.get("/metrics").text.splitlines()
        assert 'topics_consumer_lag{consumer="spark",partition="0",topic="t"} 2.0' in lines
        told = web.ask("GET", "/metrics", accept="application/json")
        assert told["consumer_lag"] == [{"consumer": "spark", "topic": "t", "partition": "0", "lag": 2}]


def test_a_topic_that_went_has_no_lag(one: Web, topic: str) -> None:
    told = one.ask("POST", f"/v0/consumers/{topic}", {"topics": {topic: {"0": 5}}})
    assert [each["lag"] for each in listed(told, "partitions")] == [None]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("a b", {"topics": {}}),
        ("x" * 129, {"topics": {}}),
        ("c", {"topics": {"no/topic": {"0": 1}}}),
        ("c", {"topics": {"t": {"0": -1}}}),
        ("c", {"topics": {"t": {"0": "1"}}}),
        ("c", {}),
        ("c", {"topics": {}, "info": {str(n): n for n in range(33)}}),
        ("c", {"topics": {"t": {str(n): 1 for n in range(10_001)}}}),
    ],
)
def test_a_bad_report_is_refused(one: Web, name: str, body: dict[str, object]) -> None:
    assert one.refused("POST", f"/v0/consumers/{name}", body, status=400).code == "invalid_request"


def test_reports_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "CONSUMERS_MAX", 3)
    with Broker() as broker, Web(broker.http_url) as web:
        for number in [*range(5), 3]:
            web.ask("POST", f"/v0/consumers/c{number}", {"topics": {}})
        assert [each["consumer"] for each in listed(web.ask("GET", "/v0/consumers"), "consumers")] == ["c2", "c4", "c3"]


def test_reports_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker, Web(broker.http_url) as web:
        web.ask("POST", "/v0/consumers/c", {"topics": {}})
        monkeypatch.setattr(registry, "KEPT_S", -1.0)
        assert web.ask("GET", "/v0/consumers")["consumers"] == []


def test_a_key_reports_and_sees_its_own_topics_only(guarded: httpx.Client) -> None:
    own = {"Authorization": "Bearer k-team"}
    both = {"topics": {"team-a.x": {"0": 1}, "other": {"0": 1}}}
    refused = guarded.post("/v0/consumers/c", json=both, headers=own)
    assert (refused.status_code, part(refused.json(), "error")["code"]) == (403, "forbidden")
    assert guarded.post("/v0/consumers/c", json=both, headers={"Authorization": "Bearer k-all"}).status_code == 200
    assert guarded.get("/v0/consumers", headers=own).json()["consumers"] == [], "one of its topics is another's"
    mine = {"topics": {"team-a.x": {"0": 1}}}
    assert guarded.post("/v0/consumers/c", json=mine, headers=own).status_code == 200
    (seen,) = guarded.get("/v0/consumers", headers=own).json()["consumers"]
    assert [each["topic"] for each in seen["partitions"]] == ["team-a.x"]
    everyone = guarded.get("/v0/consumers", headers={"Authorization": "Bearer k-all"}).json()["consumers"]
    assert sorted(len(each["partitions"]) for each in everyone) == [1, 2], "both of them are called c"
