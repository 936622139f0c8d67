"""When a write is waited for on the spot."""

from __future__ import annotations

from esker.journal.pace import CREDIT_S, QUICK_S, SLOWNESS, USUAL_S, Pace

RESTING_S = CREDIT_S + 100.0


def test_a_disk_is_quick_until_it_was_slow_and_again_after_a_pause_that_fits() -> None:
    pace = Pace()
    pace.wrote(1000.0, 1000.0 + QUICK_S / 2)
    assert pace.quick(1000.01)
    slow_s = 0.1
    pace.wrote(1001.0, 1001.0 + slow_s)
    pause_s = SLOWNESS * (slow_s - QUICK_S)
    assert not pace.quick(1001.0 - CREDIT_S + pause_s - 0.01)
    assert pace.quick(1001.0 - CREDIT_S + pause_s + 0.01)


def test_a_disk_that_is_slow_now_and_then_is_waited_for() -> None:
    """A write of 5 ms twice a second costs less than one percent of the time; the thread would cost every write."""
    lost_s, met = _minutes(slow_s=0.005, every=500, usual_s=0.0002)
    assert met > 0.99
    assert lost_s < 0.01


def test_a_disk_that_is_slow_each_time_is_hardly_ever_waited_for() -> None:
    for slow_s in (0.002, 0.01, 0.1):
        lost_s, met = _minutes(slow_s=slow_s, every=1, usual_s=slow_s)
        assert met < 0.01
        assert lost_s < 0.02


def test_an_outlier_is_not_what_is_usual() -> None:
    pace, now = Pace(), RESTING_S
    pace.wrote(now, now + 0.1)
    now += SLOWNESS * 0.1
    assert pace.quick(now)
    pace.wrote(now, now + USUAL_S / 2)
    assert pace.quick(now + USUAL_S)


def test_a_disk_that_has_become_quick_is_found_out() -> None:
    pace, now = Pace(), RESTING_S
    for _ in range(1000):
        pace.wrote(now, now + 0.02)
        now += 0.02
    while not pace.quick(now):
        now += 1.0
    for _ in range(200):  # quick from here on
        if pace.quick(now):
            pace.wrote(now, now + 0.0002)
        now += 0.01
    assert pace.quick(now)


def _minutes(*, slow_s: float, every: int, usual_s: float) -> tuple[float, float]:
    """A write each millisecond for two minutes, one in `every` a slow one: the part of the time that the caller lost to
    slow ones, and the part of all writes that were on the spot."""
    pace, began = Pace(), RESTING_S
    now, writes, met, lost = began, 0, 0, 0.0
    while now < began + 120.0:
        writes += 1
        took_s = slow_s if writes % every == 0 else usual_s
        if pace.quick(now):
            met += 1
            pace.wrote(now, now + took_s)
            now += took_s
            if took_s == slow_s:
                lost += took_s
        now += 0.001
    return lost / (now - began), met / writes
