"""A queue as a topic of records: written, read, deleted and counted like a log. Each record is a job.

A job is read in the order of its seq, whatever its state; only what was delivered at most once is no longer there for
readers. Reading leases nothing. What names records by seq alone (reading in order, deleting below a seq) needs a queue
of one partition and is refused by name elsewhere. A write goes to one partition as a whole, so that its seqs are in a
row in any queue. A job that was acked or deleted is a silent gap: someone wanted it gone. One that
expired, or that a cap pushed out, raises a floor (retention.py), and readers behind the floor get a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from esker.engine import commands, events, limits
from esker.engine.config import Pause, TopicConfig
from esker.engine.dedup import write_key
from esker.engine.logs import append as log_append
from esker.engine.queues import clockwork, held, pressure, produce, retention
from esker.engine.queues.adding import add_bodies
from esker.engine.queues.job import Job, JobState
from esker.engine.queues.partition import QueuePartition
from esker.engine.replies import Record, Records, Reply, Written
from esker.engine.topic import Topic
from esker.engine.topics import create_problem, make, not_found
from esker.errors import Code, Refusal, quoted

if TYPE_CHECKING:
    from esker.engine.machine import Machine

_READY, _LEASED, _SPENT = int(JobState.READY), int(JobState.LEASED), int(JobState.SPENT)


# -- writing


def append(machine: Machine, command: commands.Append, now: int) -> Reply:
    """An `Append` on a queue, or on a topic that is yet to be made as one."""
    topic = machine.names.get(command.topic)
    config = topic.config if topic is not None else command.config or machine.lazy_config
    bodies = log_append.bodies_of(command.records)
    if isinstance(bodies, Refusal):
        return bodies
    problem = _write_problem(machine, command, topic, config)
    if problem is not None:
        return problem
    key = write_key(command.key) if command.key else b""
    if topic is not None and key:
        home = produce.partition_for(topic, key)  # of a key it is always the same
        known = home.dedup.find(key, now - config.idempotency_window_ms)
        if known is not None:
            last = known.seq + known.count - 1
            return Written(known.seq, last, last, created=False, deduped=True, partition=_shown_index(home))
    problem = pressure.room_problem(machine, now) or retention.cap_problem(
        machine, topic, config, len(bodies), sum(len(body.data) for body in bodies), now
    )
    if problem is not None:
        return problem
    created = topic is None
    if topic is None:
        topic = make(machine, command.topic, config, now, lazy=False)
    partition = produce.partition_for(topic, key)
    first = append_bodies(machine, partition, bodies, now)
    last = first + len(bodies) - 1
    if key:
        machine.record(partition, events.KeyRemembered(topic.number, partition.index, now, key, first, len(bodies)))
    return Written(first, last, last, created, deduped=False, partition=_shown_index(partition))


def _shown_index(partition: QueuePartition) -> int | None:
    return partition.index if len(partition.topic.partitions) > 1 else None


def append_bodies(machine: Machine, partition: QueuePartition, bodies: Sequence[events.RecordBody], now: int) -> int:
    """Makes a job of each body, in a row, and returns the first seq. Nothing is checked: see `append`.

    A queue that drops its oldest is brought within its caps again; that may take some of these, too.
    """
    first = add_bodies(machine, partition, bodies, now)
    retention.enforce_caps(machine, partition.topic, now)
    return first


def _write_problem(
    machine: Machine, command: commands.Append, topic: Topic | None, config: TopicConfig
) -> Refusal | None:
    if config.max_payload_bytes < limits.RECORD_BYTES_MAX:
        problem = _size_problem(command.records, config.max_payload_bytes)
        if problem is not None:
            return problem
    if len(command.key) > limits.DEDUP_KEY_BYTES_MAX:
        return Refusal(
            Code.BAD_REQUEST, f"{len(command.key)} bytes of idempotency key; at most {limits.DEDUP_KEY_BYTES_MAX}"
        )
    if topic is None:
        return create_problem(machine, command.topic, config) if command.create else not_found(command.topic)
    if topic.pause & Pause.IN:
        return Refusal(Code.PAUSED, f"queue {quoted(topic.name)} is paused in input")
    return None


def _size_problem(records: Sequence[commands.NewRecord], most: int) -> Refusal | None:
    """Of a queue that takes less than a record may have."""
    for position, record in enumerate(records):
        if len(record.data) > most:
            return Refusal(
                Code.RECORD_TOO_LARGE,
                f"record {position} has {len(record.data)} bytes of data; the topic takes at most {most}",
                {"bytes": len(record.data), "max": most},
            )
    return None


# -- reading


def read(machine: Machine, command: commands.Read, now: int) -> Reply:
    topic = held.queue_topic(machine, command.topic)
    if isinstance(topic, Refusal):
        return topic
    partition = held.only_partition(topic, "reading records in order")
    if isinstance(partition, Refusal):
        return partition
    retention.catch_up(machine, partition, now)
    head = partition.head_seq
    behind = 0 if command.after > head else command.after  # a cursor from the future: the topic was made anew
    walk = _Walk(machine, partition, command, now)
    reached = walk.through(_seqs_behind(partition, max(behind, partition.earliest_seq() - 1)))
    return Records(
        walk.records,
        head if reached is None else reached,
        head,
        partition.earliest_seq(),
        retention.tombstone(partition, command.after),  # last, because the walk may have met what expired just now
        walk.looked,
    )


class _Walk:
    """Collects records until the reply is full, or enough jobs were looked at."""

    def __init__(self, machine: Machine, partition: QueuePartition, command: commands.Read, now: int) -> None:
        self._machine = machine
        self._partition = partition
        self._now = now
        self._limit = max(1, min(command.limit, limits.READ_RECORDS_MAX))
        self._max_bytes = min(command.max_bytes, limits.READ_BYTES_MAX)
        self._nodes = command.nodes if partition.topic.config.dedupe_node else frozenset()
        self._size = 0
        self.records: list[Record] = []
        self.looked = 0

    def through(self, seqs: Iterable[int]) -> int | None:
        """The last seq looked at; None: all of them."""
        last = 0
        for seq in seqs:
            if len(self.records) >= self._limit or self.looked >= limits.READ_LOOK_MAX or not self._look(seq):
                return last
            last = seq
        return None

    def _look(self, seq: int) -> bool:
        """False: it belongs to the next reply."""
        self.looked += 1
        job = self._partition.jobs.get(seq)
        if job is None or job.state == _SPENT:
            return True
        if job.expires_ms and job.expires_ms <= self._now:
            clockwork.expire_one(self._machine, self._partition, job, self._now)
            return True
        details = job.details
        if self._nodes and details is not None and details.node and details.node in self._nodes:
            return True
        size = job.size + (0 if details is None else len(details.meta))
        if self.records and self._size + size > self._max_bytes:
            return False
        self._size += size
        self.records.append(_record(self._machine, self._partition, job))
        return True


def _record(machine: Machine, partition: QueuePartition, job: Job) -> Record:
    data, details = machine.payload(partition, job), job.details
    if details is None:
        return Record(job.seq, job.created_ms, data, b"", b"", b"")
    return Record(job.seq, job.created_ms, data, details.node, details.tag, details.meta)


def _seqs_behind(partition: QueuePartition, after: int) -> range | list[int]:
    """Where jobs may be, in order: every seq where they lie close, only those there are where they are few and far."""
    seqs = range(after + 1, partition.next_seq)
    if len(seqs) <= limits.READ_LOOK_MAX or len(partition.jobs) > limits.READ_LOOK_MAX:
        return seqs
    return sorted(seq for seq in partition.jobs if seq > after)


# -- deleting


def deleting(machine: Machine, command: commands.DeleteRecords, now: int) -> Iterator[int] | Refusal:
    """What is to go is fixed here, and goes as the result is iterated over: each step says how many went."""
    topic = held.queue_topic(machine, command.topic)
    if isinstance(topic, Refusal):
        return topic
    if command.before_seq is not None:
        only = held.only_partition(topic, "deleting below a seq")
        if isinstance(only, Refusal):
            return only
    steps: list[Iterator[int]] = []
    for partition in topic.partitions:
        retention.catch_up(machine, partition, now)
        below = partition.next_seq if command.before_seq is None else min(command.before_seq, partition.next_seq)
        if command.tag is None:
            steps.append(_steps_below(machine, partition, below))
        else:
            steps.append(_steps_of(machine, partition, command, below))
    return chain.from_iterable(steps)


def _steps_of(
    machine: Machine, partition: QueuePartition, command: commands.DeleteRecords, below: int
) -> Iterator[int]:
    assert command.tag is not None
    for found in partition.tags.find(command.tag, command.prefix):
        seqs = dict.fromkeys(found)  # a job that came back from the dead letters is found twice
        yield _remove(machine, partition, [seq for seq in seqs if seq < below and _matches(partition, seq, command)])


def _steps_below(machine: Machine, partition: QueuePartition, below: int) -> Iterator[int]:
    first, jobs, step = partition.earliest_seq(), partition.jobs, limits.DELETE_STEP
    if partition.next_seq - below <= step and len(jobs) > step:  # nearly all: what stays is put back
        before = partition.records
        machine.record(None, events.Purged(partition.topic.number, partition.index, machine.last_ms, below))
        yield before - partition.records
        return
    seqs = range(first, below) if below - first <= 4 * len(jobs) else sorted(seq for seq in jobs if seq < below)
    for at in range(0, len(seqs), step):
        yield _remove(machine, partition, [seq for seq in seqs[at : at + step] if _is_record(partition, seq)])


def _is_record(partition: QueuePartition, seq: int) -> bool:
    job = partition.jobs.get(seq)
    return job is not None and job.state != _SPENT


def _remove(machine: Machine, partition: QueuePartition, seqs: list[int]) -> int:
    topic, now = partition.topic, machine.last_ms
    for seq in seqs:
        event = events.JobRemoved(topic.number, partition.index, seq, now, events.RemoveReason.DELETED)
        machine.record(partition, event)
    if seqs and topic.config.max_in_flight:
        machine.woken.add(topic.name)
    return len(seqs)


def _matches(partition: QueuePartition, seq: int, command: commands.DeleteRecords) -> bool:
    """The index may remember an earlier job of this seq, with another tag."""
    job = partition.jobs.get(seq)
    if job is None:
        return False
    tag = b"" if job.details is None else job.details.tag
    if not tag or job.state == _SPENT or command.tag is None:
        return False
    return tag.startswith(command.tag) if command.prefix else tag == command.tag


# -- counting


class Numbers(msgspec.Struct, frozen=True, gc=False):
    """A queue as `TopicStatus` tells it. `ready` leaves out what is delayed."""

    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    ready: int
    in_flight: int
    dead_lettered: int


def status(machine: Machine, topic: Topic, now: int) -> Numbers:
    """Of all partitions together: the highest head, the lowest seq there is, and sums."""
    partitions = topic.partitions
    for partition in partitions:
        retention.catch_up(machine, partition, now)
    return Numbers(
        retention.head_seq(topic),
        retention.earliest_seq(topic),
        sum(partition.records for partition in partitions),
        sum(partition.bytes for partition in partitions),
        topic.count(_READY),
        topic.count(_LEASED),
        sum(partition.counters.dead_lettered for partition in partitions),
    )
