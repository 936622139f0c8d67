"""The words of the fold: kinds and reasons of rows as numbers, a row, a job, and what is told of them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, Protocol


class Code(IntEnum):
    """Kinds of rows, as numbers: what the fold looks at. `LIVE` and `HEAD` are of a broker, not of the history: a job
    of a snapshot, and the next seq of a partition."""

    ENQUEUED = 1
    LEASED = 2
    ACKED = 3
    RETURNED = 4
    EXTENDED = 5
    WITHDRAWN = 6
    REPRIORITISED = 7
    REMOVED = 8
    REPLAYED = 9
    PURGED = 10
    RESERVED = 11
    APPENDED = 12
    FORWARDED = 13
    LOST = 14
    LIVE = 15
    HEAD = 16


CODES: Final = {  # the commonest first
    "JobLeased": Code.LEASED, "JobAcked": Code.ACKED, "JobsEnqueued": Code.ENQUEUED, "Enqueued": Code.ENQUEUED,
    "RecordsAppended": Code.APPENDED, "RecordsForwarded": Code.FORWARDED, "JobReturned": Code.RETURNED,
    "JobRemoved": Code.REMOVED, "LeaseExtended": Code.EXTENDED, "JobWithdrawn": Code.WITHDRAWN,
    "JobReprioritised": Code.REPRIORITISED, "JobReplayed": Code.REPLAYED, "Purged": Code.PURGED,
    "SeqReserved": Code.RESERVED, "SeqsLost": Code.LOST,
}  # fmt: skip


class Reason(IntEnum):
    """Those that the fold looks at; 0 is any other, or none. `DELETED`: a client asked for it, by id or by tag."""

    LEASE_EXPIRED = 1
    EXPIRED = 2
    DEAD_LETTERED = 3
    EVICTED = 4
    EXCUSED = 5
    NOT_DERIVED = 6
    DELETED = 7


REASONS: Final = {
    "lease_expired": Reason.LEASE_EXPIRED, "expired": Reason.EXPIRED, "dead_lettered": Reason.DEAD_LETTERED,
    "evicted": Reason.EVICTED, "no_dead_letter": Reason.EXCUSED, "deleted": Reason.DELETED,
}  # fmt: skip


class State(IntEnum):
    READY = 0
    DELAYED = 1
    LEASED = 2
    WITHDRAWN = 3
    SPENT = 4  # delivered at most once, and was


class Row(NamedTuple):
    """A row as the fold takes it; a plain tuple in this order does as well, and is quicker.

    `number`: the priority of ENQUEUED, REPLAYED and REPRIORITISED, the attempts of LEASED, the router of FORWARDED.
    `token`: of the lease, as the history writes it. `due_ms` 0: none. `extra`: the own limit of deliveries of ENQUEUED
    and REPLAYED, the seq in the source of FORWARDED, the last seq of LOST; -1: none. `expires_ms`: of ENQUEUED and
    REPLAYED; 0: never. Of HEAD, `seq` is the next seq of the broker, and `number` says which `Bound` it is.
    """

    position: int
    ordinal: int
    time_ms: int
    code: int
    seq: int
    number: int = 0
    token: str | None = None
    due_ms: int = 0
    extra: int = -1
    reason: int = 0
    holder: str | None = None
    expires_ms: int = 0


AnyRow = tuple[int, int, int, int, int, int, str | None, int, int, int, str | None, int]


class Bound(IntEnum):
    """A broker goes on while it is asked, so its next seq is known to lie between those of two positions."""

    LEAST = 0  # the history has no more seqs than the broker up to here
    MOST = 1  # the history has all seqs of the broker up to here


class Job:
    __slots__ = (
        "at", "attempts", "due_ms", "expires_ms", "holder", "key", "leased_ms", "made_ms", "most", "priority",
        "ready_ms", "seen", "state", "token",
    )  # fmt: skip

    def __init__(
        self, priority: int, key: int, state: int, due_ms: int, made_ms: int, ready_ms: int, most: int, expires_ms: int
    ) -> None:
        self.priority = priority
        self.key = key
        self.state = state
        self.due_ms = due_ms
        self.made_ms = made_ms
        self.ready_ms = ready_ms  # since when it could be leased
        self.most = most  # deliveries, by its own wish; -1: as the topic says
        self.expires_ms = expires_ms  # 0: never
        self.attempts = 0
        self.token: str | None = None
        self.at = 0  # position of the live lease
        self.leased_ms = 0
        self.holder: str | None = None
        self.seen = False  # in the snapshot


class Times(Protocol):
    """Who wants to know what happened when, and how long it took. Calls come in the order of the history."""

    def came(self, time_ms: int) -> None: ...

    def leased(self, time_ms: int, job: Job, rank: int) -> None:
        """`rank`: how many better jobs were ready, up to `RANK_MAX`."""

    def settled(self, time_ms: int, job: Job, acked: bool) -> None:
        """A lease was acked, or the job came back."""

    def left(self, time_ms: int, reason: int, count: int) -> None:
        """Jobs went without an ack, for a `Reason`; 0: they were purged, or went with their topic."""

    def lost_sight(self, count: int) -> None:
        """From here on the history says no more of so many living jobs."""


class Balance:
    """How many jobs came to a partition, and how they left."""

    __slots__ = ("acked", "alive", "came", "dead_lettered", "deleted", "evicted", "expired", "purged", "replayed")

    def __init__(self) -> None:
        self.came = self.replayed = self.acked = self.expired = self.deleted = 0
        self.dead_lettered = self.evicted = self.purged = self.alive = 0
