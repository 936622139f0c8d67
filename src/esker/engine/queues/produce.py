"""Adding jobs: all of a command, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from esker.engine import commands, events, limits
from esker.engine.config import Pause, TopicConfig, TopicType
from esker.engine.dedup import dedup_keys
from esker.engine.ids import message_id
from esker.engine.placement import partition_of
from esker.engine.queues import pressure
from esker.engine.queues.job import JobState
from esker.engine.queues.partition import QueuePartition
from esker.engine.replies import Added, Receipt, Reply
from esker.engine.topic import Topic
from esker.engine.topics import create_problem, make, not_found
from esker.errors import Code, Refusal

if TYPE_CHECKING:
    from esker.engine.machine import Machine

_READY = int(JobState.READY)


def enqueue(machine: Machine, command: commands.Enqueue, now: int) -> Reply:
    topic = machine.names.get(command.topic)
    config = topic.config if topic is not None else command.config or machine.lazy_config
    problem = _topic_problem(machine, command, topic, config) or _room_problem(machine, now)
    if problem is not None:
        return problem
    for job in command.jobs:
        problem = _job_problem(job, config)
        if problem is not None:
            return problem
    if topic is None:
        topic = make(machine, command.topic, config, now, lazy=command.config is None)
    return Added([_add(machine, topic, job, now) for job in command.jobs])


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
        return Refusal(Code.QUEUE_FULL, f"queue {topic.name!r} holds {topic.count(_READY)} jobs already")
    elif topic.pause & Pause.IN:
        return Refusal(Code.PAUSED, f"queue {topic.name!r} is paused in input")
    if config.type != TopicType.QUEUE:
        return Refusal(Code.NOT_A_QUEUE, f"topic {command.topic!r} is a {config.type}, not a queue")
    if len(command.jobs) > limits.ENQUEUE_JOBS_MAX:
        return Refusal(Code.BAD_REQUEST, f"{len(command.jobs)} jobs at once; at most {limits.ENQUEUE_JOBS_MAX}")
    return None


def _room_problem(machine: Machine, now: int) -> Refusal | None:
    if machine.refuse_new is not None:
        return machine.refuse_new
    limit = machine.memory_limit
    if limit and machine.memory_bytes() >= limit * pressure.EVICT_AT:
        pressure.relieve(machine, now)
        if machine.memory_bytes() >= limit:
            return Refusal(
                Code.OUT_OF_MEMORY,
                f"the jobs need {machine.memory_bytes()} of {limit} bytes; raise memory_limit or let workers catch up",
            )
    return None


def _job_problem(job: commands.NewJob, config: TopicConfig) -> Refusal | None:
    if len(job.payload) > config.max_payload_bytes:
        return Refusal(
            Code.PAYLOAD_TOO_LARGE, f"the job has {len(job.payload)} bytes; at most {config.max_payload_bytes}"
        )
    if not limits.PRIORITY_MIN <= job.priority <= limits.PRIORITY_MAX:
        return Refusal(Code.BAD_REQUEST, f"priority {job.priority} does not fit 64 bits")
    if job.retry_ms is not None and not 0 <= job.retry_ms <= limits.DELAY_MS_MAX:
        return Refusal(Code.BAD_REQUEST, f"retry of {job.retry_ms} ms; it must be 0 to {limits.DELAY_MS_MAX}")
    if job.ttl_ms is not None and not 0 <= job.ttl_ms <= limits.TTL_MS_MAX:
        return Refusal(Code.BAD_REQUEST, f"TTL of {job.ttl_ms} ms; it must be 0 to {limits.TTL_MS_MAX}")
    return None if job.details is None else _details_problem(job.details)


def _details_problem(details: commands.Details) -> Refusal | None:
    for value, most, what in (
        (details.delay_ms, limits.DELAY_MS_MAX, "delay in ms"),
        (len(details.tag), limits.TAG_BYTES_MAX, "bytes of tag"),
        (len(details.node), limits.NODE_BYTES_MAX, "bytes of node"),
        (len(details.meta), limits.META_KEYS_MAX, "meta keys"),
        (sum(len(key) + len(value) for key, value in details.meta), limits.META_BYTES_MAX, "bytes of meta"),
        (len(details.key), limits.DEDUP_KEY_BYTES_MAX, "bytes of idempotency key"),
        (len(details.producer), limits.DEDUP_KEY_BYTES_MAX, "bytes of producer id"),
    ):
        if not 0 <= value <= most:
            return Refusal(Code.BAD_REQUEST, f"{value} {what}; it must be 0 to {most}")
    return None


def _add(machine: Machine, topic: Topic, new: commands.NewJob, now: int) -> Receipt:
    details = new.details
    config = topic.config
    retry_ms = config.lease_ms if new.retry_ms is None else new.retry_ms
    ttl_ms = config.ttl_ms if new.ttl_ms is None else new.ttl_ms
    partition = _partition(topic, new)
    number, index, due_ms = topic.number, partition.index, 0
    if details is not None:
        since = now - config.idempotency_window_ms
        for key in dedup_keys(details):
            known = partition.dedup.find(key, since)
            if known is not None:
                return Receipt(message_id(known.created_ms, number, index, known.seq), True, retry_ms, ttl_ms)
        due_ms = now + details.delay_ms if details.delay_ms else 0
    if not topic.synced:
        machine.reserve(partition, 1)
    seq = partition.next_seq
    machine.record(
        partition,
        events.Enqueued(
            number, index, seq, now, new.priority, retry_ms, now + ttl_ms if ttl_ms else 0, due_ms, new.payload, details
        ),
    )
    if not due_ms:
        machine.woken.add(topic.name)
    return Receipt(message_id(now, number, index, seq), False, retry_ms, ttl_ms)


def _partition(topic: Topic, new: commands.NewJob) -> QueuePartition:
    partitions = topic.partitions
    if len(partitions) == 1:
        return partitions[0]
    key = new.partition_key
    if key is None and new.details is not None:
        key = new.details.producer or new.details.key  # a repeated job must meet its own memory
    if key:
        return partitions[partition_of(key, len(partitions))]
    topic.turn = (topic.turn + 1) % len(partitions)
    return partitions[topic.turn]
