"""When replies may leave: one future for all requests that wait for the same gate.

Every reply, that of a read too, tells of state that may not be durable yet, so every reply waits for the gate that
stood when it was decided (node/interface.py). Requests decided in one turn share one subscription.
"""

from __future__ import annotations

import asyncio

from esker.fronts.http.errors import internal
from esker.node.interface import Broker, Gate

Opening = asyncio.Future[BaseException | None]


class Departures:
    __slots__ = ("_broker", "_gate", "_loop", "_opening")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._gate: Gate | None = None
        self._opening: Opening | None = None

    def next(self) -> Opening | None:
        """What a reply decided until now waits for; None: nothing. To be asked before anything else is awaited."""
        gate = self._broker.gate
        if gate is None:
            self._gate = self._opening = None
            return None
        if gate is not self._gate or self._opening is None:
            opening: Opening = self._loop.create_future()
            self._gate, self._opening = gate, opening

            def opened(error: BaseException | None) -> None:
                if not opening.done():
                    opening.set_result(error)

            gate.subscribe(opened)
        return self._opening

    async def leave(self) -> None:
        """Returns when everything decided until now may be talked about. Raises `HttpError` when it was lost."""
        opening = self.next()
        if opening is not None:
            await passed(opening)


async def passed(opening: Opening) -> None:
    error = await asyncio.shield(opening)  # one who is cancelled must not take the others along
    if error is not None:
        raise internal(f"the write was not made durable and may be lost: {error}")
