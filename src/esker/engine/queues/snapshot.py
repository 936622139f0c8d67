"""The jobs of a queue exactly as they were at one moment, gathered while the queue goes on.

Copying millions of jobs at once would stall everybody else, so a walk copies them in slices, in the order of their
seqs, and the partition helps (`QueuePartition.views`): before it changes or removes a job that the walk has not come
to, the view gets a copy of the job as it still is. That is the barrier. So every job is copied once, as it was at the
start:

* A job below the cursor was copied by the walk. What happens to it later does not matter.
* A job at or above the cursor that changes is copied by the barrier, and the walk passes it over when it comes by.
* A job made since the start lies at or above `end`. One that came back under an old seq (a dead letter that was
  replayed) was not there at the start, or was copied when it left: it is passed over too.
* A purge, or the end of the topic, takes all jobs away at once: the view keeps the very dict, which nobody changes any
  more, and walks on in it. When the last view has no more need of it, it is freed in small steps like any other.

A copy refers to the payload, and copies none. Of a payload that is in the store only, the copy is given a pin: a look
at the store as it is then, which finds it even if the store lets go of it a moment later.

A view that was walked to its end holds no jobs any more, but it stays where it is told of changes until the first one:
as long as there was none, what was gathered is still how the queue is.

What the barrier has copied waits to be taken by the next slice. If nobody takes it, and it grows past
`WAITING_BYTES_MAX`, the view gives up: it then holds nothing, and says why.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from esker.engine.limits import JOB_MEMORY_BYTES
from esker.engine.queues.job import Job, JobState

if TYPE_CHECKING:
    from esker.engine.logs.cold import Pinned
    from esker.engine.machine import Machine
    from esker.engine.queues.partition import QueuePartition
    from esker.engine.topic import Topic

SLICE_SEQS: Final = 4096  # looked at in one slice: about a millisecond when there is a job for each
SPARSE: Final = 16  # seqs for each job from which on a list of the keys is cheaper than trying every seq
WAITING_BYTES_MAX: Final = 256 << 20  # copies of the barrier that wait for the next slice
PASSED_MAX: Final = 10_000  # seqs to be passed over, before those behind the cursor are sorted out

STATES: Final[Mapping[str, int]] = {state.name.lower(): int(state) for state in JobState}
LIVING: Final = frozenset(int(state) for state in JobState) - {int(JobState.SPENT)}
"""The states of jobs that may still be delivered. Those that were, at most once, must be asked for."""

_copy: Callable[[Job], Job] = Job.__copy__  # type: ignore[attr-defined]  # what copy.copy calls, without the detour


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are wanted."""

    states: frozenset[int] = LIVING
    priority_min: int | None = None
    priority_max: int | None = None
    tag_prefix: bytes = b""
    since_ms: int | None = None  # made at this time or later
    until_ms: int | None = None  # made before it

    def pick(self, jobs: list[Job]) -> list[Job]:
        states = self.states
        jobs = [job for job in jobs if job.state in states]
        return jobs if self._by_state_only else [job for job in jobs if self._takes(job)]

    @property
    def _by_state_only(self) -> bool:
        bounds = (self.priority_min, self.priority_max, self.since_ms, self.until_ms)
        return not self.tag_prefix and all(bound is None for bound in bounds)

    def _takes(self, job: Job) -> bool:
        if self.priority_min is not None and job.priority < self.priority_min:
            return False
        if self.priority_max is not None and job.priority > self.priority_max:
            return False
        if self.since_ms is not None and job.created_ms < self.since_ms:
            return False
        if self.until_ms is not None and job.created_ms >= self.until_ms:
            return False
        return not self.tag_prefix or (job.details is not None and job.details.tag.startswith(self.tag_prefix))


class Piece(NamedTuple):
    """Some jobs of one partition: copies, which no event will change."""

    partition: int
    jobs: list[Job]
    holders: Mapping[int, bytes]  # of leased jobs whose holder gave its name, by seq
    pin: Pinned | None  # has the payloads of those that have none in memory
    pins: Mapping[int, Pinned]  # … unless one is here, by seq


class QueueView:
    """All jobs of a queue as they are when this is made. To be closed, whether or not it was walked to the end."""

    def __init__(self, machine: Machine, topic: Topic) -> None:
        self.jobs = topic.jobs
        self.gave_up = False
        self.walked = False
        self.changed = False  # some job, since this was made; new ones are not told of
        self.waiting_bytes = 0  # of what the barrier has copied
        self.waiting: set[PartitionView] = set()  # those who have such copies
        self._parts = [PartitionView(self, machine, partition) for partition in topic.partitions]
        self._turn = 0

    def next(self) -> Piece | None:
        """The next slice, which may be empty; None when there are no more."""
        if self.waiting:
            return next(iter(self.waiting)).take()
        while self._turn < len(self._parts):
            piece = self._parts[self._turn].walk()
            if piece is not None:
                return piece
            self._turn += 1
        return None

    @property
    def current(self) -> bool:
        """Whether the queue is still as it was. One without partitions has nothing to tell by, so it never is."""
        return not self.changed and bool(self._parts) and not any(part.outgrown for part in self._parts)

    def finish(self) -> None:
        """It was walked to the end. From now on it only looks whether something changes."""
        self.walked = True
        if self.changed:
            self.close()
        for part in self._parts:
            part.rest()

    def told(self) -> None:
        """Something changes."""
        self.changed = True
        if self.walked:
            self.close()

    def give_up(self) -> None:
        self.gave_up = True
        self.close()

    def close(self) -> None:
        for part in self._parts:
            part.close()
        self._parts = []
        self.waiting = set()
        self.waiting_bytes = 0


