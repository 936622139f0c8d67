"""The journal: the durable, ordered sequence of event batches of one shard.

One batch is one frame and one position; positions are 1, 2, 3 … without a hole, and survive restarts. A frame is kept
whole or not at all. The owner appends one batch at a time and may give the next before the last has answered;
answers come in order.

What an adapter promises:
* After `done(None)` of an append with `sync`, this batch and all before it survive any crash of process or machine.
  Without `sync` they survive a crash of the process, and of the machine after the next sync.
* After `done(error)` nothing of that batch or of a later one is kept, and every later append fails too, until the
  journal is opened anew. `JournalFull` is answered the same way. A sync is never tried twice.
* `read(after)` gives the batches behind a position in order. A torn tail was cut when the journal was opened (see
  `notes`); damage before the tail raises `JournalCorrupt` with file and offset.
* `retire(upto)` may forget batches up to a position; `first_position` tells what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

Done = Callable[[BaseException | None], None]


class Journal(Protocol):
    @property
    def first_position(self) -> int:
        """The oldest batch that can be read; last_position + 1 when there is none."""

    @property
    def last_position(self) -> int:
        """The newest batch accepted by `append`; 0 when there never was one."""

    @property
    def notes(self) -> Sequence[str]:
        """What opening found and mended, for the operator: one sentence each."""

    def read(self, after: int) -> Iterator[tuple[int, bytes]]:
        """Positions and batches behind `after`. Only before the first append."""

    def append(self, batch: bytes, sync: bool, done: Done) -> int:
        """Takes one batch and returns its position at once. `done` is called once, on any thread."""

    def expect_slow(self, slow: bool) -> None:
        """The owner keeps the disk busy from now on, or no longer: meanwhile no append may hold up its caller."""

    @property
    def waits_for(self) -> str | None:
        """What it lacks to write what was appended, as one sentence, while it waits for that; else None."""

    def hurry(self) -> None:
        """The owner is about to end: from now on nothing is waited for, and what cannot be written at once fails."""

    def has_room(self) -> bool:
        """False when the disk is so full that only small work (acks, leases) should still be accepted."""

    @property
    def free_bytes(self) -> int | None:
        """How much the journal can still grow, as far as is known; None: nobody knows."""

    def retire(self, upto: int) -> None:
        """Batches up to and including `upto` are in a checkpoint and may go."""

    def close(self) -> None:
        """Finishes what was accepted, syncs, and lets go of the files."""
