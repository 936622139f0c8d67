"""The journal in memory: the contract without a disk, for tests and for shards that may forget everything.

Every append is answered before it returns. `reopen` stands for a restart: a new journal over what this one retained.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from esker.errors import JournalError
from esker.journal.interface import Done


class MemoryJournal:
    def __init__(self) -> None:
        self._first = 1
        self._batches: deque[bytes] = deque()
        self._closed = False

    def reopen(self) -> MemoryJournal:
        """A new journal with the batches this one retained; this one is closed."""
        self.close()
        fresh = MemoryJournal()
        fresh._first, fresh._batches = self._first, self._batches
        return fresh

    @property
    def first_position(self) -> int:
        return self._first

    @property
    def last_position(self) -> int:
        return self._first + len(self._batches) - 1

    @property
    def notes(self) -> Sequence[str]:
        return ()

    def read(self, after: int) -> Iterator[tuple[int, bytes]]:
        start = max(after + 1, self._first)
        return enumerate(islice(self._batches, start - self._first, None), start)

    def append(self, batch: bytes, sync: bool, done: Done) -> int:
        if self._closed:
            raise JournalError("the journal is closed: open it again to append")
        self._batches.append(batch)
        position = self.last_position
        done(None)
        return position

    def expect_slow(self, slow: bool) -> None:
        """Memory is never slow."""

    @property
    def waits_for(self) -> str | None:
        return None

    def hurry(self) -> None:
        """Memory waits for nothing."""

    def has_room(self) -> bool:
        return True

    @property
    def free_bytes(self) -> int | None:
        return None

    def retire(self, upto: int) -> None:
        # The newest batch stays, as in a file, so that the last position outlives a restart.
        while self._first <= upto and len(self._batches) > 1:
            self._batches.popleft()
            self._first += 1

    def close(self) -> None:
        self._closed = True
