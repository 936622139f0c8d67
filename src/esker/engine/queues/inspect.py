"""Looking without touching: jobs, queues, and scans that survive change between their pages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from esker.engine import commands, limits
from esker.engine.ids import message_id
from esker.engine.limits import SEQ_BITS, SEQ_MAX
from esker.engine.queues import consume
from esker.engine.queues.job import Job, JobState
from esker.engine.queues.partition import QueuePartition
from esker.engine.queues.sums import Counters
from esker.engine.replies import Count, Jobs, JobView, Reply, Topics, TopicView
from esker.engine.topic import Topic
from esker.errors import Code, Refusal, quoted

if TYPE_CHECKING:
    from esker.engine.machine import Machine

_READY = int(JobState.READY)


def job_view(machine: Machine, partition: QueuePartition, job: Job) -> JobView:
    topic = partition.topic
    return JobView(
        topic.name, message_id(job.created_ms, topic.number, partition.index, job.seq), JobState(job.state),
        machine.payload(partition, job), job.priority, job.created_ms, job.expires_ms, job.retry_ms, job.due_ms,
        job.attempts, job.nacks, job.requeues, partition.holders.get(job.seq, b""), job.details,
    )  # fmt: skip


def topic_view(topic: Topic) -> TopicView:
    return TopicView(
        name=topic.name,
        number=topic.number,
        config=topic.config,
        pause=topic.pause,
        created_ms=topic.created_ms,
        active_ms=topic.active_ms,
        bytes=sum(partition.bytes for partition in topic.partitions),
        **{state.name.lower(): topic.count(state) for state in JobState},
        **{
            field: sum(int(getattr(partition.counters, field)) for partition in topic.partitions)
            for field in Counters.__struct_fields__
        },
    )


def show(machine: Machine, command: commands.Show, now: int) -> Reply:
    found = machine.find(command.id)
    if found is None:
        return Refusal(Code.JOB_NOT_FOUND, "no such job")
    return Jobs([job_view(machine, *found)])


def peek(machine: Machine, command: commands.Peek, now: int) -> Reply:
    topic = machine.names.get(command.topic)
    if topic is None:
        return Jobs(())
    count = max(0, min(command.count, limits.PAGE_ENTRIES_MAX))
    if command.newest:
        found = [
            (partition, job)
            for partition in topic.partitions
            for job in islice((job for job in reversed(partition.jobs.values()) if job.state == _READY), count)
        ]
        found.sort(key=lambda entry: (-entry[1].created_ms, -entry[1].seq, -entry[0].index))
    else:
        keys = [
            (*consume.delivery_order(partition, key), partition)
            for partition in topic.partitions
            for key in islice(partition.ready.in_order(), count)
        ]
        keys.sort(key=lambda entry: entry[:4])
        found = [(partition, partition.jobs[seq]) for _, _, seq, _, partition in keys[:count]]
    return Jobs([job_view(machine, partition, job) for partition, job in found[:count]])


def length(machine: Machine, command: commands.Length, now: int) -> Reply:
    topic = machine.names.get(command.topic)
    return Count(0 if topic is None else topic.count(_READY))


def stats(machine: Machine, command: commands.Stats, now: int) -> Reply:
    topic = machine.names.get(command.topic)
    if topic is None:
        return Refusal(Code.TOPIC_NOT_FOUND, f"no topic {quoted(command.topic)}")
    return topic_view(topic)


def scan_topics(machine: Machine, command: commands.ScanTopics, now: int) -> Reply:
    """Topics are numbered in order of creation, so the cursor is the last number seen."""
    numbers = list(machine.topics)
    start = bisect_right(numbers, command.cursor)
    page = numbers[start : start + max(1, min(command.count, limits.PAGE_ENTRIES_MAX))]
    more = start + len(page) < len(numbers)
    return Topics([topic_view(machine.topics[number]) for number in page], page[-1] if more else 0)


def scan_jobs(machine: Machine, command: commands.ScanJobs, now: int) -> Reply:
    """The cursor is the place of the last job looked at: topic number, partition, seq."""
    count = max(1, min(command.count, limits.PAGE_ENTRIES_MAX))
    page: list[JobView] = []
    cursor = 0
    for partition, job in _jobs_after(machine, command):
        if len(page) == count:
            return Jobs(page, cursor)
        page.append(job_view(machine, partition, job))
        cursor = _cursor(partition, job.seq)
    return Jobs(page, 0)


def _cursor(partition: QueuePartition, seq: int) -> int:
    return (partition.topic.number << 10 | partition.index) << SEQ_BITS | seq


def _jobs_after(machine: Machine, command: commands.ScanJobs) -> Iterator[tuple[QueuePartition, Job]]:
    if command.topic is not None:
        topic = machine.names.get(command.topic)
        topics = [] if topic is None else [topic]
    else:
        topics = list(machine.topics.values())
    for topic in topics:
        for partition in topic.partitions:
            if _cursor(partition, SEQ_MAX) > command.cursor and partition.jobs:
                after = command.cursor & SEQ_MAX if _cursor(partition, 0) <= command.cursor else 0
                for seq in _seqs_after(partition, after):
                    job = partition.jobs.get(seq)
                    if job is not None:
                        yield partition, job


def _seqs_after(partition: QueuePartition, after: int) -> Iterator[int]:
    """Walks the seqs where they lie close together, and sorts them (they nearly are) where they are few and far."""
    jobs = partition.jobs
    first = max(after + 1, min(next(iter(jobs)), after + 1) if after else 1)
    if partition.next_seq - first <= 4 * len(jobs):
        yield from range(first, partition.next_seq)
    else:
        seqs = sorted(jobs)
        yield from seqs[bisect_right(seqs, after) :]
