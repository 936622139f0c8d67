"""What clients get: one struct for each answer. Fields of the server carry a `$`; what is absent is left out.

The `performance` block is added to every one of them when it leaves (front.py), so none has it as a field.
"""

from __future__ import annotations

from msgspec import UNSET, Raw, Struct, UnsetType, field, json

encode = json.Encoder().encode


class ConfigAnswer(Struct, kw_only=True):
    """The whole config of a topic, with `durability` resolved; `durable` says whether it is fsync."""

    type: str
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: str
    durable: bool
    durability: str
    priority: int | None
    auto_priority: bool
    auto_create: bool
    idempotency_window_ms: int
    dedupe_node: bool
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    leases_durable: bool


class TopicPutAnswer(Struct):
    topic: str
    created: bool
    config: ConfigAnswer


class QueueAnswer(Struct):
    ready: int
    in_flight: int
    dead_lettered: int


class TopicAnswer(Struct, kw_only=True):
    topic: str
    type: str
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    config: ConfigAnswer
    effective_priority: int
    last_write_ts: int | None
    last_read_ts: int | None
    queue: QueueAnswer | UnsetType = UNSET


class ListedTopic(Struct):
    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int


class TopicsAnswer(Struct):
    topics: list[ListedTopic]
    next_cursor: str | UnsetType = UNSET


class TopicDeletedAnswer(Struct):
    topic: str
    deleted: bool
    routers_removed: list[str]


class WrittenAnswer(Struct, kw_only=True):
    topic: str
    first_seq: int
    last_seq: int
    seqs: list[int] | UnsetType = UNSET
    head_seq: int
    count: int
    created: bool
    deduped: bool
    partition: int | UnsetType = field(name="$partition", default=UNSET)


class RecordAnswer(Struct, gc=False):
    seq: int = field(name="$seq")
    ts: int = field(name="$ts")
    data: Raw
    node: str | UnsetType = field(name="$node", default=UNSET)
    tag: str | UnsetType = field(name="$tag", default=UNSET)
    meta: Raw | UnsetType = UNSET


class TombstoneAnswer(Struct):
    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class DiffAnswer(Struct, kw_only=True):
    topic: str
    records: list[RecordAnswer]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: TombstoneAnswer | None
    lag: int


class RecordsDeletedAnswer(Struct):
    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class ReplayedAnswer(Struct):
    topic: str
    replayed: int
    missed: list[str]


class RouterAnswer(Struct, kw_only=True):
    router: str
    created: bool | UnsetType = UNSET
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: list[str] | None
    allow_cycle: bool
    guarantee: str
    forwarded_total: int | UnsetType = UNSET


class ListedRouter(Struct):
    router: str
    source: str
    dest: str
    guarantee: str
    forwarded_total: int


class RoutersAnswer(Struct):
    routers: list[ListedRouter]
    next_cursor: str | UnsetType = UNSET


class RouterDeletedAnswer(Struct):
    router: str
    deleted: bool


class JobAnswer(Struct, gc=False):
    """One leased job. `$partition` only where the queue has several."""

    seq: int = field(name="$seq")
    lease_id: str
    deadline: int
    ts: int = field(name="$ts")
    deliveries: int
    data: Raw
    tag: str | UnsetType = field(name="$tag", default=UNSET)
    meta: Raw | UnsetType = UNSET
    partition: int | UnsetType = field(name="$partition", default=UNSET)


class ClaimedAnswer(Struct):
    topic: str
    claimed: list[JobAnswer]
    count: int
    ready: int


class AckedAnswer(Struct):
    topic: str
    acked: int
    skipped: list[int]
    ready: int
    in_flight: int
    skipped_lease_ids: list[str] | UnsetType = UNSET


class NackedAnswer(Struct):
    topic: str
    nacked: int
    skipped: list[int]
    ready: int
    in_flight: int
    skipped_lease_ids: list[str] | UnsetType = UNSET


class ExtendedAnswer(Struct):
    """`deadlines` by seq; where the queue has several partitions, by lease id."""

    topic: str
    extended: int
    skipped: list[int]
    deadlines: dict[str, int]
    skipped_lease_ids: list[str] | UnsetType = UNSET


class HealthAnswer(Struct):
    """`status`: ok, degraded (it serves, with a problem) or stopped (it lives and does not serve)."""

    status: str
    version: str
    uptime_ms: int
    problem: str | UnsetType = UNSET


class ReadyAnswer(Struct, omit_defaults=True):
    status: str
    wal_replay_complete: bool
    topics: int | None = None
    problem: str | None = None  # it serves all the same
