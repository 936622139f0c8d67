"""The config object of this protocol and the engine's `TopicConfig`: how one becomes the other.

A PUT replaces the whole config: what it leaves out gets its default. What this protocol cannot name (partitions, mode,
backoff …) keeps its value. A topic never changes its type, so a config that does not tell one means the one it has.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET

from esker.engine import limits
from esker.engine.config import Discard, Durability, TopicConfig, TopicType
from esker.fronts.http.answers import ConfigAnswer
from esker.fronts.http.bodies import ConfigBody
from esker.fronts.http.errors import HttpError, invalid
from esker.fronts.http.names import topic_name

LEASE_MS_MIN: Final = 100


def durability(body: ConfigBody) -> Durability:
    """An explicit class wins; else `durable` decides between fsync and disk."""
    if body.durability is not None:
        return Durability(body.durability)
    return Durability.FSYNC if body.durable else Durability.DISK


def to_config(body: ConfigBody, name: bytes, known: TopicConfig | None = None) -> TopicConfig:
    """`known`: what the topic has now, if there is one. Raises 400 and 409."""
    if body.type is not UNSET:
        kind = TopicType(body.type)
    else:
        kind = TopicType.LOG if known is None else known.type
    if known is not None and kind != known.type:
        raise HttpError(
            409,
            "topic_exists_incompatible",
            f"topic {name.decode()!r} is a {known.type}; it cannot become a {kind}",
            {"existing_type": known.type.value, "requested_type": kind.value},
        )
    dead_letter = None
    if body.dead_letter is not None:
        dead_letter = topic_name(body.dead_letter, "dead_letter")
        if dead_letter == name:
            raise invalid(f"dead_letter is {body.dead_letter!r}, the topic itself; it must name another one")
    return msgspec.structs.replace(
        TopicConfig() if known is None else known,
        type=kind,
        durability=durability(body),
        ttl_ms=min(body.ttl_ms, limits.TTL_MS_MAX),
        cap_records=min(body.cap_records, limits.SEQ_MAX),
        cap_bytes=min(body.cap_bytes, limits.CAP_BYTES_MAX),
        discard=Discard(body.discard),
        priority=body.priority,
        auto_priority=body.auto_priority,
        auto_create=body.auto_create,
        idempotency_window_ms=min(body.idempotency_window_ms, limits.YEAR_MS),
        dedupe_node=body.dedupe_node,
        lease_ms=clamped_lease(body.lease_ms),
        claim_jitter_ms=min(body.claim_jitter_ms, limits.CLAIM_JITTER_MS_MAX),
        max_deliveries=min(body.max_deliveries, limits.DELIVERIES_MAX),
        dead_letter=dead_letter,
        leases_durable=body.leases_durable,
    )


def clamped_lease(lease_ms: int) -> int:
    return min(max(lease_ms, LEASE_MS_MIN), limits.LEASE_MS_MAX)


DEFAULT: Final = to_config(ConfigBody(), b"")
"""Of a topic that a write makes without a config."""


def shown(config: TopicConfig) -> ConfigAnswer:
    return ConfigAnswer(
        type=config.type.value,
        ttl_ms=config.ttl_ms,
        cap_records=config.cap_records,
        cap_bytes=config.cap_bytes,
        discard=config.discard.value,
        durable=config.durability == Durability.FSYNC,
        durability=config.durability.value,
        priority=config.priority,
        auto_priority=config.auto_priority,
        auto_create=config.auto_create,
        idempotency_window_ms=config.idempotency_window_ms,
        dedupe_node=config.dedupe_node,
        lease_ms=config.lease_ms,
        claim_jitter_ms=config.claim_jitter_ms,
        max_deliveries=config.max_deliveries,
        dead_letter=None if config.dead_letter is None else config.dead_letter.decode("utf-8", "backslashreplace"),
        leases_durable=config.leases_durable,
    )
