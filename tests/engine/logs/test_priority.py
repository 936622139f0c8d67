"""Who is delivered to first."""

from __future__ import annotations

import pytest

from esker.engine.priority import delivery_priority, effective_priority, recency
from tests.engine.logs.rig import log_config

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("seconds", "worth"), [(0, 500), (15, 354), (30, 250), (60, 125), (120, 31), (270, 1), (300, 0), (10**9, 0)]
)
def test_being_consumed_halves_in_worth_every_30_seconds(seconds: int, worth: int) -> None:
    assert recency(seconds * 1000) == worth


def test_recency_never_rises_and_is_never_far_from_the_formula() -> None:
    worths = [recency(ms) for ms in range(0, 310_000, 137)]
    assert worths == sorted(worths, reverse=True)
    assert all(abs(recency(ms) - 500 * 2 ** (-ms / 30_000)) < 6.5 for ms in range(0, 300_000, 137))


def test_an_operators_value_comes_instead_and_is_clamped() -> None:
    assert effective_priority(log_config(priority=7), NOW, NOW) == 7
    assert effective_priority(log_config(priority=5000), 0, NOW) == 1000
    assert effective_priority(log_config(priority=-5000), NOW, NOW) == -1000
    assert effective_priority(log_config(), NOW, NOW) == 500
    assert effective_priority(log_config(), 0, NOW) == 0
    assert effective_priority(log_config(auto_priority=False), NOW, NOW) == 0


def test_whoever_waits_climbs_past_everyone_but_not_for_ever() -> None:
    waited = [delivery_priority(log_config(), 0, NOW - ms, NOW) for ms in (0, 1000, 5000, 10_000, 60_000)]
    assert waited == [0, 100, 500, 1000, 1000]
