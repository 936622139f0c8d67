"""Health, readiness, metrics; and small things that real clients rely on."""

from __future__ import annotations

import re

import pytest

from tests.contracts.http.api import Api, data, part, rows, whole
from tests.contracts.http.events import Events
from tests.contracts.http.shapes import INT, TEXT, check

GAUGES = [
    "topics_topics", "topics_routers", "topics_records_live", "topics_bytes_live", "topics_queue_topics",
    "topics_queue_leases_in_flight", "topics_sse_connections", "topics_watch_sessions", "topics_ready",
    "topics_recovery_progress", "topics_uptime_ms", "topics_wal_frames_total", "topics_wal_batches_total",
    "topics_wal_fsyncs_total", "topics_wal_bytes_written_total", "topics_wal_rotations_total",
    "topics_wal_queue_depth", "topics_wal_queue_depth_peak", "topics_wal_submit_full_total", "topics_wal_read_only",
    "topics_wal_fsync_latency_us_count", "topics_wal_fsync_latency_us_sum",
]  # fmt: skip


@pytest.mark.parametrize("path", ["/v0/health", "/healthz"])
def test_health_is_told_without_performance(api: Api, path: str) -> None:
    response = api.http.get(f"http://127.0.0.1:{api.port}{path}")
    assert response.status_code == 200
    check(response.json(), {"status": "ok", "version": TEXT, "uptime_ms": INT})


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz"])
def test_readiness_is_told_without_performance(api: Api, path: str) -> None:
    response = api.http.get(f"http://127.0.0.1:{api.port}{path}")
    assert response.status_code == 200
    check(response.json(), {"status": "ready", "wal_replay_complete": True, "topics": INT})


def test_metrics_are_prometheus_text_when_nothing_is_asked_for(api: Api, topic: str) -> None:
    api.put(topic, type="queue", durable=True)
    api.write(topic, 1, 2)
    api.claim(topic, "w")
    request = api.http.build_request("GET", "/metrics")
    del request.headers["accept"]
    response = api.http.send(request)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = dict(re.findall(r"^(\w+(?:\{[^}]*\})?) ([-+.\dInfe]+)$", response.text, re.MULTILINE))
    missing = [name for name in GAUGES if name not in values]
    assert not missing
    assert float(values[f'topics_topic_head_seq{{topic="{topic}"}}']) == 2
    assert float(values[f'topics_topic_queue_ready{{topic="{topic}"}}']) == 1
    assert float(values[f'topics_topic_queue_in_flight{{topic="{topic}"}}']) == 1
    for name in ("earliest_seq", "records_live", "bytes_live"):
        assert f'topics_topic_{name}{{topic="{topic}"}}' in values
    assert float(values['topics_topics_by_class{class="fsync"}']) >= 1
    for bound in ("50", "100", "250", "500", "1000", "5000", "10000", "50000", "100000", "+Inf"):
        assert f'topics_wal_fsync_latency_us_bucket{{le="{bound}"}}' in values


def test_metrics_are_json_when_that_is_asked_for(api: Api) -> None:
    answer = api.ask("GET", "/metrics", headers={"accept": "application/json"})
    for name in ("topics", "routers", "records_live", "bytes_live", "sse_connections", "watch_sessions", "uptime_ms"):
        assert name in answer
    assert "frames_total" in part(answer, "wal")


# -- what real clients do


def test_a_client_session_from_start_to_cleanup(api: Api, topic: str) -> None:
    """Write, read through a router, follow, resume, page through the lists, clean up."""
    source, dest, name = f"{topic}.a", f"{topic}.b", f"{topic}.a->{topic}.b"
    api.put(source)
    api.put(dest)
    api.router(name.replace(">", "%3E"), source, dest)
    api.write(source, "one", "two")
    assert data(api.diff(dest)) == ["one", "two"]
    assert whole(api.ask("GET", f"/routers/{name}"), "forwarded_total") >= 1
    path = f"/watch/{api.ask('POST', '/watch', {'topics': {dest: {'from_seq': 0}}})['wid']}"
    with Events(api, path) as events:
        first = events.next("record")
        assert data(first.data) == ["one", "two"]
        events.next("caught-up")
        api.write(source, "live")
        assert data(events.next("record").data) == ["live"]
    with Events(api, path, last_id=first.id) as again:
        assert again.records(1) == [3]
    for kind, field in (("routers", "router"), ("topics", "topic")):
        found: list[str] = []
        cursor = ""
        while True:
            page = api.ask("GET", f"/{kind}?page_size=1000{cursor}")
            found += [str(row[field]) for row in rows(page, kind)]
            if "next_cursor" not in page:
                break
            cursor = f"&cursor={page['next_cursor']}"
        assert found == sorted(found)
        assert {"routers": name, "topics": dest}[kind] in found
    api.ask("DELETE", f"/routers/{name}")
    for gone in (source, dest):
        assert api.ask("DELETE", f"/topics/{gone}")["deleted"] is True


def test_a_cursor_is_taken_as_it_was_given_whatever_signs_it_holds(api: Api, topic: str) -> None:
    """Padding and pluses of base64 reach the node both as they are and percent-encoded."""
    names = [f"{topic}.{'n' * length}" for length in range(12)]
    for name in names:
        api.put(name)
    for signs in ({}, {"=": "%3D", "+": "%2B", "/": "%2F"}):
        encoded = str.maketrans(signs)
        found: list[str] = []
        cursor = ""
        for _ in names:
            page = api.ask("GET", f"/topics?prefix={topic}.&page_size=1{cursor}")
            found += [str(row["topic"]) for row in rows(page, "topics")]
            if "next_cursor" in page:
                cursor = f"&cursor={str(page['next_cursor']).translate(encoded)}"
        assert found == sorted(names)
