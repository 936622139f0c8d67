"""Delays, TTLs, pauses and what a tick does, in bounded steps."""

from __future__ import annotations

import pytest

from esker.engine import limits
from esker.engine.commands import DeleteTopic, Details, Enqueue, Length, NewJob, PauseTopic, Purge, Tick, Withdraw
from esker.engine.config import Pause, TopicConfig
from esker.engine.queues.clockwork import next_wake_ms
from esker.engine.queues.job import JobState
from esker.engine.replies import Count
from esker.errors import Code
from tests.engine.audit import audit
from tests.engine.rig import START_MS, Q, Rig, expect


def test_a_delayed_job_is_ready_at_its_time_to_the_millisecond() -> None:
    rig = Rig(TopicConfig())
    job_id = rig.add(details=Details(delay_ms=1000))
    rig.machine.woken.clear()
    assert expect(Count, rig.do(Length(Q))).count == 0
    rig.now += 999
    assert rig.lease() == []
    rig.pass_ms(1)
    assert Q in rig.machine.woken
    assert expect(Count, rig.do(Length(Q))).count == 1
    assert rig.lease_one().id == job_id


def test_a_delayed_job_is_found_by_a_consumer_before_any_tick() -> None:
    rig = Rig(TopicConfig())
    job_id = rig.add(details=Details(delay_ms=1000))
    rig.now += 1000
    assert rig.lease_one().id == job_id


def test_a_delay_keeps_the_seq() -> None:
    rig = Rig(TopicConfig())
    rig.add(b"delayed", details=Details(delay_ms=10))
    rig.add(b"at once")
    rig.pass_ms(10)
    assert rig.drain() == [b"delayed", b"at once"]


@pytest.mark.parametrize("passed", [999, 1000, 1001, 5000])
def test_a_job_is_never_delivered_from_its_expiry_on(passed: int) -> None:
    rig = Rig(TopicConfig())
    job_id = rig.add(ttl_ms=1000)
    rig.now += passed
    assert [each.id for each in rig.lease()] == ([job_id] if passed < 1000 else [])


@pytest.mark.parametrize("state", ["ready", "delayed", "leased", "withdrawn"])
def test_an_expired_job_leaves_within_about_a_second_in_any_state(state: str) -> None:
    rig = Rig(TopicConfig())
    job_id = rig.add(ttl_ms=1000, details=Details(delay_ms=9000) if state == "delayed" else None)
    if state == "leased":
        rig.lease_one()
    elif state == "withdrawn":
        rig.do(Withdraw([job_id]))
    rig.pass_ms(999)
    assert rig.knows(job_id)
    rig.pass_ms(1 + 1024)
    assert not rig.knows(job_id)
    assert rig.stats().expired == 1
    audit(rig.machine)


def test_a_ttl_comes_from_the_job_or_else_from_the_topic_and_zero_is_never() -> None:
    rig = Rig(TopicConfig(ttl_ms=500))
    rig.add(b"topic's")
    rig.add(b"own", ttl_ms=1500)
    rig.add(b"never", ttl_ms=0)
    assert [rig.show(job.id).expires_ms for job in rig.lease(3)] == [START_MS + 500, START_MS + 1500, 0]


def test_a_full_queue_refuses_by_max_len_and_counts_what_waits() -> None:
    rig = Rig(TopicConfig())
    rig.add_many(b"1", b"2")
    refusal = rig.refused(Enqueue(Q, [NewJob(b"3")], max_len=2))
    assert refusal.code == Code.QUEUE_FULL
    assert "2" in refusal.message
    rig.lease_one()
    rig.do(Enqueue(Q, [NewJob(b"3")], max_len=2))
    assert rig.drain() == [b"2", b"3"]


def test_a_queue_paused_in_input_takes_no_job_and_takes_none_back() -> None:
    rig = Rig(TopicConfig())
    job_id = rig.add(retry_ms=1000)
    rig.lease_one()
    rig.do(PauseTopic(Q, Pause.IN))
    assert rig.code(Enqueue(Q, [NewJob(b"new")])) == Code.PAUSED
    rig.pass_ms(1000)
    assert rig.show(job_id).state == JobState.WITHDRAWN
    assert rig.lease() == []
    rig.do(PauseTopic(Q, Pause.NONE))
    rig.pass_ms(1000)
    assert rig.lease_one().id == job_id


def test_a_pause_is_read_without_being_made() -> None:
    rig = Rig()
    rig.do(PauseTopic(b"nowhere", None))
    rig.do(PauseTopic(b"nowhere", Pause.NONE))
    assert rig.machine.topics == {}


def test_a_tick_is_a_bounded_step_and_the_rest_is_due_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TIMERS_PER_TURN", 10)
    rig = Rig(TopicConfig())
    rig.add_many(*[b"x"] * 35)
    rig.lease(35, lease_ms=5)
    rig.now += 5
    returned = []
    while (due := next_wake_ms(rig.machine)) is not None and due <= rig.now:
        rig.do(Tick())
        returned.append(len(rig.last))
    assert sum(returned) == 35
    assert max(returned) <= 10
    assert rig.stats().ready == 35


def test_time_never_goes_back() -> None:
    rig = Rig(TopicConfig())
    rig.now += 1000
    rig.add()
    delivery = rig.lease_one(lease_ms=100)
    rig.now -= 5000
    assert rig.extend(delivery, 50).deadlines_ms == {delivery.id: START_MS + 1050}


def test_wakes_that_were_overtaken_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STALE_WAKES_MAX", 8)
    rig = Rig(TopicConfig())
    rig.add(details=Details(delay_ms=limits.DAY_MS))
    for _ in range(200):
        rig.add(b"short", details=Details(delay_ms=1))
        rig.pass_ms(1)
        rig.ack(rig.lease_one())
        assert len(rig.machine.wakes) <= 2 + 8 + 2
        audit(rig.machine)
    rig.pass_ms(limits.DAY_MS)
    assert len(rig.lease()) == 1


def test_a_purge_frees_its_memory_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TIMERS_PER_TURN", 10)
    rig = Rig(TopicConfig())
    rig.add_many(*[b"x"] * 100)
    rig.do(Purge(Q))
    assert rig.machine.totals.jobs == 0
    left = []
    while rig.machine.graveyard:
        left.append(sum(map(len, rig.machine.graveyard)))
        rig.do(Tick())
    assert left == [100, 60, 20]


def test_delayed_work_of_a_deleted_topic_disturbs_nobody() -> None:
    rig = Rig(TopicConfig())
    rig.add(details=Details(delay_ms=10))
    rig.do(DeleteTopic(Q))
    rig.pass_ms(10)
    assert rig.machine.totals.jobs == 0
    audit(rig.machine)
