"""From what the engine reads to what a client gets: tombstones, node filters, the frame around records."""

from __future__ import annotations

from collections.abc import Sequence

from esker.engine import limits
from esker.engine.replies import Records, Tombstone
from esker.fronts.http.answers import TombstoneAnswer, encode
from esker.fronts.http.bodies import Nodes
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


def diff_body(topic: str, read: Records, records: Sequence[bytes]) -> bytes:
    """A `DiffAnswer` around the texts of its records, which are not looked at again."""
    rest = b"""],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,"caught_up":%b,"tombstone":%b,"lag":%d}""" % (
        read.next_from_seq,
        read.head_seq,
        read.earliest_seq,
        b"true" if read.next_from_seq == read.head_seq else b"false",
        encode(shown_tombstone(read.tombstone)),
        max(0, read.head_seq - read.next_from_seq),
    )
    return b"".join((b'{"topic":%b,"records":[' % encode(topic), *records, rest))
