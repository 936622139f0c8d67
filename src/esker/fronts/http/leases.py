"""Leases as clients see them: `lease_` and the fencing token in hexadecimal, and the job it holds.

In a queue of several partitions a seq names no job, so there the lease id says it all: `lease_` partition `-` seq `-`
token, all hexadecimal, and every job carries its `$partition`. In a queue of one nothing of that is seen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from esker.engine import limits
from esker.engine.commands import Details
from esker.engine.config import TopicConfig
from esker.engine.ids import PARTITION_MASK, PARTITION_SHIFT, TIME_SHIFT, slot
from esker.engine.limits import SEQ_MAX
from esker.engine.replies import Delivery
from esker.fronts.http.answers import encode
from esker.fronts.http.bodies import LEASE_PATTERN, LEASES_MAX, WIDE_LEASE_PATTERN
from esker.fronts.http.errors import HttpError, invalid
from esker.fronts.http.payloads import of_jobs, text
from esker.fronts.http.selectors import encoded

CLAIM_MAX = 1000
_LEASE = re.compile(LEASE_PATTERN)
_WIDE_LEASE = re.compile(WIDE_LEASE_PATTERN)


class NamedLeases(NamedTuple):
    """The leases of a request: jobs by slot (engine/ids.py), and the tokens in their order; None asks for none."""

    slots: Sequence[int]
    tokens: Sequence[int | None] | None


def to_leases(config: TopicConfig, seqs: Sequence[int] | None, lease_ids: Sequence[str] | None) -> NamedLeases:
    """What an ack, nack or extend of a queue names. Raises 400."""
    if seqs is not None and lease_ids is not None and len(lease_ids) != len(seqs):
        raise invalid(f"lease_ids has {len(lease_ids)} entries for {len(seqs)} seqs; they must be as many")
    _check_count(len(seqs if seqs is not None else lease_ids or ()))
    if config.partitions > 1:
        return _wide_leases(config.partitions, seqs, lease_ids)
    if seqs is None:
        raise invalid("Object missing required field `seqs`")
    return NamedLeases(seqs, None if lease_ids is None else list(map(_token, lease_ids)))


def _token(lease_id: str) -> int | None:
    """An empty text asks for no token."""
    found = _LEASE.fullmatch(lease_id)
    if lease_id and found is None:
        raise _unknown(lease_id)
    return None if found is None else int(found[1], 16)


def _wide_leases(partitions: int, seqs: Sequence[int] | None, lease_ids: Sequence[str] | None) -> NamedLeases:
    if lease_ids is None:
        raise invalid(
            f"the queue has {partitions} partitions, each with seqs of its own: name its jobs by `lease_ids`, with or "
            "without `seqs`"
        )
    slots: list[int] = []
    tokens: list[int | None] = []
    names: dict[int, str] = {}
    for position, lease_id in enumerate(lease_ids):
        found = _WIDE_LEASE.fullmatch(lease_id)
        if found is None or int(found[1], 16) >= partitions or int(found[2], 16) > SEQ_MAX:
            raise _unknown(lease_id)
        index, seq, token = (int(part, 16) for part in found.groups())
        if seqs is not None and seqs[position] != seq:
            raise invalid(f"lease id {lease_id!r} is of seq {seq}, not of {seqs[position]}; keep them in one order")
        named = slot(index, seq)
        if names.setdefault(named, lease_id) != lease_id:
            raise invalid(f"{names[named]!r} and {lease_id!r} are leases of one job; name the one that you hold")
        slots.append(named)
        tokens.append(token)
    return NamedLeases(slots, tokens)


def _unknown(lease_id: str) -> HttpError:
    return invalid(f"lease id {lease_id[:64]!r} is not one that a claim of this queue returned")


def to_holder(node: str) -> bytes:
    return encoded(node, "node", limits.NODE_BYTES_MAX, least=1)


def _check_count(jobs: int) -> None:
    if jobs > LEASES_MAX:
        raise HttpError(
            400,
            "batch_too_large",
            f"{jobs} seqs in one request; at most {LEASES_MAX}",
            {"seqs": jobs, "max": LEASES_MAX},
        )


def job_text(job: Delivery, config: TopicConfig) -> bytes:
    """A leased job as JSON: what a `JobAnswer` of it would be encoded as."""
    return jobs_texts((job,), config)[0]


def jobs_text(jobs: Sequence[Delivery], config: TopicConfig) -> bytes:
    """An array of them, best first: in the order in which they were leased."""
    return b"[%b]" % b",".join(jobs_texts(jobs, config))


def jobs_texts(jobs: Sequence[Delivery], config: TopicConfig) -> list[bytes]:
    """Jobs that come together are much alike: what stands between token and payload is made once for those in a row."""
    wide = config.partitions > 1
    texts: list[bytes] = []
    alike = (-1, -1, -1)  # what the bytes in the middle depend on
    middle = b""
    for job, data in zip(jobs, of_jobs([job.payload for job in jobs]), strict=True):
        made_ms = job.id >> TIME_SHIFT
        if (job.deadline_ms, made_ms, job.attempts) != alike:
            alike = job.deadline_ms, made_ms, job.attempts
            middle = b'","deadline":%d,"$ts":%d,"deliveries":%d,"data":' % alike
        end = b"}" if job.details is None else _end(job.details)
        seq, lease = job.id & SEQ_MAX, b"%x" % job.token
        if wide:
            index = job.id >> PARTITION_SHIFT & PARTITION_MASK
            lease = b"%x-%x-%b" % (index, seq, lease)
            end = b'%b,"$partition":%d}' % (end[:-1], index)
        texts.append(b'{"$seq":%d,"lease_id":"lease_%b%b%b%b' % (seq, lease, middle, data, end))
    return texts


def _end(details: Details) -> bytes:
    """What few jobs have, and the end."""
    tag = b',"$tag":' + encode(text(details.tag)) if details.tag else b""
    return b"%b%b}" % (tag, b',"meta":' + details.meta if details.meta else b"")
