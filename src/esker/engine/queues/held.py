"""Settling leases by seq and holder: what workers do who know their jobs by seq and themselves by a name.

A seq that cannot be settled is skipped, never an error: it was settled before, its lease has ended, or it is another's.
So every one of these commands may be repeated. A lease is live until its deadline has passed, that millisecond
included, unless the clock was there first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING

from esker.engine import commands, events
from esker.engine.queues import clockwork, consume
from esker.engine.queues.job import Job, JobState
from esker.engine.queues.partition import QueuePartition
from esker.engine.replies import Reply, SeqsDone
from esker.engine.topics import not_found
from esker.errors import Code, Refusal, quoted

if TYPE_CHECKING:
    from esker.engine.machine import Machine

_READY, _LEASED = int(JobState.READY), int(JobState.LEASED)


def queue_partition(machine: Machine, name: bytes) -> QueuePartition | Refusal:
    """The one partition of a queue; a refusal where seqs alone cannot name jobs."""
    topic = machine.names.get(name)
    if topic is None:
        return not_found(name)
    if not topic.is_queue:
        return consume.not_a_queue(topic)
    if len(topic.partitions) != 1:
        return Refusal(
            Code.BAD_REQUEST,
            f"topic {quoted(name)} has {len(topic.partitions)} partitions; by seq only a topic of one can be asked",
        )
    return topic.partitions[0]


def ack(machine: Machine, command: commands.AckHeld, now: int) -> Reply:
    return _settle(machine, command, now, lambda partition, jobs: consume.ack_all(machine, partition, jobs, now))


def nack(machine: Machine, command: commands.NackHeld, now: int) -> Reply:
    def settle(partition: QueuePartition, jobs: Mapping[int, Job]) -> None:
        for job in jobs.values():
            consume.give_back(machine, partition, job, now, command.delay_ms, events.ReturnReason.NACKED)

    return _settle(machine, command, now, settle)


def extend(machine: Machine, command: commands.ExtendHeld, now: int) -> Reply:
    deadlines: dict[int, int] = {}

    def settle(partition: QueuePartition, jobs: Mapping[int, Job]) -> None:
        topic = partition.topic
        deadline_ms = now + max(1, min(command.lease_ms, topic.config.max_lease_ms))
        for seq in jobs:
            event = events.LeaseExtended(topic.number, partition.index, seq, now, deadline_ms)
            machine.record(partition, event, sync=topic.config.leases_durable)
            deadlines[seq] = deadline_ms

    return _settle(machine, command, now, settle, deadlines)


def _settle(
    machine: Machine,
    command: commands.AckHeld | commands.NackHeld | commands.ExtendHeld,
    now: int,
    settle: Callable[[QueuePartition, Mapping[int, Job]], None],
    deadlines: dict[int, int] | None = None,
) -> Reply:
    """Calls `settle` with the jobs whose live leases the holder has; each once, however often its seq is named."""
    partition = queue_partition(machine, command.topic)
    if isinstance(partition, Refusal):
        return partition
    if (problem := _tokens_problem(command.seqs, command.tokens)) is not None:
        return problem
    settled, skipped = _held_by(partition, command.holder, command.seqs, command.tokens, now)
    settle(partition, settled)
    if partition.wake_ms and partition.wake_ms <= now:
        clockwork.run_timers(machine, partition, now, len(command.seqs) + 1)
    counts = partition.counts
    return SeqsDone(len(settled), skipped, counts[_READY], counts[_LEASED], deadlines or {})


def _held_by(
    partition: QueuePartition, holder: bytes, seqs: Sequence[int], tokens: Sequence[int | None] | None, now: int
) -> tuple[dict[int, Job], list[int]]:
    """The jobs whose live leases the holder has, by seq; and the seqs of which that cannot be said."""
    find, holder_of = partition.jobs.get, partition.holders.get
    settled: dict[int, Job] = {}
    skipped: list[int] = []
    for seq, token in zip(seqs, tokens or repeat(None)):  # noqa: B905 (as many, or none)
        job = find(seq)
        if (
            job is not None
            and job.state == _LEASED
            and now <= job.due_ms
            and holder_of(seq, b"") == holder
            and (token is None or token == job.token)
            and seq not in settled
        ):
            settled[seq] = job
        else:
            skipped.append(seq)
    return settled, skipped


def _tokens_problem(seqs: Sequence[int], tokens: Sequence[int | None] | None) -> Refusal | None:
    if tokens is not None and len(tokens) != len(seqs):
        return Refusal(Code.BAD_REQUEST, f"{len(tokens)} tokens for {len(seqs)} seqs; give one for each")
    return None
