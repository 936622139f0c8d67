"""The promises that an audit checks, and what it finds.

Every rule is one sentence that is true of an honest history. A violation names the rule, the row of the history where
it shows, what was expected there, and what the history says instead. Beside violations an audit has notes: things that
are legal but worth a number, such as acks by id alone, or events of jobs that are older than the history.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

RULES: Final = {
    "continuous_positions": "Positions of the journal follow each other: nothing is missing between first and last.",
    "conservation": "Every job that was taken is alive, acked, expired, deleted or dead-lettered, and nothing else is.",
    "known_jobs": "Nothing happens to a job that never came, or that is gone.",
    "one_live_lease": "A job has at most one live lease; one that is delivered at most once has one in its life.",
    "ack_without_lease": "An ack under a token is an ack under the live lease of that token, before its deadline.",
    "ack_before_lease": "An ack is not older than the lease that it ends.",
    "early_expiry": "A job expires at its expiry or later, and one that has none never does.",
    "eviction_needs_cap": "A job is evicted only where a cap is exceeded, or after its only delivery.",
    "dead_letter_reason": "A job becomes a dead letter when its deliveries are used up, and is not deleted instead.",
    "real_purge": "A purge takes only jobs that came: all there are, or so many that one by one would take long.",
    "live_heads": "The next seq of a topic in the broker is the one behind the last seq of its history.",
    "legal_moves": "A job moves only where its state allows, and a lease expires only after its deadline.",
    "contiguous_seqs": "Seqs are given out in a row; only a crash skips some, and then to the ceiling it had reserved.",
    "pop_order": "A lease takes the best ready job of its partition: by priority, then by age, none before it is due.",
    "attempts_limit": "Each delivery counts one attempt, and none is past the limit while dead letters are taken.",
    "router_exactly_once": "A router copies each record of its source at most once, in order, to seqs in a row.",
}

NOTES: Final = {
    "older": "events of jobs that came before the history begins",
    "untold": "events of jobs that came while their queue was ephemeral, which no event tells",
    "unfenced_acks": "acks by id alone, which need no lease",
    "excused": "deliveries past the limit because the dead-letter topic took nothing",
    "deleted_at_limit": "jobs that had used up their deliveries and were deleted, as a client may ask for",
    "unmarked_restarts": "leases over live ones in a history that does not tell restarts, which may have ended them",
}

EVIDENCE_MAX: Final = (
    100  # of one rule in one partition: enough to see a pattern, and it bounds memory; all are counted
)


class Violation(NamedTuple):
    """`position`, `ordinal`: the row that breaks the rule. `seq`: of the job or record it is about."""

    rule: str
    topic: int
    partition: int
    position: int
    ordinal: int
    time_ms: int
    seq: int
    expected: str
    found: str


class Findings:
    """What came out of a partition: evidence up to a bound, and numbers of everything.

    `letters`: by dead-letter topic and position, how many jobs left for it, less how many records came to it there.
    Both are in one batch, so over all partitions none may be more than 0. `deleted`: the same of jobs that had used up
    their deliveries and left as deleted; where a record came to the dead-letter topic that no dead letter explains, it
    is the one of such a job. Whoever sums them up empties both now and then.
    """

    __slots__ = ("broken", "deleted", "evidence", "letters", "notes")

    def __init__(self) -> None:
        self.letters: Counter[tuple[str, int]] = Counter()
        self.deleted: Counter[tuple[str, int]] = Counter()
        self.evidence: list[Violation] = []
        self.broken: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()

    def add(self, violation: Violation) -> None:
        self.broken[violation.rule] += 1
        if self.broken[violation.rule] <= EVIDENCE_MAX:
            self.evidence.append(violation)


def disguised(letters: int, deleted: int) -> int:
    """Of one dead-letter topic and position, over all partitions: how many dead letters are called deleted.

    >>> disguised(letters=-1, deleted=1), disguised(letters=0, deleted=1), disguised(letters=-2, deleted=0)
    (1, 0, 0)
    """
    return max(0, min(-letters, deleted))
