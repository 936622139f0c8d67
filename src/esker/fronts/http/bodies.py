"""What clients send: one struct for each body. Unknown fields are ignored, payloads stay the text they came in.

`data` and `meta` are `msgspec.Raw`: views of the request, never parsed, copied when they are handed to the engine.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

NO_META = Raw()
"""Of a record that brings none: known by its identity, so that it costs nothing."""

Unsigned = Annotated[int, Meta(ge=0)]
"""At most `UNSIGNED_MAX`, which is more than such a constraint can say: bodies look at it themselves."""

UNSIGNED_MAX = (1 << 64) - 1
Signed32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Nodes = str | list[str]
Selector = str | list[str]
"""Which tags: "job-1", "job-*", ["tag", "Eq", "job-1"] or ["tag", "Glob", "job-*"]."""


def _check_unsigned(**numbers: int | None) -> None:
    """Raises ValueError, which decoding turns into the usual error."""
    for name, number in numbers.items():
        if number is not None and number > UNSIGNED_MAX:
            raise ValueError(f"Expected `int` <= {UNSIGNED_MAX} - at `$.{name}`")


class ConfigBody(msgspec.Struct, kw_only=True):
    """The config of a topic, as far as this protocol can name it. What is left out has its default."""

    type: Literal["log", "queue"] | UnsetType = UNSET
    ttl_ms: Unsigned = 0
    cap_records: Unsigned = 0
    cap_bytes: Unsigned = 0
    discard: Literal["old", "reject"] = "old"
    durable: bool = False
    durability: Literal["ephemeral", "memory", "disk", "fsync"] | None = None
    priority: Signed32 | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: Unsigned = 120_000
    dedupe_node: bool = True
    lease_ms: Unsigned = 30_000
    claim_jitter_ms: Unsigned = 0
    max_deliveries: Unsigned = 0
    dead_letter: str | None = None
    leases_durable: bool = False

    def __post_init__(self) -> None:
        _check_unsigned(
            ttl_ms=self.ttl_ms, cap_records=self.cap_records, cap_bytes=self.cap_bytes,
            idempotency_window_ms=self.idempotency_window_ms, lease_ms=self.lease_ms,
            claim_jitter_ms=self.claim_jitter_ms, max_deliveries=self.max_deliveries,
        )  # fmt: skip


class RecordBody(msgspec.Struct, gc=False):
    data: Raw
    tag: str | None = None
    node: str | None = None
    meta: Raw = msgspec.field(default_factory=lambda: NO_META)  # a plain default would show in the schema


class PlainRecordBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A record that is data and nothing else, as most are."""

    data: Raw


class AnyWriteBody(msgspec.Struct, kw_only=True):
    """What a write says beside its records."""

    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: ConfigBody | None = None
    disable_backpressure: bool = False


class WriteBody(AnyWriteBody, kw_only=True):
    records: list[RecordBody]


class PlainWriteBody(AnyWriteBody, kw_only=True):
    """A write of nothing but plain records. It is decoded in less time, and there is less to look at."""

    records: list[PlainRecordBody]


class DiffBody(msgspec.Struct, kw_only=True):
    from_seq: Unsigned = 0
    limit: Unsigned = 256
    node: Nodes | None = None
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: Unsigned = 0
    max_batch_bytes: Unsigned = 1 << 20

    def __post_init__(self) -> None:
        _check_unsigned(
            from_seq=self.from_seq, limit=self.limit, wait_ms=self.wait_ms, max_batch_bytes=self.max_batch_bytes
        )


class DeleteBody(msgspec.Struct, kw_only=True):
    before_seq: Unsigned | None = None
    match: Selector | None = None

    def __post_init__(self) -> None:
        _check_unsigned(before_seq=self.before_seq)


class RouterBody(msgspec.Struct, kw_only=True):
    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Selector | None = None
    allow_cycle: bool = False
    guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once"


class ReplayBody(msgspec.Struct, kw_only=True):
    ids: list[str] | None = None
    count: Unsigned | None = None


class ClaimBody(msgspec.Struct, kw_only=True):
    node: str
    max: Unsigned = 1
    lease_ms: Unsigned | None = None

    def __post_init__(self) -> None:
        if self.max > UNSIGNED_MAX or (self.lease_ms or 0) > UNSIGNED_MAX:
            _check_unsigned(max=self.max, lease_ms=self.lease_ms)


class AckBody(msgspec.Struct, kw_only=True):
    """`seqs` may be left out only where `lease_ids` say it all: in a queue of several partitions."""

    node: str
    seqs: list[Unsigned] | None = None
    lease_ids: list[str] | None = None

    def __post_init__(self) -> None:
        if self.seqs and max(self.seqs) > UNSIGNED_MAX:
            _check_unsigned(seqs=max(self.seqs))


class NackBody(AckBody, kw_only=True):
    delay_ms: Unsigned = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_unsigned(delay_ms=self.delay_ms)


class ExtendBody(AckBody, kw_only=True):
    lease_ms: Unsigned

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_unsigned(lease_ms=self.lease_ms)
