"""The delay before a failed job is tried again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.engine.config import Backoff, TopicConfig
from esker.engine.queues.backoff import backoff_ms
from tests.engine.rig import Rig

policies = st.builds(
    lambda base, more, factor, jitter: Backoff(base_ms=base, cap_ms=base + more, factor=factor, jitter=jitter),
    st.integers(1, 10**6), st.integers(0, 10**9), st.floats(1, 100), st.floats(0, 1),
)  # fmt: skip
chances = st.floats(0, 1, exclude_max=True)


@given(policies, st.integers(1, 10**6), chances)
def test_a_delay_is_at_least_a_millisecond_and_at_most_the_cap(policy: Backoff, attempt: int, chance: float) -> None:
    assert 1 <= backoff_ms(policy, attempt, chance) <= policy.cap_ms


@given(policies, st.integers(1, 1000))
def test_without_jitter_delays_never_shrink_and_never_leap_past_the_factor(policy: Backoff, attempt: int) -> None:
    now, then = backoff_ms(policy, attempt, 0.0), backoff_ms(policy, attempt + 1, 0.0)
    assert now <= then <= now * policy.factor + policy.factor + 1


@given(policies, st.integers(1, 100), chances)
def test_jitter_only_shortens_and_by_its_share_at_most(policy: Backoff, attempt: int, chance: float) -> None:
    full = backoff_ms(policy, attempt, 0.0)
    drawn = backoff_ms(policy, attempt, chance)
    assert (1 - policy.jitter) * full - 1 <= drawn <= full


@pytest.mark.parametrize("factor", [1.0, 1.01, 2.0, 100.0])
def test_a_thousand_failures_overflow_nothing(factor: float) -> None:
    policy = Backoff(base_ms=1000, factor=factor, cap_ms=300_000, jitter=0)
    assert backoff_ms(policy, 1, 0) == 1000
    assert backoff_ms(policy, 1000, 0) == (1000 if factor == 1 else 300_000)


def test_a_slow_factor_does_not_leap_to_the_cap() -> None:
    policy = Backoff(base_ms=1000, factor=1.01, cap_ms=300_000, jitter=0)
    assert [backoff_ms(policy, attempt, 0) for attempt in (63, 64, 65)] == [1853, 1872, 1890]


def test_no_base_is_no_delay() -> None:
    assert backoff_ms(Backoff(), 7, 0.5) == 0


def test_nacks_and_expired_leases_back_off_by_the_number_of_deliveries() -> None:
    rig = Rig(TopicConfig(backoff=Backoff(base_ms=100, factor=2, cap_ms=350, jitter=0)))
    job_id = rig.add()
    for delay_ms in (100, 200, 350, 350):
        rig.nack(rig.lease_one())
        assert rig.show(job_id).due_ms == rig.now + delay_ms
        rig.pass_ms(delay_ms)
    rig.lease_one(lease_ms=10)
    rig.pass_ms(10)
    assert rig.show(job_id).due_ms == rig.now + 350


def test_a_nack_may_choose_its_own_delay() -> None:
    rig = Rig(TopicConfig(backoff=Backoff(base_ms=100, jitter=0)))
    job_id = rig.add()
    rig.nack(rig.lease_one(), delay_ms=0)
    rig.nack(rig.lease_one(), delay_ms=77)
    assert rig.show(job_id).due_ms == rig.now + 77
