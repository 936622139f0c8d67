"""The tools that users get for their own tests."""

from __future__ import annotations

import pytest

from esker.engine import events
from esker.engine.commands import Ack, Enqueue, Lease, NewJob, Stats
from esker.engine.queues.job import JobState
from esker.engine.replies import Added, Leased, TopicView
from esker.errors import InvariantBroken
from esker.testing import Engine
from esker.testing.engine import _check_move


def _lease(engine: Engine, count: int = 1) -> Leased:
    reply = engine.handle(Lease(b"q", count))
    assert isinstance(reply, Leased)
    return reply


def test_time_passes_only_when_the_test_says_so() -> None:
    engine = Engine()
    engine.handle(Enqueue(b"q", [NewJob(b"work", retry_ms=1000)]))
    assert len(_lease(engine).deliveries) == 1
    engine.advance(999)
    assert not _lease(engine).deliveries
    engine.advance(1)
    assert len(_lease(engine).deliveries) == 1


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_crash_loses_nothing_that_was_answered(checkpointed: bool) -> None:
    engine = Engine()
    added = engine.handle(Enqueue(b"q", [NewJob(b"one", 1), NewJob(b"two", 2), NewJob(b"three", 3)]))
    assert isinstance(added, Added)
    if checkpointed:
        engine.checkpoint()
    engine.handle(Ack([added.ids[0]]))
    engine.crash()
    assert [job.payload for job in _lease(engine, 9).deliveries] == [b"two", b"three"]
    view = engine.handle(Stats(b"q"))
    assert isinstance(view, TopicView)
    assert (view.jobs_in, view.acked) == (3, 1)


def test_an_illegal_move_is_noticed() -> None:
    acked_twice = events.JobAcked(1, 0, 1, 0)
    states = {(1, 0, 1): JobState.READY}
    _check_move(acked_twice, states)
    with pytest.raises(InvariantBroken, match="JobAcked"):
        _check_move(acked_twice, states)
