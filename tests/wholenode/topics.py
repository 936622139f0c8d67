"""The topics and routers that traffic plays on."""

from __future__ import annotations

from esker.engine.config import (
    Backoff,
    Discard,
    Durability,
    Guarantee,
    Mode,
    RouterOptions,
    TopicConfig,
    TopicType,
)

LETTERS_LOG = b"letters.log"  # made by the node, when a job fails too often

FSYNC, DISK, MEMORY, EPHEMERAL = Durability.FSYNC, Durability.DISK, Durability.MEMORY, Durability.EPHEMERAL


def log_config(durability: Durability = FSYNC, **options: object) -> TopicConfig:
    values: dict[str, object] = {"type": TopicType.LOG, "durability": durability, "idempotency_window_ms": 600_000}
    return TopicConfig(**{**values, **options})  # type: ignore[arg-type]


LOGS = {
    b"log.a": log_config(),
    b"log.b": log_config(),
    b"log.c": log_config(),
    b"log.d": log_config(),
    b"disk.a": log_config(DISK),
    b"disk.b": log_config(DISK),
    b"memory": log_config(MEMORY),
    b"fleeting": log_config(EPHEMERAL),
    b"changing": log_config(),
    b"capped": log_config(cap_records=25),
    b"narrow": log_config(DISK, cap_bytes=1500),
    b"aging": log_config(ttl_ms=4000),
    b"strict": log_config(cap_records=30, discard=Discard.REJECT),
}
QUEUES = {
    b"q.plain": TopicConfig(),
    b"q.parts": TopicConfig(
        partitions=3, max_deliveries=2, dead_letter=b"letters.q", lease_ms=500,
        backoff=Backoff(base_ms=100, factor=2.0, cap_ms=300, jitter=0.5),
    ),
    b"q.failing": TopicConfig(max_deliveries=1, dead_letter=LETTERS_LOG, lease_ms=300, leases_durable=True),
    b"q.max": TopicConfig(mode=Mode.MAX, max_in_flight=20),
    b"q.disk": TopicConfig(durability=DISK, lease_ms=1000),
    b"q.memory": TopicConfig(durability=MEMORY),
    b"q.fleeting": TopicConfig(durability=EPHEMERAL),
    b"q.aging": TopicConfig(ttl_ms=5000),
    b"q.capped": TopicConfig(cap_records=15),
    b"letters.q": TopicConfig(),
}  # fmt: skip
ROUTERS = {
    b"r.copy": (b"log.a", b"copy.a", RouterOptions()),
    b"r.chain": (b"copy.a", b"copy.aa", RouterOptions(guarantee=Guarantee.EXACTLY_ONCE)),
    b"r.tagged": (b"disk.a", b"copy.tagged", RouterOptions(filter_tag=b"x", filter_prefix=True, preserve_node=False)),
    b"r.capped": (b"capped", b"copy.capped", RouterOptions()),
    b"r.jobs": (b"log.b", b"q.copied", RouterOptions()),
    b"r.queue": (b"q.plain", b"copy.jobs", RouterOptions()),
}
TAGS = (b"", b"", b"", b"x", b"xy", b"z")
NODES = (b"", b"n1", b"n2")
SIZES = (0, 3, 20, 60, 150, 400)
WAITS_S = (0.0, 0.0, 0.0, 0.0002, 0.001, 0.005, 0.03, 0.2, 1.0)
