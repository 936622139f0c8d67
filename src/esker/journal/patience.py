"""Waiting for what a machine may lack for a while: space on the disk, or a file descriptor.

Only a new segment is waited for: as long as it cannot be made or opened nothing was written, so nothing is repeated
that may have been done. Appends wait meanwhile, and so do their replies. A write or a sync that failed is never tried
again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import TypeVar

from esker.errors import JournalError, SyncFailed

PATIENCE_S = 600.0  # long enough for an operator to free some space; after that the journal stops, and says why
PAUSE_S = 1.0  # each try may fill what is left of the disk before it fails

OUT_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})

_Result = TypeVar("_Result")


class Patience:
    """Tries a step again for so many seconds. Belongs to one journal."""

    def __init__(self, seconds: float = PATIENCE_S, pause_s: float = PAUSE_S) -> None:
        self._seconds = seconds
        self._pause_s = pause_s
        self._over = Event()
        self.waits_for: str | None = None  # why a step was not done yet, while that is so

    def end(self) -> None:
        """Nothing is waited for any more: each step is tried once."""
        self._over.set()

    def until_done(
        self, step: Callable[[], _Result], lacking: frozenset[int] = OUT_OF_SPACE | OUT_OF_DESCRIPTORS
    ) -> _Result:
        deadline = monotonic() + self._seconds
        try:
            while True:
                try:
                    return step()
                except (OSError, JournalError) as error:
                    if self._over.is_set() or monotonic() >= deadline or _errno(error) not in lacking:
                        raise
                    self.waits_for = str(error)
                self._over.wait(self._pause_s)
        finally:
            self.waits_for = None


def _errno(error: OSError | JournalError) -> int | None:
    if isinstance(error, SyncFailed):
        return None
    cause = error.__cause__ if isinstance(error, JournalError) else error
    return cause.errno if isinstance(cause, OSError) else None
