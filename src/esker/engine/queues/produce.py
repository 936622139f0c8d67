"""Adding jobs: all of a command, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from esker.engine import commands, events, limits
from esker.engine.config import Pause, TopicConfig, TopicType
from esker.engine.dedup import Remembered, dedup_keys
from esker.engine.ids import message_id
from esker.engine.meta import meta_problem
from esker.engine.placement import partition_of
from esker.engine.queues import pressure, retention
from esker.engine.queues.adding import add_jobs
from esker.engine.queues.job import JobState
from esker.engine.queues.partition import QueuePartition
from esker.engine.replies import Added, Reply
from esker.engine.topic import Topic
from esker.engine.topics import create_problem, make, not_found
from esker.errors import Code, Refusal, quoted

if TYPE_CHECKING:
    from esker.engine.machine import Machine

_READY = int(JobState.READY)


def enqueue(machine: Machine, command: commands.Enqueue, now: int) -> Reply:
    topic = machine.names.get(command.topic)
    config = topic.config if topic is not None else command.config or machine.lazy_config
    problem = _topic_problem(machine, command, topic, config)
    if problem is not None:
        return problem
    jobs = command.jobs
    plain = config.partitions == 1 and len(jobs) > 0
    for job in jobs:
        problem = _job_problem(job, config)
        if problem is not None:
            return problem
        plain = plain and job.details is None
    problem = pressure.room_problem(machine, now)  # last, because making room lets go of what no promise covers
    if problem is not None:
        return problem
    capped = config.cap_records or config.cap_bytes
    if capped and (problem := _cap_problem(machine, topic, config, jobs, now)) is not None:
        return problem
    if topic is None:
        topic = make(machine, command.topic, config, now, lazy=command.config is None)
    if plain:  # jobs without details in a topic of one partition, which is nearly all: one step for all of them
        first_id = message_id(now, topic.number, 0, add_jobs(machine, topic.partitions[0], jobs, now))
        added = Added(range(first_id, first_id + len(jobs)))
    else:
        added = _add_each(machine, topic, jobs, now)
    if capped:
        retention.enforce_caps(machine, topic, now)
    return added


def enqueue_alike(machine: Machine, command: commands.EnqueueAlike, now: int) -> Reply:
    """The common case of `enqueue`, at a fraction of its cost; whatever is not common goes there."""
    topic = machine.names.get(command.topic)
    payloads = command.payloads
    if (
        topic is None
        or topic.pause
        or not topic.is_queue
        or len(topic.partitions) != 1
        or topic.config.cap_records
        or topic.config.cap_bytes
        or not 0 < len(payloads) <= limits.ENQUEUE_JOBS_MAX
        or max(map(len, payloads)) > topic.config.max_payload_bytes
        or not 0 <= command.retry_ms <= limits.DELAY_MS_MAX
        or not 0 <= command.ttl_ms <= limits.TTL_MS_MAX
    ):
        jobs = [commands.NewJob(payload, 0, command.retry_ms, command.ttl_ms) for payload in payloads]
        return enqueue(machine, commands.Enqueue(command.topic, jobs), now)
    problem = pressure.room_problem(machine, now)
    if problem is not None:
        return problem
    partition = topic.partitions[0]
    if not topic.synced:
        machine.reserve(partition, len(payloads))
    first = partition.next_seq
    expires_ms = machine.expires_ms(now, command.ttl_ms)
    event = events.JobsEnqueued(topic.number, 0, first, now, command.retry_ms, expires_ms, list(payloads))
    machine.record(partition, event)
    machine.queue_grew(topic)
    machine.woken.add(topic.name)
    first_id = message_id(now, topic.number, 0, first)
    return Added(range(first_id, first_id + len(payloads)))


def _topic_problem(
    machine: Machine, command: commands.Enqueue, topic: Topic | None, config: TopicConfig
) -> Refusal | None:
    if topic is None:
        if not command.create:
            return not_found(command.topic)
        problem = create_problem(machine, command.topic, config)
        if problem is not None:
            return problem
    elif command.max_len and topic.count(_READY) >= command.max_len:
        return Refusal(Code.QUEUE_FULL, f"queue {quoted(topic.name)} holds {topic.count(_READY)} jobs already")
    elif topic.pause & Pause.IN:
        return Refusal(Code.PAUSED, f"queue {quoted(topic.name)} is paused in input")
    if config.type != TopicType.QUEUE:
        return Refusal(Code.NOT_A_QUEUE, f"topic {quoted(command.topic)} is a {config.type}, not a queue")
    if len(command.jobs) > limits.ENQUEUE_JOBS_MAX:
        return Refusal(Code.BAD_REQUEST, f"{len(command.jobs)} jobs at once; at most {limits.ENQUEUE_JOBS_MAX}")
    return None


def _cap_problem(
    machine: Machine, topic: Topic | None, config: TopicConfig, jobs: Sequence[commands.NewJob], now: int
) -> Refusal | None:
    """What is known already needs no room. Jobs of one command that repeat each other are all counted."""
    new = [job for job in jobs if topic is None or not _is_known(topic, job, now)]
    return retention.cap_problem(machine, topic, config, len(new), sum(len(job.payload) for job in new), now)


def _is_known(topic: Topic, new: commands.NewJob, now: int) -> bool:
    details = new.details
    if details is None or not (details.key or details.producer):
        return False
    return _known(_partition(topic, new), details, now) is not None


def _job_problem(job: commands.NewJob, config: TopicConfig) -> Refusal | None:
    retry_ms, ttl_ms = job.retry_ms, job.ttl_ms
    if len(job.payload) > config.max_payload_bytes:
        return Refusal(
            Code.PAYLOAD_TOO_LARGE, f"the job has {len(job.payload)} bytes; at most {config.max_payload_bytes}"
        )
    if not limits.PRIORITY_MIN <= job.priority <= limits.PRIORITY_MAX:
        return Refusal(Code.BAD_REQUEST, f"priority {job.priority} does not fit 64 bits")
    if retry_ms is not None and not 0 <= retry_ms <= limits.DELAY_MS_MAX:
        return Refusal(Code.BAD_REQUEST, f"retry of {retry_ms} ms; it must be 0 to {limits.DELAY_MS_MAX}")
    if ttl_ms is not None and not 0 <= ttl_ms <= limits.TTL_MS_MAX:
        return Refusal(Code.BAD_REQUEST, f"TTL of {ttl_ms} ms; it must be 0 to {limits.TTL_MS_MAX}")
    return None if job.details is None else _details_problem(job.details)


def _details_problem(details: commands.Details) -> Refusal | None:
    for value, most, what in (
        (details.delay_ms, limits.DELAY_MS_MAX, "delay in ms"),
        (len(details.tag), limits.TAG_BYTES_MAX, "bytes of tag"),
        (len(details.node), limits.NODE_BYTES_MAX, "bytes of node"),
        (len(details.key), limits.DEDUP_KEY_BYTES_MAX, "bytes of idempotency key"),
        (len(details.producer), limits.DEDUP_KEY_BYTES_MAX, "bytes of producer id"),
        (details.epoch, limits.PRODUCER_NUMBER_MAX, "as producer epoch"),
        (details.sequence, limits.PRODUCER_NUMBER_MAX, "as producer sequence"),
        (details.max_deliveries or 0, limits.DELIVERIES_MAX, "deliveries at most"),
    ):
        if not 0 <= value <= most:
            return Refusal(Code.BAD_REQUEST, f"{value} {what}; it must be 0 to {most}")
    problem = meta_problem(details.meta)
    return None if problem is None else Refusal(Code.BAD_REQUEST, problem)


def _add_each(machine: Machine, topic: Topic, jobs: Sequence[commands.NewJob], now: int) -> Added:
    """Jobs that may repeat each other, or belong to different partitions: one after the other."""
    ids: list[int] = []
    duplicates: list[int] = []
    for new in jobs:
        partition = _partition(topic, new)
        details = new.details or commands.NO_DETAILS
        known = _known(partition, details, now)
        if known is not None:
            duplicates.append(len(ids))
            ids.append(message_id(known.created_ms, topic.number, partition.index, known.seq))
        else:
            seq = add_jobs(machine, partition, (new,), now)
            ids.append(message_id(now, topic.number, partition.index, seq))
    return Added(ids, duplicates)


def _known(partition: QueuePartition, details: commands.Details, now: int) -> Remembered | None:
    since = now - partition.topic.config.idempotency_window_ms
    for key in dedup_keys(details):
        known = partition.dedup.find(key, since)
        if known is not None:
            return known
    return None


def _partition(topic: Topic, new: commands.NewJob) -> QueuePartition:
    key = new.partition_key
    if not key and new.details is not None:
        key = new.details.producer or new.details.key  # a repeated job must meet its own memory
    return partition_for(topic, key or b"")


def partition_for(topic: Topic, key: bytes) -> QueuePartition:
    """Of a key always the same; without one they take turns."""
    partitions = topic.partitions
    if len(partitions) == 1:
        return partitions[0]
    if key:
        return partitions[partition_of(key, len(partitions))]
    turn = topic.turn
    topic.turn = (turn + 1) % len(partitions)
    return partitions[turn]
