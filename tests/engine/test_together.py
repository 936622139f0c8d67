"""Jobs that are leased or acked by one command fare as if each had had a command of its own."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from esker.engine.commands import Ack, AckHeld, Delete, Details, Lease, LeaseCohort, Reprioritise
from esker.engine.config import Mode, TopicConfig
from esker.engine.ids import place
from esker.engine.replies import CohortLeased, Delivery, Done, SeqsDone
from tests.engine.audit import audit
from tests.engine.dump import dump
from tests.engine.rig import Q, Rig, expect


class _Job(NamedTuple):
    priority: int
    retry_ms: int
    ttl_ms: int
    tries_max: int | None  # of its own
    tried: int  # how often it was leased and given back before
    moved: bool  # to another priority and back, which leaves its key in the heap twice


jobs = st.lists(
    st.builds(
        _Job, st.integers(-2, 2), st.sampled_from([0, 1000, 1000, 1000, 5000]), st.sampled_from([0, 0, 50, 100_000]),
        st.sampled_from([None, None, 1, 3]), st.integers(0, 2), st.booleans(),
    ),
    max_size=12,
)  # fmt: skip


def _rig(mode: Mode, buried: bool, wanted: list[_Job]) -> Rig:
    rig = Rig(TopicConfig(mode=mode, max_deliveries=2, dead_letter=b"dead" if buried else None))
    for job in wanted:
        details = None if job.tries_max is None else Details(max_deliveries=job.tries_max)
        job_id = rig.add(priority=9, retry_ms=job.retry_ms, ttl_ms=job.ttl_ms, details=details)
        for _ in range(job.tried if job.retry_ms else 0):
            if found := rig.lease(1):
                rig.nack(*found, delay_ms=0)
        for priority in (job.priority, 9, job.priority) if job.moved else (job.priority,):
            rig.do(Reprioritise([job_id], priority))
    rig.now += 60  # some have expired, and the clock has not seen to it
    return rig


@given(jobs, st.sampled_from(Mode), st.booleans(), st.sampled_from([None, 700]), st.sampled_from([b"", b"w"]))
def test_a_lease_of_many_is_many_leases_of_one(
    wanted: list[_Job], mode: Mode, buried: bool, lease_ms: int | None, holder: bytes
) -> None:
    together, apart = _rig(mode, buried, wanted), _rig(mode, buried, wanted)
    count = len(wanted) // 2 + 1
    found = together.lease(count, lease_ms=lease_ms, holder=holder)
    one_by_one: list[Delivery] = []
    for _ in range(count):  # a claim of a cohort is always served job by job
        shared = expect(CohortLeased, apart.do(LeaseCohort(Q, [Lease(Q, 1, lease_ms, holder)])))
        one_by_one += shared.shares[0].deliveries
    assert found == one_by_one
    assert dump(together.machine, together.now) == dump(apart.machine, apart.now)
    assert dump(together.replayed(), together.now) == dump(together.machine, together.now)
    audit(together.machine)


@given(st.lists(st.integers(0, 7), min_size=1, max_size=12), st.booleans(), st.booleans())
def test_an_ack_of_many_is_many_acks_of_one(chosen: list[int], fenced: bool, held: bool) -> None:
    """Also of jobs named twice, of jobs that were never leased, and with the token of another."""
    rigs = [Rig(TopicConfig(), seed=3), Rig(TopicConfig(), seed=3)]
    leased: list[Delivery] = []
    for rig in rigs:
        ids = rig.add_many(*(b"%d" % number for number in range(8)))
        leased = rig.lease(5, holder=b"w" if held else b"")
        leased += [_unleased(job_id) for job_id in ids[5:]]
    asked = [[leased[number] for number in chosen], *([leased[number]] for number in chosen)]
    (together, *apart) = (_ack(rigs[index > 0], each, fenced, held) for index, each in enumerate(asked))
    assert together[0] == sum(count for count, _ in apart)
    assert together[1] == [missed for _, several in apart for missed in several]
    assert dump(rigs[0].machine, rigs[0].now) == dump(rigs[1].machine, rigs[1].now)
    assert dump(rigs[0].replayed(), rigs[0].now) == dump(rigs[0].machine, rigs[0].now)
    audit(rigs[0].machine)


def _unleased(job_id: int) -> Delivery:
    return Delivery(Q, job_id, b"", 0, 1, 0, 0, 0, 0, 0, 0, None)


def _ack(rig: Rig, jobs: list[Delivery], fenced: bool, held: bool) -> tuple[int, list[int]]:
    tokens = [job.token for job in jobs] if fenced else None
    if held:
        told = expect(SeqsDone, rig.do(AckHeld(Q, [place(job.id).seq for job in jobs], b"w", tokens)))
        return told.count, list(told.skipped)
    done = expect(Done, rig.do(Ack([job.id for job in jobs], tokens)))
    return done.count, list(done.missed)


def test_what_is_leased_together_is_in_the_journal_one_by_one() -> None:
    rig = Rig(TopicConfig())
    ids = rig.add_many(b"a", b"b", b"c")
    rig.do(Lease(Q, 3))
    assert [type(event).__name__ for event in rig.last] == ["JobLeased"] * 3
    rig.do(Ack(ids))
    assert [type(event).__name__ for event in rig.last] == ["JobAcked"] * 3


def test_what_leaves_together_leaves_no_more_garbage_than_one_by_one() -> None:
    rig = Rig(TopicConfig())
    (partition,) = rig.machine.names[Q].partitions
    ids = [rig.add(ttl_ms=50_000, retry_ms=1000) for _ in range(3000)]
    rig.do(Delete(ids[1500:]))  # from behind, where their keys stay
    leased: list[Delivery] = []
    while found := rig.lease(100):
        leased += found
        audit(rig.machine)
    for at in range(0, len(leased), 100):
        assert rig.ack(*leased[at : at + 100]).count == 100
        audit(rig.machine)
        for deadlines in (partition.timers, partition.expiry):
            assert len(deadlines) <= 2 * len(partition.jobs) + 1
