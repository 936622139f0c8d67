"""The shard's time never goes back and never leaps, whatever is done to the wall clock."""

from __future__ import annotations

import pytest
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


# -- a wall clock that is not believed

DAY_S, YEAR_S = 86_400, 365 * 86_400
LAST_MS = 1_700_000_000_000  # what the shard saw last; the sky's wall clock begins there


@pytest.mark.parametrize("expected_ms", [None, LAST_MS + 3_600_000])
def test_a_start_far_ahead_goes_on_from_what_is_known_until_it_is_confirmed(expected_ms: int | None) -> None:
    sky = Sky()
    sky.wall += YEAR_S
    clock = Clock(LAST_MS, lambda: sky.wall, lambda: sky.monotonic, expected_ms=expected_ms)
    known = expected_ms or LAST_MS
    assert (clock.now_ms(), clock.held) == (known, True)
    sky.pass_s(100)
    assert clock.now_ms() == known + 100_000, "time passes as it does, and leans nowhere"
    clock.trust(0)
    assert (clock.now_ms(), clock.held) == (int(sky.wall * 1000), False)


def test_a_start_after_a_stop_of_a_night_believes_the_wall() -> None:
    sky = Sky()
    sky.wall += 12 * 3600
    clock = sky.clock(LAST_MS)
    assert (clock.now_ms(), clock.held) == (int(sky.wall * 1000), False)


def test_a_start_on_a_machine_that_knows_better_does_not_leap_at_all() -> None:
    sky = Sky()
    sky.wall += 12 * 3600
    clock = Clock(LAST_MS, lambda: sky.wall, lambda: sky.monotonic, expected_ms=LAST_MS + 60_000)
    assert (clock.now_ms(), clock.held) == (LAST_MS + 60_000, False)
    sky.pass_s(10)
    assert clock.now_ms() == LAST_MS + 71_000


@pytest.mark.parametrize("leap_s", [YEAR_S, -YEAR_S])
def test_a_long_leap_while_running_is_not_leant_towards_and_ends_when_it_is_undone(leap_s: int) -> None:
    sky = Sky()
    clock = sky.clock()
    before = clock.now_ms()
    sky.wall += leap_s
    sky.pass_s(100)
    assert (clock.now_ms(), clock.held) == (before + 100_000, True)
    sky.wall -= leap_s
    sky.pass_s(1)
    assert (clock.now_ms(), clock.held) == (before + 101_000, False)


def test_a_leap_back_that_is_confirmed_slows_time_and_never_turns_it() -> None:
    sky = Sky()
    clock = sky.clock()
    before = clock.now_ms()
    sky.wall -= 2 * DAY_S
    clock.trust(3 * DAY_S * 1000)
    assert (clock.now_ms(), clock.held) == (before, False)
    sky.pass_s(10)
    assert clock.now_ms() == before + 9000


def test_a_new_directory_has_no_time_of_its_own() -> None:
    sky = Sky()
    sky.wall += YEAR_S
    assert sky.clock().now_ms() == int(sky.wall * 1000)
