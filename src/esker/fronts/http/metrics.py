"""What a node counts, as Prometheus reads it and as one JSON object.

Every metric is one row: name, kind, meaning, value. Both forms are made from the rows, so neither can forget one. In
JSON the prefix is dropped and the journal's numbers stand under `wal`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from esker.engine.config import Durability, TopicType
from esker.engine.replies import TopicStatus
from esker.fronts.access import Key
from esker.fronts.http.front import Front
from esker.fronts.http.payloads import text
from esker.fronts.visible import routers_seen, topics_seen
from esker.node.diskmeter import SYNC_BOUNDS_US

PREFIX: Final = "topics_"
TOPICS_MAX: Final = 1000  # shown one by one
_WAL: Final = "wal_"
_LATENCY: Final = "wal_fsync_latency_us"


class Metric(NamedTuple):
    name: str
    kind: str
    says: str
    samples: list[tuple[dict[str, str], int | float]]


def _one(name: str, kind: str, says: str, value: int | float) -> Metric:
    return Metric(name, kind, says, [({}, value)])


def collect(front: Front, key: Key) -> list[Metric]:
    """What this key may see: of the topics it reaches, and of its own streams. The journal is everyone's."""
    topics = [] if front.broker.stopped is not None else topics_seen(front.broker, key)
    shown = [*_node(front, key, topics), *_each(topics[:TOPICS_MAX], len(topics) > TOPICS_MAX)]
    return shown if key.prefixes else [*shown, *_disk(front)]


def _node(front: Front, key: Key, topics: list[TopicStatus]) -> Iterator[Metric]:
    queues = [status for status in topics if status.config.type == TopicType.QUEUE]
    classes = Counter(status.config.durability for status in topics)
    yield _one("topics", "gauge", "topics there are", len(topics))
    yield Metric(
        "topics_by_class", "gauge", "topics of each durability class",
        [({"class": name.value}, classes[name]) for name in Durability],
    )  # fmt: skip
    yield _one("routers", "gauge", "routers there are", _routers(front, key))
    yield _one("records_live", "gauge", "records that can be read", sum(status.count for status in topics))
    yield _one("bytes_live", "gauge", "bytes of their data and meta", sum(status.bytes for status in topics))
    yield _one("queue_topics", "gauge", "topics that are queues", len(queues))
    yield _one("queue_leases_in_flight", "gauge", "jobs leased", sum(status.in_flight for status in queues))
    streams = front.streams_open[key] if key.prefixes else front.streams_open.total()
    yield _one("sse_connections", "gauge", "open SSE and WebSocket streams", streams)
    yield _one("watch_sessions", "gauge", "watches that can be resumed", front.streams.sessions.count(key))
    if lags := _lags(front, key):
        yield Metric("consumer_lag", "gauge", "seqs that a consumer has yet to read, as it last reported", lags)
    yield _one("ready", "gauge", "1 when the node serves", int(_serves(front)))
    yield _one("recovery_progress", "gauge", "part of the journal that was read again after the start", 1)
    yield _one("uptime_ms", "counter", "milliseconds since the start", front.uptime_ms)


def _serves(front: Front) -> bool:
    return not front.stopping.is_set() and front.broker.stopped is None and front.broker.stalled is None


def _routers(front: Front, key: Key) -> int:
    if not key.prefixes:
        return front.broker.counts()[1]
    return sum(1 for _ in routers_seen(front.broker, key))


def _lags(front: Front, key: Key) -> list[tuple[dict[str, str], int | float]]:
    return [
        ({"consumer": consumer.name, "topic": topic, "partition": partition}, lag)
        for consumer in front.consumers.seen(key)
        for topic, offsets in consumer.offsets.items()
        for partition, offset in offsets.items()
        if (lag := front.consumers.lag(topic, offset)) is not None
    ]


def _each(topics: list[TopicStatus], truncated: bool) -> Iterator[Metric]:
    queues = [status for status in topics if status.config.type == TopicType.QUEUE]
    rows = (
        ("topic_head_seq", "last seq given", topics, "head_seq"),
        ("topic_earliest_seq", "first seq that can be read", topics, "earliest_seq"),
        ("topic_records_live", "records that can be read", topics, "count"),
        ("topic_bytes_live", "bytes of their data and meta", topics, "bytes"),
        ("topic_queue_ready", "jobs that can be claimed", queues, "ready"),
        ("topic_queue_in_flight", "jobs leased", queues, "in_flight"),
    )
    for name, says, among, field in rows:
        yield Metric(
            name, "gauge", says, [({"topic": text(status.name)}, getattr(status, field)) for status in among]
        )  # fmt: skip
    if truncated:
        yield _one("topic_metrics_truncated", "gauge", f"1 when only the first {TOPICS_MAX} topics are shown", 1)


