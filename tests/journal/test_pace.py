"""When a sync is waited for on the spot."""

from __future__ import annotations

from esker.journal.pace import PAUSE_S_MAX, PAUSE_S_MIN, QUICK_S, Pace


def test_a_disk_is_quick_until_it_was_slow() -> None:
    pace = Pace()
    pace.synced(1.0, 1.0 + QUICK_S / 2)
    assert pace.quick(1.01)
    pace.synced(2.0, 2.5)
    assert not pace.quick(2.5)
    assert not pace.quick(2.49 + PAUSE_S_MIN)
    assert pace.quick(2.5 + PAUSE_S_MIN)


def test_a_disk_that_is_slow_now_and_then_is_seldom_waited_for() -> None:
    """One sync of 20 ms in each second, for ten minutes: a handful of them are met on the spot."""
    pace = Pace()
    met = 0
    for second in range(1, 601):
        met += pace.quick(float(second))
        pace.synced(float(second), second + 0.02)
    assert met <= 3


def test_the_pause_has_a_bound_and_is_forgotten() -> None:
    pace, now = Pace(), 1.0
    for _ in range(20):
        pace.synced(now, now + 0.1)
        now += 0.1
        while not pace.quick(now):
            now += 0.01
    pace.synced(now, now + 0.1)
    assert not pace.quick(now + 0.1 + PAUSE_S_MAX - 0.01)
    assert pace.quick(now + 0.1 + PAUSE_S_MAX)
    later = now + 0.1 + PAUSE_S_MAX + PAUSE_S_MAX + 1.0  # as long again, and nothing was slow
    pace.synced(later, later + 0.1)
    assert pace.quick(later + 0.1 + PAUSE_S_MIN)


def test_slow_syncs_within_a_pause_make_it_last_but_no_longer_than_it_is() -> None:
    pace = Pace()
    for tenth in range(50):
        pace.synced(1.0 + tenth / 10, 1.05 + tenth / 10)
    assert pace.quick(1.0 + 49 / 10 + 0.05 + PAUSE_S_MIN)
