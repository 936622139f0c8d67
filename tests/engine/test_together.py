"""Jobs that are leased or acked by one command fare as if each had had a command of its own."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from esker.engine.commands import Ack, AckHeld, Delete, Details, Lease, LeaseCohort, Reprioritise
from esker.engine.config import Mode, TopicConfig
from esker.engine.events import JobAcked, JobLeased, JobsAcked, JobsLeased, decode_batch
from esker.engine.ids import place
from esker.engine.machine import Machine
from esker.engine.queues.lifecycle import moves_of
from esker.engine.replies import CohortLeased, Delivery, Done, Leased, SlotsDone
from tests.engine.audit import audit
from tests.engine.dump import Dump, dump
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
    assert _untold(found) == _untold(one_by_one)
    assert len({job.token for job in found}) == len(found)
    assert _dump(together.machine, together.now) == _dump(apart.machine, apart.now)
    assert dump(together.replayed(), together.now) == dump(together.machine, together.now)
    audit(together.machine)


def _untold(jobs: list[Delivery]) -> list[Delivery]:
    """Without their tokens, which are drawn at random: one for each lease, or one for a row of them."""
    return [replace(job, token=0) for job in jobs]


def _dump(machine: Machine, now: int) -> Dump:
    """The state without its tokens."""
    whole = dump(machine, now)
    for topic in whole.topics.values():
        for partition in topic.partitions:
            partition.jobs.update({seq: job._replace(token=job.token > 0) for seq, job in partition.jobs.items()})
    return whole


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
        told = expect(SlotsDone, rig.do(AckHeld(Q, [place(job.id).seq for job in jobs], b"w", tokens)))
        return told.count, list(told.skipped)
    done = expect(Done, rig.do(Ack([job.id for job in jobs], tokens)))
    return done.count, list(done.missed)


def test_what_is_leased_or_acked_together_is_one_event() -> None:
    rig = Rig(TopicConfig())
    rig.add_many(b"a", b"b", b"c", b"d")
    jobs = expect(Leased, rig.do(Lease(Q, 3, 500, b"w"))).deliveries
    (leased,) = rig.last
    assert leased == JobsLeased(1, 0, rig.now, jobs[0].token, rig.now + 500, b"w", [1, 2, 3], [1, 1, 1])
    assert [job.token for job in jobs] == [jobs[0].token + place for place in range(3)]
    rig.do(Lease(Q, 3))
    assert [type(event) for event in rig.last] == [JobLeased]  # there was but one
    tokens = [job.token for job in jobs]
    rig.do(AckHeld(Q, [3, 1], b"w"))
    assert rig.last == [JobsAcked(1, 0, rig.now, [3, 1], [tokens[2], tokens[0]])]
    rig.do(Ack([jobs[1].id]))
    assert rig.last == [JobAcked(1, 0, 2, rig.now)]


def test_acks_by_id_alone_prove_no_lease() -> None:
    rig = Rig(TopicConfig())
    ids = rig.add_many(b"a", b"b")
    rig.lease(2)
    rig.do(Ack(ids))
    assert rig.last == [JobsAcked(1, 0, rig.now, [1, 2], [])]


def test_leases_that_end_apart_are_told_apart() -> None:
    rig = Rig(TopicConfig())
    for retry_ms in (100, 100, 200, 100, 0, 100, 100):
        rig.add(retry_ms=retry_ms)
    jobs = rig.lease(7)
    told = [(type(event), event.seqs if isinstance(event, JobsLeased) else []) for event in rig.last]
    assert told == [
        (JobsLeased, [1, 2]), (JobsLeased, [3]), (JobsLeased, [4]), (JobLeased, []), (JobsLeased, [6, 7])
    ]  # fmt: skip
    assert [job.deadline_ms - rig.now if job.deadline_ms else 0 for job in jobs] == [100, 100, 200, 100, 0, 100, 100]
    assert dump(rig.replayed(), rig.now) == dump(rig.machine, rig.now)


class _Life(NamedTuple):
    """How many jobs there are, and what happens to them."""

    ready: int  # how many wait
    leased: int
    delayed: int  # how many wait for their time when the lease is decided
    acked: list[int]  # which are acked
    nacked: list[int]


lives = st.builds(
    _Life, st.integers(1, 6), st.integers(1, 8), st.integers(0, 3), st.lists(st.integers(0, 7), max_size=6),
    st.lists(st.integers(0, 7), max_size=3),
)  # fmt: skip


def _live(rig: Rig, life: _Life) -> None:
    for _ in range(life.delayed):
        rig.add(details=Details(delay_ms=10), retry_ms=1000)
    for _ in range(life.ready):
        rig.add(retry_ms=1000)
    rig.now += 20
    jobs = rig.lease(life.leased, holder=b"w")
    rig.nack(*(jobs[number] for number in set(life.nacked) if number < len(jobs)), delay_ms=0)
    rig.ack(*(jobs[number] for number in set(life.acked) if number < len(jobs)))
    rig.lease(life.leased, lease_ms=70, holder=b"v")


@given(lives, st.data())
def test_what_was_told_together_may_be_folded_twice_and_onto_a_state_that_is_ahead(
    life: _Life, data: st.DataObject
) -> None:
    """A machine that has folded all, and then once more from anywhere on, is where it was. So is one folded apart."""
    rig = Rig(TopicConfig())
    _live(rig, life)
    history = [event for batch in rig.batches for event in decode_batch(batch)]
    start = data.draw(st.integers(0, len(history)))
    again, apart = Machine(Random(1)), Machine(Random(1))
    for event in [*history, *history[start:]]:
        again.fold(event)
    for event in history:
        for each in moves_of(event) if isinstance(event, JobsLeased | JobsAcked) else (event,):
            apart.fold(each)
    assert dump(apart, rig.now) == dump(rig.machine, rig.now)
    assert dump(again, rig.now, counters=False) == dump(rig.machine, rig.now, counters=False)
    audit(again)
    audit(apart)


def test_a_lease_of_jobs_that_are_gone_or_held_by_another_leaves_no_trace_of_the_old_holder() -> None:
    rig = Rig(TopicConfig())
    rig.add_many(b"a", b"b", b"c")
    rig.lease(2, holder=b"w")
    (first,) = rig.last
    rig.do(AckHeld(Q, [1], b"w"))
    rig.machine.fold(first)  # once more, onto a state that is ahead
    assert rig.machine.names[Q].partitions[0].holders == {2: b"w"}
    audit(rig.machine)
    rig.machine.fold(JobsLeased(1, 0, rig.now, 99, rig.now + 50, b"v", [1, 2, 3, 77], [1, 5, 6, 1]))
    found = rig.machine.names[Q].partitions[0]
    assert found.holders == {2: b"v", 3: b"v"}
    assert {seq: (job.token, job.attempts) for seq, job in found.jobs.items()} == {2: (100, 5), 3: (101, 6)}
    audit(rig.machine)


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
