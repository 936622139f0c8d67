"""A log in the store: what a checkpoint writes of it, and how it is loaded again.

Unlike jobs, blocks are written as they were when the checkpoint began: what is captured then is written later, even if
it has left meanwhile. So after a whole checkpoint the store holds exactly the state of its position. One that a crash
cut short leaves some blocks that are ahead: longer than the header says, or with more marks. A load cuts what is too
long; marks that are ahead hide nothing from a recovery, which asks for records whatever their marks. Only those of the
last block decide something: whether it takes the next record. So the header has that block as it was at its position,
and folding ends blocks where they ended before. Files of the archive rely on that: they end where blocks do.

A block leaves the store one checkpoint later than the state stops to mention it: until then a crash could lead back to
a position from which a router has to copy its records again. The same holds for the records of a block that went to
the archive: first an outline of it is written, and one checkpoint later they go.

The records of a block are stored behind a checksum of them and of their key, which every reader checks: a damaged
block, or one that is not the one asked for, is an error and never an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from xxhash import xxh3_64_digest, xxh3_64_intdigest

from esker.engine import limits
from esker.engine.logs.archived import ArchivedFile
from esker.engine.logs.block import Block, BlockTags, Content, Outline, PackedContent, body_size, offsets
from esker.engine.logs.gaps import Gap
from esker.engine.logs.partition import LogPartition
from esker.errors import InvariantBroken, StoreDamaged
from esker.store import keys
from esker.store.idempotency import KeyShare, load_keys
from esker.store.interface import WRITE_BYTES, WRITE_KEYS, Store
from esker.store.slices import Range, Slice, batched


class BlockHeader(msgspec.Struct, frozen=True, array_like=True):
    """A block without its records: what a restart reads."""

    count: int
    size: int
    live_bytes: int
    first_ts: int
    last_ts: int
    tagged: int
    gone: bytes  # the mask, lowest byte first


class LogHeader(msgspec.Struct, frozen=True, array_like=True):
    next_seq: int
    ceiling: int
    head_seq: int
    base: int  # blocks that begin before this are gone
    tail: int  # where the last block begins; 0: there is none
    cap_floor: int
    ttl_floor: int
    last_write_ms: int
    gaps: list[Gap]
    stored: bool  # False: the topic was ephemeral, and no block counts
    files: list[ArchivedFile] = []  # of the archive, in order
    tail_block: BlockHeader | None = None  # the last block; None: there is none, or this field was not there yet


_encode = msgspec.msgpack.Encoder().encode
_decode_log = msgspec.msgpack.Decoder(LogHeader).decode
_decode_block = msgspec.msgpack.Decoder(BlockHeader).decode
_decode_content = msgspec.msgpack.Decoder(Content).decode
_decode_packed = msgspec.msgpack.Decoder(PackedContent).decode
_decode_outline = msgspec.msgpack.Decoder(Outline).decode
_decode_tags = msgspec.msgpack.Decoder(BlockTags).decode

_SEALED = b"\xc1"  # before a checksum and a content: a byte with which no msgpack value begins
_SEAL_BYTES = len(_SEALED) + 8
_ONE_STAMP = b"\x93\x91\x00\x91\xcf"  # how a content begins whose records came together; then 8 bytes, then they


class _Captured(NamedTuple):
    """A block as it was when the checkpoint began. `content` None: the store has its records."""

    block: Block
    header: BlockHeader
    content: Content | None
    outlined: bool  # the store gets an outline of it


class LogShare:
    """What one log had to save when the checkpoint began."""

    def __init__(self, log: LogPartition) -> None:
        """Takes the changes off the log."""
        log.blank()
        unsaved, journaled = log.unsaved, log.topic.journaled
        self._log = log
        self._place = log.topic.number, log.index
        self._header = _encode(_header(log))
        self._ranges = self._stale_ranges()
        self._stale = unsaved.stale
        self._captured: list[_Captured] = []
        if journaled:
            changed = unsaved.grown | unsaved.marked | unsaved.outlined
            blocks = sorted(changed, key=lambda block: block.first_seq)
            self._captured = [_capture(block, block in unsaved.grown, block in unsaved.outlined) for block in blocks]
            unsaved.grown, unsaved.marked, unsaved.outlined = set(), set(), set()
            unsaved.bodiless_below = max(unsaved.bodiless_below, unsaved.bodies_stale_below)
            unsaved.bodies_stale_below = max(unsaved.bodies_stale_below, log.archived_below())
        else:  # to be written if the class changes
            unsaved.marked = {block for block in unsaved.marked if block.live}
        unsaved.wipe = False
        unsaved.ahead_from = 0
        unsaved.cleared_below = max(unsaved.cleared_below, unsaved.stale_below)
        unsaved.stale_below = max(unsaved.stale_below, unsaved.dropped_below)
        unsaved.stale, unsaved.dropped = unsaved.dropped, []
        self._keys = KeyShare(self._place, log.dedup, journaled)
        self.marks = [(log, log.unjournaled_marks)] if journaled and log.unjournaled_marks else []

    @property
    def header(self) -> tuple[bytes, bytes]:
        return keys.log_key(*self._place), self._header

    def ranges(self) -> list[Range]:
        return self._ranges

    def _stale_ranges(self) -> list[Range]:
        unsaved = self._log.unsaved
        if unsaved.wipe:
            return [keys.partition_range(kind, *self._place) for kind in (*keys.BLOCK_KINDS, b"d")]
        ranges: list[Range] = []
        if unsaved.stale_below > unsaved.cleared_below:
            ranges = keys.blocks_between(*self._place, unsaved.cleared_below, unsaved.stale_below)
        if unsaved.ahead_from:
            ranges += keys.blocks_between(*self._place, unsaved.ahead_from, limits.SEQ_MAX + 1)
        if unsaved.bodies_stale_below > unsaved.bodiless_below and self._log.topic.journaled:
            ranges.append(keys.bodies_between(*self._place, unsaved.bodiless_below, unsaved.bodies_stale_below))
        return ranges

    def slices(self) -> Iterator[Slice]:
        for batch in batched(self._stale, WRITE_KEYS // len(keys.BLOCK_KINDS)):
            deletes = [keys.block_key(kind, *self._place, seq) for seq in batch for kind in keys.BLOCK_KINDS]
            yield Slice([], deletes, [], [])
        piece = Slice([], [], [], [], [])
        size = 0
        for captured in self._captured:
            size += self._put(captured, piece)
            if len(piece.puts) + len(keys.BLOCK_KINDS) > WRITE_KEYS or size >= WRITE_BYTES:
                yield piece
                piece = Slice([], [], [], [], [])
                size = 0
        yield piece
        yield from self._keys.slices()

    def _put(self, captured: _Captured, piece: Slice) -> int:
        """Returns how many bytes that are."""
        block, header, content, outlined = captured
        seq, puts = block.first_seq, piece.puts
        puts.append((keys.block_key(b"x", *self._place, seq), _encode(header)))
        size = len(puts[-1][1])
        if outlined:
            outline = (content or self._log.content(block)).outline()
            puts.append((keys.block_key(b"a", *self._place, seq), _encode(outline)))
            size += header.size  # reading it takes as long as writing it would
        if content is None:
            return size
        if len(content.bodies) > header.count:
            content = content.head(header.count)
        records_key = keys.block_key(b"r", *self._place, seq)
        puts.append((records_key, _sealed(records_key, _encode(content))))
        size += len(puts[-1][1])
        if header.tagged:
            sizes = [body_size(body) for body in content.bodies]
            tags = BlockTags(sizes, [(offset, body.tag) for offset, body in enumerate(content.bodies) if body.tag])
            puts.append((keys.block_key(b"g", *self._place, seq), _encode(tags)))
        piece.blocks.append((self._log, block, header.count))
        return size


def _header(log: LogPartition) -> LogHeader:
    base = log.blocks[0].first_seq if log.blocks else log.head_seq + 1
    tail = log.blocks[-1].first_seq if log.blocks else 0
    tail_block = _block_header(log.blocks[-1]) if log.blocks else None
    return LogHeader(
        log.next_seq, log.ceiling, log.head_seq, base, tail, log.cap_floor, log.ttl_floor, log.last_write_ms,
        list(log.gaps.all), log.topic.journaled, list(log.files.all), tail_block,
    )  # fmt: skip


def _block_header(block: Block) -> BlockHeader:
    gone = block.gone.to_bytes((block.gone.bit_length() + 7) // 8, "little")
    return BlockHeader(block.count, block.size, block.live_bytes, block.first_ts, block.last_ts, block.tagged, gone)


def _capture(block: Block, grown: bool, outlined: bool) -> _Captured:
    return _Captured(block, _block_header(block), block.content if grown else None, outlined)


# -- loading


def load_log(store: Store, log: LogPartition) -> bool:
    """Whether the store has something that the next checkpoint must remove."""
    place = log.topic.number, log.index
    stored = store.get(keys.log_key(*place))
    if stored is None:  # blocks without a header are of a checkpoint that was cut short: folding may make others
        log.unsaved.wipe = any(next(store.scan(*keys.partition_range(kind, *place)), None) for kind in (b"x", b"d"))
        return log.unsaved.wipe
    header = _decode_log(stored)
    log.next_seq = header.next_seq
    log.ceiling = header.ceiling
    log.head_seq = header.head_seq
    log.tail = header.tail
    log.cap_floor = header.cap_floor
    log.ttl_floor = header.ttl_floor
    log.last_write_ms = header.last_write_ms
    log.gaps.all = header.gaps
    log.files.all = header.files
    if not header.stored:
        log.forget()
        return True
    blocks: list[Block] = []
    leftovers = False
    start, end = keys.partition_range(b"x", *place)
    for key, value in store.scan(start, end):
        seq = int.from_bytes(key[len(start) :], "big")
        if seq < header.base:
            leftovers = True
        elif seq <= header.head_seq:
            block = header.tail_block if seq == header.tail else None
            blocks.append(_load_block(store, place, seq, block or _decode_block(value), header.head_seq))
        else:  # its events are yet to be folded, and the blocks that they make need not begin where this one does
            log.unsaved.ahead_from = header.head_seq + 1
    log.load(blocks, _load_tags(store, place))
    load_keys(store, place, log.dedup)
    log.unsaved.stale_below = header.base if leftovers else 0
    return _find_stale_bodies(store, log) or leftovers or bool(log.unsaved.ahead_from)


def _find_stale_bodies(store: Store, log: LogPartition) -> bool:
    """Whether the store still has records that are in the archive."""
    upto = log.archived_below()
    if next(store.scan(*keys.bodies_between(log.topic.number, log.index, 0, upto)), None) is None:
        return False
    log.unsaved.bodies_stale_below = upto
    return True


def _load_block(store: Store, place: tuple[int, int], seq: int, header: BlockHeader, head_seq: int) -> Block:
    block = Block(seq, header.first_ts, None)
    block.count = block.stored = header.count
    block.size = header.size
    block.live_bytes = header.live_bytes
    block.last_ts = header.last_ts
    block.tagged = header.tagged
    block.gone = int.from_bytes(header.gone, "little")
    if block.end > head_seq + 1:
        _cut(block, head_seq + 1 - seq, stored_content(store, *place, seq))
    return block


def _cut(block: Block, count: int, content: Content) -> None:
    """A checkpoint that was cut short left more records than its header knows: they will be folded again.

    Only for headers of older versions, without `tail_block`: payloads that were taken out make a block seem smaller.
    """
    content = content.head(count)
    block.count = block.stored = count
    block.gone &= (1 << count) - 1
    block.size = sum(map(body_size, content.bodies))
    block.live_bytes = sum(body_size(content.bodies[offset]) for offset in offsets(block.live))
    block.last_ts = content.stamps[-1]
    block.tagged = sum(1 for body in content.bodies if body.tag)


def _load_tags(store: Store, place: tuple[int, int]) -> Iterator[tuple[int, BlockTags]]:
    start, end = keys.partition_range(b"g", *place)
    for key, value in store.scan(start, end):
        yield int.from_bytes(key[len(start) :], "big"), _decode_tags(value)


def stored_outline(store: Store, number: int, index: int, first_seq: int) -> Outline | None:
    stored = store.get(keys.block_key(b"a", number, index, first_seq))
    return None if stored is None else _decode_outline(stored)


def stored_content(store: Store, number: int, index: int, first_seq: int) -> Content:
    return _decode_content(_stored(store, number, index, first_seq))


def packed_content(store: Store, number: int, index: int, first_seq: int) -> PackedContent:
    """For who wants the records of many blocks, and may not need them one by one."""
    stored = _stored(store, number, index, first_seq)
    if stored[: len(_ONE_STAMP)] != _ONE_STAMP:
        return _decode_packed(stored)
    start = len(_ONE_STAMP) + 8  # known without walking over all records to find the end of the last
    stamp = int.from_bytes(stored[len(_ONE_STAMP) : start], "big")
    return PackedContent([0], [stamp], msgspec.Raw(stored[start:]))


def _stored(store: Store, number: int, index: int, first_seq: int) -> memoryview:
    """The packed content. Raises InvariantBroken when it is missing, StoreDamaged when it is not what was written."""
    key = keys.block_key(b"r", number, index, first_seq)
    stored = store.get(key)
    if stored is None:
        raise InvariantBroken(f"the records of block {number}/{index}/{first_seq} are not in the store")
    content = memoryview(stored)
    if not stored.startswith(_SEALED):  # written by format 1, which had no checksums
        return content
    content = content[_SEAL_BYTES:]
    if stored[len(_SEALED) : _SEAL_BYTES] != _checksum(key, content):
        raise StoreDamaged(
            f"the records of block {number}/{index}/{first_seq} in the store are damaged: their checksum does not match"
        )
    return content


def _sealed(key: bytes, content: bytes) -> bytes:
    return b"".join((_SEALED, _checksum(key, content), content))


def _checksum(key: bytes, content: bytes | memoryview) -> bytes:
    """Of the content at this key: a value under another block's key does not pass."""
    return xxh3_64_digest(content, xxh3_64_intdigest(key))
