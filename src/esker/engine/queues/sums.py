"""What is counted on the way, so that nobody has to count jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from esker.engine.queues.partition import QueuePartition


class Totals(msgspec.Struct):
    """What all partitions of a shard share: sums for the memory limit, and who holds leases where."""

    jobs: int = 0
    hot_bytes: int = 0  # payloads in memory
    unsaved_bytes: int = 0  # payloads that no checkpoint has begun to save: asks for the next one
    kept_bytes: int = 0  # what topics, idempotency keys and tags cost, as `limits` estimates it
    spent: dict[QueuePartition, None] = msgspec.field(
        default_factory=dict
    )  # those that have at-most-once jobs to let go
    holdings: dict[bytes, set[QueuePartition]] = msgspec.field(default_factory=dict)  # by holder


class Counters(msgspec.Struct, array_like=True):
    """What happened to a partition since it was made."""

    jobs_in: int = 0
    jobs_out: int = 0
    acked: int = 0
    nacked: int = 0
    lease_timeouts: int = 0
    expired: int = 0
    dead_lettered: int = 0
