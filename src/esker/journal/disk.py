"""What the file journal asks of the operating system, and nothing more.

Every call that can fail on a sick or full disk goes through a `Disk`, so that `esker.testing.faults` can make it fail
at a chosen moment. All of them raise `OSError`. `write`, `fdatasync` and `read` release the GIL.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Disk(Protocol):
    def names(self, directory: Path) -> Sequence[str]:
        """The names in a directory, in no order."""

    def is_directory(self, directory: Path) -> bool: ...

    def mkdir(self, directory: Path) -> None:
        """Fine when it is there. Durable after `sync_directory` of its parent."""

    def read(self, path: Path) -> bytes:
        """The whole file."""

    def size(self, path: Path) -> int: ...

    def open(self, path: Path, create: bool = False) -> int:
        """A descriptor for reading and writing. With `create` the file is made, or emptied when it is there."""

    def close(self, fd: int) -> None: ...

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """Writes some or all of `data` and says how many bytes."""

    def fdatasync(self, fd: int) -> None: ...

    def truncate(self, fd: int, size: int) -> None: ...

    def rename(self, old: Path, new: Path) -> None:
        """Takes the place of `new` when it is there. Durable after `sync_directory`."""

    def link(self, old: Path, new: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def sync_directory(self, directory: Path) -> None: ...

    def free_bytes(self, directory: Path) -> int:
        """What this process may still use of the file system."""


class RealDisk:
    """The operating system itself."""

    def names(self, directory: Path) -> Sequence[str]:
        return os.listdir(directory)

    def is_directory(self, directory: Path) -> bool:
        return directory.is_dir()

    def mkdir(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)

    def read(self, path: Path) -> bytes:
        # Not mmap: a bad sector must be an OSError here, and not a SIGBUS that ends the process.
        return path.read_bytes()

    def size(self, path: Path) -> int:
        return os.stat(path).st_size

    def open(self, path: Path, create: bool = False) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        return os.open(path, flags | os.O_CREAT | os.O_TRUNC if create else flags, 0o640)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def link(self, old: Path, new: Path) -> None:
        os.link(old, new)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def sync_directory(self, directory: Path) -> None:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, directory: Path) -> int:
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize


def make_directory(disk: Disk, directory: Path) -> None:
    """Makes it and the parents it lacks, so that a power loss takes none of them.

    The first that is there already gets its entry synced as well: who made it may have been killed before doing so.
    """
    if disk.is_directory(directory):
        with contextlib.suppress(PermissionError):  # a parent that we may not read: it is not ours, nor made by us
            disk.sync_directory(directory.parent)
        return
    make_directory(disk, directory.parent)
    disk.mkdir(directory)
    disk.sync_directory(directory.parent)


def write_all(disk: Disk, fd: int, data: bytes, offset: int) -> None:
    """Writes all of `data`, however many calls that takes. After an error any part of it may be in the file."""
    written = disk.write(fd, data, offset)
    if written == len(data):
        return
    view = memoryview(data)
    while written < len(data):
        written += disk.write(fd, view[written:], offset + written)
