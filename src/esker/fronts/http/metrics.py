"""What a node counts, for Prometheus, for OpenMetrics and as one JSON object.

The metrics are families of `prometheus_client`. Each request collects them anew: what is shown depends on the key.
The library writes both text forms from them, escaping included. The JSON object is made from the same families, so no
form can lack one; there the prefix is dropped and the journal's numbers are under `wal`. docs/metrics.md lists them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, cast

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from esker.engine.config import Durability, TopicType
from esker.engine.replies import TopicStatus
from esker.fronts.access import Key
from esker.fronts.http.front import Front
from esker.fronts.http.payloads import text
from esker.fronts.visible import routers_seen, topics_seen
from esker.node.diskmeter import SYNC_BOUNDS_US

PREFIX: Final = "topics_"
TOPICS_MAX: Final = 1000  # shown one by one
TEXT: Final = CONTENT_TYPE_PLAIN_0_0_4.encode()
OPENMETRICS: Final = openmetrics.CONTENT_TYPE_LATEST.encode()
_UPTIME: Final = PREFIX + "uptime_ms"
_WAL: Final = "wal_"
_END: Final = b"# EOF\n"  # of OpenMetrics


def _gauge(name: str, says: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, says, value)


def _counter(name: str, says: str, value: float) -> Metric:
    assert name.endswith("_total")
    return CounterMetricFamily(PREFIX + name, says, value)


class _Alone(Collector):
    """One family, as the library's writers take it."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> list[Metric]:
        return [self._family]


def collect(front: Front, key: Key, bound: Callable[[float], str] = str) -> list[Metric]:
    """What this key may see: of the topics it reaches, and of its own streams. What concerns the whole node is for keys
    without prefixes. `bound` writes the bounds of histograms."""
    topics = [] if front.broker.stopped is not None else topics_seen(front.broker, key)
    families = [*_node(front, key, topics), *_each(topics[:TOPICS_MAX], len(topics) > TOPICS_MAX)]
    if not key.prefixes:
        families += [*_clients(front), *_disk(front, bound)]
    return families


async def as_text(front: Front, key: Key) -> bytes:
    """Prometheus's text format, version 0.0.4."""
    written = await _written(collect(front, key), generate_latest)
    # The HTTP API promises a counter of this name. The library can write one only with `_total` at its end.
    return written.replace(f"# TYPE {_UPTIME} untyped".encode(), f"# TYPE {_UPTIME} counter".encode())


async def as_openmetrics(front: Front, key: Key) -> bytes:
    """OpenMetrics 1.0.0. It wants bounds as floats: 50.0."""

    def write(family: Collector) -> bytes:
        # All our names are plain, so there is nothing to escape in them: this way is the quick one.
        written = openmetrics.generate_latest(family, openmetrics.ALLOWUTF8)  # type: ignore[no-untyped-call]
        return cast(bytes, written).removesuffix(_END)

    return await _written(collect(front, key, floatToGoString), write) + _END


async def _written(families: Iterable[Metric], write: Callable[[Collector], bytes]) -> bytes:
    """One family in a turn of the loop: with a thousand topics one takes some 10 ms, and others must be served."""
    parts = []
    for family in families:
        parts.append(write(_Alone(family)))
        await asyncio.sleep(0)
    return b"".join(parts)


def as_object(front: Front, key: Key) -> dict[str, object]:
    found: dict[str, object] = {}
    wal: dict[str, object] = {}
    each: dict[str, dict[str, float]] = {}
    for family in collect(front, key):
        name = family.name.removeprefix(PREFIX)
        if name == "consumer_lag":
            found[name] = [{**sample.labels, "lag": sample.value} for sample in family.samples]
        elif name == "topics_by_class":
            found[name] = {sample.labels["class"]: sample.value for sample in family.samples}
        elif family.type == "histogram":
            wal[name.removeprefix(_WAL)] = _histogram(family)
        else:
            for sample in family.samples:
                name = sample.name.removeprefix(PREFIX)
                if "topic" in sample.labels:
                    each.setdefault(sample.labels["topic"], {})[name.removeprefix("topic_")] = sample.value
                elif name.startswith(_WAL):
                    wal[name.removeprefix(_WAL)] = sample.value
                else:
                    found[name] = sample.value
    return {**found, "wal": wal, "per_topic": [{"topic": name, **values} for name, values in each.items()]}


