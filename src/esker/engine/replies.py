"""What the engine answers. A refusal is a reply too (`errors.Refusal`). Replies hold copies, never live state."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from esker.engine.commands import Details
from esker.engine.config import Pause, RouterOptions, TopicConfig
from esker.engine.deletion import Deletion
from esker.engine.logs.block import Content
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
    """`ready`: how many jobs are left to be leased."""

    deliveries: Sequence[Delivery]
    ready: int = 0


class CohortLeased(msgspec.Struct, frozen=True):
    """What each claim of a `LeaseCohort` got, in their order."""

    shares: Sequence[Leased]


class Done(msgspec.Struct, frozen=True):
    """How many of the named jobs were changed, and which were not (unknown, stale or in another state).

    `takers`: of those missed jobs that are leased to somebody else, who took them.
    """

    count: int
    missed: Sequence[int] = ()
    takers: Sequence[int] = ()


class Extended(msgspec.Struct, frozen=True):
    """`missed` and `takers` as in `Done`."""

    deadlines_ms: dict[int, int]
    missed: Sequence[int] = ()
    takers: Sequence[int] = ()


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


class Written(msgspec.Struct, frozen=True, gc=False):
    """Of an `Append`. `head_seq` is the one right after it; a repetition gets what the first one got.

    `partition`: where a queue has several, the one that took all of it, and whose seqs these are.
    """

    first_seq: int
    last_seq: int
    head_seq: int
    created: bool  # the topic was made for it
    deduped: bool
    partition: int | None = None


class Published(msgspec.Struct, frozen=True, gc=False):
    """Of a `Publish`. `duplicate`: the load's mark knew the chunk, and nothing was done."""

    duplicate: bool


class Record(msgspec.Struct, frozen=True, gc=False):
    """As it is read. `data` and `meta` are JSON texts; an empty `node`, `tag` or `meta` is none."""

    seq: int
    ts: int
    data: bytes
    node: bytes
    tag: bytes
    meta: bytes


class Span(NamedTuple):
    """Records of one block in a row: those at the places `start` to `stop` of its content, which is not copied.

    So it is good for the turn it was read in. What it points at never changes while the records live.
    """

    topic: int  # its number
    first_seq: int  # of the block
    content: Content
    start: int
    stop: int
    full: bool  # the block will get no more records

    def moments(self) -> Iterator[tuple[int, int, int]]:
        """The span in parts that have one time: time, start, stop."""
        starts, stamps = self.content.starts, self.content.stamps
        run = bisect_right(starts, self.start) - 1
        start = self.start
        while start < self.stop:
            end = starts[run + 1] if run + 1 < len(starts) else self.stop
            yield stamps[run], start, min(end, self.stop)
            start = end
            run += 1


class Tombstone(msgspec.Struct, frozen=True, gc=False):
    """A gap that nobody asked for. `reason`: cap, ttl, mixed, recreated, source_trim, or lost (by a crash)."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class Archived(msgspec.Struct, frozen=True):
    """Records that a read wants next, and that only a file of the archive has.

    `runs` (first, count, first, ...) are those of them that live. Behind them the read goes on after `upto`.
    """

    topic: int  # its number
    file: str
    runs: Sequence[int]
    upto: int
    limit: int
    max_bytes: int
    nodes: frozenset[bytes]
    sha256: str = ""  # of the file, where it is known


class Records(msgspec.Struct, frozen=True):
    """`next_from_seq` is the last seq looked at, delivered or not: read on behind it.

    With `archived` there are no records: whoever may wait for a disk fetches them (`Broker.read`).
    """

    records: Sequence[Record]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: Tombstone | None
    scanned: int = 0
    archived: Archived | None = None
    files_read: int = 0  # of the archive
    spans: Sequence[Span] | None = None  # where the read asked for them; then there are no `records`


class Deleted(msgspec.Struct, frozen=True, gc=False):
    deleted: int  # until now, if there is a rest
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int
    rest: Deletion | None = None  # for `DeleteMore`; None: all is done


class TopicStatus(msgspec.Struct, frozen=True):
    """A topic of any type, as a log of records."""

    name: bytes
    number: int  # new each time the name is made again: the topic's epoch
    config: TopicConfig
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    effective_priority: int
    last_write_ms: int  # 0: never
    last_read_ms: int  # 0: never
    ready: int = 0
    in_flight: int = 0
    dead_lettered: int = 0
    next_seq: int = 0  # that the next record gets: behind a crash it may lie far above the head


class TopicPut(msgspec.Struct, frozen=True):
    created: bool
    status: TopicStatus


class TopicDropped(msgspec.Struct, frozen=True):
    """`head_seq`: of the topic when it went."""

    deleted: bool
    head_seq: int = 0
    routers_removed: Sequence[bytes] = ()


class TopicPage(msgspec.Struct, frozen=True):
    topics: Sequence[TopicStatus]
    more: bool


class SlotsDone(msgspec.Struct, frozen=True):
    """Of the commands that name jobs by slot. `skipped` and `deadlines_ms` (of extended leases only) name slots, too.

    `ready` and `in_flight` count the jobs of all partitions.
    """

    count: int
    skipped: Sequence[int]
    ready: int
    in_flight: int
    deadlines_ms: Mapping[int, int] = {}


class RouterView(msgspec.Struct, frozen=True):
    name: bytes
    source: bytes
    dest: bytes
    options: RouterOptions
    created_ms: int
    forwarded: int
    created: bool = False  # by the command that is answered


class RouterPage(msgspec.Struct, frozen=True):
    routers: Sequence[RouterView]
    more: bool


Reply = (
    Written | Published | Records | Deleted | TopicStatus | TopicPut | TopicDropped | TopicPage | SlotsDone | RouterView
    | RouterPage | Added | Leased | CohortLeased | Done | Extended | StillWorking | Jobs | Count | Paused | TopicView
    | Topics | Refusal | None
)  # fmt: skip
