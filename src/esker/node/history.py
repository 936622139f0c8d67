"""Brings the events of retired journal segments to the archive before the segments go.

The journal asks on its own thread whether a segment may go, and must not be kept waiting there: it also makes the
spares that appends need. So the first question starts the work in a thread of the archive, and the answer is no until
the files are there. After a failure the next question, a while later, starts it again. What a stop cut short is asked
for again by the next start, and makes the same files.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import structlog

from esker.archive.history import events_files
from esker.archive.interface import ArchiveStore
from esker.archive.rows import Names
from esker.engine.machine import Machine
from esker.errors import JournalCorrupt
from esker.journal.disk import Disk
from esker.journal.frame import SEGMENT_HEADER_BYTES, decode_segment_header, frames_from
from esker.journal.survey import read_segment

_RETRY_S = 5.0

_diagnostics = structlog.get_logger("esker.archive")


class History:
    def __init__(self, archive: ArchiveStore, disk: Disk) -> None:
        self._archive = archive
        self._disk = disk
        self._names = Names()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="esker-archive-history")
        self._closed = False
        # One segment at a time, the oldest first. Only the journal's thread uses these.
        self._path: Path | None = None
        self._work: Future[int] | None = None
        self._not_before = 0.0
        self.segments = 0

    def know(self, machine: Machine) -> None:
        """Before the first segment goes: what numbers stand for."""
        for topic in machine.topics.values():
            self._names.topic_is(topic.number, topic.name)
        for router in machine.routers.numbers.values():
            self._names.router_is(router.number, router.name, router.dest)

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
        """Finishes the file it is at. Segments that were not done stay in the journal."""
        self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _write(self, path: Path) -> int:
        """Returns how many files were made."""
        data = read_segment(self._disk, path)
        header = decode_segment_header(data, str(path))
        if header is None:
            raise JournalCorrupt(f"{path} changed since it was opened: its header is damaged")
        frames = frames_from(data, SEGMENT_HEADER_BYTES, header.segment_id, header.first_position)
        batches = [(frame.position, frame.batch(data)) for frame in frames]
        del data
        count = 0
        for file in events_files(batches, self._names):
            self._archive.put(file.name, file.data)
            count += 1
        return count
