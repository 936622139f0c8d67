"""Health, readiness and metrics, as probes and scrapers read them."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest
import redis

from esker import __version__
from esker.testing.broker import Broker
from esker.testing.faults import FaultyDisk
from tests.fronts.http.web import Web, listed, part

GAUGES = {
    "topics_topics", "topics_topics_by_class", "topics_routers", "topics_records_live", "topics_bytes_live",
    "topics_queue_topics", "topics_queue_leases_in_flight", "topics_sse_connections", "topics_watch_sessions",
    "topics_ready", "topics_recovery_progress", "topics_topic_head_seq", "topics_topic_earliest_seq",
    "topics_topic_records_live", "topics_topic_bytes_live", "topics_topic_queue_ready", "topics_topic_queue_in_flight",
    "topics_wal_queue_depth", "topics_wal_queue_depth_peak", "topics_wal_read_only",
    "topics_checkpoint_age_seconds", "topics_checkpoint_failing_seconds",
}  # fmt: skip
COUNTERS = {
    "topics_uptime_ms", "topics_wal_frames_total", "topics_wal_batches_total", "topics_wal_fsyncs_total",
    "topics_wal_bytes_written_total", "topics_wal_rotations_total", "topics_wal_submit_full_total",
    "topics_checkpoint_failures_total",
}  # fmt: skip
SAMPLE = re.compile(r'([a-z_]+)(\{[a-z]+="[^"]*"\})? (-?[0-9.]+)')


@pytest.mark.parametrize("path", ["/v0/health", "/healthz"])
def test_health(web: Web, path: str) -> None:
    answer = web.client.get(path)
    assert answer.status_code == 200
    told = answer.json()
    assert told.keys() == {"status", "version", "uptime_ms"}
    assert (told["status"], told["version"]) == ("ok", __version__)


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz"])
def test_readiness(web: Web, topic: str, path: str) -> None:
    web.put(topic)
    told = web.client.get(path).json()
    assert told.keys() == {"status", "wal_replay_complete", "topics"}
    assert (told["status"], told["wal_replay_complete"]) == ("ready", True)
    assert told["topics"] >= 1


def test_a_stopped_shard_is_not_ready_and_every_place_says_why() -> None:
    disk = FaultyDisk()
    with Broker(disk=disk) as broker, Web(broker.http_url) as web, redis.Redis(port=broker.resp_port) as client:
        web.put("log", durable=True)
        disk.fail_sync(of=".segment")
        web.refused("POST", "/v0/topics/log", {"records": [{"data": 1}]}, status=500)
        for path in ("/v0/ready", "/readyz"):
            answer = web.client.get(path)
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "not_ready"
            assert "this shard has stopped" in answer.json()["error"]["message"]
        for path in ("/v0/health", "/healthz"):
            answer = web.client.get(path)
            assert answer.status_code == 200, "the process lives"
            assert answer.json()["status"] == "stopped"
            assert "this shard has stopped" in answer.json()["problem"]
        metrics = web.client.get("/metrics")
        assert metrics.status_code == 200
        assert "\ntopics_ready 0\n" in metrics.text
        assert "\ntopics_wal_read_only 1\n" in metrics.text
        info = client.info("persistence")
        assert info["aof_last_write_status"] == "err"
        assert "this shard has stopped" in str(info["stopped"])


def test_a_node_whose_journal_waits_is_not_ready_says_so_at_once_and_recovers() -> None:
    disk = FaultyDisk()
    with (
        Broker(disk=disk, segment_size="64kb") as broker,
        Web(broker.http_url) as web,
        Web(broker.http_url) as other,
        redis.Redis(port=broker.resp_port) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        web.put("log", durable=True)
        web.write("log", "x" * 40_000)
        assert client.ping()  # connected before; what a client says of itself then waits as most commands do
        disk.deny_descriptors()
        try:
            waiting = pool.submit(other.write, "log", "y" * 40_000)  # needs a new segment
            deadline = monotonic() + 30
            while (answer := web.client.get("/readyz")).status_code == 200:
                assert monotonic() < deadline
            assert "waits for" in answer.json()["error"]["message"]
            assert "waits for" in web.client.get("/healthz").json()["problem"]
            assert "\ntopics_ready 0\n" in web.client.get("/metrics").text
            assert "Too many open files" in str(client.info("persistence")["journal_waits_for"])
            assert not waiting.done()
        finally:
            disk.deny_descriptors(denied=False)
        waiting.result(30)
        assert web.client.get("/readyz").status_code == 200
        assert [len(str(record["data"])) for record in listed(web.diff("log"), "records")] == [40_000, 40_000]


def test_metrics_as_prometheus_reads_them() -> None:
    with Broker() as broker, Web(broker.http_url) as web:
        web.put("log", durable=True)
        web.put("queue", type="queue")
        web.write("log", "x", "y")
        web.write("queue", 1, 2, 3)
        web.claim("queue", "w")
        assert web.client.get("/metrics").status_code == 200
        response = web.client.get("/v0/metrics")
        assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        lines = response.text.splitlines()
        assert response.text.endswith("\n")
        kinds = {words[2]: words[3] for line in lines if (words := line.split())[:2] == ["#", "TYPE"]}
        assert {name for name, kind in kinds.items() if kind == "gauge"} == GAUGES
        assert {name for name, kind in kinds.items() if kind == "counter"} == COUNTERS
        assert kinds["topics_wal_fsync_latency_us"] == "histogram"
        samples = {}
        for line in lines:
            if not line.startswith("#"):
                found = SAMPLE.fullmatch(line)
                assert found is not None, line
                samples[found[1] + (found[2] or "")] = float(found[3])
        assert samples["topics_topics"] == 2
        assert samples['topics_topics_by_class{class="fsync"}'] == 1
        assert samples["topics_records_live"] == 5
        assert samples["topics_queue_leases_in_flight"] == 1
        assert samples['topics_topic_head_seq{topic="log"}'] == 2
        assert samples['topics_topic_queue_ready{topic="queue"}'] == 2
        assert samples["topics_wal_fsyncs_total"] >= 1
        assert samples["topics_wal_bytes_written_total"] > 0
        buckets = [samples[f'topics_wal_fsync_latency_us_bucket{{le="{bound}"}}'] for bound in (50, 100, 250, "+Inf")]
        assert buckets == sorted(buckets)
        assert buckets[-1] == samples["topics_wal_fsync_latency_us_count"] == samples["topics_wal_fsyncs_total"]


def test_metrics_as_one_object(web: Web, topic: str) -> None:
    web.write(topic, 1, status=201)
    answer = web.ask("GET", "/v0/metrics", accept="application/json")
    assert {name.removeprefix("topics_") for name in GAUGES if "_topic_" not in name and "wal" not in name} <= set(
        answer
    )
    wal = part(answer, "wal")
    assert {name.removeprefix("topics_wal_") for name in COUNTERS if "wal" in name} <= set(wal)
    assert "buckets" in part(wal, "fsync_latency_us")
    assert any(one["topic"] == topic and one["head_seq"] == 1 for one in listed(answer, "per_topic"))


def test_only_so_many_topics_are_shown_one_by_one() -> None:
    with Broker() as broker, Web(broker.http_url) as web:
        for number in range(1001):
            web.put(f"t{number:04}")
        text = web.client.get("/v0/metrics").text
    assert text.count("topics_topic_head_seq{") == 1000
    assert "\ntopics_topic_metrics_truncated 1\n" in text
