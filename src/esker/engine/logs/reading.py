"""Reading a log from a cursor on.

The order of a read: what the reader has missed is told first (a tombstone, at most one a reply), then come records.
What is gone on request, and records of nodes the reader does not want, are passed over silently; the cursor moves on
past them. A gap that lies behind some records is told by the next reply, so that a tombstone always comes before what
follows it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from esker.engine import commands, limits
from esker.engine.logs import archived as archive
from esker.engine.logs import retention
from esker.engine.logs.block import Block, Content, offsets, runs_of
from esker.engine.logs.partition import LogPartition
from esker.engine.replies import Record, Records, Span, Tombstone

if TYPE_CHECKING:
    from esker.engine.machine import Machine


def read(machine: Machine, log: LogPartition, command: commands.Read, now: int) -> Records:
    retention.expire(machine, log, now)
    head, earliest = log.head_seq, log.earliest_seq(now)
    tombstone = _missed(log, command.after, earliest, now)
    position = command.after if tombstone is None else earliest - 1
    walk = _Walk(log, command)
    while True:
        gap = log.gaps.after(position)
        upto = head if gap is None else max(position, gap.first - 1)
        if upto > position:
            archived = archive.wanted(log, command, position, upto) if log.files.all and not walk.spans else None
            if archived is not None:
                return Records((), position, head, earliest, tombstone, walk.looked, archived)
            position = walk.through(position, upto)
            if position < upto:
                break
        if gap is None or walk.spans or tombstone is not None:
            break
        first = max(gap.first, position + 1)
        tombstone = Tombstone(first, gap.last, gap.reason, gap.last + 1 - first, gap.last + 1, head)
        position = gap.last
    found = () if command.spans else records_in(walk.spans)
    return Records(found, position, head, earliest, tombstone, walk.looked, spans=walk.spans if command.spans else None)


def _missed(log: LogPartition, after: int, earliest: int, now: int) -> Tombstone | None:
    """What a reader at this cursor has missed below the first living record."""
    head = log.head_seq
    if after > head:  # a cursor from the future: of an older topic of this name, or of records that a crash took
        return Tombstone(1, head, "recreated", head, earliest, head)
    if after + 1 >= log.evict_floor(now):
        return None
    reasons = [
        reason for reason, floor in (("cap", log.cap_floor), ("ttl", log.ttl_floor)) if after + 1 < floor
    ]  # the floors are up to date, since `expire` came first
    reason = reasons[0] if len(reasons) == 1 else "mixed"
    return Tombstone(after + 1, earliest - 1, reason, earliest - 1 - after, earliest, head)


class _Walk:
    """Collects spans of records until the reply is full, or enough of them were looked at."""

    __slots__ = ("_count", "_last", "_limit", "_log", "_max_bytes", "_nodes", "_size", "looked", "spans")

    def __init__(self, log: LogPartition, command: commands.Read) -> None:
        self._log = log
        self._limit = max(1, min(command.limit, limits.READ_RECORDS_MAX))
        self._max_bytes = min(command.max_bytes, limits.READ_BYTES_MAX)
        self._nodes = command.nodes if log.topic.config.dedupe_node else frozenset[bytes]()
        self._count = self._size = 0
        self._last = 0  # what lives up to here was looked at
        self.spans: list[Span] = []
        self.looked = 0

    def through(self, after: int, upto: int) -> int:
        """Looks at what lives behind `after` up to `upto`. Returns the last seq looked at; `upto`: all of it."""
        for block in self._log.blocks_after(after):
            if block.first_seq > upto:
                break
            live = block.live & block.bits(after + 1, upto)
            if live:
                if self._log.in_archive(block):
                    return max(after, block.first_seq - 1)
                if self._look(block, live):
                    return max(after, self._last)
        return upto

    def _look(self, block: Block, live: int) -> bool:
        """Whether the reply is full."""
        content = self._log.content(block)
        self._last = block.first_seq - 1
        if self._nodes:
            return self._pick(block, content, offsets(live))
        runs: list[int] = []
        runs_of(live, 0, runs)
        for start, count in zip(runs[::2], runs[1::2], strict=True):
            room = min(count, self._limit - self._count, limits.READ_LOOK_MAX - self.looked)
            if not room:
                return True
            if not self._take(block, content, start, start + room):
                if self._pick(block, content, range(start, start + count)):
                    return True
            elif room < count:
                return True
        return False

    def _take(self, block: Block, content: Content, start: int, stop: int) -> bool:
        """Records in a row that are all wanted: most of a long read. False: they are too large for the reply."""
        if start == 0 and stop == block.count and not block.gone:
            size = block.live_bytes
        else:
            size = sum([len(body.data) + len(body.meta) for body in content.bodies[start:stop]])
        if self._size + size > self._max_bytes:
            return False
        self.spans.append(self._span(block, content, start, stop))
        self._size += size
        self._count += stop - start
        self.looked += stop - start
        self._last = block.first_seq + stop - 1
        return True

    def _span(self, block: Block, content: Content, start: int, stop: int) -> Span:
        return Span(self._log.topic.number, block.first_seq, content, start, stop, block.full)

    def _pick(self, block: Block, content: Content, among: Iterable[int]) -> bool:
        """Looks at them one by one. Returns as `_look` does."""
        bodies, nodes, max_bytes = content.bodies, self._nodes, self._max_bytes
        start = stop = -1
        full = False
        for offset in among:
            if self._count >= self._limit or self.looked >= limits.READ_LOOK_MAX:
                full = True
                break
            body = bodies[offset]
            if not nodes or not body.node or body.node not in nodes:
                size = self._size + len(body.data) + len(body.meta)
                if size > max_bytes and self._count:
                    full = True
                    break
                if offset != stop:
                    if stop > start:
                        self.spans.append(self._span(block, content, start, stop))
                    start = offset
                stop = offset + 1
                self._size = size
                self._count += 1
            self.looked += 1
            self._last = block.first_seq + offset
        if stop > start:
            self.spans.append(self._span(block, content, start, stop))
        return full


def records_in(spans: Iterable[Span]) -> list[Record]:
    records: list[Record] = []
    for span in spans:
        bodies = span.content.bodies
        for ts, start, stop in span.moments():
            records += [
                Record(seq, ts, body.data, body.node, body.tag, body.meta)
                for seq, body in enumerate(bodies[start:stop], span.first_seq + start)
            ]
    return records
