"""Which jobs a lease of several gets: the best of the ready ones, as far as no one of them needs more thought."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeGuard

from esker.engine.limits import SEQ_MAX
from esker.engine.queues.job import Job, JobState
from esker.engine.queues.partition import QueuePartition
from esker.engine.queues.ready import ready_key

_READY = int(JobState.READY)


def pick(partition: QueuePartition, count: int, now: int, is_odd: Callable[[Job], bool] | None) -> Sequence[Job]:
    """Takes the best jobs off the ready ones, to be leased at once (`QueuePartition.hand_out`).

    Up to `count`, and up to one that has expired, that would be spent by it, or that is odd.
    """
    ready = partition.ready
    keys = ready.pop(count)
    jobs = list(map(partition.jobs.get, keys))  # of priority 0, whose keys are their seqs
    if is_odd is None and _are_plain(jobs, now) and len(set(keys)) == len(keys):
        return jobs
    ready.put_back(keys)
    return _pick_one_by_one(partition, count, now, is_odd)


def _are_plain(jobs: Sequence[Job | None], now: int) -> TypeGuard[Sequence[Job]]:
    """All are there and ready, as most are: of priority 0, not expired, and to be delivered until acked."""
    for job in jobs:
        if job is None or job.state != _READY or job.priority or not job.retry_ms or 0 < job.expires_ms <= now:
            return False
    return True


def _pick_one_by_one(
    partition: QueuePartition, count: int, now: int, is_odd: Callable[[Job], bool] | None
) -> list[Job]:
    find, sign, ready = partition.jobs.get, partition.sign, partition.ready
    best: list[Job] = []
    last = None
    while len(best) < count and (keys := ready.pop(count - len(best))):
        for place, key in enumerate(keys):
            job = find(key & SEQ_MAX)
            if job is None or job.state != _READY or ready_key(sign, job.priority, job.seq) != key or key == last:
                continue  # garbage; a key that is there twice comes twice in a row
            if job.retry_ms == 0 or 0 < job.expires_ms <= now or (is_odd is not None and is_odd(job)):
                ready.put_back(keys[place:])
                return best
            best.append(job)
            last = key
    return best
