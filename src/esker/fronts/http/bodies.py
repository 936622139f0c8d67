"""What clients send: one struct for each body. Unknown fields are ignored, payloads stay the text they came in.

`data` and `meta` are `msgspec.Raw`: views of the request, never parsed, copied when they are handed to the engine.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from esker.engine import limits
from esker.engine.ids import ULID_PATTERN
from esker.fronts.http.names import TOPIC_PATTERN
from esker.fronts.http.schemas import Schema, whole

NO_META = Raw()
"""Of a record that brings none: known by its identity, so that it costs nothing."""


def extra(**schema: object) -> Meta:
    """What else the document says of a field: that which is not checked while it is decoded, but where it is used."""
    return Meta(extra_json_schema=schema)


def text_of(most: int, least: int = 0) -> Meta:
    """Of a text whose bounds are in bytes. JSON Schema can only count characters, which are never more."""
    bounds = {"maxLength": most, "description": f"at most {most} bytes as UTF-8"}
    return Meta(extra_json_schema={**bounds, "minLength": least} if least else bounds)


def both(*names: str) -> Schema:
    """All of these fields are there, and none is null."""
    return {"required": list(names), "properties": {name: {"not": {"type": "null"}} for name in names}}


_EXACT: Final[Schema] = {"type": "string", "maxLength": limits.TAG_BYTES_MAX}
_GLOB: Final[Schema] = {"type": "string", "maxLength": limits.TAG_BYTES_MAX + 1}
_SHORT: Final[Schema] = {
    "description": f"a tag, or the begin of one and a *; at most {limits.TAG_BYTES_MAX} bytes as UTF-8, without the *",
    "anyOf": [_EXACT, {**_GLOB, "pattern": r"\*$"}],
}
_LONG: Final[Schema] = {
    "minItems": 3,
    "maxItems": 3,
    "anyOf": [
        {"prefixItems": [{"const": "tag"}, {"const": "Eq"}, _EXACT]},
        {"prefixItems": [{"const": "tag"}, {"const": "Glob"}, {**_GLOB, "pattern": r"^[^*]*\*$"}]},
    ],
}
LEASE_PATTERN: Final = r"lease_([0-9a-f]{1,32})"
WIDE_LEASE_PATTERN: Final = r"lease_([0-9a-f]{1,3})-([0-9a-f]{1,12})-([0-9a-f]{1,32})"  # of several partitions

UNSIGNED_MAX = (1 << 64) - 1
Unsigned = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": UNSIGNED_MAX})]
"""At most `UNSIGNED_MAX`, which is more than such a constraint can check: bodies do so themselves."""

Signed32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
TopicName = Annotated[str, extra(pattern=whole(TOPIC_PATTERN))]
Tag = Annotated[str, text_of(limits.TAG_BYTES_MAX)]
Node = Annotated[str, text_of(limits.NODE_BYTES_MAX)]
Holder = Annotated[str, text_of(limits.NODE_BYTES_MAX, least=1)]
IDEMPOTENCY_KEY_BYTES_MAX = 256
IdempotencyKey = Annotated[str, text_of(IDEMPOTENCY_KEY_BYTES_MAX)]
Nodes = Node | list[Node]
MetaObject = Annotated[Raw, extra(type=["object", "null"], maxProperties=limits.META_KEYS_MAX)]
Selector = Annotated[str, extra(**_SHORT)] | Annotated[list[str], extra(**_LONG)]  # selectors.py reads it
"""Which tags: "job-1", "job-*", ["tag", "Eq", "job-1"] or ["tag", "Glob", "job-*"]."""

LeaseId = Annotated[str, extra(pattern=whole(f"({LEASE_PATTERN}|{WIDE_LEASE_PATTERN})?"))]
MessageId = Annotated[str, extra(pattern=whole(ULID_PATTERN))]
LEASES_MAX = 1000  # in one ack, nack or extend
LETTERS_MAX = 1000  # sent back at a time


def check_unsigned(**numbers: int | None) -> None:
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
    dead_letter: TopicName | None = None
    leases_durable: bool = False

    def __post_init__(self) -> None:
        check_unsigned(
            ttl_ms=self.ttl_ms, cap_records=self.cap_records, cap_bytes=self.cap_bytes,
            idempotency_window_ms=self.idempotency_window_ms, lease_ms=self.lease_ms,
            claim_jitter_ms=self.claim_jitter_ms, max_deliveries=self.max_deliveries,
        )  # fmt: skip


class RecordBody(msgspec.Struct, gc=False):
    data: Raw
    tag: Tag | None = None
    node: Node | None = None
    meta: MetaObject = msgspec.field(default_factory=lambda: NO_META)  # a plain default would show in the schema


class PlainRecordBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A record that is data and nothing else, as most are."""

    data: Raw


class AnyWriteBody(msgspec.Struct, kw_only=True):
    """What a write says beside its records."""

    node: Node | None = None
    idempotency_key: IdempotencyKey | None = None
    create: bool | None = None
    config: ConfigBody | None = None
    disable_backpressure: bool = False


class WriteBody(AnyWriteBody, kw_only=True):
    records: Annotated[list[RecordBody], extra(minItems=1, maxItems=limits.ENQUEUE_JOBS_MAX)]


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
        check_unsigned(
            from_seq=self.from_seq, limit=self.limit, wait_ms=self.wait_ms, max_batch_bytes=self.max_batch_bytes
        )


class DeleteBody(msgspec.Struct, kw_only=True):
    rules: ClassVar[Schema] = {"anyOf": [both("before_seq"), both("match")]}

    before_seq: Unsigned | None = None
    match: Selector | None = None

    def __post_init__(self) -> None:
        check_unsigned(before_seq=self.before_seq)


class RouterBody(msgspec.Struct, kw_only=True):
    source: TopicName
    dest: TopicName
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Selector | None = None
    allow_cycle: bool = False
    guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once"


class ReplayBody(msgspec.Struct, kw_only=True):
    rules: ClassVar[Schema] = {"oneOf": [both("ids"), both("count")]}

    ids: Annotated[list[MessageId], extra(minItems=1, maxItems=LETTERS_MAX)] | None = None
    count: Annotated[int, extra(minimum=1, maximum=LETTERS_MAX)] | None = None


class ClaimBody(msgspec.Struct, kw_only=True):
    node: Holder
    max: Unsigned = 1
    lease_ms: Unsigned | None = None

    def __post_init__(self) -> None:
        if self.max > UNSIGNED_MAX or (self.lease_ms or 0) > UNSIGNED_MAX:
            check_unsigned(max=self.max, lease_ms=self.lease_ms)


class AckBody(msgspec.Struct, kw_only=True):
    """`seqs` may be left out only where `lease_ids` say it all: in a queue of several partitions."""

    rules: ClassVar[Schema] = {"anyOf": [both("seqs"), both("lease_ids")]}

    node: Holder
    seqs: Annotated[list[Unsigned], extra(maxItems=LEASES_MAX)] | None = None
    lease_ids: Annotated[list[LeaseId], extra(maxItems=LEASES_MAX)] | None = None

    def __post_init__(self) -> None:
        if self.seqs and max(self.seqs) > UNSIGNED_MAX:
            check_unsigned(seqs=max(self.seqs))


class NackBody(AckBody, kw_only=True):
    delay_ms: Unsigned = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unsigned(delay_ms=self.delay_ms)


class ExtendBody(AckBody, kw_only=True):
    lease_ms: Unsigned

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unsigned(lease_ms=self.lease_ms)
