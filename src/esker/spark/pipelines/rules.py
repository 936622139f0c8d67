"""The promises that an audit checks, and what it finds.

Every rule is one sentence that is true of an honest history. A violation names the rule, the row of the history where
it shows, what was expected there, and what the history says instead. Beside violations an audit has notes: things that
are legal but worth a number, such as acks by id alone, or events of jobs that are older than the history.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

RULES: Final = {
    "conservation": "Every job that was taken is alive, acked, expired, deleted or dead-lettered, and nothing else is.",
    "known_jobs": "Nothing happens to a job that never came, or that is gone.",
    "one_live_lease": "A job has at most one live lease; one that is delivered at most once has one in its life.",
    "ack_without_lease": "An ack under a token is an ack under the live lease of that token, before its deadline.",
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
    Both are in one batch, so over all partitions none may be more than 0. Whoever sums them up empties it now and then.
    """

    __slots__ = ("broken", "evidence", "letters", "notes")

    def __init__(self) -> None:
        self.letters: Counter[tuple[str, int]] = Counter()
        self.evidence: list[Violation] = []
        self.broken: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()

    def add(self, violation: Violation) -> None:
        self.broken[violation.rule] += 1
        if self.broken[violation.rule] <= EVIDENCE_MAX:
            self.evidence.append(violation)
