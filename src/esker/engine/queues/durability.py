"""What a change of a queue's class, and a restart, mean for the jobs that are there.

An ephemeral queue forgets its jobs when the process ends. One that becomes ephemeral forgets them from then on; one
that is ephemeral no more keeps them from the next checkpoint on.
"""

from __future__ import annotations

from esker.engine import events
from esker.engine.queues.job import Job
from esker.engine.queues.partition import QueuePartition


def configured(partition: QueuePartition, was_journaled: bool) -> None:
    """The topic has another config."""
    partition.set_mode()
    if partition.topic.journaled and not was_journaled:  # what no event told must be in the next checkpoint
        partition.stored_below = min(partition.jobs, default=partition.next_seq)
        partition.dedup.added.update(partition.dedup.entries)


def forget(partition: QueuePartition) -> dict[int, Job]:
    """What a restart does to an ephemeral queue. Returns the jobs that were loaded, if any."""
    # The store may know jobs of a time when the class was another: as after a purge, it has to forget them.
    gone = partition.purged(
        events.Purged(partition.topic.number, partition.index, partition.active_ms, partition.next_seq)
    )
    partition.dedup.clear()
    return gone
