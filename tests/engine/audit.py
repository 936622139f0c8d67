"""Counts everything anew: the jobs are the truth, and each index, sum and set beside them must say the same."""

from __future__ import annotations

from esker.engine import limits
from esker.engine.machine import Machine
from esker.engine.queues import ready
from esker.engine.queues.deadlines import Deadlines
from esker.engine.queues.job import Job, JobState
from esker.engine.queues.partition import QueuePartition
from esker.engine.queues.ready import ready_key
from esker.engine.topic import Topic


def audit(machine: Machine) -> None:
    """Raises AssertionError where a derived fact does not follow from the jobs."""
    partitions = [partition for topic in machine.topics.values() for partition in topic.partitions]
    assert list(machine.topics) == sorted(machine.topics), "topics are not in order of creation"
    assert {topic.name: topic for topic in machine.topics.values()} == machine.names
    assert all(topic.number < machine.next_number for topic in machine.topics.values())
    assert machine.totals.jobs == sum(len(partition.jobs) for partition in partitions)
    assert machine.totals.hot_bytes == sum(
        partition.hot_bytes for topic in machine.topics.values() for partition in topic.all_partitions()
    )
    assert machine.totals.kept_bytes == sum(map(_kept_bytes, machine.topics.values()))
    assert set(machine.totals.spent) == {partition for partition in partitions if partition.spent}
    held = {(holder, partition) for partition in partitions for holder in partition.holders.held}
    assert held == {(holder, each) for holder, several in machine.totals.holdings.items() for each in several}
    assert all(machine.totals.holdings.values()), "a holder of nothing is remembered"
    wakes = set(machine.wakes)
    for partition in partitions:
        _audit_sums(partition)
        _audit_order(partition)
        _audit_leases(partition)
        _audit_deadlines(partition.timers, {seq: job.due_ms for seq, job in partition.jobs.items()})
        _audit_deadlines(partition.expiry, {seq: job.expires_ms for seq, job in partition.jobs.items()})
        _audit_wake(partition, wakes)
        _audit_records(partition)


def _kept_bytes(topic: Topic) -> int:
    total = topic.memory_bytes
    for partition in topic.all_partitions():
        keys, tags = partition.dedup.entries, partition.tags._seqs
        total += sum(limits.DEDUP_KEY_MEMORY_BYTES + len(key) for key in keys)
        total += sum(limits.TAG_MEMORY_BYTES + len(tag) for tag in tags)
        total += len(partition.tags) * limits.TAGGED_MEMORY_BYTES
    return total


def _audit_sums(partition: QueuePartition) -> None:
    jobs = partition.jobs.values()
    assert all(seq == job.seq < partition.next_seq for seq, job in partition.jobs.items())
    assert partition.counts == [sum(job.state == state for job in jobs) for state in JobState]
    assert partition.bytes == sum(job.size for job in jobs)
    assert partition.hot_bytes == sum(job.size for job in jobs if job.payload is not None)


def _audit_order(partition: QueuePartition) -> None:
    keys = sorted(
        ready_key(partition.sign, job.priority, seq)
        for seq, job in partition.jobs.items()
        if job.state == JobState.READY
    )
    assert list(partition.ready.in_order()) == keys
    assert len(partition.ready) <= 2 * len(keys) + ready._SLACK, "the ready heap holds too much garbage"


def _audit_leases(partition: QueuePartition) -> None:
    leased: dict[int, Job] = {seq: job for seq, job in partition.jobs.items() if job.state == JobState.LEASED}
    assert all(job.token and job.due_ms for job in leased.values())
    assert len({job.token for job in leased.values()}) == len(leased)
    assert partition.holders.keys() <= leased.keys()
    held = {(holder, seq) for holder, seqs in partition.holders.held.items() for seq in seqs}
    assert held == {(holder, seq) for seq, holder in partition.holders.items()}
    assert all(partition.holders.held.values()), "a holder of nothing is remembered"
    assert {seq for seq, job in partition.jobs.items() if job.state == JobState.SPENT} <= set(partition.spent)
    assert all(not job.due_ms for job in partition.jobs.values() if job.state in (JobState.READY, JobState.SPENT))


def _audit_deadlines(deadlines: Deadlines, due: dict[int, int]) -> None:
    waiting = {seq: when for seq, when in due.items() if when}
    for seq, when in waiting.items():
        number = (when + deadlines._mask) >> deadlines._shift
        assert seq in deadlines._buckets[number], f"job {seq} is due at {when} and nobody knows"
    assert deadlines._buckets.keys() <= set(deadlines._order)


def _audit_wake(partition: QueuePartition, wakes: set[tuple[int, int, int]]) -> None:
    due = [when for index in (partition.timers, partition.expiry) if (when := index.next_ms()) is not None]
    if due:
        assert 0 < partition.wake_ms <= min(due), "the partition would oversleep"
    if partition.wake_ms:
        assert (partition.wake_ms, partition.topic.number, partition.index) in wakes


def _audit_records(partition: QueuePartition) -> None:
    seen = [seq for seq, job in partition.jobs.items() if job.state != JobState.SPENT]
    assert partition.records == len(seen)
    assert partition.earliest_seq() == min(seen, default=partition.head_seq + 1)
    assert partition.head_seq < partition.next_seq
    assert partition.late <= partition.jobs.keys()
    assert partition.evict_floor <= partition.next_seq
    tagged: dict[bytes, list[int]] = {}
    for seq in sorted(partition.jobs):
        details = partition.jobs[seq].details
        if details is not None and details.tag:
            tagged.setdefault(details.tag, []).append(seq)
    for tag, seqs in tagged.items():
        assert set(seqs) <= {seq for piece in partition.tags.find(tag, prefix=False) for seq in piece}, (
            "a tag has lost a job"
        )
