"""The engine under a virtual clock: time passes when the test says so, and a crash loses exactly what it may.

    engine = Engine()
    engine.handle(Enqueue(b"q", [NewJob(b"work", priority=5)]))
    engine.advance(60_000)
    engine.crash()                      # memory is gone; the journal's synced part is folded again

Memory adapters stand in for the disk, but journal, checkpoints and recovery are the real ones. Every event is checked
against the table of legal moves.
"""

from __future__ import annotations

from random import Random

from esker.engine import events
from esker.engine.commands import Command, Tick
from esker.engine.machine import Machine
from esker.engine.queues.clockwork import next_wake_ms
from esker.engine.queues.job import JobState
from esker.engine.queues.lifecycle import MOVES, MoveEvent, moves_of
from esker.engine.replies import Reply
from esker.errors import InvariantBroken
from esker.journal.memory import MemoryJournal
from esker.node.recovery import recover
from esker.store.checkpoint import Checkpoint
from esker.store.cold import ColdStore
from esker.store.memory import MemoryStore

START_MS = 1_700_000_000_000


class VirtualClock:
    """Stands still until it is told otherwise."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        assert ms >= 0, "time does not go back"
        self._now_ms += ms


class Engine:
    """One machine with its journal and store; every command is durable when `handle` returns."""

    def __init__(self, seed: int = 1) -> None:
        self.clock = VirtualClock()
        self._dice = Random(seed)
        self._journal = MemoryJournal()
        self._store = MemoryStore()
        self.machine = self._start()

    def handle(self, command: Command) -> Reply:
        machine = self.machine
        before = self._states()
        reply = machine.handle(command, self.clock.now_ms())
        for event in machine.outbox:
            for move in moves_of(event):
                _check_move(move, before)
        if machine.outbox:
            self._journal.append(events.encode_batch(machine.outbox), True, lambda error: None)
            machine.outbox, machine.must_sync = [], False
        machine.woken.clear()
        return reply

    def advance(self, ms: int) -> None:
        """Lets time pass, and everything happen that is due by then."""
        self.clock.advance(ms)
        self.handle(Tick())
        while (due := next_wake_ms(self.machine)) is not None and due <= self.clock.now_ms():
            self.handle(Tick())

    def checkpoint(self) -> None:
        """Brings the store up to date and lets the journal forget what it holds."""
        checkpoint = Checkpoint(self.machine, self._journal.last_position)
        for piece in [*checkpoint.slices(), checkpoint.last()]:
            self._store.write(piece.puts, piece.deletes, piece.ranges)
        self._store.persist()
        self._journal.retire(checkpoint.position)

    def crash(self) -> None:
        """Forgets everything but the journal and the last checkpoint, and recovers from those."""
        self._store.crash()
        self._journal = self._journal.reopen()
        self.machine = self._start()

    def _start(self) -> Machine:
        machine = Machine(self._dice, ColdStore(self._store))
        recover(machine, self._journal, self._store)
        return machine

    def _states(self) -> dict[tuple[int, int, int], JobState]:
        return {
            (topic.number, partition.index, job.seq): JobState(job.state)
            for topic in self.machine.topics.values()
            for partition in topic.partitions
            for job in partition.jobs.values()
        }


def _check_move(event: MoveEvent, states: dict[tuple[int, int, int], JobState]) -> None:
    """Follows one event through the table; `states` is brought up to date as far as the event tells."""
    place = (event.topic, event.partition, event.seq)
    before = states.get(place)
    if before is JobState.DELAYED and isinstance(event, events.JobLeased):
        before = JobState.READY  # being due made it so, which is no event
    after = MOVES.get((before, type(event)))
    if after is None:
        raise InvariantBroken(f"{type(event).__name__} of job {place} in state {before}: {event}")
    if len(after) == 1:
        states[place] = next(iter(after))
    elif isinstance(event, events.JobLeased):
        states[place] = JobState.LEASED if event.deadline_ms else JobState.SPENT
    elif isinstance(event, events.Enqueued | events.JobReturned):
        states[place] = JobState.DELAYED if event.due_ms else JobState.READY
    else:
        states.pop(place, None)