def _number(value: int | float | str) -> int | float:
    return value if isinstance(value, int | float) else float(value)


def _disk(front: Front) -> Iterator[Metric]:
    facts = front.broker.facts()
    disk, persistence = facts.get("Disk", {}), facts.get("Persistence", {})
    rows = (
        ("failures_total", "counter", "tries of checkpoints that failed", "checkpoint_failures"),
        ("failing_seconds", "gauge", "for how long none has succeeded since one failed; 0: all is well",
         "checkpoint_failing_seconds"),
        ("age_seconds", "gauge", "since the last one was done", "checkpoint_age_seconds"),
    )  # fmt: skip
    for name, kind, says, fact in rows:
        yield _one(f"checkpoint_{name}", kind, says, _number(persistence.get(fact, 0)))
    yield from _wal(disk, persistence)


def _wal(disk: Mapping[str, int | float | str], persistence: Mapping[str, int | float | str]) -> Iterator[Metric]:
    rows = (
        ("frames_total", "counter", "batches of events given to the journal", persistence.get("journal_batches", 0)),
        ("batches_total", "counter", "writes of the journal, each of one batch or many", disk.get("writes", 0)),
        ("fsyncs_total", "counter", "syncs of the journal", disk.get("syncs", 0)),
        ("bytes_written_total", "counter", "bytes written to the journal", disk.get("bytes_written", 0)),
        ("rotations_total", "counter", "segments begun since the start", disk.get("rotations", 0)),
        ("queue_depth", "gauge", "batches on their way to disk", persistence.get("journal_pending", 0)),
        ("queue_depth_peak", "gauge", "the most there have been", persistence.get("journal_pending_peak", 0)),
        ("submit_full_total", "counter", "writes refused because the journal was behind", 0),
        ("read_only", "gauge", "1 when the journal takes nothing more", persistence.get("journal_read_only", 0)),
    )
    for name, kind, says, value in rows:
        yield _one(_WAL + name, kind, says, _number(value))
    counts: list[tuple[dict[str, str], int | float]] = [
        ({"le": str(bound)}, _number(disk.get(f"syncs_le_{bound}", 0))) for bound in SYNC_BOUNDS_US
    ]
    syncs = _number(disk.get("syncs", 0))
    counts += [({"le": "+Inf"}, syncs), ({"": "sum"}, _number(disk.get("sync_us", 0))), ({"": "count"}, syncs)]
    yield Metric(_LATENCY, "histogram", "how long a sync took, in microseconds", counts)


def as_text(metrics: Iterable[Metric]) -> bytes:
    """Prometheus's text format, version 0.0.4."""
    lines: list[str] = []
    for metric in metrics:
        name = PREFIX + metric.name
        lines += [f"# HELP {name} {metric.says}", f"# TYPE {name} {metric.kind}"]
        for labels, value in metric.samples:
            if metric.kind == "histogram":
                suffix = labels.get("", "bucket")
                labels = {} if "" in labels else labels
            else:
                suffix = ""
            told = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"{name}{'_' + suffix if suffix else ''}{'{' + told + '}' if told else ''} {value}")
    return "\n".join([*lines, ""]).encode()


def as_object(metrics: Iterable[Metric]) -> dict[str, object]:
    found: dict[str, object] = {}
    wal: dict[str, object] = {}
    each: dict[str, dict[str, int | float]] = {}
    for metric in metrics:
        if metric.kind == "histogram":
            wal["fsync_latency_us"] = {
                "buckets": {labels["le"]: value for labels, value in metric.samples if "le" in labels},
                **{labels[""]: value for labels, value in metric.samples if "" in labels},
            }
        elif metric.name.startswith(_WAL):
            wal[metric.name.removeprefix(_WAL)] = metric.samples[0][1]
        elif metric.name == "consumer_lag":
            found[metric.name] = [{**labels, "lag": value} for labels, value in metric.samples]
        elif metric.name == "topics_by_class":
            found[metric.name] = {labels["class"]: value for labels, value in metric.samples}
        elif metric.name.startswith("topic_") and metric.name != "topic_metrics_truncated":
            for labels, value in metric.samples:
                each.setdefault(labels["topic"], {})[metric.name.removeprefix("topic_")] = value
        else:
            found[metric.name] = metric.samples[0][1]
    return {**found, "wal": wal, "per_topic": [{"topic": name, **values} for name, values in each.items()]}


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
