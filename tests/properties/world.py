"""A shard that can lose its memory: a machine, a journal that may be cut, a store that keeps a prefix of its writes.

It does by hand, step by step, what node/shard.py and node/checkpointer.py do on the event loop, so that anything may
happen in between. `promised` is the position up to which the disk has said yes; a crash cuts somewhere behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from esker.engine.commands import Command
from esker.engine.events import encode_batch
from esker.engine.machine import Machine
from esker.engine.replies import Reply
from esker.journal.memory import MemoryJournal
from esker.node.recovery import recover
from esker.store.checkpoint import Checkpoint
from esker.store.cold import ColdStore
from esker.store.cooling import cool
from esker.store.interface import Puts, Ranges, Store
from esker.store.memory import MemoryStore
from esker.store.rocksdb import RocksStore
from esker.store.slices import Slice


class PrefixStore(MemoryStore):
    """After a crash it holds what was persisted and the first few writes after that, as RocksDB may."""

    def __init__(self) -> None:
        super().__init__()
        self.unpersisted: list[tuple[Puts, list[bytes], Ranges]] = []

    def write(self, puts: Puts, deletes: Sequence[bytes] = (), ranges: Ranges = ()) -> bool:
        self.unpersisted.append((list(puts), list(deletes), list(ranges)))
        return super().write(puts, deletes, ranges)

    def persist(self) -> None:
        super().persist()
        self.unpersisted = []

    def crash_keeping(self, writes: int) -> None:
        kept = self.unpersisted[:writes]
        self.crash()
        for puts, deletes, ranges in kept:
            super().write(puts, deletes, ranges)
        self.persist()


class World:
    """`directory` None: the store is in memory."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self.store: Store = PrefixStore() if directory is None else RocksStore(directory)
        self.journal = MemoryJournal()
        self._lives = 0
        self.promised = 0
        self.waiting_for = 0  # replies wait until the disk has this position
        self.checkpoint: Checkpoint | None = None
        self.slices: Iterator[Slice] = iter(())
        self.made: list[Slice] = []
        self.machine = self._new_machine()

    def _new_machine(self) -> Machine:
        self._lives += 1
        return Machine(Random(self._lives), cold=ColdStore(self.store))

    def do(self, command: Command, now: int) -> Reply:
        reply = self.machine.handle(command, now)
        self.append()
        return reply

    def append(self) -> None:
        """Gives to the journal what was recorded."""
        machine = self.machine
        if machine.outbox:
            batch, sync = encode_batch(machine.outbox), machine.must_sync
            machine.outbox, machine.must_sync = [], False
            position = self.journal.append(batch, sync, lambda error: None)
            if sync:
                self.waiting_for = position

    @property
    def replies_left(self) -> bool:
        return self.promised >= self.waiting_for

    def sync(self) -> None:
        self.promised = self.journal.last_position

    # -- checkpoints

    def begin_checkpoint(self) -> None:
        self.checkpoint = Checkpoint(self.machine, self.journal.last_position)
        self.slices = self.checkpoint.slices()

    def make_slice(self) -> bool:
        piece = next(self.slices, None)
        if piece is not None:
            self.made.append(piece)
        return piece is not None

    def write_slices(self, chance: Random) -> None:
        """Payloads that the store now has leave memory, or not, by chance."""
        self.sync()
        for piece in self.made:
            while not self.store.write(piece.puts, piece.deletes, piece.ranges):
                self.store.persist()
            # All that the store has leaves memory, or half of it, or nothing.
            cool(self.machine, piece, int(self.machine.totals.hot_bytes * min(1.0, 1.5 * chance.random())))
        self.made = []

    def finish_checkpoint(self, chance: Random) -> None:
        assert self.checkpoint is not None
        while self.make_slice():
            pass
        self.made.append(self.checkpoint.last())
        self.write_slices(chance)
        self.store.persist()
        self.journal.retire(self.checkpoint.position)
        self.checkpoint = None

    # -- ends

    def crash(self, cut: int, kept_writes: int) -> None:
        """Back to what the disk has: the journal up to `cut`, and a prefix of the store's writes."""
        assert self.promised <= cut <= self.journal.last_position
        journal = self.journal.reopen()
        while journal.last_position > cut:
            journal._batches.pop()
        if isinstance(self.store, PrefixStore):
            self.store.crash_keeping(kept_writes)
        self._recover(journal)

    def restart(self) -> None:
        """An orderly end, and the next life."""
        if self.checkpoint is not None:
            self.finish_checkpoint(Random(0))
        self.machine.release_reserves()
        self.append()
        self.begin_checkpoint()
        self.finish_checkpoint(Random(0))
        self._recover(self.journal.reopen())

    def _recover(self, journal: MemoryJournal) -> None:
        if self._directory is not None:
            self.store.close()
            self.store = RocksStore(self._directory)
        self.journal = journal
        self.promised = self.waiting_for = journal.last_position
        self.checkpoint, self.made, self.slices = None, [], iter(())
        self.machine = self._new_machine()
        recover(self.machine, self.journal, self.store)

    def close(self) -> None:
        self.store.close()
