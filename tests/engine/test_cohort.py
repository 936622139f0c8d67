"""Claims that come together share the head of the queue: nobody drains it alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.engine import limits
from esker.engine.commands import Append, CreateTopic, Lease, LeaseCohort, NewRecord, PauseTopic
from esker.engine.config import Pause, TopicConfig, TopicType
from esker.engine.ids import place
from esker.engine.queues.cohort import share_evenly
from esker.engine.replies import CohortLeased
from esker.errors import Code
from tests.engine.audit import audit
from tests.engine.dump import dump
from tests.engine.rig import Q, Rig, expect


def dealt(wanted: list[int], available: int) -> list[int]:
    """Card by card."""
    shares = [0] * len(wanted)
    while available and any(share < most for share, most in zip(shares, wanted, strict=True)):
        for seat, most in enumerate(wanted):
            if available and shares[seat] < most:
                shares[seat] += 1
                available -= 1
    return shares


@given(wanted=st.lists(st.integers(0, 20), max_size=12), available=st.integers(0, 200))
def test_shares_are_what_dealing_one_by_one_gives(wanted: list[int], available: int) -> None:
    assert share_evenly(wanted, available) == dealt(wanted, available)


def test_ten_workers_who_want_ten_of_fifty_get_five_each() -> None:
    assert share_evenly([10] * 10, 50) == [5] * 10


def test_what_a_modest_worker_leaves_goes_to_the_others() -> None:
    assert share_evenly([1, 10, 10], 11) == [1, 5, 5]
    assert share_evenly([5, 5], 0) == [0, 0]
    assert share_evenly([], 7) == []


def rig_with(jobs: int, config: TopicConfig | None = None) -> Rig:
    rig = Rig(config or TopicConfig())
    if jobs:
        rig.do(Append(Q, [NewRecord(b"%d" % number) for number in range(1, jobs + 1)]))
    return rig


def serve(rig: Rig, *wanted: int) -> list[list[int]]:
    claims = [Lease(Q, count, 1000 + seat, b"w%d" % seat) for seat, count in enumerate(wanted)]
    shares = expect(CohortLeased, rig.do(LeaseCohort(Q, claims))).shares
    audit(rig.machine)
    assert dump(rig.replayed()) == dump(rig.machine)
    return [[place(delivery.id).seq for delivery in share.deliveries] for share in shares]


def test_every_claim_gets_its_part_of_the_head() -> None:
    rig = rig_with(7)
    assert serve(rig, 3, 2, 3) == [[1, 4, 7], [2, 5], [3, 6]]


def test_each_has_its_own_lease_and_name() -> None:
    rig = rig_with(2)
    serve(rig, 1, 1)
    holders = rig.machine.names[Q].partitions[0].holders
    assert holders == {1: b"w0", 2: b"w1"}
    jobs = rig.machine.names[Q].partitions[0].jobs
    assert [jobs[seq].due_ms - rig.now for seq in (1, 2)] == [1000, 1001]


def test_a_cohort_tells_what_is_left() -> None:
    rig = rig_with(5)
    shares = expect(CohortLeased, rig.do(LeaseCohort(Q, [Lease(Q), Lease(Q)]))).shares
    assert [share.ready for share in shares] == [3, 3]


@given(wanted=st.lists(st.integers(0, 6), max_size=5), jobs=st.integers(0, 12))
def test_a_cohort_shares_evenly(wanted: list[int], jobs: int) -> None:
    assert [len(share) for share in serve(rig_with(jobs), *wanted)] == share_evenly(wanted, jobs)


def test_a_cohort_stays_within_what_may_be_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    assert serve(rig_with(9, TopicConfig(max_in_flight=4)), 3, 3, 3) == [[1, 4], [2], [3]]
    monkeypatch.setattr(limits, "LEASE_JOBS_MAX", 2)
    assert serve(rig_with(9), 3, 3, 3) == [[1], [2], []]


def test_jobs_that_failed_too_often_are_buried_on_the_way_and_the_rest_is_shared() -> None:
    rig = rig_with(4, TopicConfig(max_deliveries=1, dead_letter=b"grave"))
    rig.nack(*rig.lease(2), delay_ms=0)
    assert serve(rig, 2, 2) == [[3], [4]]
    assert rig.stats().dead_lettered == 2


def test_a_cohort_is_refused_where_a_claim_would_be() -> None:
    rig = rig_with(2)
    rig.do(CreateTopic(b"log", TopicConfig(type=TopicType.LOG)))
    assert rig.code(LeaseCohort(b"log", [Lease(b"log")])) == Code.NOT_A_QUEUE
    assert rig.code(LeaseCohort(b"nowhere", [])) == Code.TOPIC_NOT_FOUND
    rig.do(PauseTopic(Q, Pause.OUT))
    assert serve(rig, 1, 1) == [[], []]
