"""The one error tree of Esker.

    EskerError
    ├── Refusal            the engine said no; nothing was changed; carries a stable `Code`
    ├── SettingsError      an option, variable or file key is unknown or unusable      (exit 2)
    ├── DataDirectoryError the data directory is locked, unusable or of a newer format (exit 2)
    │   └── StoreDamaged   the store cannot be read where it is damaged; nothing is made up for it
    ├── JournalError
    │   ├── JournalCorrupt damage that is not a torn tail; `esker journal repair` says what is lost
    │   ├── JournalFull    the disk is full; nothing of the failed append is kept
    │   └── SyncFailed     fsync failed; the shard stops and is never retried
    ├── StoreFailed        the store could not write; it is opened again and the write repeated (node/checkpointer.py)
    ├── ArchiveError       a file of the archive could not be read or written; what it holds is tried again later
    ├── LoadRefused        a bulk load, or a part of one, cannot be taken; nothing of it is visible to anyone
    ├── SnapshotRefused    a snapshot of a queue cannot be made or is no longer there; nothing else is touched by that
    ├── ShardStopped       the shard met one of the above, or a broken invariant, and serves no more
    └── InvariantBroken    our bug: the shard stops loudly with its evidence

A `Refusal` is an expected answer, so the engine *returns* it as a reply and never raises it; clients raise it.
Each front maps a `Code` to its protocol in one table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Code(StrEnum):
    """Stable names of everything the engine can refuse. `RETRYABLE` says which may succeed if simply tried later."""

    BAD_REQUEST = "bad_request"
    TOPIC_NOT_FOUND = "topic_not_found"
    TOPIC_EXISTS = "topic_exists"
    NOT_A_QUEUE = "not_a_queue"
    JOB_NOT_FOUND = "job_not_found"
    STALE_TOKEN = "stale_token"
    TOO_LATE = "too_late"
    QUEUE_FULL = "queue_full"
    PAUSED = "paused"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    TOO_MANY_IN_FLIGHT = "too_many_in_flight"
    OUT_OF_MEMORY = "out_of_memory"
    DISK_FULL = "disk_full"
    NO_REPLICAS = "no_replicas"
    LIMIT_REACHED = "limit_reached"
    RECORD_TOO_LARGE = "record_too_large"
    BATCH_TOO_LARGE = "batch_too_large"
    TOPIC_FULL = "topic_full"
    TOPIC_NOT_EMPTY = "topic_not_empty"
    TOPIC_INCOMPATIBLE = "topic_incompatible"  # what is there already does not allow it; `detail` says why
    ROUTER_NOT_FOUND = "router_not_found"
    ROUTER_CYCLE = "router_cycle"


RETRYABLE = frozenset({
    Code.QUEUE_FULL, Code.PAUSED, Code.TOO_MANY_IN_FLIGHT, Code.OUT_OF_MEMORY, Code.DISK_FULL, Code.NO_REPLICAS,
    Code.TOPIC_FULL,
})  # fmt: skip


def quoted(name: bytes) -> str:
    """A topic's or router's name as messages show it."""
    return repr(name.decode("utf-8", "backslashreplace"))


class EskerError(Exception):
    """Everything Esker raises on purpose."""


class Refusal(EskerError):
    """The engine refused a command and changed nothing. `detail`: the facts behind it, for programs."""

    def __init__(self, code: Code, message: str, detail: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail: Mapping[str, object] = detail or {}

    @property
    def retryable(self) -> bool:
        return self.code in RETRYABLE


class SettingsError(EskerError):
    """A setting is unknown or cannot be used; the message names it and the fix."""


class DataDirectoryError(EskerError):
    """The data directory cannot be used as it is; it was not touched."""


class StoreDamaged(DataDirectoryError):
    """A checksum of the store does not match. At the start the node refuses; while it runs, the shard stops."""


class JournalError(EskerError):
    """The journal could not do what was asked."""


class JournalCorrupt(JournalError):
    """A frame before the end of the journal is damaged."""


class JournalFull(JournalError):
    """There is no space left for an append."""


class SyncFailed(JournalError):
    """fsync reported an error, so what the disk holds is unknown."""


class StoreFailed(EskerError):
    """The store could not do what was asked; after `reopen` it can be asked again."""


class ArchiveError(EskerError):
    """The archive could not do what was asked; the message names the file."""


class LoadProblem(StrEnum):
    """Why a bulk load was refused."""

    BAD_PART = "bad_part"  # its rows are not what they should be
    BAD_COMMIT = "bad_commit"  # the parts are fine, and what is asked for is not
    TOO_LARGE = "too_large"
    NO_ROOM = "no_room"  # on the disk
    TOO_MANY = "too_many"  # loads or parts at once
    COMMITTED = "committed"  # it cannot be undone any more
    NOT_AVAILABLE = "not_available"  # this node has no pyarrow


class LoadRefused(EskerError):
    """A bulk load cannot be taken as it is. `row`: the one to blame, where there is one."""

    def __init__(self, problem: LoadProblem, message: str, row: int | None = None) -> None:
        super().__init__(message if row is None else f"row {row}: {message}")
        self.problem = problem
        self.row = row


class SnapshotProblem(StrEnum):
    """Why there is no snapshot."""

    GONE = "gone"  # it expired, was deleted, or belongs to an earlier life of the node
    FAILED = "failed"  # it could not be made to the end
    TOO_MANY = "too_many"
    NO_ROOM = "no_room"  # on the disk


class SnapshotRefused(EskerError):
    """A snapshot of a queue's jobs cannot be made, or is not there any more."""

    def __init__(self, problem: SnapshotProblem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


class ShardStopped(EskerError):
    """The shard no longer serves; the cause is in the message."""


class InvariantBroken(EskerError):
    """State contradicts a rule of the engine. The message is the evidence."""
