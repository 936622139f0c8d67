"""Who watches topics is told of every change, the urgent first, and nobody waits for ever."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from esker.engine.config import TopicConfig
from esker.engine.priority import delivery_priority
from esker.node.watching import WatchRoom

A, B, C = b"a", b"b", b"c"


def flat(name: bytes, since_ms: int) -> int:
    return 0


def drain(room: WatchRoom, now_ms: int = 0) -> None:
    while room.serve(now_ms, flat):
        pass


def test_a_watcher_is_woken_once_for_changes_of_several_topics() -> None:
    room = WatchRoom(set())
    woken: list[str] = []
    room.enter([A, B], lambda: woken.append("both"))
    room.enter([B], lambda: woken.append("b"))
    assert room.changed([A, B, C], 0)
    drain(room)
    assert Counter(woken) == {"both": 1, "b": 1}


def test_a_change_after_the_wake_wakes_again() -> None:
    room = WatchRoom(set())
    woken: list[int] = []
    room.enter([A], lambda: woken.append(1))
    for _ in range(3):
        room.changed([A], 0)
        drain(room)
    assert len(woken) == 3


def test_a_change_made_while_waking_wakes_again() -> None:
    room = WatchRoom(set())
    woken: list[int] = []

    def wake() -> None:
        woken.append(1)
        if len(woken) == 1:
            room.changed([A], 0)

    room.enter([A], wake)
    room.changed([A], 0)
    drain(room)
    assert len(woken) == 2


def test_nobody_is_woken_for_what_happened_before_they_came() -> None:
    room = WatchRoom(set())
    woken: list[str] = []
    room.enter([A], lambda: woken.append("early"))
    room.changed([A], 0)
    room.enter([A], lambda: woken.append("late"))
    drain(room)
    assert woken == ["early"]


def test_a_cancelled_watcher_is_not_woken_even_by_the_step_under_way() -> None:
    room = WatchRoom(set())
    woken: list[str] = []
    second = room.enter([A], lambda: None)
    second.cancel()

    def wake() -> None:
        woken.append("first")
        third.cancel()

    first = room.enter([A], wake)
    third = room.enter([A], lambda: woken.append("third"))
    room.changed([A], 0)
    drain(room)
    assert woken == ["first"]
    first.cancel()
    third.cancel()
    assert not room.due


def test_the_engine_knows_exactly_what_is_watched() -> None:
    watched: set[bytes] = set()
    room = WatchRoom(watched)
    one = room.enter([A, B, A], lambda: None)
    two = room.enter([B], lambda: None)
    assert watched == {A, B}
    one.cancel()
    assert watched == {B}
    two.cancel()
    two.cancel()
    assert watched == set()


def test_a_revision_changes_at_once_and_only_with_its_topic() -> None:
    room = WatchRoom(set())
    room.enter([A, B], lambda: None)
    before = room.revision(A), room.revision(B)
    room.changed([A], 0)
    assert room.revision(A) != before[0]
    assert room.revision(B) == before[1]


def test_a_step_wakes_a_bounded_number() -> None:
    room = WatchRoom(set())
    woken: list[int] = []
    for number in range(1000):
        room.enter([A], lambda number=number: woken.append(number))  # type: ignore[misc]
    room.changed([A], 0)
    assert room.serve(0, flat, limit=100)
    assert len(woken) == 100
    drain(room)
    assert sorted(woken) == list(range(1000))


def test_whoever_was_left_out_comes_first_when_the_topic_changes_again() -> None:
    room = WatchRoom(set())
    woken: Counter[int] = Counter()
    for number in range(300):
        room.enter([A], lambda number=number: woken.update([number]))  # type: ignore[misc]
    for _ in range(30):
        room.changed([A], 0)
        room.serve(0, flat, limit=100)
    assert set(woken) == set(range(300))
    assert max(woken.values()) - min(woken.values()) <= 1


def test_the_more_urgent_topic_is_served_first() -> None:
    room = WatchRoom(set())
    woken: list[bytes] = []
    rank = {A: -5, B: 900, C: 20}
    for name in (A, B, C):
        room.enter([name], lambda name=name: woken.append(name))  # type: ignore[misc]
    room.changed([A, B, C], 0)
    room.serve(0, lambda name, since_ms: rank[name])
    assert woken == [B, C, A]


def test_waiting_makes_a_topic_more_urgent() -> None:
    """+100 a second: a topic of priority 0 passes one of 500 that has just become due, after more than 5 s."""
    configs = {A: TopicConfig(priority=500), B: TopicConfig(priority=0)}

    def first_after(waited_ms: int) -> bytes:
        room = WatchRoom(set())
        woken: list[bytes] = []
        for name in configs:
            room.enter([name], lambda name=name: woken.append(name))  # type: ignore[misc]
        room.changed([B], 0)
        room.changed([A], waited_ms)
        room.serve(waited_ms, lambda name, since_ms: delivery_priority(configs[name], 0, since_ms, waited_ms), limit=1)
        return woken[0]

    assert first_after(4_900) == A
    assert first_after(5_100) == B


def test_the_lowest_priority_is_served_however_busy_the_highest_is() -> None:
    """A topic of priority 1000 with more watchers than a step can wake, changing all the time."""
    configs = {A: TopicConfig(priority=1000), B: TopicConfig(priority=-1000)}
    room = WatchRoom(set())
    woken: Counter[bytes] = Counter()
    for _ in range(5000):
        room.enter([A], lambda: woken.update([A]))
    room.enter([B], lambda: woken.update([B]))
    now_ms = 0

    def rank(name: bytes, since_ms: int) -> int:
        return delivery_priority(configs[name], 0, since_ms, now_ms)

    while now_ms < 1000:
        now_ms += 10
        room.changed([A, B], now_ms)
        room.serve(now_ms, rank, limit=100)
    assert woken[B] >= 30
    assert woken[A] >= 70 * 100


@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(1, 4)), max_size=60))
def test_in_the_end_everybody_was_woken_after_the_last_change(steps: list[tuple[bytes, int]]) -> None:
    room = WatchRoom(set())
    clock = 0
    seen: dict[int, int] = {}
    last = {A: -1, B: -1, C: -1}
    follows = [(A,), (B,), (A, B), (B, C), (A, B, C)]
    for number, names in enumerate(follows):
        room.enter(names, lambda number=number: seen.__setitem__(number, clock))  # type: ignore[misc]
    for name, limit in steps:
        clock += 1
        last[name] = clock
        room.changed([name], clock)
        room.serve(clock, flat, limit)
    clock += 1
    drain(room, clock)
    for number, names in enumerate(follows):
        assert seen.get(number, -1) >= max(last[name] for name in names)


def test_a_revision_told_before_is_not_told_again_after_nobody_watched() -> None:
    room = WatchRoom(set())
    first = room.enter([A], lambda: None)
    before = room.revision(A)
    first.cancel()
    room.enter([A], lambda: None)
    assert room.revision(A) != before
