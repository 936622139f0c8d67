"""What a queue lets go of without being asked: jobs beyond its caps, and jobs past their TTL. Readers are told.

A cap counts the jobs that readers see, leased ones included, and the bytes of their payloads. A full queue drops its
oldest (`discard` old) or refuses new ones (`reject`). What was delivered at most once counts for neither, and leaves
first: no promise covers it.

The floors of a partition (partition.py) are raised by `QueueTrimmed`, once for all jobs that a command let go of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from esker.engine import events, limits
from esker.engine.config import Discard, TopicConfig
from esker.engine.queues import clockwork, pressure
from esker.engine.queues.job import Job, JobState
from esker.engine.queues.partition import QueuePartition
from esker.engine.replies import Tombstone
from esker.engine.topic import Topic
from esker.errors import Code, Refusal, quoted

if TYPE_CHECKING:
    from esker.engine.machine import Machine

_SPENT = int(JobState.SPENT)
_ONE_BY_ONE = 1000  # jobs that go in one command with an event each; beyond, a purge of the prefix may be cheaper


def catch_up(machine: Machine, partition: QueuePartition, now: int) -> None:
    """What is due by now counts by now; jobs at the front that are past their TTL leave to the millisecond."""
    if partition.wake_ms and partition.wake_ms <= now:
        clockwork.run_timers(machine, partition, now, limits.TIMERS_PER_TURN)
    floor = 0
    for _ in range(limits.TIMERS_PER_TURN):
        job = partition.jobs.get(partition.earliest_seq())
        if job is None or not job.expires_ms or job.expires_ms > now:
            break
        clockwork.expire(machine, partition, job, now)
        floor = job.seq + 1
    raise_ttl_floor(machine, partition, floor, now)


def raise_ttl_floor(machine: Machine, partition: QueuePartition, floor: int, now: int) -> None:
    """Live jobs below `floor` have expired. One that lives on below it is still read, behind a gap that is too wide."""
    if floor > partition.ttl_floor:
        event = events.QueueTrimmed(partition.topic.number, partition.index, now, partition.cap_floor, floor)
        machine.record(partition, event, sync=False)


def tombstone(partition: QueuePartition, after: int) -> Tombstone | None:
    """What a reader who has seen everything up to `after` must be told."""
    head = partition.head_seq
    earliest = partition.earliest_seq()
    if after > head:
        return Tombstone(1, head, "recreated", head, earliest, head)
    floor = partition.evict_floor
    if after + 1 >= floor:
        return None
    by_cap, by_ttl = after + 1 < partition.cap_floor, after + 1 < partition.ttl_floor
    reason = "mixed" if by_cap and by_ttl else "cap" if by_cap else "ttl"
    last = max(floor, earliest) - 1
    return Tombstone(after + 1, last, reason, last - after, earliest, head)


def is_capped(config: TopicConfig) -> bool:
    return config.cap_records > 0 or config.cap_bytes > 0


def has_room(topic: Topic, records: int, size: int) -> bool:
    """Whether nothing has to go for so many more."""
    held, held_bytes = _holds(topic)
    return not _exceeds(topic.config, held + records, held_bytes + size)


def cap_problem(
    machine: Machine, topic: Topic | None, config: TopicConfig, records: int, size: int, now: int
) -> Refusal | None:
    """Why a topic that refuses rather than drops cannot take `records` more, of `size` bytes together."""
    if config.discard != Discard.REJECT or not is_capped(config) or not records:
        return None
    detail: dict[str, object] = {"cap_records": config.cap_records, "cap_bytes": config.cap_bytes}
    if _exceeds(config, records, size):
        return Refusal(
            Code.RECORD_TOO_LARGE,
            f"{records} records of {size} bytes in one write; the topic never holds more than its caps "
            f"({_caps(config)})",
            detail,
        )
    if topic is None:
        return None
    _let_spent_go(machine, topic, now)
    for partition in topic.partitions:
        catch_up(machine, partition, now)
    held, held_bytes = _holds(topic)
    if not _exceeds(config, held + records, held_bytes + size):
        return None
    head, earliest = head_seq(topic), earliest_seq(topic)
    return Refusal(
        Code.TOPIC_FULL,
        f"topic {quoted(topic.name)} holds {held} records of {held_bytes} bytes, and its caps ({_caps(config)}) leave "
        f"no room for {records} more of {size} bytes; let consumers catch up",
        {**detail, "head_seq": head, "earliest_seq": earliest},
    )


def enforce_caps(machine: Machine, topic: Topic, now: int) -> None:
    """Drops the oldest jobs until the topic is within its caps. Call it after jobs came, or a cap was tightened.

    What is more than a step's worth goes in ticks to come: only a cap that was tightened can be exceeded by that much.
    """
    config = topic.config
    if not is_capped(config) or not _exceeds(config, *_holds(topic)):
        return
    _let_spent_go(machine, topic, now)
    if not _exceeds(config, *_holds(topic)):
        return
    if len(topic.partitions) == 1:
        _trim(machine, topic.partitions[0], now)
    else:
        _trim_oldest_of_all(machine, topic, now)
    if _exceeds(config, *_holds(topic)):
        topic.partitions[0].wake(now + 1)  # not in this tick
    if config.max_in_flight:
        machine.woken.add(topic.name)  # leased ones may have gone


def remove_all(
    machine: Machine, partition: QueuePartition, seqs: list[int], below: int, now: int, reason: events.RemoveReason
) -> None:
    """Removes jobs, in one command whatever their number. `below` > 0: they are all there is below that seq."""
    number, index = partition.topic.number, partition.index
    if below and len(seqs) > _ONE_BY_ONE and len(seqs) * 2 > len(partition.jobs):
        machine.record(None, events.Purged(number, index, now, below))
        return
    for seq in seqs:
        machine.record(partition, events.JobRemoved(number, index, seq, now, reason))


def head_seq(topic: Topic) -> int:
    return max(partition.head_seq for partition in topic.partitions)


def earliest_seq(topic: Topic) -> int:
    """Of several partitions that have any: the lowest."""
    held = [partition.earliest_seq() for partition in topic.partitions if partition.records]
    return min(held, default=head_seq(topic) + 1)


def _trim(machine: Machine, partition: QueuePartition, now: int) -> None:
    config = partition.topic.config
    records, size = partition.records, partition.bytes
    gone: list[int] = []
    below = 0
    for seq in _oldest_first(partition):
        job = partition.jobs.get(seq)
        if job is None or job.state == _SPENT:
            continue
        if not _exceeds(config, records, size) or len(gone) == limits.TRIM_STEP:
            below = seq
            break
        gone.append(seq)
        records, size = records - 1, size - job.size
    floor = gone[-1] + 1
    remove_all(machine, partition, gone, below or partition.next_seq, now, events.RemoveReason.EVICTED)
    _raise_cap_floor(machine, partition, floor, now)


def _oldest_first(partition: QueuePartition) -> range | list[int]:
    """Seqs in order. Usually those that go are the next ones."""
    seqs = range(partition.earliest_seq(), partition.next_seq)
    return seqs if len(seqs) <= 4 * len(partition.jobs) else sorted(partition.jobs)


def _trim_oldest_of_all(machine: Machine, topic: Topic, now: int) -> None:
    for _ in range(limits.TRIM_STEP):
        if not _exceeds(topic.config, *_holds(topic)):
            return
        oldest: tuple[QueuePartition, Job] | None = None
        for partition in topic.partitions:
            job = partition.jobs.get(partition.earliest_seq())
            if job is not None and (oldest is None or job.created_ms < oldest[1].created_ms):
                oldest = partition, job
        if oldest is None:
            return
        partition, job = oldest
        event = events.JobRemoved(topic.number, partition.index, job.seq, now, events.RemoveReason.EVICTED)
        machine.record(partition, event)
        _raise_cap_floor(machine, partition, job.seq + 1, now)


def _raise_cap_floor(machine: Machine, partition: QueuePartition, floor: int, now: int) -> None:
    if floor > partition.cap_floor:
        event = events.QueueTrimmed(partition.topic.number, partition.index, now, floor, partition.ttl_floor)
        machine.record(partition, event)


def _let_spent_go(machine: Machine, topic: Topic, now: int) -> None:
    for partition in topic.partitions:
        pressure.evict_spent(machine, partition, now, keep=0, limit=limits.SPENT_JOBS_MAX)


def _holds(topic: Topic) -> tuple[int, int]:
    return sum(each.records for each in topic.partitions), sum(each.bytes for each in topic.partitions)


def _exceeds(config: TopicConfig, records: int, size: int) -> bool:
    return 0 < config.cap_records < records or 0 < config.cap_bytes < size


def _caps(config: TopicConfig) -> str:
    return f"cap_records {config.cap_records}, cap_bytes {config.cap_bytes}"
