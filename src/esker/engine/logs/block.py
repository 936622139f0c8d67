"""A block: some hundreds of records of a log in a row, which the store keeps and drops as a whole.

A block is *hot* while its content is in memory and *cold* when only the store has it; then about 200 bytes are left of
it here, which is enough to know what lives in it, so that a topic may be far larger than memory.

`gone` is a bit mask: bit n is set when record first_seq + n was deleted, evicted or has expired. The payload of such a
record stays in the content for a while (`blank` takes it out), because a recovery may have to copy it again.
Where a block ends follows from the records alone, so the same history makes the same blocks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from esker.engine import limits
from esker.engine.events import RecordBody
from esker.errors import InvariantBroken

BLANK = RecordBody(b"")


class Content(msgspec.Struct, array_like=True):
    """The records of a block, and when they came: record `starts[n]` and those behind it at `stamps[n]`."""

    starts: list[int]
    stamps: list[int]
    bodies: list[RecordBody]

    def ts(self, offset: int) -> int:
        return self.stamps[bisect_right(self.starts, offset) - 1]

    def first_at(self, ts: int) -> int:
        """The offset of the first record that is not older than `ts`."""
        run = bisect_left(self.stamps, ts)
        return self.starts[run] if run < len(self.starts) else len(self.bodies)

    def size_at(self, offset: int) -> int:
        return body_size(self.bodies[offset])

    def outline(self) -> Outline:
        return Outline(self.starts, self.stamps, [body_size(body) for body in self.bodies])

    def head(self, count: int) -> Content:
        """The first `count` records."""
        runs = bisect_left(self.starts, count)
        return Content(self.starts[:runs], self.stamps[:runs], self.bodies[:count])


class PackedBodies:
    """The records of a block as the store has them, one packed behind the other in `records`."""

    __slots__ = ("_count", "_packed", "records")

    def __init__(self, packed: memoryview) -> None:
        """Of a list as msgpack packs it. Its head tells how many there are."""
        self._packed = packed
        kind = packed[0]
        head = _LIST_HEADS.get(kind, 0)
        self._count = int.from_bytes(packed[1 : 1 + head], "big") if head else kind & 0x0F
        self.records = packed[1 + head :]

    def __len__(self) -> int:
        return self._count

    def unpacked(self) -> list[RecordBody]:
        return _decode_bodies(self._packed)


_LIST_HEADS = {0xDC: 2, 0xDD: 4}  # bytes of the count behind the first; of a list that is short it is in the first
_decode_bodies = msgspec.msgpack.Decoder(list[RecordBody]).decode


class PackedContent(msgspec.Struct, frozen=True, array_like=True):
    """A content whose records nobody has looked at yet."""

    starts: list[int]
    stamps: list[int]
    bodies: msgspec.Raw


class Outline(msgspec.Struct, frozen=True, array_like=True):
    """What is left of a content whose records are in the archive: enough to count them and to tell their age."""

    starts: list[int]
    stamps: list[int]
    sizes: list[int]

    def first_at(self, ts: int) -> int:
        """The offset of the first record that is not older than `ts`."""
        run = bisect_left(self.stamps, ts)
        return self.starts[run] if run < len(self.starts) else len(self.sizes)

    def size_at(self, offset: int) -> int:
        return self.sizes[offset]


class BlockTags(msgspec.Struct, frozen=True, array_like=True):
    """Beside the records of a block where some have a tag: the sizes of all of them, and the tags by their places."""

    sizes: list[int]
    tags: list[tuple[int, bytes]]


def body_size(body: RecordBody) -> int:
    """What a record counts for: its data and its meta."""
    return len(body.data) + len(body.meta)


class Weight(NamedTuple):
    """Of some records together."""

    size: int
    tagged: bool  # whether any has a tag


def weight_of(bodies: Sequence[RecordBody]) -> Weight:
    size = 0
    tagged = False
    for body in bodies:
        size += len(body.data) + len(body.meta)
        if body.tag:
            tagged = True
    return Weight(size, tagged)


def hot_size(bodies: Sequence[RecordBody]) -> int:
    """What records cost in memory, about."""
    return sum(len(body.data) + len(body.meta) for body in bodies) + len(bodies) * limits.RECORD_MEMORY_BYTES


def offsets(bits: int) -> Iterator[int]:
    """The places of the bits that are set, lowest first."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def runs_of(bits: int, first_seq: int, runs: list[int]) -> None:
    """Adds the seqs of the bits that are set, as (first, count) pairs; joins what touches the last pair."""
    while bits:
        low = (bits & -bits).bit_length() - 1
        ones = bits >> low
        length = (~ones & (ones + 1)).bit_length() - 1
        if runs and runs[-2] + runs[-1] == first_seq + low:
            runs[-1] += length
        else:
            runs += (first_seq + low, length)
        bits ^= ((1 << length) - 1) << low


