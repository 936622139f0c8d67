"""Leases as clients see them: `lease_` and the fencing token in hexadecimal, and the job it holds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import UNSET, Raw

from esker.engine import limits
from esker.engine.ids import place
from esker.engine.replies import Delivery
from esker.fronts.http.answers import JobAnswer
from esker.fronts.http.errors import HttpError, invalid
from esker.fronts.http.payloads import of_job, text
from esker.fronts.http.selectors import encoded

CLAIM_MAX = 1000
SEQS_MAX = 1000
_LEASE = re.compile(r"lease_([0-9a-f]{1,32})")


def to_lease_id(token: int) -> str:
    return f"lease_{token:x}"


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


def shown_job(delivery: Delivery) -> JobAnswer:
    made = place(delivery.id)
    details = delivery.details
    return JobAnswer(
        made.seq,
        to_lease_id(delivery.token),
        delivery.deadline_ms,
        made.created_ms,
        delivery.attempts,
        of_job(delivery.payload),
        text(details.tag) if details is not None and details.tag else UNSET,
        Raw(details.meta) if details is not None and details.meta else UNSET,
    )


def shown_jobs(deliveries: Sequence[Delivery]) -> list[JobAnswer]:
    return sorted(map(shown_job, deliveries), key=lambda job: job.seq)
