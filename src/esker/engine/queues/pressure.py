"""What gives way when memory runs out, and what does not.

Below 95 % of the limit nothing happens here (from 75 % on, a clustered node lets others take new copies). From 95 % on,
what no promise covers leaves: at-most-once jobs that were delivered, and idle queues. At 100 % new jobs are refused.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from esker.engine import events, limits
from esker.engine.config import Pause
from esker.engine.queues.partition import QueuePartition
from esker.engine.topic import Topic
from esker.errors import Code, Refusal

if TYPE_CHECKING:
    from esker.engine.machine import Machine

PRESSED_AT = 0.75
EVICT_AT = 0.95


def room_problem(machine: Machine, now: int) -> Refusal | None:
    """Why nothing new is taken, if so. Looks last: making room lets go of what no promise covers."""
    if machine.refuse_new is not None:
        return machine.refuse_new
    limit = machine.memory_limit
    if limit and machine.memory_bytes() >= limit * EVICT_AT:
        relieve(machine, now)
        if machine.memory_bytes() >= limit:
            return Refusal(
                Code.OUT_OF_MEMORY,
                f"jobs and records need {machine.memory_bytes()} of {limit} bytes; raise memory_limit or let workers "
                "catch up",
            )
    return None


def relieve(machine: Machine, now: int) -> None:
    """One bounded step of eviction, whatever the number of topics: at the limit every new job asks for it."""
    left = limits.TIMERS_PER_TURN
    for partition in list(islice(machine.totals.spent, left)):
        left -= evict_spent(machine, partition, now, keep=0, limit=left)
        if left <= 0:
            return


def evict_spent(machine: Machine, partition: QueuePartition, now: int, keep: int, limit: int) -> int:
    """Lets at-most-once jobs go that were delivered, oldest first, until `keep` are left. Returns how many went."""
    gone = 0
    number, index, spent = partition.topic.number, partition.index, partition.spent
    while len(spent) > keep and gone < limit:
        seq = spent.popleft()
        if seq in partition.jobs:
            event = events.JobRemoved(number, index, seq, now, events.RemoveReason.EVICTED)
            machine.record(partition, event, sync=False)
            gone += 1
    if not spent:
        machine.totals.spent.pop(partition, None)
    return gone


def idle_limit_ms(machine: Machine) -> int:
    """How long a queue that nobody configured may stay empty."""
    limit = machine.memory_limit
    used = machine.memory_bytes() / limit if limit else 0.0
    if used >= EVICT_AT:
        return limits.IDLE_TOPIC_MS_FULL
    return limits.IDLE_TOPIC_MS_PRESSED if used >= PRESSED_AT else limits.IDLE_TOPIC_MS


def is_idle(machine: Machine, topic: Topic, now: int) -> bool:
    return (
        topic.lazy
        and now - topic.active_ms > idle_limit_ms(machine)
        and topic.pause == Pause.NONE
        and topic.name not in machine.watched
        and not machine.routers.touches(topic)
        and not any(partition.jobs or partition.dedup.entries for partition in topic.partitions)
    )
