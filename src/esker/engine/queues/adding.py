"""Adding jobs to a partition: the one place that makes `Enqueued` events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from esker.engine import commands, events
from esker.engine.queues.partition import QueuePartition

if TYPE_CHECKING:
    from esker.engine.machine import Machine


def add_jobs(machine: Machine, partition: QueuePartition, jobs: Sequence[commands.NewJob], now: int) -> int:
    """Adds at least one job, in a row, and returns the first seq. Checks nothing, and enforces no cap."""
    topic = partition.topic
    number, index, lease_ms, default_ttl_ms = topic.number, partition.index, topic.config.lease_ms, topic.config.ttl_ms
    if not topic.synced:
        machine.reserve(partition, len(jobs))
    seq = first = partition.next_seq
    batch: list[events.Enqueued] = []
    last_ttl_ms = expires_ms = due_ms = delayed = 0
    for new in jobs:
        retry_ms, ttl_ms, details = new.retry_ms, new.ttl_ms, new.details
        if retry_ms is None:
            retry_ms = lease_ms
        if ttl_ms is None:
            ttl_ms = default_ttl_ms
        if ttl_ms != last_ttl_ms:
            last_ttl_ms, expires_ms = ttl_ms, machine.expires_ms(now, ttl_ms)
        if details is not None:
            due_ms = now + details.delay_ms if details.delay_ms else 0
            delayed += due_ms > 0
        else:
            due_ms = 0
        batch.append(
            events.Enqueued(number, index, seq, now, new.priority, retry_ms, expires_ms, due_ms, new.payload, details)
        )
        seq += 1
    machine.record(partition, batch)
    machine.queue_grew(topic)
    if delayed < len(batch):
        machine.woken.add(topic.name)
    return first


def add_bodies(machine: Machine, partition: QueuePartition, bodies: Sequence[events.RecordBody], now: int) -> int:
    """The same for records. They have nothing of their own that a job has, so no `NewJob` is made of each."""
    topic = partition.topic
    number, index, lease_ms, expires_ms = (
        topic.number, partition.index, topic.config.lease_ms, machine.expires_ms(now, topic.config.ttl_ms)
    )  # fmt: skip
    machine.reserve(partition, len(bodies))
    first = partition.next_seq
    batch = [
        events.Enqueued(number, index, seq, now, 0, lease_ms, expires_ms, 0, body.data, _details(body))
        for seq, body in enumerate(bodies, first)
    ]
    machine.record(partition, batch)
    machine.queue_grew(topic)
    machine.woken.add(topic.name)
    return first


def _details(body: events.RecordBody) -> commands.Details | None:
    if body.tag or body.node or body.meta or body.hops:
        return commands.Details(tag=body.tag, node=body.node, meta=body.meta, hops=body.hops)
    return None
