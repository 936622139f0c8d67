"""What clients were answered and have not taken: how much there may be, over all connections.

A client that does not read leaves its answers in our memory. Each connection holds a bounded number of them, but there
are many connections. So what is unsent is counted, and when it is more than `limit`, whoever has taken nothing for
longest is cut. A client that takes what it gets is not chosen; if all do, those who ask for more wait (turns.py).
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

LARGE_BYTES: Final = 64 * 1024  # an answer below this is not counted: every connection may have so much in its buffer
GRACE_S: Final = 2.0  # whoever took `MOVED_BYTES` within this time gets on; connections are looked at once a second
MOVED_BYTES: Final = 64 * 1024


class Debtor(Protocol):
    """Whoever has something to take."""

    moved_at: float  # when it had taken `MOVED_BYTES` more, by the loop's clock

    def cut(self) -> None: ...


class Unsent:
    """`limit` 0: no limit."""

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        self.limit = limit or 1 << 62
        self.grace_s = GRACE_S
        self.used = 0
        self.cut = 0  # debtors, since the start
        self._loop = loop
        self._owed: dict[Debtor, int] = {}

    def hold(self, size: int) -> None:
        """An answer was made, and waits for the disk."""
        self.used += size

    def let_go(self, size: int) -> None:
        self.used -= size

    def owe(self, debtor: Debtor, size: int) -> None:
        """This much waits for this one: all there is, not more than before."""
        self.used += size - self._owed.get(debtor, 0)
        self._owed[debtor] = size
        if self.used > self.limit:
            self._make_room()

    def settle(self, debtor: Debtor) -> None:
        """It has taken everything, or never will."""
        self.used -= self._owed.pop(debtor, 0)

    def is_full(self) -> bool:
        """There is no room for another large answer, and nobody who could be cut for it."""
        if self.used > self.limit:
            self._make_room()
        return self.used > self.limit

    def _make_room(self) -> None:
        late = self._loop.time() - self.grace_s
        while self.used > self.limit and self._owed:
            slowest = min(self._owed, key=_moved_at)
            if slowest.moved_at > late:
                return
            self.settle(slowest)
            self.cut += 1
            slowest.cut()


def _moved_at(debtor: Debtor) -> float:
    return debtor.moved_at
