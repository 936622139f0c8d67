"""Settling leases by slot and holder: what workers do who know their jobs by place and themselves by a name.

A slot that cannot be settled is skipped, never an error: it was settled before, its lease has ended, or it is
another's. So every one of these commands may be repeated. A lease is live until its deadline has passed, that
millisecond included, unless the clock was there first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING

from esker.engine import commands, events
from esker.engine.ids import PARTITION_SHIFT, slot
from esker.engine.limits import SEQ_MAX
from esker.engine.queues import clockwork, consume
from esker.engine.queues.job import Job, JobState
from esker.engine.queues.partition import QueuePartition
from esker.engine.replies import Reply, SlotsDone
from esker.engine.topic import Topic
from esker.engine.topics import not_found
from esker.errors import Code, Refusal, quoted

if TYPE_CHECKING:
    from esker.engine.machine import Machine

_LEASED = int(JobState.LEASED)

_Settled = dict[QueuePartition, dict[int, Job]]  # by seq


def queue_topic(machine: Machine, name: bytes) -> Topic | Refusal:
    topic = machine.names.get(name)
    if topic is None:
        return not_found(name)
    return topic if topic.is_queue else consume.not_a_queue(topic)


def only_partition(topic: Topic, what: str) -> QueuePartition | Refusal:
    """The one partition of a queue; a refusal of `what` where seqs alone cannot name jobs."""
    if len(topic.partitions) != 1:
        return Refusal(
            Code.BAD_REQUEST,
            f"topic {quoted(topic.name)} has {len(topic.partitions)} partitions, each with seqs of its own; {what} "
            "needs a topic of one",
            {"topic": topic.name, "partitions": len(topic.partitions)},
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
            deadlines[slot(partition.index, seq)] = deadline_ms

    return _settle(machine, command, now, settle, deadlines)


def _settle(
    machine: Machine,
    command: commands.AckHeld | commands.NackHeld | commands.ExtendHeld,
    now: int,
    settle: Callable[[QueuePartition, Mapping[int, Job]], None],
    deadlines: dict[int, int] | None = None,
) -> Reply:
    """Calls `settle` with the jobs whose live leases the holder has; each once, however often its slot is named."""
    topic = queue_topic(machine, command.topic)
    if isinstance(topic, Refusal):
        return topic
    if (problem := _tokens_problem(command.slots, command.tokens)) is not None:
        return problem
    settled, skipped = _held_by(topic.partitions, command.holder, command.slots, command.tokens, now)
    for partition, jobs in settled.items():
        settle(partition, jobs)
    for partition in topic.partitions:
        if partition.wake_ms and partition.wake_ms <= now:
            clockwork.run_timers(machine, partition, now, len(command.slots) + 1)
    count = sum(map(len, settled.values()))
    return SlotsDone(count, skipped, consume.ready_count(topic), topic.count(_LEASED), deadlines or {})


def _held_by(
    partitions: Sequence[QueuePartition],
    holder: bytes,
    slots: Sequence[int],
    tokens: Sequence[int | None] | None,
    now: int,
) -> tuple[_Settled, list[int]]:
    """The jobs whose live leases the holder has, by partition; and the slots of which that cannot be said."""
    settled: _Settled = {}
    skipped: list[int] = []
    index = -1  # of the slot before
    jobs: dict[int, Job] = {}
    of_partition: dict[int, Job] = {}
    for each, token in zip(slots, tokens or repeat(None)):  # noqa: B905 (as many, or none)
        if each >> PARTITION_SHIFT != index:
            index = each >> PARTITION_SHIFT
            jobs, of_partition = {}, {}
            if index < len(partitions):
                partition = partitions[index]
                jobs, of_partition = partition.jobs, settled.setdefault(partition, {})
        seq = each & SEQ_MAX
        job = jobs.get(seq)
        if (
            job is not None
            and job.state == _LEASED
            and now <= job.due_ms
            and partitions[index].holders.get(seq, b"") == holder
            and (token is None or token == job.token)
            and seq not in of_partition
        ):
            of_partition[seq] = job
        else:
            skipped.append(each)
    return settled, skipped


def _tokens_problem(slots: Sequence[int], tokens: Sequence[int | None] | None) -> Refusal | None:
    if tokens is not None and len(tokens) != len(slots):
        return Refusal(Code.BAD_REQUEST, f"{len(tokens)} tokens for {len(slots)} jobs; give one for each")
    return None
