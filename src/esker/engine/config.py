"""What a topic can be told: one struct, the union of all fronts' options, with the defaults in one place."""

from __future__ import annotations

from enum import IntEnum, StrEnum

import msgspec

from esker.engine import limits
from esker.errors import quoted


class TopicType(StrEnum):
    LOG = "log"
    QUEUE = "queue"
    KV = "kv"


class Mode(StrEnum):
    """Which priority is served first. `fifo` ignores priorities."""

    MIN = "min"
    MAX = "max"
    FIFO = "fifo"


class Durability(StrEnum):
    """What an acknowledged write has been through, and what a crash may take.

    ephemeral  memory of this process; a restart forgets it
    memory     journal, best effort; a restart may forget it
    disk       journal, synced shortly after; a crash may take the last moments
    fsync      synced before the reply; a crash takes nothing
    """

    EPHEMERAL = "ephemeral"
    MEMORY = "memory"
    DISK = "disk"
    FSYNC = "fsync"


class Pause(IntEnum):
    """Which side of a queue stands still: bit 1 refuses new jobs, bit 2 withholds deliveries."""

    NONE = 0
    IN = 1
    OUT = 2
    ALL = 3


class Discard(StrEnum):
    """What a full topic does: lets go of its oldest records, or refuses new ones."""

    OLD = "old"
    REJECT = "reject"


class Guarantee(StrEnum):
    """Of a router's copies."""

    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


class RouterOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a router forwards, and how. `filter_tag` None: everything."""

    preserve_node: bool = True
    preserve_tag: bool = True
    filter_tag: bytes | None = None
    filter_prefix: bool = False  # the tag begins with `filter_tag`, instead of being it
    allow_cycle: bool = False
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE


class Backoff(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Delay before a failed job is tried again: base * factor^(attempt-1), at most cap, times (1 - jitter..1)."""

    base_ms: int = 0
    factor: float = 2.0
    cap_ms: int = 5 * limits.MINUTE_MS
    jitter: float = 1.0


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The whole configuration of a topic. A zero limit means "no limit"."""

    type: TopicType = TopicType.QUEUE
    partitions: int = 1
    mode: Mode = Mode.MIN
    durability: Durability = Durability.FSYNC
    ttl_ms: int = 0
    max_payload_bytes: int = limits.PAYLOAD_BYTES_MAX
    max_in_flight: int = 0
    lease_ms: int = 30 * limits.SECOND_MS
    max_lease_ms: int = limits.LEASE_MS_MAX
    leases_durable: bool = False
    max_deliveries: int = 0
    dead_letter: bytes | None = None
    backoff: Backoff = Backoff()
    idempotency_window_ms: int = limits.DAY_MS
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Discard = Discard.OLD
    priority: int | None = None  # of delivery when the node is busy; None: how lately it was consumed decides
    auto_priority: bool = True
    auto_create: bool = True
    dedupe_node: bool = True  # readers may leave out their own records
    claim_jitter_ms: int = 0  # claims that come within this long of each other share evenly; 0: first come


def config_problem(config: TopicConfig, name: bytes) -> str | None:
    """What is wrong with a config, in one sentence that names the field and its value; None when it is sound."""
    for field, low, high in (
        ("partitions", 1, limits.PARTITIONS_MAX),
        ("ttl_ms", 0, limits.TTL_MS_MAX),
        ("max_payload_bytes", 1, limits.PAYLOAD_BYTES_MAX),
        ("max_in_flight", 0, 1 << 32),
        ("lease_ms", 1, limits.LEASE_MS_MAX),
        ("max_lease_ms", 1, limits.LEASE_MS_MAX),
        ("max_deliveries", 0, limits.DELIVERIES_MAX),
        ("idempotency_window_ms", 0, limits.YEAR_MS),
        ("cap_records", 0, limits.SEQ_MAX),
        ("cap_bytes", 0, limits.CAP_BYTES_MAX),
        ("claim_jitter_ms", 0, limits.CLAIM_JITTER_MS_MAX),
    ):
        value = getattr(config, field)
        if not low <= value <= high:
            return f"{field} is {value}; it must be {low} to {high}"
    if config.type == TopicType.KV:
        return "type is kv; this version of Esker has queue and log"
    if config.type == TopicType.LOG and config.partitions != 1:
        return f"partitions is {config.partitions}; a log has 1"
    backoff = config.backoff
    if not 0 <= backoff.base_ms <= backoff.cap_ms <= limits.DELAY_MS_MAX:
        return f"backoff.base_ms is {backoff.base_ms}; it must be 0 to backoff.cap_ms ({backoff.cap_ms})"
    if not 1 <= backoff.factor <= 100:
        return f"backoff.factor is {backoff.factor}; it must be 1 to 100"
    if not 0 <= backoff.jitter <= 1:
        return f"backoff.jitter is {backoff.jitter}; it must be 0 to 1"
    if config.dead_letter is not None:
        if config.dead_letter in (b"", name):
            return f"dead_letter is {quoted(config.dead_letter)}; it must name another topic"
        if len(config.dead_letter) > limits.TOPIC_NAME_BYTES_MAX:
            return f"dead_letter has {len(config.dead_letter)} bytes; at most {limits.TOPIC_NAME_BYTES_MAX}"
    return None
