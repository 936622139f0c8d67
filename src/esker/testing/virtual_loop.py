"""An event loop in virtual time: the real tasks of a node, run one after another in an order that a seed decides.

Nothing waits. When no callback is ready, time leaps to the next timer. What is given to an executor runs on the loop
itself, as one step, some virtual time later, and its result arrives later again; the seed says how much later. So two
runs with one seed are the same to the last step, an hour takes as long as what happens in it, and many seeds explore
many orders.

    >>> import asyncio
    >>> from random import Random
    >>> loop = VirtualLoop(Random(1))
    >>> loop.run_until_complete(asyncio.sleep(3600, "an hour has passed"))
    'an hour has passed'
    >>> loop.time() >= 3600
    True
    >>> loop.close()

There are no sockets, no signals and no other threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from random import Random
from typing import TypeVar, TypeVarTuple, Unpack

_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")

# How long a step in a thread may take, in seconds. Most are quick; a slow one lets much happen meanwhile.
DELAYS_S = (0.0, 0.0, 0.0, 0.0003, 0.001, 0.004, 0.02, 0.15)


class NothingLeft(RuntimeError):
    """Everything waits, and nothing will ever happen."""


class _Leap:
    """Where other loops wait for sockets, this one moves its time."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise NothingLeft("every task waits, and no timer is set: the program would wait for ever")
        self.now_s += timeout
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """`dice` decides how long what runs in threads takes."""

    def __init__(self, dice: Random) -> None:
        super().__init__()
        self.dice = dice
        self._selector = _Leap()
        self._steps: set[asyncio.TimerHandle] = set()

    def time(self) -> float:
        return self._selector.now_s

    def in_thread(self, step: Callable[[], None], after_s: float | None = None) -> asyncio.TimerHandle:
        """Runs a step of another thread, later: after a time that the dice choose, unless it is given."""

        def run() -> None:
            self._steps.discard(handle)
            step()

        handle = self.call_later(self.dice.choice(DELAYS_S) if after_s is None else after_s, run)
        self._steps.add(handle)
        return handle

    def end_threads(self) -> None:
        """What is in threads is never done: the process that they belong to has died."""
        for handle in self._steps:
            handle.cancel()
        self._steps.clear()

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[Unpack[_Arguments]], _Result],
        *args: *_Arguments,
    ) -> asyncio.Future[_Result]:
        future: asyncio.Future[_Result] = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 it belongs to whoever waits
                failure = error
                self.in_thread(lambda: None if future.done() else future.set_exception(failure))
                return
            self.in_thread(lambda: None if future.done() else future.set_result(result))

        self.in_thread(work)
        return future

    def _process_events(self, event_list: list[object]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody waits in another thread."""
