"""Who waits for jobs: first come, first served, and nobody is served twice or remembered for ever."""

from __future__ import annotations

from esker.engine.replies import Leased
from esker.node.waiting import Waiter, WaitingRoom

JOB = Leased(())


def waiter(room: WaitingRoom, served: list[tuple[str, Leased | None]], name: str, *topics: bytes) -> Waiter:
    one = Waiter(topics, lambda jobs: served.append((name, jobs)))
    room.enter(one)
    return one


def test_who_waits_longest_is_first_in_each_queue() -> None:
    room = WaitingRoom()
    served: list[tuple[str, Leased | None]] = []
    first = waiter(room, served, "first", b"a", b"b")
    second = waiter(room, served, "second", b"b", b"a")
    assert room.first(b"a") is room.first(b"b") is first
    first.serve(JOB)
    assert room.first(b"a") is room.first(b"b") is second
    second.serve(JOB)
    assert room.first(b"a") is None
    assert served == [("first", JOB), ("second", JOB)]


def test_a_waiter_is_served_once() -> None:
    room = WaitingRoom()
    served: list[tuple[str, Leased | None]] = []
    one = waiter(room, served, "one", b"a")
    one.serve(None)
    one.serve(JOB)
    one.cancel()
    assert served == [("one", None)]


def test_a_cancelled_waiter_is_not_served() -> None:
    room = WaitingRoom()
    served: list[tuple[str, Leased | None]] = []
    one = waiter(room, served, "one", b"a", b"b")
    one.cancel()
    one.serve(JOB)
    assert served == []
    assert room.first(b"a") is None
    assert not room


def test_the_room_knows_who_is_waited_for() -> None:
    room = WaitingRoom()
    served: list[tuple[str, Leased | None]] = []
    one = waiter(room, served, "one", b"a", b"b", b"a")
    two = waiter(room, served, "two", b"b")
    assert (room.count(b"a"), room.count(b"b"), room.count(b"c")) == (1, 2, 0)
    assert (b"a" in room, b"c" in room, bool(room)) == (True, False, True)
    assert set(room.all()) == {one, two}
    one.cancel()
    assert (b"a" in room, room.count(b"b"), list(room.all())) == (False, 1, [two])
    two.serve(None)
    assert not room


def test_those_who_left_cost_no_memory_in_the_end() -> None:
    room = WaitingRoom()
    served: list[tuple[str, Leased | None]] = []
    stays = waiter(room, served, "stays", b"busy", b"quiet")
    for _ in range(5000):
        waiter(room, served, "leaves", b"busy", b"quiet").cancel()
    assert len(room._queues[b"quiet"]) <= 20
    assert room.first(b"busy") is stays
    stays.cancel()
    assert room._queues == {}


def test_serving_one_lets_the_next_enter_from_within() -> None:
    room = WaitingRoom()
    served: list[tuple[str, Leased | None]] = []

    def again(jobs: Leased | None) -> None:
        waiter(room, served, "again", b"a")

    room.enter(Waiter([b"a"], again))
    first = room.first(b"a")
    assert first is not None
    first.serve(JOB)
    second = room.first(b"a")
    assert second is not None
    second.serve(JOB)
    assert served == [("again", JOB)]