def _histogram(family: Metric) -> dict[str, object]:
    buckets = {sample.labels["le"]: sample.value for sample in family.samples if "le" in sample.labels}
    rest = {sample.name.removeprefix(family.name + "_"): sample.value for sample in family.samples if not sample.labels}
    return {"buckets": buckets, **rest}


def _node(front: Front, key: Key, topics: list[TopicStatus]) -> Iterator[Metric]:
    queues = [status for status in topics if status.config.type == TopicType.QUEUE]
    classes = Counter(status.config.durability for status in topics)
    yield _gauge("topics", "topics", len(topics))
    by_class = GaugeMetricFamily(PREFIX + "topics_by_class", "topics of each durability class", labels=["class"])
    for name in Durability:
        by_class.add_metric([name.value], classes[name])
    yield by_class
    yield _gauge("routers", "routers", _routers(front, key))
    yield _gauge("records_live", "records of logs and queues that can be read", sum(status.count for status in topics))
    yield _gauge("bytes_live", "bytes of data and meta of those records", sum(status.bytes for status in topics))
    yield _gauge("queue_topics", "topics that are queues", len(queues))
    yield _gauge("queue_leases_in_flight", "jobs that are leased", sum(status.in_flight for status in queues))
    streams = front.streams_open[key] if key.prefixes else front.streams_open.total()
    yield _gauge("sse_connections", "open SSE and WebSocket streams", streams)
    yield _gauge("watch_sessions", "watches that can be resumed", front.streams.sessions.count(key))
    lags = _lags(front, key)
    if lags.samples:
        yield lags
    yield _gauge("ready", "1 when the node serves", int(_serves(front)))
    yield _gauge(
        "recovery_progress",
        "part of the journal that was read after the start; always 1, as a node listens after that",
        1,
    )
    uptime = Metric(_UPTIME, "milliseconds since the start", "unknown")
    uptime.add_sample(_UPTIME, {}, front.uptime_ms)
    yield uptime


def _serves(front: Front) -> bool:
    return not front.stopping.is_set() and front.broker.stopped is None and front.broker.stalled is None


def _routers(front: Front, key: Key) -> int:
    if not key.prefixes:
        return front.broker.counts()[1]
    return sum(1 for _ in routers_seen(front.broker, key))


def _lags(front: Front, key: Key) -> Metric:
    says = "seqs that a consumer has yet to read, as it last reported"
    lags = GaugeMetricFamily(PREFIX + "consumer_lag", says, labels=["consumer", "topic", "partition"])
    for consumer in front.consumers.seen(key):
        for topic, offsets in consumer.offsets.items():
            for partition, offset in offsets.items():
                lag = front.consumers.lag(topic, offset)
                if lag is not None:
                    lags.add_metric([consumer.name, topic, partition], lag)
    return lags


def _each(topics: list[TopicStatus], truncated: bool) -> Iterator[Metric]:
    queues = [status for status in topics if status.config.type == TopicType.QUEUE]
    rows = (
        ("topic_head_seq", "last seq that was given", topics, "head_seq"),
        ("topic_earliest_seq", "first seq that can be read", topics, "earliest_seq"),
        ("topic_records_live", "records of the topic that can be read", topics, "count"),
        ("topic_bytes_live", "bytes of data and meta of those records", topics, "bytes"),
        ("topic_queue_ready", "jobs that can be claimed", queues, "ready"),
        ("topic_queue_in_flight", "jobs of the topic that are leased", queues, "in_flight"),
    )
    for name, says, among, field in rows:
        family = GaugeMetricFamily(PREFIX + name, says, labels=["topic"])
        for status in among:
            family.add_metric([text(status.name)], getattr(status, field))
        yield family
    if truncated:
        yield _gauge("topic_metrics_truncated", "1 when there are more topics than are shown one by one", 1)


