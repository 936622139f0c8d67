"""What happens because time passes: leases end, delays end, jobs expire, idle queues leave.

All in bounded steps: what one turn cannot do is due again at once.
"""

from __future__ import annotations

from heapq import heapify, heappop
from typing import TYPE_CHECKING

from esker.engine import commands, events, limits
from esker.engine.config import Pause
from esker.engine.logs import retention as log_retention
from esker.engine.queues import consume, pressure, retention
from esker.engine.queues.job import Job, JobState
from esker.engine.queues.partition import QueuePartition
from esker.engine.replies import Reply

if TYPE_CHECKING:
    from esker.engine.machine import Machine

_DELAYED, _LEASED, _WITHDRAWN, _SPENT = (int(state) for state in tuple(JobState)[1:])


def tick(machine: Machine, command: commands.Tick, now: int) -> Reply:
    left = limits.TIMERS_PER_TURN
    wakes = machine.wakes
    while wakes and wakes[0][0] <= now and left > 0:
        when, number, index = heappop(wakes)
        topic = machine.topics.get(number)
        if topic is None or topic.partition(index).wake_ms != when:
            continue
        if topic.log is not None:
            left -= log_retention.run_timers(machine, topic.log, now)
        else:
            left -= run_timers(machine, topic.partitions[index], now, left)
    if len(wakes) > machine.wakes_limit:
        _forget_stale_wakes(machine)
    _sweep_idle(machine, now)
    machine.return_idle_reserves(now, limits.TIMERS_PER_TURN)
    _bury(machine)
    return None


def _forget_stale_wakes(machine: Machine) -> None:
    """A wake that was overtaken by an earlier one stays in the heap until its time, which may be years away."""
    machine.wakes[:] = [
        (partition.wake_ms, topic.number, partition.index)
        for topic in machine.topics.values()
        for partition in topic.all_partitions()
        if partition.wake_ms
    ]
    heapify(machine.wakes)
    machine.wakes_limit = 2 * len(machine.wakes) + limits.STALE_WAKES_MAX


def next_wake_ms(machine: Machine) -> int | None:
    """When `tick` has something to do next; None: nothing is due at all."""
    return machine.wakes[0][0] if machine.wakes else None


def run_timers(machine: Machine, partition: QueuePartition, now: int, limit: int) -> int:
    """Handles what is due in one partition, and sets its next wake. Returns how much was done, at least 1."""
    done = 1
    for seq in partition.timers.take(now, limit):
        job = partition.jobs.get(seq)
        if job is not None and job.due_ms and job.due_ms <= now:
            _come_due(machine, partition, job, now)
            done += 1
    floor = 0
    for seq in partition.expiry.take(now, max(0, limit - done)):
        job = partition.jobs.get(seq)
        if job is not None and job.expires_ms and job.expires_ms <= now:
            if job.state != _SPENT:
                floor = max(floor, seq + 1)
            expire(machine, partition, job, now)
            done += 1
    retention.raise_ttl_floor(machine, partition, floor, now)
    partition.sleep()
    if partition.index == 0 and retention.is_capped(partition.topic.config):
        retention.enforce_caps(machine, partition.topic, now)  # the rest, if a cap was tightened
    return done


def expire_one(machine: Machine, partition: QueuePartition, job: Job, now: int) -> None:
    """A live job is past its TTL: it goes, and readers will be told."""
    expire(machine, partition, job, now)
    retention.raise_ttl_floor(machine, partition, job.seq + 1, now)


def expire(machine: Machine, partition: QueuePartition, job: Job, now: int) -> None:
    """The caller raises the floor, once for all that go."""
    topic = partition.topic
    event = events.JobRemoved(topic.number, partition.index, job.seq, now, events.RemoveReason.EXPIRED)
    machine.record(partition, event, sync=False)
    if topic.config.max_in_flight:
        machine.woken.add(topic.name)


def _come_due(machine: Machine, partition: QueuePartition, job: Job, now: int) -> None:
    topic = partition.topic
    if job.state == _DELAYED:
        partition.promote(job)
        machine.woken.add(topic.name)
    elif topic.pause & Pause.IN and job.retry_ms:
        # A queue that takes no jobs takes none back either; as Disque does, ask again a retry time later.
        event = events.JobWithdrawn(topic.number, partition.index, job.seq, now, now + job.retry_ms)
        machine.record(partition, event, sync=False)
    elif job.state == _LEASED:
        delay = consume.retry_delay_ms(machine, partition, job)
        consume.give_back(machine, partition, job, now, delay, events.ReturnReason.LEASE_EXPIRED, sync=False)
    elif job.state == _WITHDRAWN:
        consume.give_back(machine, partition, job, now, 0, events.ReturnReason.RESUMED, sync=False)


def _sweep_idle(machine: Machine, now: int) -> None:
    """Looks at a few topics each time, so that a shard of 100,000 topics never walks them all in one turn."""
    if not machine.sweep:
        machine.sweep = list(machine.topics)
    for _ in range(min(len(machine.sweep), 100)):
        topic = machine.topics.get(machine.sweep.pop())
        if topic is None:
            continue
        for partition in topic.all_partitions():
            if partition.dedup.entries:
                partition.dedup.forget(now - topic.config.idempotency_window_ms, limits.TIMERS_PER_TURN)
                if partition.dedup.dropped:
                    machine.touched.add(partition)  # so that the store forgets too
        if pressure.is_idle(machine, topic, now):
            machine.record(None, events.TopicDeleted(topic.number, now))


def _bury(machine: Machine) -> None:
    """Frees the memory of purged queues a little at a time: a million jobs at once would stall the loop."""
    graveyard = machine.graveyard
    left = 4 * limits.TIMERS_PER_TURN
    while graveyard and left > 0:
        jobs = graveyard[-1]
        while jobs and left > 0:
            jobs.popitem()
            left -= 1
        if not jobs:
            graveyard.pop()
