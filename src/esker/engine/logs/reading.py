"""Reading a log from a cursor on.

The order of a read: what the reader has missed is told first (a tombstone, at most one a reply), then come records.
What is gone on request, and records of nodes the reader does not want, are passed over silently; the cursor moves on
past them. A gap that lies behind some records is told by the next reply, so that a tombstone always comes before what
follows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from esker.engine import commands, limits
from esker.engine.logs import archived as archive
from esker.engine.logs import retention
from esker.engine.logs.block import Block, Content, offsets
from esker.engine.logs.partition import LogPartition
from esker.engine.replies import Record, Records, Tombstone

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
            archived = archive.wanted(log, command, position, upto) if log.files.all and not walk.records else None
            if archived is not None:
                return Records((), position, head, earliest, tombstone, walk.looked, archived)
            position = walk.through(position, upto)
            if position < upto:
                break
        if gap is None or walk.records or tombstone is not None:
            break
        first = max(gap.first, position + 1)
        tombstone = Tombstone(first, gap.last, gap.reason, gap.last + 1 - first, gap.last + 1, head)
        position = gap.last
    return Records(walk.records, position, head, earliest, tombstone, walk.looked)


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
    """Collects records until the reply is full, or enough of them were looked at."""

    __slots__ = ("_limit", "_log", "_max_bytes", "_nodes", "_size", "looked", "records")

    def __init__(self, log: LogPartition, command: commands.Read) -> None:
        self._log = log
        self._limit = max(1, min(command.limit, limits.READ_RECORDS_MAX))
        self._max_bytes = min(command.max_bytes, limits.READ_BYTES_MAX)
        self._nodes = command.nodes if log.topic.config.dedupe_node else frozenset[bytes]()
        self._size = 0
        self.records: list[Record] = []
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
                stopped = self._look(block, live)
                if stopped is not None:
                    return max(after, stopped)
        return upto

    def _fits(self, count: int, size: int) -> bool:
        return (
            len(self.records) + count <= self._limit
            and self._size + size <= self._max_bytes
            and self.looked + count <= limits.READ_LOOK_MAX
        )

    def _take_all(self, first_seq: int, content: Content, size: int) -> None:
        """What `_look` does for a block of which everything is wanted: most of a long read."""
        bodies, starts = content.bodies, content.starts
        for ts, start, end in zip(content.stamps, starts, [*starts[1:], len(bodies)], strict=True):
            self.records += [
                Record(seq, ts, body.data, body.node, body.tag, body.meta)
                for seq, body in enumerate(bodies[start:end], first_seq + start)
            ]
        self._size += size
        self.looked += len(bodies)

    def _look(self, block: Block, live: int) -> int | None:
        """The last seq looked at when the reply is full; None: it is not."""
        first_seq, count, content = block.first_seq, block.count, self._log.content(block)
        if live == (1 << count) - 1 and not self._nodes and self._fits(count, block.live_bytes):
            self._take_all(first_seq, content, block.live_bytes)
            return None
        bodies, starts, stamps = content.bodies, content.starts, content.stamps
        records, nodes, limit, max_bytes = self.records, self._nodes, self._limit, self._max_bytes
        size, looked = self._size, self.looked
        run, ts, run_end = -1, 0, -1
        whole = live == (1 << count) - 1
        seq = first_seq - 1
        full = False
        for offset in range(count) if whole else offsets(live):
            if len(records) >= limit or looked >= limits.READ_LOOK_MAX:
                full = True
                break
            body = bodies[offset]
            if not nodes or body.node not in nodes or not body.node:
                size += len(body.data) + len(body.meta)
                if size > max_bytes and records:
                    full = True
                    break
                while offset >= run_end:
                    run += 1
                    ts = stamps[run]
                    run_end = starts[run + 1] if run + 1 < len(starts) else count
                records.append(Record(first_seq + offset, ts, body.data, body.node, body.tag, body.meta))
            looked += 1
            seq = first_seq + offset
        self._size, self.looked = size, looked
        return seq if full else None
