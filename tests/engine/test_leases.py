"""One live lease per job, fenced by its token, ended to the millisecond."""

from __future__ import annotations

import pytest

from esker.engine.commands import Ack, Delete, Extend, Lease, Nack, PauseTopic, Release, Show, Working
from esker.engine.config import Pause, TopicConfig, TopicType
from esker.engine.queues.job import JobState
from esker.engine.replies import Done, Extended, Leased, StillWorking
from esker.errors import Code
from tests.engine.audit import audit
from tests.engine.dump import dump
from tests.engine.rig import Q, Rig, expect


def test_a_leased_job_is_leased_to_nobody_else() -> None:
    rig = Rig(TopicConfig())
    rig.add()
    rig.lease_one()
    assert rig.lease() == []


@pytest.mark.parametrize("lease_ms", [1, 50, 30_000])
def test_a_lease_ends_at_its_deadline_to_the_millisecond(lease_ms: int) -> None:
    rig = Rig(TopicConfig())
    rig.add()
    delivery = rig.lease_one(lease_ms=lease_ms)
    assert delivery.deadline_ms == rig.now + lease_ms
    rig.pass_ms(lease_ms - 1)
    assert rig.show(delivery.id).state == JobState.LEASED
    rig.pass_ms(1)
    view = rig.show(delivery.id)
    assert (view.state, view.due_ms, view.requeues, view.nacks) == (JobState.READY, 0, 1, 0)
    assert rig.stats().lease_timeouts == 1


def test_a_lease_ends_without_a_tick_when_the_next_consumer_asks() -> None:
    rig = Rig(TopicConfig())
    rig.add()
    first = rig.lease_one(lease_ms=10)
    rig.now += 10
    second = rig.lease_one()
    assert second.id == first.id
    assert second.token != first.token
    assert second.attempts == 2


@pytest.mark.parametrize("make", [Ack, Nack])
def test_a_stale_token_can_neither_ack_nor_nack(make: type[Ack] | type[Nack]) -> None:
    rig = Rig(TopicConfig())
    rig.add()
    stale = rig.lease_one(lease_ms=10)
    rig.pass_ms(10)
    rig.lease_one()
    before = dump(rig.machine)
    assert expect(Done, rig.do(make([stale.id], [stale.token]))) == Done(0, [stale.id])
    assert dump(rig.machine) == before
    assert rig.last == []


def test_a_stale_token_cannot_extend() -> None:
    rig = Rig(TopicConfig())
    rig.add()
    stale = rig.lease_one(lease_ms=10)
    rig.pass_ms(10)
    fresh = rig.lease_one()
    assert rig.extend(stale, 1000) == Extended({}, [stale.id])
    assert rig.show(fresh.id).due_ms == fresh.deadline_ms


def test_a_token_is_stale_from_the_deadline_on_even_if_nobody_noticed() -> None:
    rig = Rig(TopicConfig())
    rig.add()
    delivery = rig.lease_one(lease_ms=10)
    rig.now += 10
    assert rig.ack(delivery).count == 0
    assert rig.nack(delivery).count == 0
    assert rig.extend(delivery, 10).missed == [delivery.id]


def test_a_live_token_acks_once() -> None:
    rig = Rig(TopicConfig())
    rig.add()
    delivery = rig.lease_one()
    assert rig.ack(delivery) == Done(1, [])
    assert rig.ack(delivery) == Done(0, [delivery.id])
    assert not rig.knows(delivery.id)


def test_an_id_alone_acks_in_any_state() -> None:
    rig = Rig(TopicConfig())
    ids = rig.add_many(b"1", b"2")
    rig.lease_one()
    assert expect(Done, rig.do(Ack([*ids, ids[0]]))) == Done(2, [ids[0]])


def test_tokens_that_do_not_match_the_ids_in_number_are_refused_whole() -> None:
    rig = Rig(TopicConfig())
    rig.add_many(b"1", b"2")
    first, second = rig.lease(2)
    before = dump(rig.machine)
    ids = [first.id, second.id]
    for command in (Ack(ids, [first.token]), Nack(ids, [first.token]), Extend(ids, 10, [first.token])):
        refusal = rig.refused(command)
        assert refusal.code == Code.BAD_REQUEST
        assert "1 tokens for 2 jobs" in refusal.message
    assert dump(rig.machine) == before


def test_an_extension_counts_from_now_and_is_capped() -> None:
    rig = Rig(TopicConfig(max_lease_ms=5000))
    rig.add()
    delivery = rig.lease_one(lease_ms=1000)
    rig.pass_ms(999)
    assert rig.extend(delivery, 2000).deadlines_ms == {delivery.id: rig.now + 2000}
    assert rig.extend(delivery, 10**9).deadlines_ms == {delivery.id: rig.now + 5000}
    rig.pass_ms(4999)
    assert rig.ack(delivery).count == 1


