"""The thread that writes a file journal.

Appends come through a queue. The thread takes all that wait, writes them with one call, syncs once if any of them asked
for it, and answers each in order; meanwhile the next ones gather. The more are in flight, the less a sync costs each.

* An answer without an error is given only after the write, and after the sync if one was asked for.
* A new segment that cannot be had is waited for (`patience`): no space, or no file descriptor, may be so for a while.
* What nobody asked to sync is synced `sync_interval_ms` later at the latest.
* What is synced is marked so in the file before it is answered (see `frame`), and a second later in the segment header.
* The first failure ends it: that append and all later ones get an error and leave nothing in the file. A sync that
  failed is not tried again, because the kernel may have dropped the pages it could not write and would say yes.

The queue has no bound of its own: the owner of the journal bounds what it has in flight.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import NamedTuple

from esker.errors import JournalError, JournalFull, SyncFailed
from esker.journal.disk import Disk
from esker.journal.interface import Done
from esker.journal.pace import Pace
from esker.journal.patience import OUT_OF_SPACE, Patience
from esker.journal.segment import SEGMENT_OVERHEAD_BYTES, OpenSegment, bytes_on_disk
from esker.journal.spares import SpareShelf

# Between notes in the segment header of what is synced. Each costs a sync one more page, at the head of the file.
_HEADER_MARK_S = 1.0


class Append(NamedTuple):
    position: int
    batch: bytes
    sync: bool
    done: Done


OnRoll = Callable[[OpenSegment, int], None]


class Writer:
    """`segment` is where to go on, None to begin a new one. `on_roll` hears of each new segment."""

    def __init__(
        self,
        disk: Disk,
        shelf: SpareShelf,
        *,
        segment: OpenSegment | None,
        last_position: int,
        segment_bytes: int,
        sync_interval_ms: int,
        patience: Patience,
        on_roll: OnRoll,
        notes: list[str],
    ) -> None:
        self._disk = disk
        self._shelf = shelf
        self._segment = segment
        self._written = last_position
        self._synced = last_position
        self._header_synced = 0  # what the header of the segment says
        self._header_due = 0.0
        self._segment_bytes = segment_bytes
        self._sync_interval_s = sync_interval_ms / 1000
        self._sync_due = 0.0  # meaningful while _synced < _written
        self._patience = patience
        self._on_roll = on_roll
        self._notes = notes
        self._failure: JournalError | None = None
        self._turn = Lock()  # whose turn it is to write: this thread's or the owner's
        self._given = self._taken = 0  # appends through the queue; the owner counts one, this thread the other
        self._pace = Pace()
        self._queue: SimpleQueue[Append | None] = SimpleQueue()
        self._start()

    def _start(self) -> None:
        self._thread = Thread(target=self._run, name="esker-journal-writer", daemon=True)
        self._thread.start()

    def _now(self) -> float:
        """Seconds, for how long ago the last sync was."""
        return monotonic()

    def put(self, append: Append) -> None:
        """Hands an append to the thread."""
        self._given += 1
        self._queue.put(append)

    def write_now(self, append: Append) -> bool:
        """Writes on the caller's thread, if that is safe and quick: nothing waits, and the disk has been fast lately.

        A hand-over to the thread and back costs about as much as a sync of a fast disk, and more than it while the
        interpreter is busy. A slow disk is the thread's: it must not hold up the caller. So is a new segment.
        """
        began = monotonic()
        if self._given != self._taken or self._shelf.filling or not self._pace.quick(began):
            return False
        if not self._turn.acquire(blocking=False):
            return False
        try:
            segment = self._segment
            if segment is None or bytes_on_disk(append.batch) > segment.room:
                return False
            self._commit([append])
        finally:
            self._turn.release()
        self._pace.wrote(began, monotonic())
        return True

    def close(self) -> None:
        """Finishes what was put, syncs, seals."""
        self._patience.end()
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        queue = self._queue
        closing = False
        while not closing:
            try:
                first = queue.get(timeout=self._time_to_wake())
            except Empty:
                with self._turn:
                    if self._time_to_sync() == 0:
                        self._guarded(self._sync)
                    self._guarded(self._mark_header)
                continue
            appends = [] if first is None else [first]
            closing = first is None
            # This thread is the only taker, so what is counted here can be taken without waiting.
            for _ in range(queue.qsize()):
                item = queue.get_nowait()
                if item is None:
                    closing = True
                else:
                    appends.append(item)
            with self._turn:
                self._commit(appends)
                self._guarded(self._mark_header)
            self._taken += len(appends)
        self._finish()

    def _time_to_wake(self) -> float | None:
        if self._failure is not None:
            return None
        # Not only when something is left to be marked: the owner writes and syncs without waking this thread.
        to_sync = self._time_to_sync()
        return _HEADER_MARK_S if to_sync is None else min(to_sync, _HEADER_MARK_S)

    def _time_to_sync(self) -> float | None:
        if self._synced == self._written or self._failure is not None:
            return None
        return max(0.0, self._sync_due - self._now())

    def _mark_header(self) -> None:
        now = monotonic()
        if self._segment is None or self._failure is not None or self._header_synced == self._synced:
            return
        if now >= self._header_due:
            self._segment.mark_header(self._synced)
            self._header_synced, self._header_due = self._synced, now + _HEADER_MARK_S

    def _commit(self, appends: list[Append]) -> None:
        start = 0
        while start < len(appends):
            stop = len(appends)
            error = self._later_failure()
            if error is None:
                try:
                    stop = self._store(appends, start)
                except Exception as caught:  # noqa: BLE001 whatever it is, the owner must get its answer
                    error = self._fail(caught)
            for append in islice(appends, start, stop):
                try:
                    append.done(error)
                except Exception as caught:  # noqa: BLE001 the owner cannot be told through its callback: stop
                    self._fail(caught)
            start = stop

    def _store(self, appends: list[Append], start: int) -> int:
        """Writes what fits in one segment from `start` on, and syncs if asked; the index of the first left over."""
        segment = self._segment
        if segment is None or bytes_on_disk(appends[start].batch) > segment.room:
            segment = self._roll(appends[start])
        parts: list[bytes] = []
        size, room, wants_sync, stop, synced = 0, segment.room, False, start, self._synced
        for position, batch, sync, _ in islice(appends, start, None):
            larger = size + bytes_on_disk(batch)
            if larger > room:
                break
            size = larger
            parts.append(segment.header_for(position, synced, batch))
            parts.append(batch)
            wants_sync = wants_sync or sync
            stop += 1
        segment.write(parts)
        last = appends[stop - 1].position
        if wants_sync or self._overdue():
            segment.sync()
            segment.mark(segment.offset + size, last)
            self._synced = last
        self._written = last
        # Only now: until here a failure cuts the file back to before these frames.
        segment.offset += size
        return stop

    def _overdue(self) -> bool:
        """For a write that nobody asked to sync; the first one behind a sync starts the clock."""
        now = self._now()
        if self._synced == self._written:
            self._sync_due = now + self._sync_interval_s
        return now >= self._sync_due

    def _roll(self, first: Append) -> OpenSegment:
        if self._segment is not None:
            # A segment counts as whole once another one follows it, so it must be on disk before that.
            self._sync()
            self._segment.close()
            self._segment = None
        size = bytes_on_disk(first.batch) + SEGMENT_OVERHEAD_BYTES
        take = partial(self._shelf.make, size) if size > self._segment_bytes else self._shelf.take
        spare = self._patience.until_done(take)
        self._segment = OpenSegment.start(self._disk, spare, first.position, self._patience)
        self._on_roll(self._segment, first.position)
        return self._segment

    def _sync(self) -> None:
        if self._segment is not None and self._synced < self._written:
            self._segment.sync()
            self._segment.mark(self._segment.offset, self._written)
            self._synced = self._written

    def _guarded(self, step: Callable[[], None]) -> None:
        """Runs a step that no append waits for; its failure is told to the next one."""
        try:
            step()
        except (OSError, JournalError) as caught:
            self._fail(caught)

    def _fail(self, caught: Exception) -> JournalError:
        if self._failure is not None:
            return self._failure
        self._failure = caught if isinstance(caught, JournalError) else self._told(caught)
        self._notes.append(f"the journal stopped: {self._failure}")
        if self._segment is not None:
            self._cut_failed_frames(self._segment)
        return self._failure

    def _cut_failed_frames(self, segment: OpenSegment) -> None:
        try:
            segment.cut()
            if not isinstance(self._failure, SyncFailed):
                segment.sync()
        except (OSError, SyncFailed) as error:
            self._notes.append(
                f"{segment.path} could not be cut at offset {segment.offset}, so a failed append may come back when it "
                f"is opened: {error}"
            )

    def _told(self, caught: Exception) -> JournalError:
        error: JournalError
        if isinstance(caught, OSError) and caught.errno in OUT_OF_SPACE:
            error = JournalFull("the disk is full: free some space, then open the journal again")
        elif isinstance(caught, OSError):
            error = JournalError(f"a journal write failed: {caught.strerror or caught}; check the disk")
        else:
            error = JournalError(f"the journal stopped on {type(caught).__name__}: {caught}")
        error.__cause__ = caught
        return error

    def _later_failure(self) -> JournalError | None:
        """What an append behind the failed one is told; its cause is the failure itself."""
        if self._failure is None:
            return None
        later = type(self._failure)(f"the journal had stopped before: {self._failure}")
        later.__cause__ = self._failure
        return later

    def _finish(self) -> None:
        if self._failure is None:
            self._guarded(self._sync)
        segment = self._segment
        if segment is not None:
            if self._failure is None:
                self._guarded(lambda: segment.seal(self._written))
            segment.close()
