"""Moving single jobs by hand, and whole queues: what operators and Disque's less common commands do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from esker.engine import commands, events, limits
from esker.engine.config import Pause
from esker.engine.queues import consume
from esker.engine.queues.job import Job, JobState
from esker.engine.queues.partition import QueuePartition
from esker.engine.replies import Done, Paused, Reply
from esker.engine.topics import create_problem, make, not_found
from esker.errors import Code, Refusal

if TYPE_CHECKING:
    from esker.engine.machine import Machine

_READY, _DELAYED, _SPENT = int(JobState.READY), int(JobState.DELAYED), int(JobState.SPENT)


def requeue(machine: Machine, command: commands.Requeue, now: int) -> Reply:
    def change(partition: QueuePartition, job: Job) -> bool:
        if job.state in (_READY, _SPENT) or (job.retry_ms == 0 and job.state != _DELAYED):
            return False  # ready already; or at most once, and it had its chance
        consume.give_back(machine, partition, job, now, 0, events.ReturnReason.REQUEUED)
        return True

    return _each(machine, command.ids, change)


def withdraw(machine: Machine, command: commands.Withdraw, now: int) -> Reply:
    def change(partition: QueuePartition, job: Job) -> bool:
        if job.state != _READY:
            return False
        due_ms = now + job.retry_ms if job.retry_ms else 0
        event = events.JobWithdrawn(partition.topic.number, partition.index, job.seq, now, due_ms)
        machine.record(partition, event)
        return True

    return _each(machine, command.ids, change)


def delete(machine: Machine, command: commands.Delete, now: int) -> Reply:
    def change(partition: QueuePartition, job: Job) -> bool:
        topic = partition.topic
        machine.record(
            partition, events.JobRemoved(topic.number, partition.index, job.seq, now, events.RemoveReason.DELETED)
        )
        if topic.config.max_in_flight:
            machine.woken.add(topic.name)
        return True

    return _each(machine, command.ids, change)


def reprioritise(machine: Machine, command: commands.Reprioritise, now: int) -> Reply:
    if not limits.PRIORITY_MIN <= command.priority <= limits.PRIORITY_MAX:
        return Refusal(Code.BAD_REQUEST, f"priority {command.priority} does not fit 64 bits")

    def change(partition: QueuePartition, job: Job) -> bool:
        number, index = partition.topic.number, partition.index
        machine.record(partition, events.JobReprioritised(number, index, job.seq, now, command.priority))
        return True

    return _each(machine, command.ids, change)


def purge(machine: Machine, command: commands.Purge, now: int) -> Reply:
    topic = machine.names.get(command.topic)
    if topic is None:
        return not_found(command.topic)
    count = topic.jobs
    for partition in topic.partitions:
        if partition.jobs:
            machine.record(None, events.Purged(topic.number, partition.index, now, partition.next_seq))
    return Done(count)


def pause(machine: Machine, command: commands.PauseTopic, now: int) -> Reply:
    topic = machine.names.get(command.topic)
    wanted = command.pause
    if wanted is None or (topic is None and not wanted):
        return Paused(Pause.NONE if topic is None else topic.pause)
    if topic is None:
        problem = create_problem(machine, command.topic, machine.lazy_config)
        if problem is not None:
            return problem
        topic = make(machine, command.topic, machine.lazy_config, now, lazy=True)
    if wanted != topic.pause:
        machine.record(None, events.TopicPaused(topic.number, now, wanted))
        machine.woken.add(topic.name)
    return Paused(wanted)


def _each(machine: Machine, ids: Sequence[int], change: Callable[[QueuePartition, Job], bool]) -> Done:
    count = 0
    missed = []
    for job_id in ids:
        found = machine.find(job_id)
        if found is not None and change(*found):
            count += 1
        else:
            missed.append(job_id)
    return Done(count, missed)
