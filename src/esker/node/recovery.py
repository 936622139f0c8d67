"""From disk to memory: the last checkpoint, and the journal behind it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from esker.engine.events import decode_batch
from esker.engine.machine import Machine
from esker.errors import DataDirectoryError
from esker.journal.interface import Journal
from esker.store.checkpoint import load
from esker.store.interface import Store


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a start found. `events` were folded behind the checkpoint at `position`."""

    position: int
    batches: int
    events: int
    jobs: int
    topics: int
    seconds: float


def recover(machine: Machine, journal: Journal, store: Store) -> Recovered:
    """Fills an empty machine. Raises DataDirectoryError when journal and store do not belong together."""
    started = time.monotonic()
    loaded = load(store, machine)
    if loaded.position + 1 < journal.first_position:
        raise DataDirectoryError(
            f"the store ends at position {loaded.position} and the journal starts at {journal.first_position}: what "
            "lies between is missing; restore the journal files that were removed"
        )
    if loaded.position > journal.last_position:
        raise DataDirectoryError(
            f"the store is at position {loaded.position}, the journal ends at {journal.last_position}: the journal's "
            "newest files are missing; put them back, or restore the whole directory from a backup"
        )
    batches = events = 0
    for _, batch in journal.read(loaded.position):
        batches += 1
        for event in decode_batch(batch):
            events += 1
            machine.fold(event)
            machine.last_ms = max(machine.last_ms, getattr(event, "ts", 0))
    machine.settle()
    loaded.settle(machine)
    seconds = time.monotonic() - started
    return Recovered(loaded.position, batches, events, machine.totals.jobs, len(machine.topics), seconds)
