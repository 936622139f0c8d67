"""A log with an archive and a twin without one: whatever is done to both, readers of both must see the same.

The twin is the model: the same machine, with everything in memory. The crash of the other loses what was not persisted,
at any step that touches the store, the archive or the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from esker.archive.interface import ArchiveStore
from esker.archive.paths import RECORDS
from esker.engine import events
from esker.engine.commands import Append, ArchiveRecords, Command, NewRecord, PutTopic, Read
from esker.engine.config import Durability, TopicConfig, TopicType
from esker.engine.logs.partition import LogPartition
from esker.engine.machine import Machine
from esker.engine.replies import Records, Reply
from esker.errors import Refusal
from esker.journal.memory import MemoryJournal
from esker.node.coldreading import ColdReader
from esker.node.moving import load_of, write_file
from esker.node.recovery import recover
from esker.store.checkpoint import Checkpoint
from esker.store.cold import ColdStore
from esker.store.cooling import cool
from esker.store.memory import MemoryStore

TOPIC = b"events"
NOW = 1_750_000_000_000


class Keeps(NamedTuple):
    """What a log keeps; 0: of that, everything."""

    records: int = 0
    bytes: int = 0
    ms: int = 0

    def config(self) -> TopicConfig:
        return TopicConfig(
            type=TopicType.LOG, durability=Durability.FSYNC, cap_records=self.records, cap_bytes=self.bytes,
            ttl_ms=self.ms,
        )  # fmt: skip


EVERYTHING = Keeps()


class Crash(Exception):
    """The power went."""


class Tiers:
    """`steps_left` counts down at every step that a crash may separate from the next; at 0 it crashes."""

    def __init__(self, archive: ArchiveStore, hot: int = 1, keeps: Keeps = EVERYTHING) -> None:
        self.archive = archive
        self.hot = hot
        self.now = NOW
        self.steps_left = -1
        self._journal = MemoryJournal()
        self._store = MemoryStore()
        self.machine = self._start()
        self.twin = Machine(Random(1))
        self.both(PutTopic(TOPIC, keeps.config()))

    @property
    def log(self) -> LogPartition:
        log = self.machine.names[TOPIC].log
        assert log is not None
        return log

    @property
    def store(self) -> MemoryStore:
        return self._store

    def both(self, command: Command) -> Reply:
        """To log and twin. Their answers must be the same."""
        wanted = self.twin.handle(command, self.now)
        self.twin.outbox.clear()
        got = self.handle(command)
        assert got == wanted, (command, got, wanted)
        return got

    def handle(self, command: Command) -> Reply:
        self._step()
        reply = self.machine.handle(command, self.now)
        if self.machine.outbox:
            self._journal.append(events.encode_batch(self.machine.outbox), True, lambda error: None)
            self.machine.outbox, self.machine.must_sync = [], False
        return reply

    def append(self, count: int, size: int = 8) -> None:
        head = self.log.head_seq
        records = [
            NewRecord(
                b'"%0*d"' % (size, head + n), tag=b"t%d" % (n % 5) if n % 2 else b"", node=b"n%d" % (n % 3),
                meta=b'{"k":"v"}' if n % 7 == 0 else b"",
            )
            for n in range(1, count + 1)
        ]  # fmt: skip
        self.both(Append(TOPIC, records))
        self.now += 10

    def checkpoint(self) -> None:
        checkpoint = Checkpoint(self.machine, self._journal.last_position)
        for piece in [*checkpoint.slices(), checkpoint.last()]:
            self._step()
            self._store.write(piece.puts, piece.deletes, piece.ranges)
            cool(self.machine, piece, self.machine.totals.hot_bytes)
            self._step()
            self._store.persist()  # the worst case: every write reaches the disk, and then no more do
        self._journal.retire(checkpoint.position)

    def move(self, after_s: int = 0) -> int:
        """Moves what can be moved; returns how many files that made."""
        count = 0
        while (load := load_of(self.machine, self.log.topic.number, self.hot, after_s)) is not None:
            self._step()
            sha256 = write_file(self._store, self.archive, load)
            assert sha256 is not None
            self._step()
            place = load.place
            reply = self.handle(ArchiveRecords(place.number, place.first, place.last, load.path, sha256))
            assert not isinstance(reply, Refusal), reply
            count += 1
        return count

    def settle(self) -> None:
        """A move, and the two checkpoints after which the store has let go."""
        self.checkpoint()
        self.move()
        self.checkpoint()
        self.checkpoint()

    def crash(self) -> None:
        """Recovers; leftovers of the archive go, as a node removes them when it starts."""
        self.steps_left = -1
        self._store.crash()
        self._journal = self._journal.reopen()
        self.machine = self._start()
        self.remove_released()
        known = {file.path for file in self.log.files.all}
        for name in set(self.archive.names(RECORDS)) - known:
            self.archive.delete(name)

    def remove_released(self) -> None:
        for name in self.machine.cold_blocks.released:
            self.archive.delete(name)
        self.machine.cold_blocks.released = []

    def bodies_in_store(self) -> int:
        return sum(1 for _ in self._store.scan(b"r", b"s"))

    def agree(self, limit: int = 300, nodes: frozenset[bytes] = frozenset(), max_bytes: int = 1 << 20) -> list[int]:
        """Reads all of both from the start. Returns the seqs, and checks that everything else is the same, too."""
        seqs: list[int] = []
        for mine, its in zip(
            self.read_all(limit, nodes, max_bytes), self._read_twin(limit, nodes, max_bytes), strict=True
        ):
            assert mine.records == its.records
            assert (mine.next_from_seq, mine.head_seq, mine.earliest_seq) == (
                its.next_from_seq, its.head_seq, its.earliest_seq,
            )  # fmt: skip
            assert mine.tombstone == its.tombstone
            seqs += [record.seq for record in mine.records]
        return seqs

    def read_all(self, limit: int, nodes: frozenset[bytes], max_bytes: int, after: int = 0) -> Iterator[Records]:
        async def read_on() -> list[Records]:
            reader = ColdReader(self.archive, self.handle, lambda name: self.machine.names[name].number)
            try:
                pages: list[Records] = []
                position = after
                while True:
                    reply = await reader.read(Read(TOPIC, position, limit, max_bytes, nodes))
                    assert isinstance(reply, Records), reply
                    assert reply.archived is None
                    pages.append(reply)
                    position = reply.next_from_seq
                    if position >= reply.head_seq:
                        return pages
            finally:
                reader.close()

        return iter(asyncio.run(read_on()))

    def _read_twin(self, limit: int, nodes: frozenset[bytes], max_bytes: int) -> Iterator[Records]:
        position = 0
        while True:
            reply = self.twin.handle(Read(TOPIC, position, limit, max_bytes, nodes), self.now)
            assert isinstance(reply, Records)
            yield reply
            position = reply.next_from_seq
            if position >= reply.head_seq:
                return

    def _start(self) -> Machine:
        machine = Machine(Random(1), ColdStore(self._store))
        recover(machine, self._journal, self._store)
        return machine

    def _step(self) -> None:
        if self.steps_left == 0:
            raise Crash
        self.steps_left -= 1