def _clients(front: Front) -> Iterator[Metric]:
    """What the limits of the HTTP front have done, and what is near them."""
    yield _counter(
        "http_connections_refused_total",
        "connections, and changes of protocol, refused because there were too many",
        front.connections_refused,
    )
    yield _counter(
        "http_accept_failures_total",
        "times that the system had no descriptor or memory for a connection",
        front.accept_failures,
    )
    yield _counter(
        "http_slow_readers_cut_total",
        "connections cut because they did not take their responses",
        front.unsent.cut,
    )
    yield _counter(
        "http_slow_bodies_cut_total",
        "request bodies and messages cut or refused because too much was arriving",
        front.arrivals.cut,
    )
    yield _gauge("http_unsent_bytes", "bytes of large responses that clients have yet to take", front.unsent.used)
    yield _gauge("http_arriving_bytes", "bytes of bodies and messages that are arriving", front.arrivals.used)
    yield _counter(
        "login_attempts_refused_total",
        "attempts to log in, over any protocol, refused because too many had failed",
        front.keys.guesses.refused,
    )


def _number(value: float | str) -> float:
    return float(value) if isinstance(value, str) else value


def _disk(front: Front, bound: Callable[[float], str]) -> Iterator[Metric]:
    facts = front.broker.facts()
    disk, persistence = facts.get("Disk", {}), facts.get("Persistence", {})
    rows = (
        (_counter, "failures_total", "attempts at a checkpoint that failed", "checkpoint_failures"),
        (_gauge, "failing_seconds", "seconds since attempts at a checkpoint began to fail; 0: the last one succeeded",
         "checkpoint_failing_seconds"),
        (_gauge, "age_seconds", "seconds since the last checkpoint was done", "checkpoint_age_seconds"),
    )  # fmt: skip
    for kind, name, says, fact in rows:
        yield kind(f"checkpoint_{name}", says, _number(persistence.get(fact, 0)))
    yield from _wal(disk, persistence)
    yield _sync_times(disk, bound)


def _wal(disk: Mapping[str, float | str], persistence: Mapping[str, float | str]) -> Iterable[Metric]:
    rows = (
        (_counter, "frames_total", "batches of events given to the journal", persistence.get("journal_batches", 0)),
        (_counter, "batches_total", "writes of the journal, each of one batch or many", disk.get("writes", 0)),
        (_counter, "fsyncs_total", "syncs of the journal", disk.get("syncs", 0)),
        (_counter, "bytes_written_total", "bytes written to the journal", disk.get("bytes_written", 0)),
        (_counter, "rotations_total", "segments of the journal begun", disk.get("rotations", 0)),
        (_gauge, "queue_depth", "batches on their way to disk", persistence.get("journal_pending", 0)),
        (
            _gauge,
            "queue_depth_peak",
            "the most that were on their way at once",
            persistence.get("journal_pending_peak", 0),
        ),
        (
            _counter,
            "submit_full_total",
            "writes refused because the journal was behind; always 0: they wait",
            0,
        ),
        (_gauge, "read_only", "1 when the journal takes no more writes", persistence.get("journal_read_only", 0)),
    )
    return (kind(_WAL + name, says, _number(value)) for kind, name, says, value in rows)


def _sync_times(disk: Mapping[str, float | str], bound: Callable[[float], str]) -> Metric:
    buckets = [(bound(us), _number(disk.get(f"syncs_le_{us}", 0))) for us in SYNC_BOUNDS_US]
    buckets.append(("+Inf", _number(disk.get("syncs", 0))))
    says = "duration of a sync of the journal, in microseconds"
    return HistogramMetricFamily(f"{PREFIX}{_WAL}fsync_latency_us", says, buckets, _number(disk.get("sync_us", 0)))
