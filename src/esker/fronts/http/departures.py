"""When replies may leave: one subscription for all requests that wait for the same gate.

Every reply, that of a read too, tells of state that may not be durable yet, so every reply waits for the gate that
stood when it was decided (node/interface.py).
"""

from __future__ import annotations

import asyncio
from functools import partial

from esker.fronts.http.errors import internal
from esker.node.interface import Broker, Gate

Opening = asyncio.Future[BaseException | None]


class Departures:
    __slots__ = ("_broker", "_gate", "_loop", "_waiting")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._gate: Gate | None = None
        self._waiting: list[Opening] = []  # for that gate

    def next(self) -> Opening | None:
        """What a reply decided until now waits for; None: nothing. To be asked before anything else is awaited."""
        gate = self._broker.gate
        if gate is None:
            self._gate = None
            return None
        if gate is not self._gate:
            self._gate, self._waiting = gate, []
            gate.subscribe(partial(_open, self._waiting))
        opening: Opening = self._loop.create_future()
        self._waiting.append(opening)
        return opening

    async def leave(self) -> None:
        """Returns when everything decided until now may be talked about. Raises `HttpError` when it was lost."""
        opening = self.next()
        if opening is not None:
            await passed(opening)


def _open(waiting: list[Opening], error: BaseException | None) -> None:
    for opening in waiting:
        if not opening.done():  # it is, when whoever waited was cancelled
            opening.set_result(error)


async def passed(opening: Opening) -> None:
    error = await opening
    if error is not None:
        raise internal(f"the write was not made durable and may be lost: {error}")
