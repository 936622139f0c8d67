"""When routers run: at the end of the turn in which their source moved, step by step, until they have caught up.

The first step runs in the same turn of the loop as the write it follows, and so before the batch of that turn is given
to the journal: copies ride to disk with their originals, one write for all of them. Between steps others have their
turn. Whoever looks at what routers make lets them run first, so an answer tells of copies of everything that was
answered before it. A router whose destination is full is tried again when the engine says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from esker.engine import commands
from esker.engine.logs.routers import Routers
from esker.node.clock import Clock

# Steps that a look at copies waits for: about 30 ms. A router that is further behind catches up in turns of its own.
STEPS_AT_ONCE = 16

SEES_COPIES = frozenset({
    commands.Read, commands.TopicState, commands.ListTopics, commands.RouterState, commands.ListRouters,
    commands.DeleteRecords, commands.Length, commands.Peek, commands.Lease, commands.LeaseCohort,
})  # fmt: skip


class Forwarding:
    """`step` lets routers make a bounded number of copies. `due`: they run at the end of this turn."""

    __slots__ = ("_clock", "_loop", "_retry", "_routers", "_step", "closed", "due")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, routers: Routers, step: Callable[[], object]
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._routers = routers
        self._step = step
        self._retry: asyncio.TimerHandle | None = None  # of routers whose destination was full
        self.due = False
        self.closed = False

    def soon(self) -> None:
        """Runs at the end of the turn."""
        if not self.due and not self.closed:
            self.due = True
            self._loop.call_soon(self._run)

    def catch_up(self) -> None:
        """Runs now, as far as one turn allows."""
        for _ in range(STEPS_AT_ONCE):
            self._run()

    def close(self) -> None:
        self.closed = True
        self.due = False
        if self._retry is not None:
            self._retry.cancel()

    def _run(self) -> None:
        if not self.due:
            return  # somebody looked at the copies meanwhile, and it ran then
        self.due = False
        self._step()
        if self._routers.behind:
            self.soon()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        due_ms = self._routers.next_retry_ms()
        if due_ms is not None and not self.closed:
            delay = max(0.001, (due_ms - self._clock.now_ms()) / 1000)
            self._retry = self._loop.call_later(delay, self.soon)
