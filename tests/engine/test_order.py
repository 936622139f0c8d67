"""Order in a queue: priority by mode, then seq; and what comes back keeps its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.engine import limits
from esker.engine.commands import ConfigureTopic, Details, Nack, Peek, Release, Reprioritise, Requeue, Withdraw
from esker.engine.config import Mode, TopicConfig
from esker.engine.ids import place
from esker.engine.placement import partition_of
from esker.engine.replies import Jobs
from tests.engine.audit import audit
from tests.engine.rig import Q, Rig, expect

PRIORITIES = [3, limits.PRIORITY_MAX, 0, -7, limits.PRIORITY_MIN, 3, 0]


@pytest.mark.parametrize(
    ("mode", "order"),
    [
        (Mode.MIN, [4, 3, 2, 6, 0, 5, 1]),
        (Mode.MAX, [1, 0, 5, 2, 6, 3, 4]),
        (Mode.FIFO, [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_the_mode_decides_the_order_and_equals_go_by_seq(mode: Mode, order: list[int]) -> None:
    rig = Rig(TopicConfig(mode=mode))
    for number, priority in enumerate(PRIORITIES):
        rig.add(b"%d" % number, priority)
    assert rig.drain() == [b"%d" % number for number in order]


@given(st.lists(st.integers(limits.PRIORITY_MIN, limits.PRIORITY_MAX), max_size=40), st.sampled_from(Mode))
def test_any_priorities_are_served_in_order(priorities: list[int], mode: Mode) -> None:
    rig = Rig(TopicConfig(mode=mode))
    for priority in priorities:
        rig.add(b"%d" % priority, priority)
    sign = {Mode.MIN: 1, Mode.MAX: -1, Mode.FIFO: 0}[mode]
    assert rig.drain() == [b"%d" % priority for priority in sorted(priorities, key=lambda each: sign * each)]


def come_back_by_nack(rig: Rig) -> None:
    rig.nack(rig.lease_one(), delay_ms=0)


def come_back_by_delayed_nack(rig: Rig) -> None:
    rig.nack(rig.lease_one(), delay_ms=100)
    rig.pass_ms(100)


def come_back_by_expiry(rig: Rig) -> None:
    rig.lease_one(lease_ms=50)
    rig.pass_ms(50)


def come_back_by_release(rig: Rig) -> None:
    rig.lease_one(holder=b"w")
    rig.do(Release(b"w"))


def come_back_by_requeue(rig: Rig) -> None:
    rig.do(Requeue([rig.lease_one().id]))


def come_back_by_withdrawal(rig: Rig) -> None:
    (first,) = expect(Jobs, rig.do(Peek(Q))).jobs
    rig.do(Withdraw([first.id]))
    rig.pass_ms(first.retry_ms)


@pytest.mark.parametrize(
    "come_back",
    [
        come_back_by_nack, come_back_by_delayed_nack, come_back_by_expiry, come_back_by_release, come_back_by_requeue,
        come_back_by_withdrawal,
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", list(Mode))
def test_a_job_that_comes_back_is_served_before_its_equals(mode: Mode, come_back: object) -> None:
    rig = Rig(TopicConfig(mode=mode))
    first, *_ = rig.add_many(b"1", b"2", b"3")
    assert callable(come_back)
    come_back(rig)
    again = rig.lease_one()
    assert (again.id, again.payload, again.priority) == (first, b"1", 0)
    assert rig.drain() == [b"2", b"3"]
    audit(rig.machine)


def test_a_better_priority_still_goes_before_a_job_that_came_back() -> None:
    rig = Rig(TopicConfig())
    rig.add(b"old", 5)
    rig.nack(rig.lease_one(), delay_ms=0)
    rig.add(b"urgent", 4)
    assert rig.drain() == [b"urgent", b"old"]


def test_a_new_priority_moves_a_waiting_job_and_keeps_its_seq() -> None:
    rig = Rig(TopicConfig())
    ids = rig.add_many(b"1", b"2", b"3")
    rig.do(Reprioritise([ids[2]], -1))
    rig.do(Reprioritise([ids[1]], 1))
    rig.do(Reprioritise([ids[1]], 0))
    assert rig.drain() == [b"3", b"1", b"2"]


def test_a_new_priority_of_a_leased_job_counts_when_it_comes_back() -> None:
    rig = Rig(TopicConfig())
    rig.add_many(b"1", b"2")
    leased = rig.lease_one()
    rig.do(Reprioritise([leased.id], 9))
    rig.do(Nack([leased.id], delay_ms=0))
    assert rig.drain() == [b"2", b"1"]


def test_a_new_mode_reorders_what_waits() -> None:
    rig = Rig(TopicConfig())
    for priority in (1, 3, 2):
        rig.add(b"%d" % priority, priority)
    rig.do(ConfigureTopic(Q, TopicConfig(mode=Mode.MAX)))
    audit(rig.machine)
    assert rig.drain() == [b"3", b"2", b"1"]


def test_peek_shows_the_order_of_delivery_and_touches_nothing() -> None:
    rig = Rig(TopicConfig(mode=Mode.MAX))
    for number, priority in enumerate(PRIORITIES):
        rig.add(b"%d" % number, priority)
    rig.add(b"later", 99, details=Details(delay_ms=1000))
    for count in (0, 1, 4, 7, 100, -1):
        seen = [job.payload for job in expect(Jobs, rig.do(Peek(Q, count))).jobs]
        assert seen == [b"1", b"0", b"5", b"2", b"6", b"3", b"4"][: max(0, count)]
    assert rig.last == []
    assert rig.drain() == [b"1", b"0", b"5", b"2", b"6", b"3", b"4"]


def test_peek_from_the_end_shows_the_latest_arrivals_first() -> None:
    rig = Rig(TopicConfig())
    for number in range(5):
        rig.add(b"%d" % number, -number)
        rig.now += 1
    assert [job.payload for job in expect(Jobs, rig.do(Peek(Q, 3, newest=True))).jobs] == [b"4", b"3", b"2"]
    assert expect(Jobs, rig.do(Peek(b"nowhere"))).jobs == ()


# -- several partitions


@pytest.mark.parametrize("mode", list(Mode))
def test_equal_jobs_of_several_partitions_leave_as_they_came(mode: Mode) -> None:
    rig = Rig(TopicConfig(partitions=4, mode=mode))
    bodies = [b"%d" % number for number in range(11)]
    rig.add_many(*bodies[:6])  # of one millisecond
    for body in bodies[6:]:
        rig.now += 1
        rig.add(body)
    peeked = expect(Jobs, rig.do(Peek(Q, 20))).jobs
    assert [job.payload for job in peeked] == bodies
    newest = expect(Jobs, rig.do(Peek(Q, 20, newest=True))).jobs
    assert [job.payload for job in newest] == bodies[::-1]
    assert [job.payload for job in rig.lease(5)] == bodies[:5]
    assert rig.drain() == bodies[5:]


def test_time_goes_before_the_seqs_of_different_partitions() -> None:
    """A partition that holds many keys counts further than one that holds few."""
    rig = Rig(TopicConfig(partitions=2))
    crowded = rig.add(b"first", partition_key=b"a")
    keys = [b"k%d" % number for number in range(20)]
    other = next(key for key in keys if partition_of(key, 2) != place(crowded).partition)
    for number in range(3):
        rig.now += 1
        rig.add(b"crowded %d" % number, partition_key=b"a")
    rig.now += 1
    rig.add(b"last", partition_key=other)
    assert rig.drain() == [b"first", b"crowded 0", b"crowded 1", b"crowded 2", b"last"]


def test_priority_goes_before_time_in_several_partitions() -> None:
    rig = Rig(TopicConfig(partitions=3))
    for number, priority in enumerate(PRIORITIES):
        rig.now += 1
        rig.add(b"%d" % number, priority)
    assert rig.drain() == [b"%d" % number for number in [4, 3, 2, 6, 0, 5, 1]]
