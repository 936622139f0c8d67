"""A store that fails on command, to see what checkpoints, and whatever stands on them, make of that.

It fails as RocksDB does: a write or a persist that failed leaves a store that takes no more writes until it is opened
again, and then has what was persisted and some of the writes behind that, in their order.

    >>> from esker.errors import StoreFailed
    >>> store = FaultyStore()
    >>> store.write([(b"key", b"persisted")])
    True
    >>> store.persist()
    >>> store.fail_next("write", "reopen")
    >>> for step in (lambda: store.write([(b"key", b"lost")]), store.persist, store.reopen, store.reopen):
    ...     try:
    ...         step()
    ...     except StoreFailed as error:
    ...         print(error)
    the store could not write: as the test asked
    the store could not write: it failed before, and was not opened again
    the store could not be opened: as the test asked
    >>> store.get(b"key")
    b'persisted'
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Literal

from esker.errors import StoreFailed
from esker.store.interface import Puts, Ranges
from esker.store.memory import MemoryStore

Step = Literal["write", "persist", "reopen"]


class FaultyStore(MemoryStore):
    """`chance`: with which each write, persist and reopen fails by itself. `stalls`: with which a write must wait."""

    def __init__(self, seed: int = 1, chance: float = 0.0, stalls: float = 0.0) -> None:
        super().__init__()
        self.chance = chance
        self.stalls = stalls
        self.calls = 0  # of all that can fail
        self.failures = 0
        self.reopened = 0
        self._random = Random(seed)
        self._broken = False
        self._planned: deque[Step] = deque()
        self._always: set[Step] = set()
        self._unpersisted: list[tuple[Puts, Sequence[bytes], Ranges]] = []

    @property
    def broken(self) -> bool:
        """It has failed, and was not opened again since."""
        return self._broken

    def fail_next(self, *steps: Step) -> None:
        """The next call of the first of these fails; then the next call of the second, and so on."""
        self._planned.extend(steps)

    def fail_always(self, *steps: Step) -> None:
        """From now on, every call of these; none: of no more."""
        self._always = set(steps)

    def write(self, puts: Puts, deletes: Sequence[bytes] = (), ranges: Ranges = ()) -> bool:
        self._meet("write", "the store could not write")
        if self._unpersisted and self._random.random() < self.stalls:
            return False
        self._unpersisted.append((list(puts), list(deletes), list(ranges)))
        return super().write(puts, deletes, ranges)

    def persist(self) -> None:
        self._meet("persist", "the store could not write")
        self._unpersisted = []
        super().persist()

    def reopen(self) -> None:
        self.crash()  # the old handle is closed first, whether or not there will be a new one
        self._meet("reopen", "the store could not be opened")
        self.reopened += 1

    def crash(self) -> None:
        """Forgets what was not persisted, from some write on. What comes after it is a new life."""
        self._broken = False
        kept = self._unpersisted[: self._random.randint(0, len(self._unpersisted))]
        super().crash()
        for puts, deletes, ranges in kept:
            super().write(puts, deletes, ranges)
        super().persist()
        self._unpersisted = []

    def _meet(self, step: Step, what: str) -> None:
        self.calls += 1
        if self._broken and step != "reopen":
            raise StoreFailed(f"{what}: it failed before, and was not opened again")
        planned = bool(self._planned) and self._planned[0] == step
        if planned:
            self._planned.popleft()
        if planned or step in self._always or self._random.random() < self.chance:
            self._broken = True
            self.failures += 1
            raise StoreFailed(f"{what}: as the test asked")
