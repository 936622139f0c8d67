"""A job with retry 0 is delivered once, whatever happens after."""

from __future__ import annotations

import pytest

from esker.engine import limits
from esker.engine.commands import Ack, Details, Nack, Release, Requeue, Withdraw, Working
from esker.engine.config import TopicConfig
from esker.engine.queues.job import JobState
from esker.engine.replies import Done
from tests.engine.audit import audit
from tests.engine.rig import Rig, expect


def spent(rig: Rig, ttl_ms: int | None = None) -> int:
    job_id = rig.add(retry_ms=0, ttl_ms=ttl_ms)
    rig.lease_one(holder=b"w")
    return job_id


def test_it_is_spent_by_its_delivery_and_the_delivery_is_synced() -> None:
    rig = Rig(TopicConfig())
    job_id = spent(rig)
    assert rig.synced
    view = rig.show(job_id)
    assert (view.state, view.due_ms, view.attempts) == (JobState.SPENT, 0, 1)


def test_nothing_brings_it_back() -> None:
    rig = Rig(TopicConfig())
    job_id = spent(rig)
    for command in (Nack([job_id]), Requeue([job_id]), Withdraw([job_id])):
        assert expect(Done, rig.do(command)).count == 0
    rig.do(Working(job_id))
    assert expect(Done, rig.do(Release(b"w"))).count == 0
    rig.pass_ms(limits.YEAR_MS)
    assert rig.lease() == []
    assert rig.show(job_id).state == JobState.SPENT


def test_a_late_ack_finds_it() -> None:
    rig = Rig(TopicConfig())
    job_id = spent(rig)
    assert expect(Done, rig.do(Ack([job_id]))).count == 1
    assert not rig.knows(job_id)


def test_it_is_requeued_before_its_first_time_only() -> None:
    rig = Rig(TopicConfig())
    job_id = rig.add(retry_ms=0, details=Details(delay_ms=1000))
    assert expect(Done, rig.do(Requeue([job_id]))).count == 1
    assert rig.lease_one().requeues == 0
    assert expect(Done, rig.do(Requeue([job_id]))).count == 0


def test_the_spent_are_bounded_and_the_oldest_leave_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPENT_JOBS_MAX", 3)
    rig = Rig(TopicConfig())
    ids = [spent(rig) for _ in range(5)]
    assert [rig.knows(job_id) for job_id in ids] == [False, False, True, True, True]
    assert len(rig.machine.topics[1].partitions[0].spent) == 3
    audit(rig.machine)


def test_the_spent_leave_with_their_ttl() -> None:
    rig = Rig(TopicConfig())
    job_id = spent(rig, ttl_ms=500)
    rig.pass_ms(2000)
    assert not rig.knows(job_id)
