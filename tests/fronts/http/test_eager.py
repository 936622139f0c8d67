"""Coroutines that are begun outside of a task."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import pytest

from esker.fronts.http.eager import Begun

T = TypeVar("T")


def test_what_waits_for_nothing_ends_at_once() -> None:
    async def double(number: int) -> int:
        return 2 * number

    begun = Begun(double(21))
    assert begun.ended
    assert begun.result == 42


def test_what_is_raised_before_the_first_wait_is_raised_at_once() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Begun(fail())


def test_what_waits_goes_on_in_a_task() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        first, second = loop.create_future(), loop.create_future()

        async def both() -> tuple[object, object]:
            return await first, await second

        begun = Begun(both())
        assert not begun.ended
        task = loop.create_task(_all_of(begun))
        first.set_result(1)
        await asyncio.sleep(0)
        loop.call_soon(second.set_result, 2)
        assert await task == (1, 2)

    asyncio.run(main())


def test_a_wait_that_fails_is_the_coroutines_to_handle() -> None:
    async def main() -> None:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def careful() -> str:
            try:
                await future
            except ValueError as error:
                await asyncio.sleep(0)
                return str(error)
            return "nothing happened"

        begun = Begun(careful())
        future.set_exception(ValueError("lost"))
        assert await asyncio.create_task(_all_of(begun)) == "lost"

    asyncio.run(main())


def test_a_cancelled_task_cancels_what_it_goes_on_with() -> None:
    async def main() -> None:
        seen: list[str] = []

        async def forever() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                seen.append("cleaned up")

        task = asyncio.create_task(_all_of(Begun(forever())))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["cleaned up"]

    asyncio.run(main())


async def _all_of(begun: Begun[T]) -> T:
    return await begun
