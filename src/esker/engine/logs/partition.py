"""A log: its records in blocks, and what readers must know about those that are gone.

    floors     live records below `cap_floor` went because the topic was full, below `ttl_floor` by age. They only rise,
               and only because of records that were live: they are what a tombstone is made of
    gone       every record that left, for whatever reason, is marked in its block; a block without a living record
               leaves at once, so the first living record of the log is always in the first block
    gaps       seqs that never had a record, or lost it in a crash (gaps.py)

Every change is an event, and `EVOLVE_LOG` is the only way to make one. Folding an event twice is harmless: records that
are known are skipped by their seq, marks and floors are absolute.

What a checkpoint must write is known here as well (store/logs.py). Its rule: nothing that a recovery could need leaves
the store or the memory before the next checkpoint has begun after the one that knew it gone. A recovery may have to
copy records again (`events.RecordsForwarded`) which were removed since.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from heapq import heappush
from itertools import accumulate
from typing import TYPE_CHECKING

from esker.engine import events, limits
from esker.engine.dedup import Dedup
from esker.engine.logs.archived import ArchivedFile, Files
from esker.engine.logs.block import (
    Block,
    BlockTags,
    Content,
    Outline,
    Weight,
    hot_size,
    offsets,
    runs_of,
    weight_of,
)
from esker.engine.logs.cold import ColdBlocks
from esker.engine.logs.gaps import LOST, Gap, Gaps
from esker.engine.logs.tags import TagIndex
from esker.errors import InvariantBroken

if TYPE_CHECKING:
    from esker.engine.events import RecordBody
    from esker.engine.queues.sums import Totals
    from esker.engine.topic import Topic


class Unsaved:
    """What the next checkpoint has to write or remove."""

    __slots__ = (
        "ahead_from", "blanks", "bodies_stale_below", "bodiless_below", "cleared_below", "dropped", "dropped_below",
        "grown", "hurt", "marked", "outlined", "stale", "stale_below", "wipe",
    )  # fmt: skip

    def __init__(self) -> None:
        self.grown: set[Block] = set()  # have records that the store has not
        self.marked: set[Block] = set()  # have other marks than in the store
        self.hurt: set[Block] = set()  # were marked since the last checkpoint began
        self.blanks: list[tuple[Block, int]] = []  # their marks then: payloads that the next checkpoint lets go of
        self.dropped: list[int] = []  # blocks (by first seq) that left from the middle since the last checkpoint began
        self.dropped_below = 0  # blocks before this left from the front
        self.stale: list[int] = []  # the same two as they were then: these go with the next checkpoint
        self.stale_below = 0
        self.cleared_below = 0  # the store has nothing before this
        self.wipe = False  # nothing that the store has counts
        self.ahead_from = 0  # blocks from this on are of a checkpoint that a crash cut short; 0: there are none
        self.outlined: set[Block] = set()  # are in the archive, and the store has no outline of them
        self.bodies_stale_below = 0  # blocks before this were in the archive when the last checkpoint began
        self.bodiless_below = 0  # the store has no records before this

    @property
    def rests(self) -> bool:
        """Whether there is something left to remove that one more checkpoint may."""
        stale = self.stale_below > self.cleared_below or self.bodies_stale_below > self.bodiless_below
        return bool(self.stale or stale or self.blanks)


class LogPartition:
    __slots__ = (
        "blocks", "bytes", "cap_floor", "ceiling", "cold", "count", "dedup", "files", "gaps", "head_seq", "hot_bytes",
        "index", "last_write_ms", "next_seq", "tags", "tail", "topic", "totals", "ttl_floor", "unjournaled_below",
        "unjournaled_marks",
        "unsaved", "wake_ms", "wakes",
    )  # fmt: skip

    def __init__(self, topic: Topic, totals: Totals, wakes: list[tuple[int, int, int]], cold: ColdBlocks) -> None:
        self.topic = topic
        self.index = 0
        self.totals = totals
        self.wakes = wakes  # the shard's heap of (when, topic, partition)
        self.wake_ms = 0  # the earliest entry there that is ours; 0: none
        self.cold = cold
        self.next_seq = 1  # above head_seq + 1 only after a crash that may have lost what lay between
        self.head_seq = 0  # the last seq that was given out, as far as anyone knows
        self.ceiling = 1  # seqs below are promised on disk (classes below fsync only)
        self.cap_floor = 1
        self.ttl_floor = 1
        self.tail = 0  # the last block when this log was saved, by its first seq
        self.unjournaled_below = 0  # some records before this came while the topic was ephemeral: no event told
        # Not 0: the topic was ephemeral, and no checkpoint has saved since what was deleted then. Another number for
        # each time that this came about.
        self.unjournaled_marks = 0
        self.last_write_ms = 0
        self.blocks: list[Block] = []
        self.count = 0  # living records
        self.bytes = 0  # of their data and meta
        self.hot_bytes = 0  # what the records in memory cost
        self.gaps = Gaps()
        self.files = Files()
        self.tags = TagIndex(self.living, totals)
        self.dedup = Dedup(totals)
        self.unsaved = Unsaved()

    # -- reading

    def evict_floor(self, now: int) -> int:
        """A reader whose next seq is below this has missed living records."""
        return max(self.cap_floor, self.expired_floor(now))

    def expired_floor(self, now: int) -> int:
        """`ttl_floor` as it is at `now`, whether or not anybody has noticed: behind the last living expired record."""
        ttl_ms, blocks = self.topic.config.ttl_ms, self.blocks
        oldest = now - ttl_ms
        if not ttl_ms or not blocks or blocks[0].first_ts >= oldest:
            return self.ttl_floor
        at = bisect_left(blocks, oldest, key=lambda block: block.last_ts)
        if at < len(blocks) and blocks[at].first_ts < oldest:
            block = blocks[at]
            offset = self.outline(block).first_at(oldest)
            expired = block.live & ((1 << offset) - 1)
            if expired:
                return max(self.ttl_floor, block.first_seq + expired.bit_length())
        if at == 0:
            return self.ttl_floor
        return max(self.ttl_floor, blocks[at - 1].first_seq + blocks[at - 1].live.bit_length())

    def earliest_seq(self, now: int) -> int:
        """Of the first living record; head_seq + 1 when there is none."""
        floor = self.evict_floor(now)
        if not self.blocks:
            return self.head_seq + 1
        first = self.blocks[0].first_live()
        if first >= floor:
            return first
        for block in self.blocks_after(floor - 1):
            live = block.live & block.bits(floor, block.end)
            if live:
                return block.first_seq + (live & -live).bit_length() - 1
        return self.head_seq + 1

    def live_runs(self, after: int, upto: int) -> list[int]:
        """The seqs of the living records behind `after` up to `upto`: first, count, first, count ..."""
        runs: list[int] = []
        for block in self.blocks_after(after):
            if block.first_seq > upto:
                break
            runs_of(block.live & block.bits(after + 1, upto), block.first_seq, runs)
        return runs

    def bodies(self, runs: Sequence[int]) -> list[RecordBody]:
        """The records of these runs, gone ones too as long as a recovery may ask for them."""
        found: list[RecordBody] = []
        for first, count in zip(runs[::2], runs[1::2], strict=True):
            seq, end = first, first + count
            for block in self.blocks_after(first - 1):
                if seq >= end or block.first_seq > seq:
                    break
                offset = seq - block.first_seq
                found += self.content(block).bodies[offset : min(end - block.first_seq, block.count)]
                seq = min(end, block.end)
            if seq < end:
                raise InvariantBroken(f"record {self.topic.number}/{seq} was asked for, and nobody has it")
        return found

    def content(self, block: Block) -> Content:
        return block.content or self.cold.content(self.topic.number, block)

    def outline(self, block: Block) -> Content | Outline:
        """Enough of any block to know the sizes and the times of its records."""
        if not self.in_archive(block):
            return self.content(block)
        return self.cold.outline(self.topic.number, block)

    def in_archive(self, block: Block) -> bool:
        """Whether the records of a block must be fetched from a file."""
        return block.content is None and block.end <= self.files.upto + 1

    def archived_below(self) -> int:
        """Blocks that begin before this are in files as a whole: nobody asks the store for their records any more."""
        upto = self.files.upto
        if not upto:
            return 0
        block = next(self.blocks_after(upto - 1), None)
        if block is not None and block.first_seq <= upto and block.end > upto + 1:
            return block.first_seq
        return upto + 1

    def living(self, seqs: Sequence[int]) -> list[int]:
        """Those of some seqs, in order, whose records are not gone."""
        found: list[int] = []
        block: Block | None = None
        live = 0
        for seq in seqs:
            if block is None or seq >= block.end:
                at = self._at(seq)
                if at == len(self.blocks):
                    break
                block = self.blocks[at]
                live = block.live
            if seq >= block.first_seq and live >> (seq - block.first_seq) & 1:
                found.append(seq)
        return found

    def _at(self, seq: int) -> int:
        """The place of the block that holds `seq`, or of the first one behind it."""
        blocks = self.blocks
        at = bisect_right(blocks, seq, key=lambda block: block.first_seq)
        return at - 1 if at and blocks[at - 1].end > seq else at

    def blocks_after(self, seq: int) -> Iterator[Block]:
        """From the one that holds the seq behind `seq` on."""
        for at in range(self._at(seq + 1), len(self.blocks)):
            yield self.blocks[at]

    # -- changing

    def appended(self, event: events.RecordsAppended) -> None:
        self.derived(event.seq, event.ts, event.records)

    def derived(self, seq: int, ts: int, bodies: list[RecordBody], weight: Weight | None = None) -> None:
        """Records from `seq` on, at `ts`. Those that are known already are skipped.

        `weight`: of the bodies, where it is known, because many logs get the same ones.
        """
        if seq <= self.head_seq:
            bodies = bodies[self.head_seq + 1 - seq :]
            seq = self.head_seq + 1
            weight = None
        if not bodies:
            return
        if seq > self.head_seq + 1:
            self.gaps.add(Gap(self.head_seq + 1, seq - 1, LOST))
        size, tagged = weight or weight_of(bodies)
        block = self._open_block(seq, ts)
        if block.count + len(bodies) <= limits.BLOCK_RECORDS_MAX and block.size + size <= limits.BLOCK_BYTES_MAX:
            self._fill(block, seq, ts, bodies, size, tagged)
        else:
            self._fill_many(block, seq, ts, bodies, tagged)
        self.head_seq = seq + len(bodies) - 1
        if self.next_seq <= self.head_seq:
            self.next_seq = self.head_seq + 1
        self.last_write_ms = ts
        self.count += len(bodies)
        self.bytes += size
        self.totals.unsaved_bytes += size
        if not self.wake_ms and self.topic.config.ttl_ms:
            self.wake(ts + self.topic.config.ttl_ms + 1)

    def _open_block(self, seq: int, ts: int) -> Block:
        """The block that takes record `seq`: the last one, or a new one behind it."""
        if self.blocks:
            last = self.blocks[-1]
            # One without a living record is here for the sake of a recovery only. It takes records if it did so before:
            # if it was the last one at the position from which events are folded, whatever was marked since.
            if last.end == seq and not last.full and (last.live or last.first_seq == self.tail):
                if last.content is None:  # the tail of a log that was loaded from the store
                    last.content = self.cold.take(self.topic.number, last)
                    last.hot_bytes = hot_size(last.content.bodies)
                    self._heat(last.hot_bytes)
                return last
        block = Block(seq, ts, Content([], [], []))
        self.blocks.append(block)
        return block

    def _fill(self, block: Block, seq: int, ts: int, bodies: Sequence[RecordBody], size: int, tagged: bool) -> None:
        self._heat(block.append(ts, bodies, size))
        if tagged or block.tagged:
            block.tag(self.tags.add_all(seq, bodies))
        self.unsaved.grown.add(block)

    def _fill_many(self, block: Block, seq: int, ts: int, bodies: list[RecordBody], tagged: bool) -> None:
        """A block takes records until it is full; the one that fills it may be large."""
        sums = list(accumulate([len(body.data) + len(body.meta) for body in bodies], initial=0))
        start = 0
        while True:
            room = limits.BLOCK_BYTES_MAX - block.size
            enough = bisect_left(sums, sums[start] + room, start + 1)
            end = min(enough, start + limits.BLOCK_RECORDS_MAX - block.count, len(bodies))
            self._fill(block, seq + start, ts, bodies[start:end], sums[end] - sums[start], tagged)
            start = end
            if start == len(bodies):
                return
            block = self._open_block(seq + start, ts)

    def trimmed(self, event: events.LogTrimmed) -> None:
        self.cap_floor = max(self.cap_floor, event.cap_floor)
        self.ttl_floor = max(self.ttl_floor, event.ttl_floor)
        floor = max(self.cap_floor, self.ttl_floor)
        self._remove_below(floor)
        self.gaps.forget_below(floor)
        self._release(0, floor)

    def deleted(self, event: events.RecordsDeleted) -> None:
        if event.below:
            self._remove_below(event.below)
            self._release(0, event.below)
        for first, count in zip(event.runs[::2], event.runs[1::2], strict=True):
            self._remove_run(first, first + count - 1)
            self._release(first, first + count - 1)

    def lost(self, event: events.SeqsLost) -> None:
        if event.last > self.head_seq:
            self.gaps.add(Gap(max(event.first, self.head_seq + 1), event.last, event.reason))
            self.head_seq = event.last
            self.next_seq = max(self.next_seq, self.head_seq + 1)

    def reserved(self, event: events.SeqReserved) -> None:
        self.ceiling = event.ceiling

    def key_remembered(self, event: events.KeyRemembered) -> None:
        self.dedup.remember(event.key, event.ts, event.seq, event.count)

    def archived(self, event: events.LogArchived) -> None:
        if not self.files.add(ArchivedFile(event.first, event.last, event.file, event.sha256)):
            return
        for block in self.blocks_after(event.first - 1):
            if block.end > event.last + 1:
                break
            self.unsaved.outlined.add(block)
            self.cool(block)
        self._release(event.first, event.last)

    def _release(self, first: int, last: int) -> None:
        """Lets go of the files with a seq from `first` to `last` that have no block any more."""
        for file in self.files.touching(first, last) if self.files.all else ():
            at = self._at(file.first)
            if at == len(self.blocks) or self.blocks[at].first_seq > file.last:
                self.files.remove(file)
                self.cold.released.append(file.path)

    def _release_all(self) -> None:
        self.cold.released += [file.path for file in self.files.all]
        self.files.all = []

    def _remove_below(self, seq: int) -> None:
        blocks = self.blocks
        whole = bisect_right(blocks, seq, key=lambda block: block.end)
        if whole:
            gone = blocks[:whole]
            for block in gone:
                self._leave(block)
            self.unsaved.dropped_below = gone[-1].end
            del blocks[:whole]
            self._untag(sum(block.tagged for block in gone))
        if blocks and blocks[0].first_seq < seq:
            self._mark(0, blocks[0].bits(blocks[0].first_seq, seq - 1))

    def _remove_run(self, first: int, last: int) -> None:
        at = self._at(first)
        while at < len(self.blocks) and self.blocks[at].first_seq <= last:
            at += self._mark(at, self.blocks[at].bits(first, last))

    def _mark(self, at: int, bits: int) -> int:
        """Marks records as gone. Returns the distance to the next block: none when this one has left."""
        block = self.blocks[at]
        bits &= block.live
        if not bits:
            return 1
        if bits == block.live:
            self._leave(block)
            del self.blocks[at]
            if at == 0:
                self.unsaved.dropped_below = block.end
            else:
                self._bury(block)
            self._untag(block.tagged)
            return 0
        self.unsaved.marked.add(block)
        self.unsaved.hurt.add(block)
        size_at = self.outline(block).size_at if block.sizes is None else block.sizes.__getitem__
        size = sum(map(size_at, offsets(bits)))
        block.gone |= bits
        block.live_bytes -= size
        count = bits.bit_count()
        self.count -= count
        self.bytes -= size
        self._untag(min(count, block.tagged))
        return 1

    def _leave(self, block: Block) -> None:
        """Takes a whole block off the sums; the caller takes it off the list."""
        self.count -= block.live.bit_count()
        self.bytes -= block.live_bytes
        self._heat(-block.hot_bytes)
        block.hot_bytes = 0
        block.content = None
        for some in (self.unsaved.grown, self.unsaved.marked, self.unsaved.hurt, self.unsaved.outlined):
            some.discard(block)

    def _untag(self, count: int) -> None:
        """Up to `count` records with tags are gone. What the index cannot forget at once it does in ticks to come."""
        if count:
            self.tags.let_go(count)
            if self.tags.sweeping:
                self.wake(self.last_write_ms + 1)

    def _bury(self, block: Block) -> None:
        """A block that left from the middle: the store must not find it alive, and removes it later."""
        block.gone, block.live_bytes = (1 << block.count) - 1, 0
        self.unsaved.marked.add(block)
        self.unsaved.dropped.append(block.first_seq)

    # -- memory

    def _heat(self, amount: int) -> None:
        self.hot_bytes += amount
        self.totals.hot_bytes += amount

    def cool(self, block: Block) -> None:
        """Drops the content of a block from memory if the store has all of it."""
        if not block.hot_bytes or not block.coolable:
            return
        block.content = None
        self._heat(-block.hot_bytes)
        block.hot_bytes = 0

    def blank(self) -> None:
        """A checkpoint begins: payloads that were gone when the last one began leave memory, as none can be wanted."""
        for block, mask in self.unsaved.blanks:
            self._heat(-block.blank(mask))
        self.unsaved.blanks = [(block, block.gone) for block in self.unsaved.hurt if block.content is not None]
        self.unsaved.hurt = set()

    def leave(self) -> dict[int, Block]:
        """The topic goes. Returns what was here, so that the caller can let go of it in small steps."""
        self._heat(-self.hot_bytes)
        self._release_all()
        gone = {block.first_seq: block for block in self.blocks}
        for block in self.blocks:  # a checkpoint under way must not cool what no total counts
            block.hot_bytes = 0
        self.blocks = []
        return gone

    # -- recovery and configuration

    def load(self, blocks: list[Block], tags: Iterator[tuple[int, BlockTags]]) -> None:
        """Fills an empty log from a checkpoint; the records stay in the store. Tags come by their block's first seq."""
        self.blocks = blocks
        self.count = sum(block.live.bit_count() for block in blocks)
        self.bytes = sum(block.live_bytes for block in blocks)
        by_seq = {block.first_seq: block for block in blocks if block.tagged}
        for first_seq, tagged in tags:
            block = by_seq.get(first_seq)
            if block is not None:  # else it is gone, or its events are yet to be folded
                block.sizes = array("I", tagged.sizes[: block.count])
                for offset, tag in tagged.tags:
                    if offset < block.count:
                        self.tags.add(tag, first_seq + offset)
        self.sleep(0)

    def settle(self) -> None:
        """After the last event of a recovery: blocks that were kept only for its sake leave."""
        for at in range(len(self.blocks) - 1, -1, -1):
            block = self.blocks[at]
            if not block.live:
                self._leave(block)
                del self.blocks[at]
                self._bury(block)
                self._untag(block.tagged)
        self._release(0, self.files.upto)

    def forget(self) -> None:
        """What a restart does to an ephemeral topic: the seqs are known, the records are not."""
        self._heat(-self.hot_bytes)
        self._release_all()
        self.blocks, self.count, self.bytes = [], 0, 0
        self.tags.clear()
        self.dedup.forget_totals()
        self.dedup = Dedup(self.totals)
        self.unsaved = Unsaved()
        self.unsaved.wipe = True
        first = max(self.cap_floor, self.ttl_floor)
        if first <= self.head_seq:
            self.gaps.all = [Gap(first, self.head_seq, LOST)]

    def configured(self, was_journaled: bool) -> None:
        """The topic has another config."""
        if self.topic.journaled and not was_journaled:  # what no event told must be in the next checkpoint
            self.unjournaled_below = self.next_seq
            self.unjournaled_marks += 1
            self.unsaved.grown.update(block for block in self.blocks if block.content is not None)
            self.unsaved.marked.update(self.blocks)
            self.dedup.added.update(self.dedup.entries)
        self.sleep(0)

    # -- time

    def sleep(self, now: int) -> None:
        """Sets the next wake: when the first block will have expired as a whole."""
        self.wake_ms = 0
        ttl_ms = self.topic.config.ttl_ms
        if ttl_ms and self.blocks:
            self.wake(max(self.blocks[0].last_ts + ttl_ms + 1, now + limits.SECOND_MS))
        if self.tags.sweeping:
            self.wake(now + 1)

    def wake(self, when: int) -> None:
        if not self.wake_ms or when < self.wake_ms:
            self.wake_ms = when
            heappush(self.wakes, (when, self.topic.number, self.index))


EVOLVE_LOG: dict[type, Callable[..., None]] = {
    events.RecordsAppended: LogPartition.appended,
    events.LogTrimmed: LogPartition.trimmed,
    events.RecordsDeleted: LogPartition.deleted,
    events.SeqsLost: LogPartition.lost,
    events.LogArchived: LogPartition.archived,
    events.KeyRemembered: LogPartition.key_remembered,
    events.SeqReserved: LogPartition.reserved,
}
