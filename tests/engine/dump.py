"""The whole state of a machine as plain values, so that two machines can be compared.

Being due is a fact of time and no event, so a delayed job whose time has come by `now` counts as ready, whether or not
the machine has noticed. Counters are left out on request: they are the one thing a fuzzy checkpoint may count short.
"""

from __future__ import annotations

from typing import NamedTuple

from esker.engine.commands import Details
from esker.engine.config import Pause, TopicConfig
from esker.engine.machine import Machine
from esker.engine.queues.job import Job, JobState
from esker.engine.queues.partition import QueuePartition


class JobDump(NamedTuple):
    created_ms: int
    priority: int
    retry_ms: int
    expires_ms: int
    state: JobState
    due_ms: int
    token: int
    attempts: int
    nacks: int
    requeues: int
    size: int
    details: Details | None
    payload: bytes
    holder: bytes


class PartitionDump(NamedTuple):
    next_seq: int
    ceiling: int
    jobs: dict[int, JobDump]
    remembered: dict[bytes, tuple[int, int, int]]
    floors: tuple[int, int]
    head_seq: int
    counters: tuple[int, ...]
    active_ms: int


class TopicDump(NamedTuple):
    name: bytes
    config: TopicConfig
    created_ms: int
    lazy: bool
    pause: Pause
    partitions: list[PartitionDump]


class Dump(NamedTuple):
    topics: dict[int, TopicDump]
    names: dict[bytes, int]
    next_number: int


def dump(machine: Machine, now: int = 0, *, counters: bool = True, holders: bool = True) -> Dump:
    topics = {
        number: TopicDump(
            topic.name, topic.config, topic.created_ms, topic.lazy, topic.pause,
            [_partition(machine, partition, now, counters, holders) for partition in topic.partitions],
        )
        for number, topic in machine.topics.items()
    }  # fmt: skip
    return Dump(topics, {name: topic.number for name, topic in machine.names.items()}, machine.next_number)


def dump_job(machine: Machine, partition: QueuePartition, job: Job, now: int = 0) -> JobDump:
    state, due_ms = JobState(job.state), job.due_ms
    if state == JobState.DELAYED and due_ms <= now:
        state, due_ms = JobState.READY, 0
    return JobDump(
        job.created_ms, job.priority, job.retry_ms, job.expires_ms, state, due_ms, job.token, job.attempts, job.nacks,
        job.requeues, job.size, job.details, machine.payload(partition, job), partition.holders.get(job.seq, b""),
    )  # fmt: skip


def _partition(machine: Machine, partition: QueuePartition, now: int, counters: bool, holders: bool) -> PartitionDump:
    jobs = {seq: dump_job(machine, partition, job, now) for seq, job in sorted(partition.jobs.items())}
    if not holders:
        jobs = {seq: job._replace(holder=b"") for seq, job in jobs.items()}
    fields = partition.counters.__struct_fields__ if counters else ()
    return PartitionDump(
        partition.next_seq,
        partition.ceiling,
        jobs,
        {key: (entry.created_ms, entry.seq, entry.count) for key, entry in sorted(partition.dedup.entries.items())},
        (partition.cap_floor, partition.ttl_floor),
        partition.head_seq,
        tuple(getattr(partition.counters, field) for field in fields),
        partition.active_ms if counters else 0,
    )
