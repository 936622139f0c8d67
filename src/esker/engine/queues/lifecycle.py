"""The life of a job as a table.

              Enqueued                     JobLeased                  JobAcked, JobRemoved
    (none) ────────────► READY / DELAYED ────────────► LEASED / SPENT ────────────────────► (none)
                            ▲   │ ▲  ▲                    │
                 JobReturned│   │ │  └────JobReturned─────┘
                            │   ▼ │JobReturned
                          WITHDRAWN

`JobsEnqueued`, `JobsLeased` and `JobsAcked` are these of many jobs at once (`moves_of`).

A cell is the set of states an event may leave a job in; a missing cell is illegal. `decide` never makes an illegal
event. Folding after a crash may meet a job that is already further on (events.py says why that is harmless), so the
table guards decisions and tests, not recovery.
"""

from __future__ import annotations

from collections.abc import Sequence

from esker.engine import events
from esker.engine.queues.job import JobState

_READY, _DELAYED, _LEASED, _WITHDRAWN, _SPENT = JobState

_GONE: frozenset[JobState] = frozenset()
_BACK = frozenset({_READY, _DELAYED})
_ANY = (_READY, _DELAYED, _LEASED, _WITHDRAWN, _SPENT)

MoveEvent = (
    events.Enqueued | events.JobLeased | events.JobAcked | events.JobReturned | events.LeaseExtended
    | events.JobWithdrawn | events.JobReprioritised | events.JobRemoved | events.JobReplayed
)  # fmt: skip
"""The events of one job. Those of a whole partition (a floor, a remembered key) move none."""


def moves_of(event: events.Event) -> Sequence[MoveEvent]:
    """What an event does, job by job; nothing for one that moves none."""
    if isinstance(event, events.JobsEnqueued):
        return events.enqueued_apart(event)
    if isinstance(event, events.JobsLeased):
        return events.leased_apart(event)
    if isinstance(event, events.JobsAcked):
        return events.acked_apart(event)
    return (event,) if isinstance(event, MoveEvent) else ()


MOVES: dict[tuple[JobState | None, type[MoveEvent]], frozenset[JobState]] = {
    (None, events.Enqueued): _BACK,
    (None, events.JobReplayed): frozenset({_READY}),
    (_READY, events.JobLeased): frozenset({_LEASED, _SPENT}),
    (_LEASED, events.LeaseExtended): frozenset({_LEASED}),
    (_LEASED, events.JobReturned): _BACK,
    (_DELAYED, events.JobReturned): _BACK,
    (_WITHDRAWN, events.JobReturned): _BACK,
    (_READY, events.JobWithdrawn): frozenset({_WITHDRAWN}),
    (_DELAYED, events.JobWithdrawn): frozenset({_WITHDRAWN}),
    (_LEASED, events.JobWithdrawn): frozenset({_WITHDRAWN}),
    (_WITHDRAWN, events.JobWithdrawn): frozenset({_WITHDRAWN}),
    **{(state, events.JobReprioritised): frozenset({state}) for state in _ANY},
    **{(state, events.JobAcked): _GONE for state in _ANY},
    **{(state, events.JobRemoved): _GONE for state in _ANY},
}
