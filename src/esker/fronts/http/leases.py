"""Leases as clients see them: `lease_` and the fencing token in hexadecimal, and the job it holds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from esker.engine import limits
from esker.engine.commands import Details
from esker.engine.ids import TIME_SHIFT
from esker.engine.limits import SEQ_MAX
from esker.engine.replies import Delivery
from esker.fronts.http.answers import encode
from esker.fronts.http.errors import HttpError, invalid
from esker.fronts.http.payloads import of_jobs, text
from esker.fronts.http.selectors import encoded

CLAIM_MAX = 1000
SEQS_MAX = 1000
_LEASE = re.compile(r"lease_([0-9a-f]{1,32})")


def to_tokens(lease_ids: Sequence[str] | None, seqs: Sequence[int]) -> list[int | None] | None:
    """In the order of `seqs`; an empty text asks for no token. Raises 400."""
    if lease_ids is None:
        return None
    if len(lease_ids) != len(seqs):
        raise invalid(f"lease_ids has {len(lease_ids)} entries for {len(seqs)} seqs; they must be as many")
    tokens: list[int | None] = []
    for lease_id in lease_ids:
        found = _LEASE.fullmatch(lease_id)
        if lease_id and found is None:
            raise invalid(f"lease id {lease_id[:64]!r} is not one that a claim returned")
        tokens.append(None if found is None else int(found[1], 16))
    return tokens


def to_holder(node: str) -> bytes:
    return encoded(node, "node", limits.NODE_BYTES_MAX, least=1)


def check_seqs(seqs: Sequence[int]) -> None:
    if len(seqs) > SEQS_MAX:
        raise HttpError(
            400, "batch_too_large", f"{len(seqs)} seqs in one request; at most {SEQS_MAX}",
            {"seqs": len(seqs), "max": SEQS_MAX},
        )  # fmt: skip


def job_text(job: Delivery) -> bytes:
    """A leased job as JSON: what a `JobAnswer` of it would be encoded as."""
    return _texts((job,))[0]


def jobs_text(jobs: Sequence[Delivery]) -> bytes:
    """An array of them, in the order of their seqs."""
    return b"[%b]" % b",".join(_texts(sorted(jobs, key=_seq)))


def _seq(job: Delivery) -> int:
    return job.id & SEQ_MAX


def _texts(jobs: Sequence[Delivery]) -> list[bytes]:
    """Jobs that come together are much alike: what stands between token and payload is made once for those in a row."""
    texts: list[bytes] = []
    alike = (-1, -1, -1)  # what the bytes in the middle depend on
    middle = b""
    for job, data in zip(jobs, of_jobs([job.payload for job in jobs]), strict=True):
        made_ms = job.id >> TIME_SHIFT
        if (job.deadline_ms, made_ms, job.attempts) != alike:
            alike = job.deadline_ms, made_ms, job.attempts
            middle = b'","deadline":%d,"$ts":%d,"deliveries":%d,"data":' % alike
        end = b"}" if job.details is None else _end(job.details)
        texts.append(b'{"$seq":%d,"lease_id":"lease_%x%b%b%b' % (job.id & SEQ_MAX, job.token, middle, data, end))
    return texts


def _end(details: Details) -> bytes:
    """What few jobs have, and the end."""
    tag = b',"$tag":' + encode(text(details.tag)) if details.tag else b""
    return b"%b%b}" % (tag, b',"meta":' + details.meta if details.meta else b"")
