"""From what the engine reads to what a client gets: records with their sigils, tombstones, node filters."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Raw

from esker.engine import limits
from esker.engine.replies import Record, Records, Tombstone
from esker.fronts.http.answers import DiffAnswer, RecordAnswer, TombstoneAnswer
from esker.fronts.http.bodies import Nodes
from esker.fronts.http.payloads import of_job, text
from esker.fronts.http.selectors import encoded

NODES_MAX = 1000


def to_nodes(nodes: Nodes | None) -> frozenset[bytes]:
    """Whose records a reader does not want. Raises 400."""
    if not nodes:
        return frozenset()
    listed = [nodes] if isinstance(nodes, str) else nodes
    return frozenset(encoded(node, "node", limits.NODE_BYTES_MAX) for node in listed)


def batch_bytes(asked: int) -> int:
    """`max_batch_bytes` in its bounds; 0 is the default."""
    return min(asked or 1 << 20, limits.READ_BYTES_MAX)


def record_limit(asked: int) -> int:
    """`limit` in its bounds; 0 is the default."""
    return min(asked or 256, limits.READ_RECORDS_MAX)


def shown_records(records: Sequence[Record], *, tags: bool, meta: bool, jobs: bool = False) -> list[RecordAnswer]:
    """`jobs`: they come from a queue, where payloads may be anything."""
    if jobs:
        return [
            RecordAnswer(
                record.seq,
                record.ts,
                of_job(record.data),
                text(record.node) if record.node else UNSET,
                text(record.tag) if tags and record.tag else UNSET,
                Raw(record.meta) if meta and record.meta else UNSET,
            )
            for record in records
        ]
    return [
        RecordAnswer(
            record.seq,
            record.ts,
            Raw(record.data),
            text(record.node) if record.node else UNSET,
            text(record.tag) if tags and record.tag else UNSET,
            Raw(record.meta) if meta and record.meta else UNSET,
        )
        if record.node or record.tag or record.meta
        else RecordAnswer(record.seq, record.ts, Raw(record.data))
        for record in records
    ]


def wire_reason(tombstone: Tombstone) -> str:
    """The wire has no word of its own for seqs that a crash took: they look like evicted ones."""
    return "cap" if tombstone.reason == "lost" else tombstone.reason


def shown_tombstone(tombstone: Tombstone | None) -> TombstoneAnswer | None:
    if tombstone is None:
        return None
    return TombstoneAnswer(
        tombstone.gap_from,
        tombstone.gap_to,
        wire_reason(tombstone),
        tombstone.missed_estimate,
        tombstone.earliest_seq,
        tombstone.head_seq,
    )


def diff_answer(topic: str, read: Records, shown: list[RecordAnswer]) -> DiffAnswer:
    return DiffAnswer(
        topic=topic,
        records=shown,
        next_from_seq=read.next_from_seq,
        head_seq=read.head_seq,
        earliest_seq=read.earliest_seq,
        caught_up=read.next_from_seq == read.head_seq,
        tombstone=shown_tombstone(read.tombstone),
        lag=max(0, read.head_seq - read.next_from_seq),
    )
