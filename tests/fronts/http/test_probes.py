"""Health, readiness and metrics, as probes and scrapers read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest
import redis
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

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
    "topics_http_unsent_bytes", "topics_http_arriving_bytes",
}  # fmt: skip
COUNTERS = {
    "topics_uptime_ms", "topics_wal_frames_total", "topics_wal_batches_total", "topics_wal_fsyncs_total",
    "topics_wal_bytes_written_total", "topics_wal_rotations_total", "topics_wal_submit_full_total",
    "topics_checkpoint_failures_total", "topics_http_connections_refused_total", "topics_http_accept_failures_total",
    "topics_http_slow_readers_cut_total", "topics_http_slow_bodies_cut_total", "topics_login_attempts_refused_total",
}  # fmt: skip
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# What Prometheus 3 sends.
SCRAPER = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def _samples(families: Iterable[Metric]) -> dict[str, float]:
    """By name and labels, these in the order of their names."""
    return {
        sample.name + "".join(f",{label}={value}" for label, value in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def _shown(web: Web) -> dict[str, float]:
    return _samples(text_string_to_metric_families(web.client.get("/metrics").text))


def _openmetrics(text: str) -> list[Metric]:
    """Read strictly. Raises ValueError."""
    parse: Callable[[str], Iterable[Metric]] = openmetrics_families
    return list(parse(text))


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
        shown = _shown(web)
        assert (shown["topics_ready"], shown["topics_wal_read_only"]) == (0, 1)
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
            shown = _shown(web)
            assert shown["topics_ready"] == 0
            assert 1 <= shown["topics_wal_queue_depth"] <= shown["topics_wal_queue_depth_peak"]
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
        samples = _samples(text_string_to_metric_families(response.text))
        assert samples["topics_topics"] == 2
        assert samples["topics_topics_by_class,class=fsync"] == 1
        assert samples["topics_records_live"] == 5
        assert samples["topics_queue_leases_in_flight"] == 1
        assert samples["topics_topic_head_seq,topic=log"] == 2
        assert samples["topics_topic_queue_ready,topic=queue"] == 2
        assert samples["topics_wal_fsyncs_total"] >= 1
        assert samples["topics_wal_bytes_written_total"] > 0
        buckets = [samples[f"topics_wal_fsync_latency_us_bucket,le={bound}"] for bound in (50, 100, 250, "+Inf")]
        assert buckets == sorted(buckets)
        assert buckets[-1] == samples["topics_wal_fsync_latency_us_count"] == samples["topics_wal_fsyncs_total"]


@pytest.mark.parametrize("accept", [SCRAPER, "application/openmetrics-text", "Application/OpenMetrics-Text;version=x"])
def test_metrics_as_openmetrics_hold_the_same(accept: str) -> None:
    with Broker() as broker, Web(broker.http_url) as web:
        web.put("log", durable=True)
        web.put("queue", type="queue")
        web.write("log", "x", "y")
        web.ask("POST", "/v0/consumers/spark", {"topics": {"log": {"0": 1}}})
        before = _shown(web)
        response = web.client.get("/metrics", headers={"accept": accept})
        assert response.headers["content-type"] == OPENMETRICS
        families = _openmetrics(response.text)
        kinds = {family.name: family.type for family in families}
        assert {name for name, kind in kinds.items() if kind == "gauge"} == GAUGES | {"topics_consumer_lag"}
        counters = {name.removesuffix("_total") for name in COUNTERS - {"topics_uptime_ms"}}
        assert {name for name, kind in kinds.items() if kind == "counter"} == counters
        assert kinds["topics_uptime_ms"] == "unknown", "a counter has to end in _total there"
        samples = _samples(families)
        uptime = {"topics_uptime_ms_total"}  # what the reader of the other form makes of that name
        assert {name.replace(".0", "") for name in samples} ^ set(before) == uptime | {"topics_uptime_ms"}
        assert samples["topics_topic_head_seq,topic=log"] == 2
        assert samples["topics_consumer_lag,consumer=spark,partition=0,topic=log"] == 2


@pytest.mark.parametrize("name", [b'a "b"\\c\nd', "\u00fc".encode(), b"\xff"])
def test_names_of_any_bytes_can_be_read_in_every_form(name: bytes) -> None:
    with Broker() as broker, Web(broker.http_url) as web, redis.Redis(port=broker.resp_port, protocol=2) as client:
        client.execute_command("ADDJOB", name, "x", 0)
        told = name.decode("utf-8", "backslashreplace")
        expected = f"topics_topic_queue_ready,topic={told}"
        assert _shown(web)[expected] == 1
        text = web.client.get("/metrics", headers={"accept": "application/openmetrics-text"}).text
        assert _samples(_openmetrics(text))[expected] == 1
        (shown,) = listed(web.ask("GET", "/metrics", accept="application/json"), "per_topic")
        assert shown["topic"] == told


def test_what_concerns_the_whole_node_is_not_shown_to_keys_with_prefixes() -> None:
    with Broker(api_keys="all,team::a.:") as broker, Web(broker.http_url) as web:
        seen = []
        for secret in ("all", "team"):
            text = web.client.get("/metrics", headers={"authorization": f"Bearer {secret}"}).text
            seen.append({family.name for family in text_string_to_metric_families(text)})
    hidden = {name.removesuffix("_total") for name in seen[0] - seen[1]}
    whole = ("topics_wal_", "topics_checkpoint_", "topics_http_", "topics_login_")
    assert hidden == {name.removesuffix("_total") for name in seen[0] if name.startswith(whole)}
    assert {"topics_http_unsent_bytes", "topics_login_attempts_refused"} <= hidden


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
    assert _samples(text_string_to_metric_families(text))["topics_topic_metrics_truncated"] == 1