def runs_from(seqs: Iterable[int]) -> list[int]:
    """Rising seqs as runs: first, count, first, ..."""
    runs: list[int] = []
    for seq in seqs:
        if runs and runs[-2] + runs[-1] == seq:
            runs[-1] += 1
        else:
            runs += (seq, 1)
    return runs


class Block:
    __slots__ = (
        "content", "count", "first_seq", "first_ts", "gone", "hot_bytes", "last_ts", "live_bytes", "size",
        "sizes", "stored", "tagged",
    )  # fmt: skip

    def __init__(self, first_seq: int, ts: int, content: Content | None) -> None:
        self.first_seq = first_seq
        self.count = 0  # records, gone ones too
        self.size = 0  # bytes of data and meta, gone ones too: decides where the block ends
        self.first_ts = ts
        self.last_ts = ts
        self.gone = 0
        self.live_bytes = 0
        self.tagged = 0  # records with a tag, gone ones too
        self.sizes: array[int] | None = None  # where some have a tag: those go one by one, and often when it is cold
        self.content = content
        self.hot_bytes = 0  # what the content costs in memory
        self.stored = 0  # how many of its records the store has, from the first on

    @property
    def end(self) -> int:
        """The seq behind the last record."""
        return self.first_seq + self.count

    @property
    def full(self) -> bool:
        return self.count >= limits.BLOCK_RECORDS_MAX or self.size >= limits.BLOCK_BYTES_MAX

    @property
    def live(self) -> int:
        """The mask of the records that are not gone."""
        return ~self.gone & ((1 << self.count) - 1)

    @property
    def coolable(self) -> bool:
        """Whether the store has every record. Content may leave memory on no other condition."""
        return self.stored >= self.count

    def append(self, ts: int, bodies: Sequence[RecordBody], size: int) -> int:
        """Adds records that fit. Returns what they cost in memory."""
        content = self.content
        if content is None:
            raise InvariantBroken(f"records were added to block {self.first_seq}, which is not in memory")
        if not content.stamps or content.stamps[-1] != ts:
            content.starts.append(self.count)
            content.stamps.append(ts)
        content.bodies += bodies
        self.count += len(bodies)
        self.size += size
        self.live_bytes += size
        self.last_ts = ts
        hot = size + len(bodies) * limits.RECORD_MEMORY_BYTES
        self.hot_bytes += hot
        return hot

    def tag(self, count: int) -> None:
        """So many of the records added last have a tag. Once one has, this is called for all that come after it."""
        self.tagged += count
        if self.content is None:
            raise InvariantBroken(f"records were added to block {self.first_seq}, which is not in memory")
        if self.sizes is None:
            if not count:
                return
            self.sizes = array("I")
        self.sizes.extend(map(body_size, self.content.bodies[len(self.sizes) :]))

    def first_live(self) -> int:
        """Its seq. There must be one."""
        live = self.live
        return self.first_seq + (live & -live).bit_length() - 1

    def bits(self, first: int, last: int) -> int:
        """The mask of the seqs from `first` to `last` that are in this block."""
        low, high = max(first - self.first_seq, 0), min(last + 1 - self.first_seq, self.count)
        return ((1 << high) - 1) & -(1 << low) if high > low else 0

    def blank(self, mask: int) -> int:
        """Takes payloads out of memory that nobody will ask for. Returns how much memory that freed."""
        content = self.content
        if content is None:
            return 0
        freed = 0
        for offset in offsets(mask):
            freed += body_size(content.bodies[offset])
            content.bodies[offset] = BLANK
        self.hot_bytes -= freed
        return freed
