"""A job in memory: one slotted struct, kept small because millions of them wait."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import msgspec

from esker.engine.commands import Details


class JobState(IntEnum):
    """Where a job is; `lifecycle.py` holds the table of moves."""

    READY = 0
    DELAYED = 1  # waits for its delay or backoff to pass; being due makes it ready, which is no event
    LEASED = 2
    WITHDRAWN = 3  # out of the queue without a lease; comes back when due
    SPENT = 4  # at-most-once and delivered; never comes back


class Job(msgspec.Struct, gc=False, array_like=True):
    """All of a job but its topic and partition.

    The stored form is an array of the fields before `payload`, and of the lease's holder where it has a name;
    `payload` is None while it is in the store only.
    """

    seq: int
    created_ms: int
    priority: int
    retry_ms: int
    expires_ms: int  # 0: never
    state: int
    due_ms: int  # end of the lease, the delay or the withdrawal; 0: nothing is due
    token: int
    attempts: int
    nacks: int
    requeues: int
    size: int  # bytes of the payload
    details: Details | None
    payload: bytes | None = None


def wrong_size(number: int, index: int, job: Job, size: int) -> str:
    """What to say when the store gives back another payload than was saved."""
    return f"the payload of job {number}/{index}/{job.seq} has {size} of {job.size} bytes in the store"


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Job).decode


def encode_job(job: Job, holder: bytes = b"") -> bytes:
    fields = (
        job.seq, job.created_ms, job.priority, job.retry_ms, job.expires_ms, job.state, job.due_ms, job.token,
        job.attempts, job.nacks, job.requeues, job.size, job.details,
    )  # fmt: skip
    return _encode((*fields, holder) if holder else fields)


def decode_jobs(stored: Iterable[bytes]) -> list[Job]:
    """Jobs that came together share the objects of their times, as they did when they came: up to 96 bytes each.

    A holder, if there is one, is where the payload belongs; `QueuePartition.load` puts that right. Millions of jobs are
    loaded at a start, and most have none.
    """
    jobs: list[Job] = []
    created_ms = retry_ms = expires_ms = 0
    for job in map(_decode, stored):
        if job.created_ms == created_ms:
            job.created_ms = created_ms
        else:
            created_ms = job.created_ms
        if job.retry_ms == retry_ms:
            job.retry_ms = retry_ms
        else:
            retry_ms = job.retry_ms
        if job.expires_ms == expires_ms:
            job.expires_ms = expires_ms
        else:
            expires_ms = job.expires_ms
        jobs.append(job)
    return jobs
