"""The table of a job's life, its legal and its illegal cells, against what the engine really does."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import pytest

from esker.engine import events
from esker.engine.commands import (
    Ack,
    Command,
    Delete,
    DeleteTopic,
    Details,
    Enqueue,
    EnqueueAlike,
    Extend,
    Lease,
    Nack,
    NewJob,
    PauseTopic,
    Purge,
    Release,
    Reprioritise,
    Requeue,
    Tick,
    Withdraw,
    Working,
)  # fmt: skip
from esker.engine.config import Pause, TopicConfig
from esker.engine.ids import place
from esker.engine.queues.job import JobState
from esker.engine.queues.lifecycle import MOVES, MoveEvent, moves_of
from tests.engine.rig import Q, Rig

JOB_EVENTS: tuple[type[MoveEvent], ...] = MoveEvent.__args__
CONFIG = TopicConfig(dead_letter=b"grave", max_deliveries=3)

COMMANDS: dict[str, Callable[[int], Command]] = {
    "lease": lambda job_id: Lease(Q, holder=b"w"),
    "ack": lambda job_id: Ack([job_id]),
    "nack": lambda job_id: Nack([job_id]),
    "nack later": lambda job_id: Nack([job_id], delay_ms=50),
    "extend": lambda job_id: Extend([job_id], 500),
    "release": lambda job_id: Release(b"w"),
    "working": lambda job_id: Working(job_id),
    "requeue": lambda job_id: Requeue([job_id]),
    "withdraw": lambda job_id: Withdraw([job_id]),
    "delete": lambda job_id: Delete([job_id]),
    "reprioritise": lambda job_id: Reprioritise([job_id], 5),
    "tick": lambda job_id: Tick(),
    "purge": lambda job_id: Purge(Q),
    "delete topic": lambda job_id: DeleteTopic(Q),
}


def in_state(state: JobState, exhausted: bool = False, ttl_ms: int = 0) -> tuple[Rig, int]:
    rig = Rig(CONFIG)
    at_most_once = state == JobState.SPENT
    delayed = state == JobState.DELAYED
    job_id = rig.add(
        retry_ms=0 if at_most_once else 1000, ttl_ms=ttl_ms, details=Details(delay_ms=1000) if delayed else None
    )
    for _ in range(3 if exhausted else 0):
        rig.nack(rig.lease_one(), delay_ms=0)
    if state in (JobState.LEASED, JobState.SPENT):
        rig.lease_one(holder=b"w")
    elif state == JobState.WITHDRAWN:
        rig.do(Withdraw([job_id]))
    assert rig.show(job_id).state == state
    return rig, job_id


def state_of(rig: Rig, job_id: int) -> JobState | None:
    found = rig.machine.find(job_id)
    return None if found is None else JobState(found[1].state)


@pytest.mark.parametrize("what", COMMANDS)
@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize("passed", [0, 1000, 3000])
@pytest.mark.parametrize("paused", [Pause.NONE, Pause.IN])
def test_no_command_makes_an_illegal_move(state: JobState, what: str, passed: int, paused: Pause) -> None:
    exhausted = state == JobState.READY and passed == 1000
    rig, job_id = in_state(state, exhausted, ttl_ms=0 if passed < 3000 else 2000)
    rig.do(PauseTopic(Q, paused))
    before = state_of(rig, job_id)
    rig.now += passed
    rig.do(COMMANDS[what](job_id))
    moved, now = follow(rig, job_id, before), state_of(rig, job_id)
    if what in ("purge", "delete topic"):
        assert now is None
    else:
        assert now == moved or (moved, now) == (JobState.DELAYED, JobState.READY), "only being due needs no event"


def follow(rig: Rig, job_id: int, state: JobState | None) -> JobState | None:
    """Plays the events of the last command on the table: where they leave the job."""
    mine = place(job_id)
    for event in chain.from_iterable(map(moves_of, rig.last)):
        if (event.topic, event.partition, event.seq) != (mine.topic, 0, mine.seq):
            continue
        if isinstance(event, events.JobLeased) and state == JobState.DELAYED:
            state = JobState.READY  # being due is no event
        allowed = MOVES.get((state, type(event)))
        assert allowed is not None, f"{type(event).__name__} in state {state}"
        state = outcome(event, state)
        assert state is None if not allowed else state in allowed
    return state


def outcome(event: MoveEvent, state: JobState | None) -> JobState | None:
    """What an event says, in its own words."""
    match event:
        case events.Enqueued() | events.JobReturned():
            return JobState.DELAYED if event.due_ms else JobState.READY
        case events.JobReplayed():
            return JobState.READY
        case events.JobLeased():
            return JobState.LEASED if event.deadline_ms else JobState.SPENT
        case events.LeaseExtended():
            return JobState.LEASED
        case events.JobWithdrawn():
            return JobState.WITHDRAWN
        case events.JobReprioritised():
            return state
        case events.JobAcked() | events.JobRemoved():
            return None


ILLEGAL = [(state, event) for state in JobState for event in JOB_EVENTS if (state, event) not in MOVES]


def test_the_table_has_illegal_cells_and_knows_every_event() -> None:
    assert {event for _, event in MOVES} == set(JOB_EVENTS)
    assert (JobState.SPENT, events.JobLeased) in ILLEGAL
    assert (JobState.SPENT, events.JobReturned) in ILLEGAL
    assert (JobState.LEASED, events.JobLeased) in ILLEGAL


def test_jobs_that_come_together_make_the_moves_they_would_make_apart() -> None:
    rig = Rig(CONFIG)
    rig.do(EnqueueAlike(Q, [b"a", b"b"], 1000, 5000))
    assert [type(event) for event in rig.last] == [events.JobsEnqueued]
    moves = list(chain.from_iterable(map(moves_of, rig.last)))
    apart = Rig(CONFIG)
    apart.do(Enqueue(Q, [NewJob(payload, 0, 1000, 5000) for payload in (b"a", b"b")]))
    assert moves == apart.last


@pytest.mark.parametrize(("state", "event"), ILLEGAL)
def test_nothing_ever_decides_an_illegal_event(state: JobState, event: type[MoveEvent]) -> None:
    for what in COMMANDS.values():
        rig, job_id = in_state(state)
        rig.do(what(job_id))
        seq = place(job_id).seq
        moves = chain.from_iterable(map(moves_of, rig.last))
        made = {type(each) for each in moves if each.seq == seq and each.topic == 1}
        assert event not in made


@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize("event", [events.JobAcked, events.JobRemoved])
def test_a_job_can_end_in_any_state(state: JobState, event: type[MoveEvent]) -> None:
    rig, job_id = in_state(state)
    rig.do(Ack([job_id]) if event is events.JobAcked else Delete([job_id]))
    assert [type(each) for each in rig.last] == [event]
    assert state_of(rig, job_id) is None
