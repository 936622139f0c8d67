"""What a router takes from its source: the living records behind its cursor, or word of those that left too early.

Each time it takes one of the two, never both, so that a gap has its place between the copies before and behind it.
Deleted records are passed over in silence. Records that a cap or their age took first are *missed*: readers of the
destination must hear of them, and so must those further down, so a gap of that kind is itself forwarded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from esker.engine.events import RecordBody
from esker.engine.logs.block import Weight, runs_from, weight_of
from esker.engine.logs.copies import changes, copy_of, wants
from esker.engine.logs.partition import LogPartition
from esker.engine.logs.routers import Router
from esker.engine.queues import retention
from esker.engine.queues.job import Job, JobState
from esker.engine.queues.partition import QueuePartition
from esker.engine.topic import Topic

if TYPE_CHECKING:
    from esker.engine.machine import Machine

SOURCE_TRIM = "source_trim"
_SPENT = int(JobState.SPENT)


class Taken(NamedTuple):
    """Up to seq `upto` nothing needs forwarding any more, once the copies are made and the gap is told."""

    upto: int
    runs: list[int]  # the seqs of the source that are copied: first, count, first, ...
    bodies: list[RecordBody]
    missed: int = 0
    weight: Weight | None = None  # of the bodies, where it is known

    def head(self, count: int) -> Taken:
        """The first `count` of the copies. There must be that many, and at least one."""
        if count == len(self.bodies):
            return self
        runs = cut(self.runs, count)
        return Taken(runs[-2] + runs[-1] - 1, runs, self.bodies[:count])


def take(machine: Machine, source: Topic, cursor: int, limit: int, now: int) -> Taken:
    """What is behind a cursor, which must be below the head; looks at about `limit` records.

    It is the same for all routers that have come as far. `adapt` makes of it what one of them copies.
    """
    if source.log is not None:
        return _from_log(source.log, cursor, limit, now)
    (partition,) = source.partitions  # routing.py refuses others
    return _from_queue(machine, partition, cursor, limit, now)


def adapt(router: Router, source: Topic, taken: Taken) -> Taken:
    """Without what the router does not want, and with the rest as it wants it."""
    if router.plain or not taken.bodies:
        return taken
    runs, bodies = taken.runs, taken.bodies
    wanted = wants(router.options)
    if wanted is not None:
        kept = [(seq, body) for seq, body in zip(seqs_of(runs), bodies, strict=True) if wanted(body)]
        runs, bodies = runs_from(seq for seq, _ in kept), [body for _, body in kept]
    if changes(router.options):
        bodies = [copy_of(router, source, seq, body) for seq, body in zip(seqs_of(runs), bodies, strict=True)]
    return Taken(taken.upto, runs, bodies)


def again(router: Router, source: Topic, log: LogPartition, runs: list[int]) -> list[RecordBody]:
    """The copies of these records, as they were made before."""
    bodies = log.bodies(runs)
    if not changes(router.options):
        return bodies
    return [copy_of(router, source, seq, body) for seq, body in zip(seqs_of(runs), bodies, strict=True)]


def head_of(source: Topic) -> int:
    """The last seq that may have a record. After a crash a queue may have skipped some before it, which have none."""
    return source.partitions[0].next_seq - 1 if source.log is None else source.log.head_seq


def _from_log(log: LogPartition, cursor: int, limit: int, now: int) -> Taken:
    floor = log.evict_floor(now)
    if floor > cursor + 1:
        return Taken(floor - 1, [], [], floor - 1 - cursor)
    upto = min(log.head_seq, cursor + limit)
    gap = log.gaps.after(cursor)
    if gap is not None:
        if gap.first <= cursor + 1:
            # What a crash took from the source it took from the destination, too, or it was never copied.
            return Taken(gap.last, [], [], gap.last - cursor if gap.reason == SOURCE_TRIM else 0)
        upto = min(upto, gap.first - 1)
    runs = log.live_runs(cursor, upto)
    bodies = log.bodies(runs)
    return Taken(upto, runs, bodies, 0, weight_of(bodies))


def _from_queue(machine: Machine, partition: QueuePartition, cursor: int, limit: int, now: int) -> Taken:
    """Jobs that were acked or deleted are passed over; seqs below the floor that no job has are missed.

    Jobs bring TTLs of their own, so one may live on below the floor (queues/partition.py).
    """
    retention.catch_up(machine, partition, now)
    floor = partition.evict_floor
    jobs, upto = _jobs_behind(partition, cursor, limit, now)
    if cursor + 1 < floor:
        missed_upto = min(floor, jobs[0].seq if jobs else upto + 1) - 1
        if missed_upto > cursor:
            return Taken(missed_upto, [], [], missed_upto - cursor)
        jobs = [job for place, job in enumerate(jobs, cursor + 1) if job.seq == place < floor]
        upto = jobs[-1].seq
    return Taken(upto, runs_from(job.seq for job in jobs), [_body(machine, partition, job) for job in jobs])


def _jobs_behind(partition: QueuePartition, cursor: int, limit: int, now: int) -> tuple[list[Job], int]:
    """Living jobs in order, and the last seq that was looked at."""
    jobs, upto = partition.jobs, partition.next_seq - 1
    seqs: range | list[int] = range(cursor + 1, min(upto, cursor + limit) + 1)
    if upto - cursor > limit >= len(jobs):  # few and far between
        seqs = sorted(seq for seq in jobs if seq > cursor)
    else:
        upto = seqs[-1]
    found = (job for seq in seqs if (job := jobs.get(seq)) is not None)
    return [job for job in found if job.state != _SPENT and not 0 < job.expires_ms <= now], upto


def _body(machine: Machine, partition: QueuePartition, job: Job) -> RecordBody:
    data, details = machine.payload(partition, job), job.details
    if details is None:
        return RecordBody(data)
    return RecordBody(data, details.tag, details.node, details.meta, details.hops)


def seqs_of(runs: list[int]) -> Iterator[int]:
    for first, count in zip(runs[::2], runs[1::2], strict=True):
        yield from range(first, first + count)


def cut(runs: list[int], count: int) -> list[int]:
    """The runs of the first `count` seqs."""
    found: list[int] = []
    for first, length in zip(runs[::2], runs[1::2], strict=True):
        if count <= 0:
            break
        found += (first, min(length, count))
        count -= length
    return found