def test_a_lease_is_no_longer_than_the_topic_allows() -> None:
    rig = Rig(TopicConfig(max_lease_ms=100))
    rig.add()
    assert rig.lease_one(lease_ms=10**9).deadline_ms == rig.now + 100


def test_release_gives_back_all_of_one_holder_and_nothing_else() -> None:
    rig = Rig(TopicConfig())
    rig.add_many(b"1", b"2", b"3")
    rig.lease(2, holder=b"gone")
    kept = rig.lease_one(holder=b"stays")
    assert expect(Done, rig.do(Release(b"gone"))).count == 2
    assert expect(Done, rig.do(Release(b"gone"))).count == 0
    assert rig.drain() == [b"1", b"2"]
    assert rig.show(kept.id).holder == b"stays"
    assert rig.stats().nacked == 0
    audit(rig.machine)


def test_a_job_released_and_leased_by_another_is_not_released_again_with_the_first() -> None:
    rig = Rig(TopicConfig())
    rig.add()
    rig.lease_one(holder=b"first", lease_ms=10)
    rig.pass_ms(10)
    rig.lease_one(holder=b"second")
    assert expect(Done, rig.do(Release(b"first"))).count == 0


def test_working_postpones_a_lease_by_a_whole_retry_time() -> None:
    rig = Rig(TopicConfig())
    job_id = rig.add(retry_ms=1000)
    rig.lease_one()
    rig.pass_ms(900)
    assert expect(StillWorking, rig.do(Working(job_id))).retry_ms == 1000
    rig.pass_ms(999)
    assert rig.lease() == []
    rig.pass_ms(1)
    assert rig.lease_one().id == job_id


def test_working_is_refused_after_half_of_the_ttl() -> None:
    rig = Rig(TopicConfig())
    job_id = rig.add(ttl_ms=1000)
    rig.lease_one()
    rig.now += 500
    expect(StillWorking, rig.do(Working(job_id)))
    rig.now += 1
    assert rig.code(Working(job_id)) == Code.TOO_LATE
    assert rig.code(Working(job_id + 1)) == Code.JOB_NOT_FOUND


def test_no_more_jobs_are_in_flight_than_the_topic_allows() -> None:
    rig = Rig(TopicConfig(max_in_flight=2))
    rig.add_many(b"1", b"2", b"3")
    first, _ = rig.lease(10)
    assert rig.lease() == []
    rig.ack(first)
    assert len(rig.lease(10)) == 1


def test_a_lease_that_ends_now_makes_room_now() -> None:
    rig = Rig(TopicConfig(max_in_flight=1))
    rig.add_many(b"1", b"2")
    rig.lease_one(lease_ms=10)
    rig.now += 10
    assert rig.lease_one().payload == b"1"


@pytest.mark.parametrize("how", ["ack", "delete", "expire", "delayed nack"])
def test_room_in_a_bounded_queue_wakes_who_waits(how: str) -> None:
    rig = Rig(TopicConfig(max_in_flight=1))
    rig.add(ttl_ms=100)
    rig.add()
    delivery = rig.lease_one()
    rig.machine.woken.clear()
    if how == "ack":
        rig.ack(delivery)
    elif how == "delete":
        rig.do(Delete([delivery.id]))
    elif how == "expire":
        rig.pass_ms(2000)
    else:
        rig.nack(delivery, delay_ms=500)
    assert Q in rig.machine.woken


def test_a_queue_paused_in_output_delivers_nothing_and_wakes_its_waiters_after() -> None:
    rig = Rig(TopicConfig())
    rig.add()
    rig.do(PauseTopic(Q, Pause.OUT))
    assert rig.lease() == []
    rig.machine.woken.clear()
    rig.do(PauseTopic(Q, Pause.NONE))
    assert Q in rig.machine.woken
    assert len(rig.lease()) == 1


def test_a_lease_of_a_topic_that_is_no_queue_or_not_there() -> None:
    rig = Rig(TopicConfig(type=TopicType.LOG))
    assert rig.code(Lease(Q)) == Code.NOT_A_QUEUE
    assert expect(Leased, rig.do(Lease(b"nowhere"))).deliveries == ()


def test_leases_are_synced_only_where_asked_and_acks_always() -> None:
    for durable in (False, True):
        rig = Rig(TopicConfig(leases_durable=durable))
        rig.add()
        assert rig.synced
        delivery = rig.lease_one()
        assert rig.synced is durable
        rig.ack(delivery)
        assert rig.synced


def test_a_job_that_is_gone_is_not_shown() -> None:
    rig = Rig(TopicConfig())
    job_id = rig.add()
    rig.do(Delete([job_id]))
    assert rig.code(Show(job_id)) == Code.JOB_NOT_FOUND
