"""What all clients together may leave unread, send without ending, and have made in one turn."""

from __future__ import annotations

import asyncio

from esker.fronts.http.arrivals import Arrivals
from esker.fronts.http.turns import Turns
from esker.fronts.http.unsent import Unsent


class Debtor:
    def __init__(self, moved_at: float) -> None:
        self.moved_at = moved_at
        self.was_cut = False

    def cut(self) -> None:
        self.was_cut = True


def test_whoever_took_something_last_is_cut_last() -> None:
    async def check() -> None:
        loop = asyncio.get_running_loop()
        unsent = Unsent(100, loop)
        now = loop.time()
        slow, slower, quick = Debtor(now - 10), Debtor(now - 20), Debtor(now)
        for debtor in (slow, slower, quick):
            unsent.owe(debtor, 50)
        assert [each.was_cut for each in (slow, slower, quick)] == [False, True, False]
        unsent.owe(quick, 1000)
        assert slow.was_cut
        assert not quick.was_cut, "it gets on"
        assert unsent.is_full()
        unsent.settle(quick)
        unsent.settle(slow)
        assert (unsent.used, unsent.is_full()) == (0, False)

    asyncio.run(check())


def test_what_waits_is_counted_once() -> None:
    async def check() -> None:
        unsent = Unsent(0, asyncio.get_running_loop())
        debtor = Debtor(0.0)
        unsent.hold(7)
        unsent.owe(debtor, 50)
        unsent.owe(debtor, 30)
        assert unsent.used == 37
        unsent.let_go(7)
        unsent.settle(debtor)
        unsent.settle(debtor)
        assert unsent.used == 0

    asyncio.run(check())


class _Clock(asyncio.SelectorEventLoop):
    """A loop of which only the time is used, and it passes when the test says so."""

    now = 0.0

    def time(self) -> float:
        return self.now


def test_the_body_that_brings_least_makes_room() -> None:
    clock = _Clock()
    clock.close()
    arrivals = Arrivals(100, clock)
    cut: list[str] = []
    first, second = arrivals.begin(lambda: cut.append("first")), arrivals.begin(lambda: cut.append("second"))
    assert first.add(20)
    clock.now = 3.0
    assert second.add(70)
    assert second.add(20), "the first is cut for it"
    assert cut == ["first"]
    assert not second.add(20), "one alone may not have more than all"
    assert arrivals.used == 0


def test_bodies_that_have_just_begun_are_not_cut_for_each_other() -> None:
    async def check() -> None:
        arrivals = Arrivals(100, asyncio.get_running_loop())
        cut: list[str] = []
        first, second = arrivals.begin(lambda: cut.append("first")), arrivals.begin(lambda: cut.append("second"))
        assert first.add(90)
        assert not second.add(20)
        assert first.add(10)
        assert cut == []

    asyncio.run(check())


def test_large_answers_are_made_one_a_turn_and_only_while_there_is_room() -> None:
    async def check() -> None:
        loop = asyncio.get_running_loop()
        unsent = Unsent(100, loop)
        turns = Turns(unsent, loop)
        made: list[int] = []
        turn = 0

        async def answer() -> None:
            await turns.take()
            made.append(turn)

        tasks = [asyncio.create_task(answer()) for _ in range(3)]
        tasks[1].cancel()
        while len(made) < 2:
            await asyncio.sleep(0)
            turn += 1
        assert made[0] != made[1]
        unsent.hold(101)
        last = asyncio.create_task(answer())
        for _ in range(50):
            await asyncio.sleep(0)
        assert not last.done()
        unsent.let_go(101)
        await last

    asyncio.run(check())
