"""Coroutines that are begun outside of any task, because most of them end before they wait for anything.

    begun = Begun(coroutine)                 runs it up to its first wait, and raises what it raises until then
    begun.result                             what it returned, if it has ended
    await begun                              else, in a task: goes on where it stopped

A task costs more than what most requests do. Until it waits, a coroutine runs here as a plain function; one that does
wait needs a task from there on, and the future it waits for is handed to that task as if it had been begun there.
What asks for the task it runs in (`asyncio.timeout`) must not be used before the first wait.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Generic, TypeVar

T = TypeVar("T")


class Begun(Generic[T]):
    __slots__ = ("_coroutine", "_waits_for", "ended", "result")
    result: T  # once it has ended

    def __init__(self, coroutine: Coroutine[object, object, T]) -> None:
        """Runs it up to its end or to its first wait. Raises what it raises."""
        self._coroutine = coroutine
        self.ended = False
        try:
            self._waits_for = coroutine.send(None)
        except StopIteration as end:
            self.ended = True
            self.result = end.value

    def __await__(self) -> Generator[object, object, T]:
        coroutine, waits_for = self._coroutine, self._waits_for
        while True:
            try:
                try:
                    came = yield waits_for
                except BaseException as error:  # noqa: BLE001 a cancellation, most likely: it is the coroutine's to see
                    waits_for = coroutine.throw(error)
                else:
                    waits_for = coroutine.send(came)
            except StopIteration as end:
                result: T = end.value
                return result
