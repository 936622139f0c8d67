"""How state is laid out in the store. One letter says what a key holds; numbers are big-endian, so order is order.

    m                              Meta: the journal position and the counters of the shard
    t topic                        TopicHeader
    p topic partition              PartitionHeader
    j topic partition seq          a job without its payload (engine/queues/job.py)
    b topic partition seq          the payload ("body") of that job
    d topic partition key          an idempotency key
    l topic partition              LogHeader (logs.py)
    x topic partition seq          a block of a log without its records: `seq` is its first
    r topic partition seq          its records
    g topic partition seq          their tags
    a topic partition seq          its outline, when its records are in the archive
    w router                       RouterHeader (routers.py)
    o load                         the mark of a bulk load (loads.py)

Jobs and bodies are apart so that a restart reads only what it must have in memory.
"""

from __future__ import annotations

from struct import Struct

import msgspec

from esker.engine.config import Pause, TopicConfig
from esker.engine.queues.sums import Counters

FORMAT = 2
"""Version of this layout. 2: the records of a block have a checksum; those of format 1 are read as they are.

To change it: raise the number, teach `checkpoint.load` to read the one before, and say in
docs/decisions what an upgrade does."""

META = b"m"
BLOCK_KINDS = (b"x", b"r", b"g", b"a")
ROUTERS = b"w", b"x"
LOADS = b"o", b"p"

_place = Struct(">cIH").pack
_place_seq = Struct(">cIHQ").pack
_topic = Struct(">cI").pack


class Meta(msgspec.Struct, frozen=True, array_like=True):
    format: int
    position: int
    next_number: int
    last_ms: int


class TopicHeader(msgspec.Struct, frozen=True, array_like=True):
    number: int
    name: bytes
    config: TopicConfig
    created_ms: int
    lazy: bool
    pause: Pause


class PartitionHeader(msgspec.Struct, frozen=True, array_like=True):
    next_seq: int
    ceiling: int
    active_ms: int
    counters: Counters
    cap_floor: int = 1
    ttl_floor: int = 1
    head_seq: int | None = None  # None, as it was before this field: the one below `next_seq`


class StoredKey(msgspec.Struct, frozen=True, array_like=True):
    created_ms: int
    seq: int
    count: int = 1


def topic_key(number: int) -> bytes:
    return _topic(b"t", number)


def partition_key(number: int, index: int) -> bytes:
    return _place(b"p", number, index)


def job_key(number: int, index: int, seq: int) -> bytes:
    return _place_seq(b"j", number, index, seq)


def body_key(number: int, index: int, seq: int) -> bytes:
    return _place_seq(b"b", number, index, seq)


def dedup_key(number: int, index: int, key: bytes) -> bytes:
    return _place(b"d", number, index) + key


def log_key(number: int, index: int) -> bytes:
    return _place(b"l", number, index)


def block_key(kind: bytes, number: int, index: int, first_seq: int) -> bytes:
    return _place_seq(kind, number, index, first_seq)


def router_key(number: int) -> bytes:
    return _topic(b"w", number)


def load_key(load: bytes) -> bytes:
    return b"o" + load


def blocks_between(number: int, index: int, start: int, end: int) -> list[tuple[bytes, bytes]]:
    """The ranges that hold the blocks of a log that begin at `start` or behind it, and before `end`."""
    return [(_place_seq(kind, number, index, start), _place_seq(kind, number, index, end)) for kind in BLOCK_KINDS]


def bodies_between(number: int, index: int, start: int, end: int) -> tuple[bytes, bytes]:
    """The range that holds the records, and nothing else, of such blocks."""
    return _place_seq(b"r", number, index, start), _place_seq(b"r", number, index, end)


def jobs_below(number: int, index: int, seq: int) -> list[tuple[bytes, bytes]]:
    """The ranges that hold the jobs of a partition below a seq."""
    return [(_place_seq(kind, number, index, 0), _place_seq(kind, number, index, seq)) for kind in (b"j", b"b")]


def partition_range(kind: bytes, number: int, index: int) -> tuple[bytes, bytes]:
    return _place(kind, number, index), _place(kind, number, index + 1)


def topic_ranges(number: int) -> list[tuple[bytes, bytes]]:
    """Everything about a topic."""
    kinds = (b"t", b"p", b"j", b"b", b"d", b"l", *BLOCK_KINDS)
    return [(_topic(kind, number), _topic(kind, number + 1)) for kind in kinds]
