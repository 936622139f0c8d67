"""Disks that fail on command, to see what a journal, and whatever stands on it, makes of that.

`FaultyDisk` wraps a disk and fails the calls you choose, once or from then on. `RamDisk` (in `ram_disk`) forgets what
was not synced, as a machine does that loses power. Both are given to a journal as its `disk`:

    >>> import tempfile, threading
    >>> from pathlib import Path
    >>> from esker.journal.file import FileJournal
    >>> disk = FaultyDisk()
    >>> with tempfile.TemporaryDirectory() as scratch:
    ...     journal = FileJournal(Path(scratch), segment_bytes=4096, disk=disk)
    ...     journal.settle()
    ...     disk.fail_sync()
    ...     answered = threading.Event()
    ...     position = journal.append(b"lost", True, lambda error: (print(type(error).__name__), answered.set())[0])
    ...     assert answered.wait(10)
    ...     journal.close()
    SyncFailed
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock

from esker.journal.disk import Disk, RealDisk

# A held sync that nobody releases must not hang a test run for ever.
_HELD_SECONDS_MAX = 60.0


class HeldSyncs:
    """Syncs that wait at the door. `begun` is set when the first one has come."""

    def __init__(self, of: str = "") -> None:
        self.of = of
        self.begun = Event()
        self.released = Event()

    def wait_begun(self) -> None:
        """Returns when a sync is waiting."""
        if not self.begun.wait(_HELD_SECONDS_MAX):
            raise TimeoutError("no sync came to be held")

    def release(self) -> None:
        """Lets the waiting sync and all later ones through."""
        self.released.set()


class FaultyDisk:
    """A disk that does what `inner` does, until told otherwise. Safe to command from any thread.

    `syncs` and `writes` count the calls that were made, failed ones included.
    """

    def __init__(self, inner: Disk | None = None) -> None:
        self.syncs = 0
        self.writes = 0
        self._inner: Disk = RealDisk() if inner is None else inner
        self._lock = Lock()
        self._paths: dict[int, Path] = {}
        self._sync_fails_in = 0  # 0: not at all
        self._sync_fails_of = ""
        self._sync_errno = errno.EIO
        self._tear_at: int | None = None
        self._space: int | None = None
        self._no_descriptors = False
        self._held: HeldSyncs | None = None

    def fail_sync(self, nth: int = 1, of: str = "", error: int = errno.EIO) -> None:
        """The `nth` fdatasync from now fails with this errno; those after it succeed again, as Linux has it.

        With `of`, only files whose name ends so are counted: a journal also syncs spares, on a thread of its own.
        """
        with self._lock:
            self._sync_fails_in, self._sync_fails_of, self._sync_errno = nth, of, error

    def tear_write(self, keep_bytes: int) -> None:
        """The next write puts only its first `keep_bytes` on the disk and then fails with EIO."""
        with self._lock:
            self._tear_at = keep_bytes

    def limit_space(self, free_bytes: int | None) -> None:
        """From now files can grow by this much in all, then ENOSPC; None lifts the limit. Removing files gives back."""
        with self._lock:
            self._space = free_bytes

    def deny_descriptors(self, denied: bool = True) -> None:
        """From now on whatever needs a file descriptor fails for want of one, until it is called with False."""
        with self._lock:
            self._no_descriptors = denied

    def _need_descriptor(self) -> None:
        with self._lock:
            denied = self._no_descriptors
        if denied:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    @contextmanager
    def hold_syncs(self, of: str = "") -> Iterator[HeldSyncs]:
        """Within, every fdatasync waits for `release`: a slow disk, without a clock.

        With `of`, only those of files whose name ends so, as in `fail_sync`.
        """
        held = HeldSyncs(of)
        with self._lock:
            self._held = held
        try:
            yield held
        finally:
            with self._lock:
                self._held = None
            held.release()

    def names(self, directory: Path) -> Sequence[str]:
        return self._inner.names(directory)

    def is_directory(self, directory: Path) -> bool:
        return self._inner.is_directory(directory)

    def mkdir(self, directory: Path) -> None:
        self._inner.mkdir(directory)

    def read(self, path: Path) -> bytes:
        return self._inner.read(path)

    def size(self, path: Path) -> int:
        return self._inner.size(path)

    def open(self, path: Path, create: bool = False) -> int:
        self._need_descriptor()
        fd = self._inner.open(path, create)
        with self._lock:
            self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        with self._lock:
            self._paths.pop(fd, None)
        self._inner.close(fd)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        with self._lock:
            self.writes += 1
            keep, self._tear_at = self._tear_at, None
            allowed = self._spend_space(fd, len(data), offset) if self._space is not None else len(data)
        if keep is not None:
            self._inner.write(fd, data[:keep], offset)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if allowed == 0 and len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._inner.write(fd, data[:allowed], offset)

    def _spend_space(self, fd: int, size: int, offset: int) -> int:
        """How many of `size` bytes may be written: those the file has already cost nothing."""
        had = self._inner.size(self._paths[fd])
        space = self._space or 0
        allowed = max(0, min(size, max(had, offset) - offset + space))
        self._space = space - max(0, offset + allowed - had)
        return allowed

    def fdatasync(self, fd: int) -> None:
        with self._lock:
            self.syncs += 1
            fails = self._sync_is_to_fail(fd)
            held = self._held
            waits = held is not None and self._paths[fd].name.endswith(held.of)
        if held is not None and waits:
            held.begun.set()
            if not held.released.wait(_HELD_SECONDS_MAX):
                raise TimeoutError("a held sync was never released")
        if fails:
            raise OSError(self._sync_errno, os.strerror(self._sync_errno))
        self._inner.fdatasync(fd)

    def _sync_is_to_fail(self, fd: int) -> bool:
        if self._sync_fails_in == 0 or not self._paths[fd].name.endswith(self._sync_fails_of):
            return False
        self._sync_fails_in -= 1
        return self._sync_fails_in == 0

    def truncate(self, fd: int, size: int) -> None:
        with self._lock:
            self._give_back(self._inner.size(self._paths[fd]) - size)
        self._inner.truncate(fd, size)

    def rename(self, old: Path, new: Path) -> None:
        self._inner.rename(old, new)
        with self._lock:
            self._paths = {fd: new if path == old else path for fd, path in self._paths.items()}

    def link(self, old: Path, new: Path) -> None:
        self._inner.link(old, new)

    def unlink(self, path: Path) -> None:
        size = self._inner.size(path)
        self._inner.unlink(path)
        with self._lock:
            self._give_back(size)

    def _give_back(self, size: int) -> None:
        if self._space is not None:
            self._space += size

    def sync_directory(self, directory: Path) -> None:
        self._need_descriptor()
        self._inner.sync_directory(directory)

    def free_bytes(self, directory: Path) -> int:
        with self._lock:
            if self._space is not None:
                return self._space
        return self._inner.free_bytes(directory)
