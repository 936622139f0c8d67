"""Deadlines against a plain dict: nothing early, nothing more than a bucket late, nothing lost, garbage bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.engine.queues.deadlines import Deadlines

steps = st.lists(
    st.tuples(st.sampled_from(["set", "clear", "take", "set"]), st.integers(1, 8), st.integers(0, 40)), max_size=120
)


@given(steps, st.sampled_from([0, 3]))
def test_every_deadline_is_reported_in_its_time(steps: list[tuple[str, int, int]], shift: int) -> None:
    truth: dict[int, int] = {}
    deadlines = Deadlines(
        shift, lambda seqs: [truth.get(seq, 0) for seq in seqs], lambda seqs: truth.keys().isdisjoint(seqs)
    )
    now = 1000
    for what, seq, number in steps:
        if what == "take":
            now += number
            limit = 1 + number % 5
            while (due := deadlines.next_ms()) is not None and due <= now:
                taken = deadlines.take(now, limit)
                assert 0 < len(taken) <= limit
                for each in taken:
                    if 0 < truth.get(each, 0) <= now:
                        deadlines.cancel(truth.pop(each))
            late = [when for when in truth.values() if when + (1 << shift) <= now]
            assert not late, "a deadline was slept through"
        else:
            old = truth.pop(seq, 0)
            if what == "set":
                truth[seq] = now + 1 + number
                reported = deadlines.add(truth[seq], seq)
                assert truth[seq] <= reported < truth[seq] + (1 << shift)
            if old:
                deadlines.cancel(old)
        if truth:
            first = deadlines.next_ms()
            assert first is not None
            assert first <= min(truth.values()) + (1 << shift) - 1
        assert len(deadlines) <= 2 * len(truth) + 1, "more than half is garbage"


def test_a_deadline_is_never_reported_early() -> None:
    deadlines = Deadlines(10, lambda seqs: [5000 for _ in seqs], lambda seqs: False)
    deadlines.add(5000, 1)
    assert deadlines.take(5119, 10) == []
    assert deadlines.take(5120, 10) == [1]


def test_a_cancelled_deadline_is_not_searched_for_and_yet_goes() -> None:
    truth = dict.fromkeys(range(1, 1001), 50)
    deadlines = Deadlines(
        0, lambda seqs: [truth.get(seq, 0) for seq in seqs], lambda seqs: truth.keys().isdisjoint(seqs)
    )
    deadlines.add_all(50, list(truth))
    for seq in range(1, 1001):
        del truth[seq]
        deadlines.cancel(50)
        assert len(deadlines) <= 2 * len(truth) + 1
    assert deadlines.next_ms() is None


def test_jobs_that_leave_and_come_back_in_one_millisecond_do_not_pile_up() -> None:
    truth = dict.fromkeys(range(1, 101), 50)
    deadlines = Deadlines(
        0, lambda seqs: [truth.get(seq, 0) for seq in seqs], lambda seqs: truth.keys().isdisjoint(seqs)
    )
    deadlines.add_all(50, list(truth))
    for turn in range(20_000):
        seq = turn % 100 + 1
        truth[seq] = 0
        deadlines.cancel(50)
        truth[seq] = 50
        deadlines.add(50, seq)
    assert len(deadlines) <= 400


def test_buckets_that_came_and_went_are_forgotten() -> None:
    truth: dict[int, int] = {}
    deadlines = Deadlines(
        0, lambda seqs: [truth.get(seq, 0) for seq in seqs], lambda seqs: truth.keys().isdisjoint(seqs)
    )
    for turn in range(1, 20_001):
        truth[1] = 10**6 + turn
        deadlines.add(truth[1], 1)
        del truth[1]
        deadlines.cancel(10**6 + turn)
    assert len(deadlines) == 0
    assert len(deadlines._order) <= 1024 + 1


@pytest.mark.parametrize("limit", [1, 3, 10, 100])
def test_a_full_bucket_is_taken_in_bounded_steps(limit: int) -> None:
    deadlines = Deadlines(0, lambda seqs: [5 for _ in seqs], lambda seqs: False)
    deadlines.add_all(5, range(1, 26))
    taken: list[int] = []
    while step := deadlines.take(5, limit):
        assert len(step) <= limit
        taken += step
    assert sorted(taken) == list(range(1, 26))
    assert deadlines.take(10, 0) == []
