"""Large answers: one a turn of the loop, and only while there is room for them.

Making an answer of 8 MB takes the loop some ten milliseconds. Many clients that ask for one at the same time would have
it to themselves for seconds, and what they are answered would be in memory before the first of them has taken anything.
So whoever is about to make a large answer takes a turn. Between two turns everybody else is served. While clients leave
too much of what they were answered (`Unsent`), turns wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from esker.fronts.http.unsent import Unsent

LARGE_BYTES: Final = 512 * 1024  # an answer from which on it takes a turn: one or two milliseconds
_LOOK_S: Final = 0.05  # how often it is looked whether there is room again


class Turns:
    def __init__(self, unsent: Unsent, loop: asyncio.AbstractEventLoop) -> None:
        self._unsent = unsent
        self._loop = loop
        self._taken = False  # this turn, or all until there is room
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> bool:
        """Returns in a turn in which nobody else makes a large answer: whether it had to wait for that."""
        if not self._taken and not self._unsent.is_full():
            self._take()
            return False
        turn = self._loop.create_future()
        self._waiting.append(turn)
        if not self._taken:
            self._taken = True
            self._loop.call_later(_LOOK_S, self._next)
        await turn
        return True

    def _take(self) -> None:
        self._taken = True
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._taken = False
        while self._waiting:
            if self._unsent.is_full():
                self._taken = True
                self._loop.call_later(_LOOK_S, self._next)
                return
            turn = self._waiting.popleft()
            if not turn.done():  # it is when whoever waited has left
                turn.set_result(None)
                self._take()
                return
