"""What the engine answers. A refusal is a reply too (`errors.Refusal`). Replies hold copies, never live state."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from esker.engine.commands import Details
from esker.engine.config import Pause, TopicConfig
from esker.engine.queues.job import JobState
from esker.errors import Refusal


class Added(msgspec.Struct, frozen=True):
    """The ids of the jobs of the command, in its order.

    `duplicates` are the positions of jobs that the idempotency window knew already: their ids are the first ones'.
    """

    ids: Sequence[int]
    duplicates: Sequence[int] = ()


class Delivery(msgspec.Struct, gc=False):
    """One leased job, and the token that proves the lease."""

    topic: bytes
    id: int
    payload: bytes
    priority: int
    token: int
    deadline_ms: int
    attempts: int
    nacks: int
    requeues: int
    retry_ms: int
    ttl_ms: int  # as given at enqueue; 0: none
    details: Details | None


class Leased(msgspec.Struct, frozen=True):
    deliveries: Sequence[Delivery]


class Done(msgspec.Struct, frozen=True):
    """How many of the named jobs were changed, and which were not (unknown, stale or in another state)."""

    count: int
    missed: Sequence[int] = ()


class Extended(msgspec.Struct, frozen=True):
    deadlines_ms: dict[int, int]
    missed: Sequence[int] = ()


class StillWorking(msgspec.Struct, frozen=True, gc=False):
    retry_ms: int


class JobView(msgspec.Struct, gc=False):
    """A job as it is now. `due_ms`: end of the lease, of the delay, or of the withdrawal; 0 when nothing is due."""

    topic: bytes
    id: int
    state: JobState
    payload: bytes
    priority: int
    created_ms: int
    expires_ms: int  # 0: never
    retry_ms: int
    due_ms: int
    attempts: int
    nacks: int
    requeues: int
    holder: bytes
    details: Details | None


class Jobs(msgspec.Struct, frozen=True):
    jobs: Sequence[JobView]
    cursor: int = 0


class Count(msgspec.Struct, frozen=True, gc=False):
    count: int


class Paused(msgspec.Struct, frozen=True, gc=False):
    pause: Pause


class TopicView(msgspec.Struct, frozen=True):
    name: bytes
    number: int  # new each time the name is made again: the topic's epoch
    config: TopicConfig
    pause: Pause
    created_ms: int
    active_ms: int  # when a job last came or went
    ready: int
    delayed: int
    leased: int
    withdrawn: int
    spent: int
    jobs_in: int
    jobs_out: int
    acked: int
    nacked: int
    lease_timeouts: int
    expired: int
    dead_lettered: int
    bytes: int


class Topics(msgspec.Struct, frozen=True):
    topics: Sequence[TopicView]
    cursor: int = 0


Reply = (
    Added | Leased | Done | Extended | StillWorking | Jobs | Count | Paused | TopicView | Topics | Refusal | None
)  # fmt: skip