class PartitionView:
    __slots__ = (
        "_copies", "_cursor", "_end", "_held", "_holders", "_index", "_jobs", "_keys", "_listed", "_machine", "_owner",
        "_partition", "_passed", "_passed_limit", "_pin", "_pins", "_sharers",
    )  # fmt: skip

    def __init__(self, owner: QueueView, machine: Machine, partition: QueuePartition) -> None:
        self._owner = owner
        self._machine = machine
        self._partition: QueuePartition | None = partition  # None: it has let go of these jobs
        self._index = partition.index
        self._jobs = partition.jobs
        self._end = partition.next_seq
        self._cursor = min(partition.first, min(partition.spent, default=self._end))
        self._keys: list[int] | None = None  # in order, where most seqs have no job
        self._listed = False
        self._passed: set[int] = set()  # what the walk must not copy
        self._passed_limit = PASSED_MAX
        self._copies: list[Job] = []
        self._holders: dict[int, bytes] = {}  # of the copies
        self._held: dict[int, bytes] = {}  # of all jobs that the partition let go of
        self._pins: dict[int, Pinned] = {}
        self._pin: Pinned | None = None  # of all jobs that the partition let go of
        self._sharers: set[PartitionView] = set()  # who else walks in a dict that was let go of
        partition.views = (*partition.views, self)

    # -- what the partition tells

    def keep(self, job: Job) -> None:
        """The job is about to change, or to go."""
        self._owner.told()
        seq = job.seq
        if not self._cursor <= seq < self._end or seq in self._passed:
            return
        self._passed.add(seq)
        owner = self._owner
        owner.waiting.add(self)
        self._copies.append(_copy(job))
        if job.payload is None:
            self._pins[seq] = self._machine.cold.pin()
        owner.waiting_bytes += _weight(job)
        assert self._partition is not None
        holder = self._partition.holders.get(seq)
        if holder is not None:
            self._holders[seq] = holder
        if owner.waiting_bytes > WAITING_BYTES_MAX:
            owner.give_up()

    def pass_over(self, seq: int) -> None:
        """A job comes in under an old seq."""
        self._owner.told()
        if self._cursor <= seq < self._end:
            self._passed.add(seq)

    def let_go(self, holders: dict[int, bytes], sharers: set[PartitionView]) -> None:
        """The partition gives its jobs away: nothing changes them any more."""
        self._owner.told()
        if self._owner.walked:
            sharers.discard(self)
            return
        self._partition = None
        self._held = holders
        self._pin = self._machine.cold.pin()  # the store will let go of them too
        self._sharers = sharers

    @property
    def outgrown(self) -> bool:
        """Whether the partition has new jobs."""
        return self._partition is None or self._partition.next_seq != self._end

    # -- what the walk takes

    def take(self) -> Piece:
        """Copies that the barrier made."""
        jobs, self._copies = self._copies[:SLICE_SEQS], self._copies[SLICE_SEQS:]
        piece = Piece(self._index, jobs, self._holders, None, self._pins)
        owner = self._owner
        owner.waiting_bytes -= sum(map(_weight, jobs))
        if not self._copies:
            owner.waiting.discard(self)
            self._holders, self._pins = {}, {}
        return piece

    def walk(self) -> Piece | None:
        if self._cursor >= self._end:
            return None
        if not self._listed:
            self._list_keys()
        jobs = list(map(_copy, filter(None, map(self._jobs.get, self._next_seqs()))))
        if self._passed:
            passed = self._passed
            jobs = [job for job in jobs if job.seq not in passed]
            if len(passed) > self._passed_limit:
                self._passed = {seq for seq in passed if seq >= self._cursor}
                self._passed_limit = max(PASSED_MAX, 2 * len(self._passed))
        partition = self._partition
        holders = self._held if partition is None else partition.holders
        held = {seq: holders[seq] for job in jobs if (seq := job.seq) in holders} if holders else {}
        return Piece(self._index, jobs, held, self._pin or self._machine.cold.pin(), {})

    def _next_seqs(self) -> range | list[int]:
        """Moves the cursor behind them."""
        if self._keys is None:
            stop = min(self._cursor // SLICE_SEQS * SLICE_SEQS + SLICE_SEQS, self._end)
            seqs = range(self._cursor, stop)
            self._cursor = stop
            return seqs
        start = bisect_left(self._keys, self._cursor)
        stop = start + SLICE_SEQS
        self._cursor = self._keys[stop] if stop < len(self._keys) else self._end
        return self._keys[start:stop]

    def _list_keys(self) -> None:
        self._listed = True
        if SPARSE * len(self._jobs) < self._end - self._cursor:
            keys = sorted(self._jobs)  # nearly in order already
            self._keys = keys[: bisect_left(keys, self._end)]

    def rest(self) -> None:
        """What the walk needed goes."""
        self._passed, self._keys, self._pin = set(), None, None

    def close(self) -> None:
        """Harmless when it was closed before."""
        if self._partition is not None:
            self._partition.views = tuple(view for view in self._partition.views if view is not self)
        elif self in self._sharers:
            self._sharers.discard(self)
            if not self._sharers:
                self._machine.graveyard.append(self._jobs)
        self._partition = None
        self._cursor = self._end
        self._jobs, self._copies, self._holders, self._held, self._pins = {}, [], {}, {}, {}
        self._keys = self._pin = None


def _weight(job: Job) -> int:
    """Bytes of memory that a copy may hold on to."""
    return JOB_MEMORY_BYTES if job.payload is None else JOB_MEMORY_BYTES + job.size
