"""Bodies and messages that are arriving: how much of them may be in memory, over all connections.

One body is bounded by `max_body_bytes`, but a client can send most of many bodies and never end them. When they hold
more than `limit` together, the one that has brought least lately is cut, and if all of them have just begun, the one
that needs more room is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from esker.fronts.http.errors import HttpError

WINDOW_S: Final = 2.0  # over which it is measured what a body brings
_BUSY: Final = "too many request bodies are arriving; send it again in a moment"


class Arriving:
    """One that arrives. `cut` ends it."""

    __slots__ = ("_arrivals", "_began", "_mark", "_marked_at", "cut", "size")

    def __init__(self, arrivals: Arrivals, cut: Callable[[], None]) -> None:
        self._arrivals = arrivals
        self.cut = cut
        self.size = 0
        self._began = self._marked_at = arrivals.loop.time()
        self._mark = 0  # the size it had then

    def add(self, size: int) -> bool:
        """False: there is no room for it, and what it had is counted no more."""
        self.size += size
        arrivals = self._arrivals
        arrivals.used += size
        now = arrivals.loop.time()
        if now - self._marked_at > 2 * arrivals.window_s:
            self._marked_at, self._mark = now - arrivals.window_s, self.size - size
        return arrivals.used <= arrivals.limit or arrivals.make_room(self, now)

    def brings(self, now: float) -> float:
        """Bytes a second, lately."""
        return (self.size - self._mark) / max(now - self._marked_at, 0.001)

    def is_new(self, now: float) -> bool:
        return now - self._began < self._arrivals.window_s

    def end(self) -> None:
        self._arrivals.used -= self.size
        self.size = 0
        self._arrivals.open.discard(self)


class Arrivals:
    """`limit` 0: no limit."""

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        self.limit = limit or 1 << 62
        self.window_s = WINDOW_S
        self.loop = loop
        self.used = 0
        self.cut = 0  # since the start
        self.open: set[Arriving] = set()

    def begin(self, cut: Callable[[], None]) -> Arriving:
        arriving = Arriving(self, cut)
        self.open.add(arriving)
        return arriving

    @contextlib.contextmanager
    def body(self) -> Iterator[Arriving]:
        """One that the running task receives. Raises 503 there when it is cut."""
        task = asyncio.current_task()
        assert task is not None
        chosen = False

        def cut() -> None:
            nonlocal chosen
            chosen = True
            task.cancel()

        arriving = self.begin(cut)
        try:
            yield arriving
        except asyncio.CancelledError:
            if not chosen:
                raise
            task.uncancel()
            raise busy() from None
        finally:
            arriving.end()

    def make_room(self, asking: Arriving, now: float) -> bool:
        while self.used > self.limit:
            old = [each for each in self.open if each.size and not each.is_new(now)]
            slowest = min(old, key=lambda each: each.brings(now), default=asking)
            self.cut += 1
            slowest.end()
            if slowest is asking:
                return False
            slowest.cut()
        return True


def busy() -> HttpError:
    return HttpError(503, "busy", _BUSY)
