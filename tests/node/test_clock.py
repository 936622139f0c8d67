"""The shard's time never goes back and never leaps, whatever is done to the wall clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from esker.node.clock import Clock


class Sky:
    """A wall clock and a monotonic one, in seconds, both set by hand."""

    def __init__(self) -> None:
        self.wall = 1_700_000_000.0
        self.monotonic = 50.0

    def clock(self, start_ms: int = 0) -> Clock:
        return Clock(start_ms, lambda: self.wall, lambda: self.monotonic)

    def pass_s(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


def test_it_tells_the_wall_time() -> None:
    sky = Sky()
    clock = sky.clock()
    assert clock.now_ms() == 1_700_000_000_000
    sky.pass_s(12.5)
    assert clock.now_ms() == 1_700_000_012_500


def test_it_starts_no_earlier_than_what_the_shard_has_seen_and_then_waits_for_the_wall() -> None:
    sky = Sky()
    seen = 1_700_000_001_000
    clock = sky.clock(seen)
    assert clock.now_ms() == seen
    sky.pass_s(5)
    assert clock.now_ms() == seen + 4500
    for _ in range(10):
        sky.pass_s(1)
        clock.now_ms()
    assert clock.now_ms() == int(sky.wall * 1000)


def test_a_leap_forward_of_the_wall_is_leant_towards_by_a_tenth() -> None:
    sky = Sky()
    clock = sky.clock()
    before = clock.now_ms()
    sky.wall += 3600
    sky.pass_s(10)
    assert clock.now_ms() == before + 11_000


def test_a_leap_back_of_the_wall_slows_time_and_does_not_stop_it() -> None:
    sky = Sky()
    clock = sky.clock()
    before = clock.now_ms()
    sky.wall -= 3600
    sky.pass_s(10)
    assert clock.now_ms() == before + 9000


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(-10_000, 10_000)), max_size=30))
def test_it_passes_at_nine_to_eleven_tenths_of_true_time(steps: list[tuple[float, float]]) -> None:
    sky = Sky()
    clock = sky.clock()
    last, passed = clock.now_ms(), 0.0
    first = last
    for seconds, leap in steps:
        sky.pass_s(seconds)
        sky.wall += leap
        passed += seconds * 1000
        now = clock.now_ms()
        assert now >= last
        assert 0.9 * passed - 2 <= now - first <= 1.1 * passed + 2
        last = now


def test_asking_often_makes_it_neither_slow_nor_fast() -> None:
    sky = Sky()
    clock = sky.clock()
    first = clock.now_ms()
    for _ in range(20_000):
        sky.pass_s(0.00005)
        clock.now_ms()
    assert abs(clock.now_ms() - first - 1000) <= 1
