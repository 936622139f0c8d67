"""Writing to a log: all records of a command get seqs in a row, or none is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from esker.engine import commands, events, limits
from esker.engine.config import TopicConfig
from esker.engine.dedup import write_key
from esker.engine.events import RecordBody
from esker.engine.logs import retention
from esker.engine.logs.partition import LogPartition
from esker.engine.meta import meta_problem
from esker.engine.queues import pressure
from esker.engine.replies import Written
from esker.engine.topic import Topic
from esker.engine.topics import create_problem, make, not_found
from esker.errors import Code, InvariantBroken, Refusal, quoted

if TYPE_CHECKING:
    from esker.engine.machine import Machine


def append(
    machine: Machine, command: commands.Append, topic: Topic | None, config: TopicConfig, now: int
) -> Written | Refusal:
    """An `Append` on a log, or on a topic that is yet to be made as one (`topic` None)."""
    bodies = bodies_of(command.records)
    if isinstance(bodies, Refusal):
        return bodies
    problem = _topic_problem(machine, command, topic, config)
    if problem is not None:
        return problem
    log = None if topic is None else topic.log
    key = write_key(command.key) if command.key else b""
    if log is not None and key:
        known = log.dedup.find(key, now - config.idempotency_window_ms)
        if known is not None:
            last = known.seq + known.count - 1
            return Written(known.seq, last, last, created=False, deduped=True)
    problem = pressure.room_problem(machine, now) or bodies_problem(machine, log, config, bodies, now)
    if problem is not None:
        return problem
    created = log is None
    if log is None:
        log = log_of(make(machine, command.topic, config, now, lazy=False))
    first = append_bodies(machine, log, bodies, now)
    last = first + len(bodies) - 1
    if key:
        machine.record(log, events.KeyRemembered(log.topic.number, 0, now, key, first, len(bodies)))
    return Written(first, last, last, created, deduped=False)


def append_bodies(machine: Machine, log: LogPartition, bodies: list[RecordBody], now: int) -> int:
    """Writes ready-made records and returns the first seq. Nothing is checked: see `bodies_problem`.

    A log that drops its oldest is brought within its caps again; that may take some of these, too.
    """
    machine.reserve(log, len(bodies))
    first = log.next_seq
    machine.record(log, events.RecordsAppended(log.topic.number, 0, first, now, bodies))
    has_grown(machine, log, now)
    return first


def has_grown(machine: Machine, log: LogPartition, now: int) -> None:
    """After records came, by whatever event: caps apply, routers have work, watchers are woken."""
    topic = log.topic
    config = topic.config
    if config.cap_records or config.cap_bytes:
        retention.enforce_caps(machine, log, now)
    machine.routers.source_moved(topic)
    if topic.name in machine.watched_topics:
        machine.changed.add(topic.name)


def bodies_problem(
    machine: Machine, log: LogPartition | None, config: TopicConfig, bodies: Sequence[RecordBody], now: int
) -> Refusal | None:
    """Why a topic that refuses when full cannot take these."""
    if not (config.cap_records or config.cap_bytes):
        return None
    size = sum(len(body.data) + len(body.meta) for body in bodies)
    return retention.room_problem(machine, log, config, len(bodies), size, now)


def log_of(topic: Topic) -> LogPartition:
    if topic.log is None:
        raise InvariantBroken(f"topic {quoted(topic.name)} is a {topic.config.type}, and was taken for a log")
    return topic.log


def bodies_of(records: Sequence[commands.NewRecord]) -> list[RecordBody] | Refusal:
    """The records of a write, ready to be stored, or what is wrong with them. One look at each: they may be many."""
    if not records:
        return Refusal(Code.BAD_REQUEST, "a write has at least one record")
    if len(records) > limits.ENQUEUE_JOBS_MAX:
        return Refusal(
            Code.BATCH_TOO_LARGE,
            f"{len(records)} records at once; at most {limits.ENQUEUE_JOBS_MAX}",
            {"records": len(records), "max": limits.ENQUEUE_JOBS_MAX},
        )
    data_max, tag_max, node_max = limits.RECORD_BYTES_MAX, limits.TAG_BYTES_MAX, limits.NODE_BYTES_MAX
    for position, record in enumerate(records):
        if record.meta or len(record.data) > data_max or len(record.tag) > tag_max or len(record.node) > node_max:
            problem = _record_problem(position, record)
            if problem is not None:
                return problem
    return list(records)


def _record_problem(position: int, record: commands.NewRecord) -> Refusal | None:
    size = len(record.data) + len(record.meta)
    if size > limits.RECORD_BYTES_MAX:
        return Refusal(
            Code.RECORD_TOO_LARGE,
            f"record {position} has {size} bytes of data and meta; at most {limits.RECORD_BYTES_MAX}",
            {"bytes": size, "max": limits.RECORD_BYTES_MAX},
        )
    if len(record.tag) > limits.TAG_BYTES_MAX:
        return _too_long(position, "tag", record.tag, limits.TAG_BYTES_MAX)
    if len(record.node) > limits.NODE_BYTES_MAX:
        return _too_long(position, "node", record.node, limits.NODE_BYTES_MAX)
    problem = meta_problem(record.meta) if record.meta else None
    return None if problem is None else Refusal(Code.BAD_REQUEST, f"record {position}: {problem}")


def _too_long(position: int, what: str, value: bytes, most: int) -> Refusal:
    return Refusal(Code.BAD_REQUEST, f"record {position} has {len(value)} bytes of {what}; at most {most}")


def _topic_problem(
    machine: Machine, command: commands.Append, topic: Topic | None, config: TopicConfig
) -> Refusal | None:
    if len(command.key) > limits.DEDUP_KEY_BYTES_MAX:
        return Refusal(
            Code.BAD_REQUEST, f"{len(command.key)} bytes of idempotency key; at most {limits.DEDUP_KEY_BYTES_MAX}"
        )
    if topic is None:
        return create_problem(machine, command.topic, config) if command.create else not_found(command.topic)
    return None
