"""The shelf of spare segments, and the thread that keeps it stocked and clears retired segments away.

Filling a spare with zeros takes long, so it is done ahead of need. A retired segment becomes a spare while the shelf is
short, which saves writing the zeros; else it is unlinked. Retired segments go strictly oldest first, each step
made durable before the next, so that no crash leaves a hole in the journal.

`full` is the early warning of a full disk: no spare could be made, or less than the reserve is free. The journal itself
goes on: into the segment it has, and then into the reserve, which is there for this and for the store's checkpoints.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Thread

from esker.errors import JournalError, JournalFull
from esker.journal.disk import Disk
from esker.journal.patience import OUT_OF_SPACE
from esker.journal.segment import FILLING_SUFFIX, SPARE_SUFFIX, fill_with_zeros

# Below the first number a spare is made; up to the second, retired segments are kept as spares. The distance lets a
# journal in steady use live on recycled segments: a roll takes one, and the next checkpoint gives one back.
_SPARES_WANTED = 1
_SPARES_KEPT_MAX = 2

OnRetire = Callable[[Path], bool | None]


class SpareShelf:
    def __init__(
        self,
        disk: Disk,
        directory: Path,
        *,
        segment_bytes: int,
        reserve_bytes: int,
        space_check_ms: int,
        on_retire: OnRetire | None,
        notes: list[str],
    ) -> None:
        self.full = False
        self.free_bytes: int | None = None  # of the disk, when it was last looked at
        self.filling = False  # a spare is being written, which keeps the disk busy
        self._disk = disk
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._reserve_bytes = reserve_bytes
        self._space_check_s = space_check_ms / 1000
        self._on_retire = on_retire
        self._notes = notes
        self._number = 0
        self._spares = self._found()
        # Guards all that follows; `_changed` tells the thread of work and the waiting of a finished round.
        self._changed = Condition()
        self._retired: deque[Path] = deque()
        self._error: OSError | None = None
        self._asked = 1  # rounds asked for; the first one stocks the shelf
        self._finished = 0  # the last of them that is done
        self._needed = False
        self._closing = False
        self._start()

    def _start(self) -> None:
        self._thread = Thread(target=self._run, name="esker-journal-spares", daemon=True)
        self._thread.start()

    def take(self) -> Path:
        """A spare of the full size. Waits for one to be made when there is none; raises `JournalFull` when none can."""
        with self._changed:
            if not self._spares:
                self._needed = True
                self._await_round()
                self._needed = False
            if not self._spares:
                raise _unavailable(self._error, self._segment_bytes) from self._error
            spare = self._spares.popleft()
            self._ask()
            return spare

    def make(self, size: int) -> Path:
        """A spare of a size of its own, for a frame that no usual segment can hold. Made on the calling thread."""
        with self._changed:
            path = self._next_path()
        try:
            self._fill(path, size)
        except OSError as error:
            raise _unavailable(error, size) from error
        return path

    def retire(self, paths: list[Path]) -> None:
        """Lets go of these segments, the oldest first, when the thread comes to it."""
        with self._changed:
            self._retired.extend(paths)
            self._ask()

    def settle(self) -> None:
        """Returns after a whole round of work: what was retired before the call is gone, and `full` is fresh."""
        with self._changed:
            self._await_round()

    def close(self) -> None:
        """Finishes what was retired."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _found(self) -> deque[Path]:
        spares: deque[Path] = deque()
        for name in sorted(self._disk.names(self._directory)):
            path = self._directory / name
            if path.suffix == FILLING_SUFFIX:
                self._disk.unlink(path)
            elif path.suffix == SPARE_SUFFIX and path.stem.isdigit():
                self._number = max(self._number, int(path.stem))
                # A size from earlier settings, or of one big frame, would make segments of unforeseen length.
                if self._disk.size(path) == self._segment_bytes and len(spares) < _SPARES_KEPT_MAX:
                    spares.append(path)
                else:
                    self._disk.unlink(path)
        return spares

    def _ask(self) -> int:
        self._asked += 1
        self._changed.notify_all()
        return self._asked

    def _await_round(self) -> None:
        wanted = self._ask()
        self._changed.wait_for(lambda: self._finished >= wanted)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._asked > self._finished, self._space_check_s)
            if self._round():
                return

    def _round(self) -> bool:
        """Everything there is to do now. True: it was the last round."""
        with self._changed:
            asked, closing = self._asked, self._closing
        self._clear_retired()
        if closing:
            return True
        try:
            full, error = self._restock(), None
        except OSError as caught:  # told to the append that needs the spare, if one does; tried again later
            full, error = True, caught
        with self._changed:
            self.full, self._error, self._finished = full, error, asked
            self._changed.notify_all()
        return False

    def _restock(self) -> bool:
        """Makes a spare when one is wanted; True when there is too little space to go on as usual."""
        with self._changed:
            wanted, needed = len(self._spares) < _SPARES_WANTED, self._needed
        self.free_bytes = free = self._disk.free_bytes(self._directory)
        if not wanted:
            return free < self._reserve_bytes
        short = free < self._reserve_bytes + self._segment_bytes
        # The reserve is touched only for an append that waits, never to have a spare in hand.
        if needed or not short:
            with self._changed:
                path = self._next_path()
            self._fill(path, self._segment_bytes)
            with self._changed:
                self._spares.append(path)
        return short

    def _next_path(self) -> Path:
        self._number += 1
        return self._directory / f"{self._number:04d}{SPARE_SUFFIX}"

    def _fill(self, path: Path, size: int) -> None:
        filling = path.with_suffix(FILLING_SUFFIX)
        self.filling = True
        try:
            fill_with_zeros(self._disk, filling, size)
        finally:
            self.filling = False
        self._disk.rename(filling, path)
        self._disk.sync_directory(self._directory)

    def _clear_retired(self) -> None:
        while True:
            with self._changed:
                if not self._retired:
                    return
                path = self._retired[0]
            if not self._let_go(path):
                return
            with self._changed:
                self._retired.popleft()

    def _let_go(self, path: Path) -> bool:
        """False when the segment must stay for now: then all behind it stay as well, and it is tried again."""
        try:
            if self._on_retire is not None and self._on_retire(path) is False:
                return False  # it is being seen to
            self._recycle_or_unlink(path)
        except Exception as error:  # noqa: BLE001 the callback may raise anything, and no history may go then
            note = f"{path} is kept although it is no longer needed: {type(error).__name__}: {error}"
            if note not in self._notes:
                self._notes.append(note)
            return False
        return True

    def _recycle_or_unlink(self, path: Path) -> None:
        with self._changed:
            recycle = len(self._spares) < _SPARES_KEPT_MAX
            spare = self._next_path()
        if recycle and self._disk.size(path) == self._segment_bytes:
            self._disk.rename(path, spare)
            self._disk.sync_directory(self._directory)
            with self._changed:
                self._spares.append(spare)
        else:
            self._disk.unlink(path)
            self._disk.sync_directory(self._directory)


def _unavailable(error: OSError | None, size: int) -> JournalError:
    if error is not None and error.errno in OUT_OF_SPACE:
        return JournalFull(f"the disk has no {size} bytes left for a new journal segment: free some space")
    return JournalError(f"a new journal segment of {size} bytes could not be made: {error}; check the disk")
