"""What a scenario plays on: the engine, with a clock that moves on request, and a disk that can lose power.

It does by hand what the node does on its loop: it gives each command the time, lets routers run before the events of
the command become one batch of the journal, and syncs the batch if the reply has to wait for that. A batch that no
reply waits for stays in the page cache until the next sync: `lose_power` drops it, `kill` does not.

`do`, `_commit`, `advance` and `restart` are the only places that know how the engine is driven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from esker.engine.commands import Command, Forward, Tick
from esker.engine.events import Event, NodeStarted, encode_batch
from esker.engine.machine import Machine
from esker.engine.queues.clockwork import next_wake_ms
from esker.engine.replies import Count, Reply
from esker.journal.memory import MemoryJournal
from esker.node.clock import Clock
from esker.node.recovery import recover
from esker.store.checkpoint import Checkpoint
from esker.store.cold import ColdStore
from esker.store.cooling import cool
from esker.store.memory import MemoryStore

START_MS = 1_700_000_000_000
TICK_MS = 1000  # the node looks at idle topics and reserves this often, whatever is due


@dataclass(frozen=True, slots=True)
class Batch:
    """What one command recorded. `sync`: its reply had to wait for the disk. `woken`: topics that it woke."""

    verb: str
    events: Sequence[Event]
    sync: bool
    woken: Sequence[bytes]


class Stage:
    def __init__(self) -> None:
        self._journal = MemoryJournal()
        self._page_cache: list[bytes] = []  # batches that were written and not synced
        self._store = MemoryStore()
        self._elapsed_ms = 0
        self._wall_shift_ms = 0
        self._lives = 0
        self.batches: list[Batch] = []  # since they were last looked at
        self._start()

    # -- commands

    def do(self, verb: str, command: Command) -> Reply:
        machine, now = self._machine, self._clock.now_ms()
        reply = machine.handle(command, now)
        while isinstance(copies := machine.handle(Forward(), now), Count) and copies.count:
            pass
        self._commit(verb)
        return reply

    def _commit(self, verb: str) -> None:
        """What was recorded becomes one batch."""
        machine = self._machine
        events, sync, woken = machine.outbox, machine.must_sync, sorted(machine.woken)
        machine.outbox, machine.must_sync = [], False
        machine.woken.clear()
        if events:
            self._page_cache.append(encode_batch(events))
            if sync:
                self.sync()
        if events or woken:
            self.batches.append(Batch(verb, events, sync, woken))

    # -- time

    def advance(self, ms: int) -> None:
        """Lets time pass, and everything happen at the moment it is due."""
        end_ms = self._elapsed_ms + ms
        while self._elapsed_ms < end_ms:
            due = next_wake_ms(self._machine)
            step_ms = TICK_MS if due is None else min(TICK_MS, max(1, due - self._clock.now_ms()))
            self._elapsed_ms = min(end_ms, self._elapsed_ms + step_ms)
            self._tick()

    def _tick(self) -> None:
        """A tick is a bounded step: what it leaves is due at once."""
        for _ in range(100):
            self.do("tick", Tick())
            due = next_wake_ms(self._machine)
            if due is None or due > self._clock.now_ms():
                return
        raise AssertionError("a timer stays due, however often it is handled")

    def set_wall_clock(self, shift_ms: int) -> None:
        """The wall clock of the machine is set; no time passes by that."""
        self._wall_shift_ms += shift_ms

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms()

    def _wall(self) -> float:
        # Half a millisecond into it: no rounding of floats can then show as the millisecond before.
        return (START_MS + self._elapsed_ms + self._wall_shift_ms + 0.5) / 1000

    def _monotonic(self) -> float:
        return self._elapsed_ms / 1000

    # -- the disk

    def sync(self) -> None:
        for batch in self._page_cache:
            self._journal.append(batch, True, lambda error: None)
        self._page_cache = []

    def checkpoint(self) -> None:
        """Brings the store up to date, retires the journal, and lets every payload leave memory."""
        self.sync()
        checkpoint = Checkpoint(self._machine, self._journal.last_position)
        pieces = [*checkpoint.slices(), checkpoint.last()]
        for piece in pieces:
            self._store.write(piece.puts, piece.deletes, piece.ranges)
        self._store.persist()
        for piece in pieces:
            cool(self._machine, piece, 0)
        self._journal.retire(checkpoint.position)

    # -- ends

    def lose_power(self) -> None:
        """Memory and the page cache are lost; what was synced is there."""
        self._page_cache = []
        self._store.crash()
        self._start()
        self._tick()

    def kill(self) -> None:
        """The process ends at once; the system keeps what the process had written."""
        self.sync()
        self._store.crash()
        self._start()
        self._tick()

    def restart(self) -> None:
        """An orderly stop, and the next start."""
        self._machine.release_reserves()
        self._commit("restart")
        self.checkpoint()
        self._start()
        self._tick()

    def _start(self) -> None:
        self._lives += 1
        self._journal = self._journal.reopen()
        self._machine = Machine(Random(self._lives), ColdStore(self._store))
        recover(self._machine, self._journal, self._store)
        self._clock = Clock(self._machine.last_ms, self._wall, self._monotonic)
        self._machine.outbox.append(NodeStarted(self._clock.now_ms()))
