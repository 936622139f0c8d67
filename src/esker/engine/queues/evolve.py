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
    events.JobsLeased: QueuePartition.leased_together,
    events.JobsAcked: QueuePartition.acked_together,
    events.JobReturned: QueuePartition.returned,
    events.LeaseExtended: QueuePartition.extended,
    events.JobWithdrawn: QueuePartition.withdrawn,
    events.JobReprioritised: QueuePartition.reprioritised,
    events.JobRemoved: QueuePartition.removed,
    events.KeyRemembered: QueuePartition.key_remembered,
    events.QueueTrimmed: QueuePartition.trimmed,
    events.SeqReserved: QueuePartition.reserved,
}
