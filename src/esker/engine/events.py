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

from esker.engine.commands import Details, NewRecord
from esker.engine.config import Pause, RouterOptions, TopicConfig


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
    """Seqs below `ceiling`, and none from it on, may have been given out, even if no record of them is left.

    The ceiling comes down again when the partition is idle.
    """

    topic: int
    partition: int
    ceiling: int


class Purged(_Event, frozen=True, tag=6):
    """Every job below seq `below` is gone."""

    topic: int
    partition: int
    ts: int
    below: int


class NodeStarted(_Event, frozen=True, tag=7):
    """A new life begins: leases that were not promised to survive a restart are over, ephemeral jobs are gone.

    Recovery does that by itself and folds nothing here. The event is for whoever reads the history: without it, a lease
    of a job whose last lease was never settled would look like two live leases.
    """

    ts: int


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
    excused: bool = False  # past the limit of deliveries, because the dead-letter topic took nothing


class JobAcked(_Event, frozen=True, tag=12):
    """`token`: of the live lease that the one who acked held; 0: by id alone, as Disque's protocol allows."""

    topic: int
    partition: int
    seq: int
    ts: int
    token: int = 0


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


class KeyRemembered(_Event, frozen=True, tag=20):
    """An idempotency key stands for `count` records (or jobs) from `seq` on."""

    topic: int
    partition: int
    ts: int
    key: bytes
    seq: int
    count: int


class QueueTrimmed(_Event, frozen=True, tag=21):
    """Live jobs below `evict_floor` were lost to a cap or to the topic's TTL: readers behind it are told."""

    topic: int
    partition: int
    ts: int
    cap_floor: int
    ttl_floor: int


class JobsLeased(_Event, frozen=True, tag=22):
    """Leases of one holder that end together. The token of the first is `token`, and one more for each that follows.

    None is of a job that is delivered at most once, none is excused.
    """

    topic: int
    partition: int
    ts: int
    token: int
    deadline_ms: int
    holder: bytes
    seqs: list[int]
    attempts: list[int]  # of each


class JobsAcked(_Event, frozen=True, tag=23):
    """`tokens` as `JobAcked` has them, one for each job; empty: all by id alone."""

    topic: int
    partition: int
    ts: int
    seqs: list[int]
    tokens: list[int]


RecordBody = NewRecord  # its place in a block tells the seq and the time


class RecordsAppended(_Event, frozen=True, tag=30):
    topic: int
    partition: int
    seq: int  # of the first
    ts: int
    records: list[RecordBody]


class LogTrimmed(_Event, frozen=True, tag=31):
    """Where the floors are now: seqs below `cap_floor` went because the topic was full, below `ttl_floor` by age."""

    topic: int
    partition: int
    ts: int
    cap_floor: int
    ttl_floor: int


class RecordsDeleted(_Event, frozen=True, tag=32):
    """Gone on request: everything below `below` (0: nothing), and the seqs of `runs` (first, count, first, ...)."""

    topic: int
    partition: int
    ts: int
    below: int
    runs: list[int]


class SeqsLost(_Event, frozen=True, tag=33):
    """No record will ever have these seqs: readers that pass are told the reason."""

    topic: int
    partition: int
    ts: int
    first: int
    last: int
    reason: str


class LogArchived(_Event, frozen=True, tag=34):
    """The living records from `first` to `last` are in a file of the archive, and may leave the store."""

    topic: int
    partition: int
    ts: int
    first: int
    last: int
    file: str
    sha256: str = ""  # the checksum of the file; none in events from before it had one


class RouterPut(_Event, frozen=True, tag=40):
    """`cursor`: the last seq of the source that needs no forwarding."""

    router: int
    ts: int
    name: bytes
    source: int
    dest: int
    options: RouterOptions
    cursor: int


class RouterDropped(_Event, frozen=True, tag=41):
    router: int
    ts: int


class RecordsForwarded(_Event, frozen=True, tag=42):
    """Copies of the source's records up to `upto` are in the destination from `dest_seq` on.

    `runs` are the source seqs that were copied (first, count, first, ...). With `derived` the copies are made again
    from the source when this is folded, so a source append stays one write whatever the fan-out; else they are
    journalled on their own, and when folded this only moves the cursor.
    """

    router: int
    ts: int
    upto: int
    dest_seq: int
    runs: list[int]
    derived: bool
    forwarded: int  # copies made in all


class LoadAdvanced(_Event, frozen=True, tag=50):
    """Everything of a bulk load up to chunk `chunk` of batch `batch` is in; with `last` the whole batch is."""

    load: bytes
    ts: int
    batch: int
    chunk: int
    rows: int  # of the batch that are in
    last: bool


Event = (
    TopicCreated | TopicConfigured | TopicDeleted | TopicPaused | SeqReserved | Purged | NodeStarted
    | Enqueued | JobLeased | JobAcked | JobReturned | LeaseExtended | JobWithdrawn
    | JobReprioritised | JobRemoved | JobReplayed | JobsEnqueued | JobsLeased | JobsAcked | KeyRemembered | QueueTrimmed
    | RecordsAppended | LogTrimmed | RecordsDeleted | SeqsLost | LogArchived
    | RouterPut | RouterDropped | RecordsForwarded | LoadAdvanced
)  # fmt: skip
JobEvent = (
    Enqueued | JobLeased | JobAcked | JobReturned | LeaseExtended | JobWithdrawn
    | JobReprioritised | JobRemoved | JobReplayed | KeyRemembered | QueueTrimmed
)  # fmt: skip
LogEvent = RecordsAppended | LogTrimmed | RecordsDeleted | SeqsLost | LogArchived | KeyRemembered


def enqueued_apart(event: JobsEnqueued) -> list[Enqueued]:
    """The same, one by one."""
    topic, partition, ts, retry_ms, expires_ms = (
        event.topic,
        event.partition,
        event.ts,
        event.retry_ms,
        event.expires_ms,
    )
    return [
        Enqueued(topic, partition, seq, ts, 0, retry_ms, expires_ms, 0, payload, None)
        for seq, payload in enumerate(event.payloads, event.seq)
    ]


def leased_apart(event: JobsLeased) -> list[JobLeased]:
    """The same, one by one."""
    topic, partition, ts, deadline_ms, holder = event.topic, event.partition, event.ts, event.deadline_ms, event.holder
    return [
        JobLeased(topic, partition, seq, ts, token, deadline_ms, attempts, holder)
        for token, (seq, attempts) in enumerate(zip(event.seqs, event.attempts, strict=True), event.token)
    ]


def acked_apart(event: JobsAcked) -> list[JobAcked]:
    """The same, one by one."""
    tokens = event.tokens or [0] * len(event.seqs)
    return [
        JobAcked(event.topic, event.partition, seq, event.ts, token)
        for seq, token in zip(event.seqs, tokens, strict=True)
    ]


encode_batch = msgspec.msgpack.Encoder().encode
decode_batch = msgspec.msgpack.Decoder(list[Event]).decode
