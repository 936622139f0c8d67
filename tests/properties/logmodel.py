"""A log so slow and simple that it is obviously right: one list of everything that was ever written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from esker.engine import limits
from esker.engine.commands import NewRecord
from esker.engine.config import Discard, TopicConfig
from esker.engine.replies import Record, Tombstone


@dataclass
class Entry:
    seq: int
    ts: int
    record: NewRecord
    alive: bool = True

    @property
    def size(self) -> int:
        return len(self.record.data) + len(self.record.meta)

    def told(self) -> Record:
        new = self.record
        return Record(self.seq, self.ts, new.data, new.node, new.tag, new.meta)


@dataclass
class Answer:
    """What a read must answer. `latest`: `next_from_seq` may be up to this, as nothing lives in between."""

    records: list[Record]
    next_from_seq: int
    latest: int
    tombstone: Tombstone | None


@dataclass
class ModelLog:
    number: int
    config: TopicConfig
    head: int = 0
    next_seq: int = 1
    cap_floor: int = 1
    ttl_floor: int = 1
    last_write_ms: int = 0
    entries: list[Entry] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    keys: dict[bytes, tuple[int, int, int]] = field(default_factory=dict)

    def copy(self) -> ModelLog:
        """Dead entries are of no more use."""
        living = [replace(entry) for entry in self.entries if entry.alive]
        return replace(self, entries=living, gaps=list(self.gaps), keys=dict(self.keys))

    # -- facts

    def living(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.alive]

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.living())

    @property
    def earliest(self) -> int:
        return min((entry.seq for entry in self.living()), default=self.head + 1)

    @property
    def evict_floor(self) -> int:
        return max(self.cap_floor, self.ttl_floor)

    # -- changes

    def pass_time(self, now: int) -> None:
        ttl_ms = self.config.ttl_ms
        for entry in self.living():
            if ttl_ms and now - entry.ts > ttl_ms:
                entry.alive = False
                self.ttl_floor = entry.seq + 1

    def refuses(self, records: list[NewRecord]) -> str:
        config = self.config
        size = sum(len(record.data) + len(record.meta) for record in records)
        if config.discard != Discard.REJECT:
            return ""
        for cap, amount, there in (
            (config.cap_records, len(records), len(self.living())),
            (config.cap_bytes, size, self.size),
        ):
            if cap and amount > cap:
                return "record_too_large"
            if cap and there + amount > cap:
                return "topic_full"
        return ""

    def append(self, records: list[NewRecord], now: int) -> tuple[int, int]:
        first = self.next_seq
        if first > self.head + 1:
            touches = bool(self.gaps) and self.gaps[-1][1] == self.head
            start = self.gaps.pop()[0] if touches else self.head + 1  # what touches is told as one
            self.gaps.append((start, first - 1))
        self.entries += [Entry(first + place, now, record) for place, record in enumerate(records)]
        self.head = first + len(records) - 1
        self.next_seq = self.head + 1
        self.last_write_ms = now
        self.enforce()
        return first, self.head

    def enforce(self) -> None:
        records, size = self.config.cap_records, self.config.cap_bytes
        while (living := self.living()) and ((records and len(living) > records) or (size and self.size > size)):
            living[0].alive = False
            self.cap_floor = living[0].seq + 1

    def delete(self, before: int | None, tag: bytes | None, prefix: bool) -> int:
        gone = [
            entry
            for entry in self.living()
            if (before is None or entry.seq < before)
            and (
                tag is None
                or (
                    bool(entry.record.tag) and (entry.record.tag.startswith(tag) if prefix else entry.record.tag == tag)
                )
            )
        ]
        for entry in gone:
            entry.alive = False
        return len(gone)

    def forget(self) -> None:
        """A restart of an ephemeral log."""
        self.entries, self.keys = [], {}
        self.gaps = [(self.evict_floor, self.head)] if self.evict_floor <= self.head else []

    # -- reading

    def read(self, after: int, limit: int, max_bytes: int, nodes: frozenset[bytes]) -> Answer:
        tombstone = self._missed(after)
        position = after if tombstone is None else self.earliest - 1
        nodes = nodes if self.config.dedupe_node else frozenset()
        by_seq = {entry.seq: entry for entry in self.living()}
        records: list[Record] = []
        size = 0
        looked = position  # at the last that lives: what is gone behind it may be passed, or left for the next read
        while position < self.head:
            seq = position + 1
            gap = next(((first, last) for first, last in self.gaps if first <= seq <= last), None)
            if gap is not None and gap[1] >= self.evict_floor:
                if records or tombstone is not None:
                    return Answer(records, position, position, tombstone)
                count = gap[1] + 1 - seq
                tombstone = Tombstone(seq, gap[1], "lost", count, gap[1] + 1, self.head)
                position = looked = gap[1]
                continue
            entry = by_seq.get(seq)
            if entry is not None:
                mine = bool(entry.record.node) and entry.record.node in nodes
                full = len(records) == limit or (records and not mine and size + entry.size > max_bytes)
                if full:
                    return Answer(records, looked, seq - 1, tombstone)
                looked = seq
                if not mine:
                    size += entry.size
                    records.append(entry.told())
            position = seq
        return Answer(records, position, position, tombstone)

    def _missed(self, after: int) -> Tombstone | None:
        head, earliest = self.head, self.earliest
        if after > head:
            return Tombstone(1, head, "recreated", head, earliest, head)
        if after + 1 >= self.evict_floor:
            return None
        by_cap, by_age = after + 1 < self.cap_floor, after + 1 < self.ttl_floor
        reason = "mixed" if by_cap and by_age else "cap" if by_cap else "ttl"
        return Tombstone(after + 1, earliest - 1, reason, earliest - 1 - after, earliest, head)


assert limits.READ_LOOK_MAX > 1000, "the model looks at everything"
