"""Brings the events of retired journal segments to the archive before the segments go.

The journal asks on its own thread whether a segment may go, and must not be kept waiting there: it also makes the
spares that appends need. So the first question starts the work, in a thread of the archive and in a process of its own
(eventprocess.py), and the answer is no until the files are there. After a failure the next question, a while later,
starts it again. What a stop cut short is asked for again by the next start, and makes the same files.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import structlog

from esker.archive.interface import ArchiveStore
from esker.errors import InvariantBroken
from esker.node.eventprocess import EventProcess
from esker.node.eventwire import ArchiveEvents, Step

_RETRY_S = 5.0

_diagnostics = structlog.get_logger("esker.archive")


class History:
    def __init__(self, archive: ArchiveStore, process: EventProcess) -> None:
        self._archive = archive
        self._process = process
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="esker-archive-history")
        self._closed = False
        # One segment at a time, the oldest first. Only the journal's thread uses these.
        self._path: Path | None = None
        self._work: Future[int] | None = None
        self._not_before = 0.0
        self.segments = 0

    def may_go(self, path: Path) -> bool:
        """Whether the events of a segment are in the archive. Called on the journal's thread, again and again."""
        if self._work is not None and self._path == path:
            if not self._work.done():
                return False
            work, self._work = self._work, None
            error = work.exception()
            if error is None:
                self.segments += 1
                return True
            self._not_before = time.monotonic() + _RETRY_S
            _diagnostics.warning("history not archived", segment=path.name, why=str(error), retry_s=_RETRY_S)
        if not self._closed and time.monotonic() >= self._not_before:
            self._path, self._work = path, self._pool.submit(self._write, path)
        return False

    def close(self) -> None:
        """Finishes the segment it is at. Segments that were not done stay in the journal."""
        self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _write(self, path: Path) -> int:
        """Returns how many files were made."""
        count, again = 0, True
        while True:
            answer, data = self._process.ask(ArchiveEvents(str(path), again))
            if not isinstance(answer, Step):
                raise InvariantBroken(f"the worker answered {type(answer).__name__} where Step was promised")
            if answer.done:
                return count
            if answer.name:
                self._archive.put(answer.name, data)
                count += 1
            again = False
