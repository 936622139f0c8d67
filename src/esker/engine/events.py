"""Facts: what happened to a shard, in order. The journal stores these and nothing else.

Rules that recovery stands on:
* An event says the outcome in absolute values ("attempts is now 3"), never a change ("one more attempt"). A checkpoint
  may already hold the effect of the events that follow its position, and folding them again must change nothing.
* A tag number is for ever. A field may be added at the end with a default; anything else is a new event.
* Times are milliseconds since the epoch and come from the shard's clock.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from esker.engine.commands import Details
from esker.engine.config import Pause, TopicConfig


class _Event(msgspec.Struct, frozen=True, gc=False, array_like=True):
    pass


class TopicCreated(_Event, frozen=True, tag=1):
    """`lazy`: made on first use without a config, so it may leave when idle and empty."""

    topic: int
    ts: int
    name: bytes
    config: TopicConfig
    lazy: bool


class TopicConfigured(_Event, frozen=True, tag=2):
    topic: int
    ts: int
    config: TopicConfig


class TopicDeleted(_Event, frozen=True, tag=3):
    topic: int
    ts: int


class TopicPaused(_Event, frozen=True, tag=4):
    topic: int
    ts: int
    pause: Pause


class SeqReserved(_Event, frozen=True, tag=5):
    """Seqs below `ceiling` may have been given out, even if no record of them is left."""

    topic: int
    partition: int
    ceiling: int


class Purged(_Event, frozen=True, tag=6):
    """Every job below seq `below` is gone."""

    topic: int
    partition: int
    ts: int
    below: int


class Enqueued(_Event, frozen=True, tag=10):
    topic: int
    partition: int
    seq: int
    ts: int
    priority: int
    retry_ms: int
    expires_ms: int  # 0: never
    due_ms: int  # 0: ready at once
    payload: bytes
    details: Details | None


class JobLeased(_Event, frozen=True, tag=11):
    topic: int
    partition: int
    seq: int
    ts: int
    token: int
    deadline_ms: int
    attempts: int
    holder: bytes


class JobAcked(_Event, frozen=True, tag=12):
    topic: int
    partition: int
    seq: int
    ts: int


class ReturnReason(IntEnum):
    NACKED = 0
    LEASE_EXPIRED = 1
    RELEASED = 2
    REQUEUED = 3
    RESUMED = 4  # a withdrawal ended


class JobReturned(_Event, frozen=True, tag=13):
    """Back to the queue, at once or (`due_ms`) later, with the counters as they are now."""

    topic: int
    partition: int
    seq: int
    ts: int
    due_ms: int
    nacks: int
    requeues: int
    reason: ReturnReason


class LeaseExtended(_Event, frozen=True, tag=14):
    topic: int
    partition: int
    seq: int
    ts: int
    deadline_ms: int


class JobWithdrawn(_Event, frozen=True, tag=15):
    """Out of the queue without a lease until `due_ms`; 0: until someone puts it back."""

    topic: int
    partition: int
    seq: int
    ts: int
    due_ms: int


class JobReprioritised(_Event, frozen=True, tag=16):
    topic: int
    partition: int
    seq: int
    ts: int
    priority: int


class RemoveReason(IntEnum):
    DELETED = 0
    EXPIRED = 1
    DEAD_LETTERED = 2
    REPLAYED = 3
    EVICTED = 4


class JobRemoved(_Event, frozen=True, tag=17):
    topic: int
    partition: int
    seq: int
    ts: int
    reason: RemoveReason


class JobReplayed(_Event, frozen=True, tag=18):
    """A dead letter is back in its queue under its old seq; as `Enqueued`, with the time it was first made."""

    topic: int
    partition: int
    seq: int
    ts: int
    created_ms: int
    priority: int
    retry_ms: int
    expires_ms: int
    payload: bytes
    details: Details | None


class JobsEnqueued(_Event, frozen=True, tag=19):
    """Jobs of priority 0 without details, that differ in their payloads only; `seq` is the first one's."""

    topic: int
    partition: int
    seq: int
    ts: int
    retry_ms: int
    expires_ms: int
    payloads: list[bytes]


Event = (
    TopicCreated | TopicConfigured | TopicDeleted | TopicPaused | SeqReserved | Purged
    | Enqueued | JobLeased | JobAcked | JobReturned | LeaseExtended | JobWithdrawn
    | JobReprioritised | JobRemoved | JobReplayed | JobsEnqueued
)  # fmt: skip
JobEvent = (
    Enqueued | JobLeased | JobAcked | JobReturned | LeaseExtended | JobWithdrawn
    | JobReprioritised | JobRemoved | JobReplayed
)  # fmt: skip

encode_batch = msgspec.msgpack.Encoder().encode
decode_batch = msgspec.msgpack.Decoder(list[Event]).decode
