"""When replies may leave: one subscription for all requests that wait for the same gate.

Every reply, that of a read too, tells of state that may not be durable yet, so every reply waits for the gate that
stood when it was decided (node/interface.py). Only a lease that lasts (`Broker.lasts`) does not ask for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from esker.fronts.http.errors import HttpError, internal
from esker.node.interface import Broker, Gate

Opening = asyncio.Future[BaseException | None]
Leave = Callable[[BaseException | None], None]


class Departures:
    __slots__ = ("_broker", "_gate", "_loop", "_waiting")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._gate: Gate | None = None
        self._waiting: list[Leave] = []  # for that gate

    def then(self, leave: Leave) -> bool:
        """`leave` is called when everything decided until now may be talked about, with None, or with why it was lost.

        False: it may at once, and `leave` is not called.
        """
        gate = self._broker.gate
        if gate is None:
            self._gate = None
            return False
        if gate is not self._gate:
            self._gate, self._waiting = gate, []
            gate.subscribe(partial(_open, self._waiting))
        self._waiting.append(leave)
        return True

    def next(self) -> Opening | None:
        """What a reply decided until now waits for; None: nothing. To be asked before anything else is awaited."""
        opening: Opening = self._loop.create_future()
        return opening if self.then(partial(_settle, opening)) else None

    async def leave(self) -> None:
        """Returns when everything decided until now may be talked about. Raises `HttpError` when it was lost."""
        opening = self.next()
        if opening is not None:
            await passed(opening)


def _open(waiting: list[Leave], error: BaseException | None) -> None:
    for leave in waiting:
        leave(error)


def _settle(opening: Opening, error: BaseException | None) -> None:
    if not opening.done():  # it is, when whoever waited was cancelled
        opening.set_result(error)


async def passed(opening: Opening) -> None:
    error = await opening
    if error is not None:
        raise lost(error)


def lost(error: BaseException) -> HttpError:
    """What a client is told whose write did not reach the disk."""
    return internal(f"the write was not made durable and may be lost: {error}")
