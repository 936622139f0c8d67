"""Which event changes a partition of a queue how."""

from __future__ import annotations

from collections.abc import Callable

from esker.engine import events
from esker.engine.queues.partition import QueuePartition

EVOLVE: dict[type, Callable[..., object]] = {
    events.Enqueued: QueuePartition.enqueued,
    events.JobsEnqueued: QueuePartition.enqueued_alike,
    events.JobReplayed: QueuePartition.replayed,
    events.JobLeased: QueuePartition.leased,
    events.JobAcked: QueuePartition.acked,
    events.JobReturned: QueuePartition.returned,
    events.LeaseExtended: QueuePartition.extended,
    events.JobWithdrawn: QueuePartition.withdrawn,
    events.JobReprioritised: QueuePartition.reprioritised,
    events.JobRemoved: QueuePartition.removed,
    events.KeyRemembered: QueuePartition.key_remembered,
    events.QueueTrimmed: QueuePartition.trimmed,
    events.SeqReserved: QueuePartition.reserved,
}

# For events of one kind that were decided together.
EVOLVE_ALL: dict[type, Callable[..., None]] = {
    events.Enqueued: QueuePartition.enqueued_all,
    events.JobLeased: QueuePartition.leased_all,
    events.JobAcked: QueuePartition.acked_all,
}
