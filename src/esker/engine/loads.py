"""Bulk loads: rows that come in chunks from outside, each chunk exactly once, whatever dies in between.

Whoever publishes a load reads its rows from files and may be killed at any moment. What it has done must therefore be
known from the journal alone: a chunk's rows and the mark that the chunk is done are events of one command, and so of
one journal batch, which is there as a whole or not at all. After a restart the publisher asks the mark and goes on
behind it. The mark takes the way of the rows: where a class may lose its last moments, it loses the mark with the rows,
and the chunk is published again. (An ephemeral topic keeps no rows in the journal; its marks are there all the same, so
a row that was seen before a restart is not seen again after it.)

A mark is (batch, chunk), and moves forward only: batches of a load rise, chunks of a batch count from 0 without a gap.
Marks are bounded in number: loads whose last batch is done go first, those that were idle for longest before others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from esker.engine import commands, events, limits, records
from esker.engine.queues import produce
from esker.engine.replies import Published, Reply
from esker.errors import Code, Refusal, quoted

if TYPE_CHECKING:
    from esker.engine.machine import Machine


class Mark(NamedTuple):
    """Everything up to `chunk` of `batch` is in; `done`: and that was the last one."""

    batch: int
    chunk: int
    rows: int  # of the batch that are in
    done: bool
    ts: int


class Loads:
    """The marks by load, those that moved last at the end; and what the next checkpoint has to save of them."""

    __slots__ = ("dirty", "dropped", "marks")

    def __init__(self) -> None:
        self.marks: dict[bytes, Mark] = {}
        self.dirty: set[bytes] = set()
        self.dropped: set[bytes] = set()

    def move(self, load: bytes, mark: Mark) -> None:
        self.marks.pop(load, None)
        self.marks[load] = mark
        self.dirty.add(load)
        self.dropped.discard(load)
        if len(self.marks) > limits.LOADS_MAX:
            self._drop(next((name for name, each in self.marks.items() if each.done), next(iter(self.marks))))

    def _drop(self, load: bytes) -> None:
        del self.marks[load]
        self.dirty.discard(load)
        self.dropped.add(load)


def publish(machine: Machine, command: commands.Publish, now: int) -> Reply:
    """Refuses what the inner command refuses, and then leaves no mark."""
    if not 0 < len(command.load) <= limits.LOAD_KEY_BYTES_MAX:
        return Refusal(
            Code.BAD_REQUEST, f"a load has a name of 1 to {limits.LOAD_KEY_BYTES_MAX} bytes, not {len(command.load)}"
        )
    expected = 0
    mark = machine.loads.marks.get(command.load)
    if mark is not None:
        if command.batch < mark.batch or (command.batch == mark.batch and (mark.done or command.chunk <= mark.chunk)):
            return Published(duplicate=True)
        if command.batch == mark.batch:
            expected = mark.chunk + 1
    if command.chunk != expected:  # its mark was forgotten, so nobody knows which rows are in
        return Refusal(
            Code.BAD_REQUEST,
            f"chunk {command.chunk} of batch {command.batch} of load {quoted(command.load)} came, "
            f"{expected} was expected",
        )
    work = command.work
    if work is not None:
        reply = _WORK[type(work)](machine, work, now)
        if isinstance(reply, Refusal):
            return reply
    event = events.LoadAdvanced(command.load, now, command.batch, command.chunk, command.rows, command.last)
    machine.record(None, event, sync=False)  # the events of the rows say whether the reply waits for the disk
    return Published(duplicate=False)


def advanced(machine: Machine, event: events.LoadAdvanced) -> None:
    """Never back: the checkpoint may be ahead."""
    mark = machine.loads.marks.get(event.load)
    if mark is None or (event.batch, event.chunk) > (mark.batch, mark.chunk):
        machine.loads.move(event.load, Mark(event.batch, event.chunk, event.rows, event.last, event.ts))


_WORK: dict[type, Callable[..., Reply]] = {
    commands.Enqueue: produce.enqueue,
    commands.EnqueueAlike: produce.enqueue_alike,
    commands.Append: records.append,
}
