"""A disk in memory that can lose power.

What a machine keeps when the power goes: all that was synced, and of the rest what happened to reach the platter.
A file is its durable content and the changes since its last sync; a directory likewise. `lose_power` gives the disk as
it is found when the machine is on again, with a random part of those changes, in whole sectors. The disk of before
fails every call, so whatever still ran on it can do no more.

    >>> from random import Random
    >>> from pathlib import Path
    >>> disk = RamDisk()
    >>> fd = disk.open(Path("kept"), create=True)
    >>> disk.write(fd, b"synced", 0)
    6
    >>> disk.fdatasync(fd)
    >>> disk.sync_directory(Path("."))
    >>> disk.lose_power(Random(1)).read(Path("kept"))
    b'synced'
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Lock

# What a disk writes whole or not at all.
SECTOR_BYTES = 512


@dataclass(slots=True)
class _File:
    seen: bytearray = field(default_factory=bytearray)  # what a reader gets
    durable: bytearray = field(default_factory=bytearray)  # what surely survives
    changes: list[Callable[[bytearray], None]] = field(default_factory=list)  # since the last sync, a sector each


class RamDisk:
    """One directory tree in memory; one lock, since journals use it from several threads."""

    def __init__(self, size_bytes: int = 1 << 30) -> None:
        self._size_bytes = size_bytes
        self._lock = Lock()
        self._seen: dict[Path, _File] = {}
        self._durable: dict[Path, _File] = {}
        self._renames: list[Callable[[dict[Path, _File]], None]] = []
        self._open: dict[int, _File] = {}
        self._last_fd = 1000
        self._dead = False

    def lose_power(self, random: Random, in_order: bool = False) -> RamDisk:
        """The disk after a power loss: what was synced, and of the rest a prefix if `in_order`, else any sectors.

        Directory changes keep their order in both, as every journalling file system has it.
        """
        with self._powered():
            self._dead = True
            names = dict(self._durable)
            for change in self._renames[: random.randint(0, len(self._renames))]:
                change(names)
            after = RamDisk(self._size_bytes)
            survivors: dict[int, _File] = {}
            for path, file in names.items():
                if id(file) not in survivors:
                    survivors[id(file)] = _survivor(file, random, in_order)
                after._durable[path] = survivors[id(file)]
            after._seen = dict(after._durable)
            return after

    def lose_process(self) -> RamDisk:
        """The disk as the next process finds it when this one was killed: all that was written, synced or not.

        What was not synced is still in danger, if the power goes later.
        """
        with self._powered():
            self._dead = True
            after = RamDisk(self._size_bytes)
            after._seen, after._durable, after._renames = self._seen, self._durable, self._renames
            return after

    @contextmanager
    def _powered(self) -> Iterator[None]:
        with self._lock:
            if self._dead:
                raise OSError(errno.EIO, "the power was lost")
            yield

    def names(self, directory: Path) -> Sequence[str]:
        with self._powered():
            return [path.name for path in self._seen if path.parent == directory]

    def make_directory(self, directory: Path) -> None:
        """Every directory is there."""

    def read(self, path: Path) -> bytes:
        with self._powered():
            return bytes(self._file(path).seen)

    def size(self, path: Path) -> int:
        with self._powered():
            return len(self._file(path).seen)

    def open(self, path: Path, create: bool = False) -> int:
        with self._powered():
            if create:
                fresh = _File()
                self._change_directory(lambda names: names.__setitem__(path, fresh))
            file = self._file(path)
            self._last_fd += 1
            self._open[self._last_fd] = file
            return self._last_fd

    def close(self, fd: int) -> None:
        with self._lock:
            self._open.pop(fd, None)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        with self._powered():
            file = self._opened(fd)
            start = 0
            while start < len(data):
                stop = min(len(data), start + SECTOR_BYTES - (offset + start) % SECTOR_BYTES)
                _change(file, _sector_write(offset + start, bytes(data[start:stop])))
                start = stop
            return len(data)

    def fdatasync(self, fd: int) -> None:
        with self._powered():
            file = self._opened(fd)
            for change in file.changes:
                change(file.durable)
            file.changes.clear()

    def truncate(self, fd: int, size: int) -> None:
        def cut(content: bytearray) -> None:
            del content[size:]

        with self._powered():
            _change(self._opened(fd), cut)

    def rename(self, old: Path, new: Path) -> None:
        with self._powered():
            self._file(old)
            self._change_directory(lambda names: names.__setitem__(new, names.pop(old)))

    def link(self, old: Path, new: Path) -> None:
        with self._powered():
            self._file(old)
            self._change_directory(lambda names: names.__setitem__(new, names[old]))

    def unlink(self, path: Path) -> None:
        with self._powered():
            self._file(path)
            self._change_directory(lambda names: names.__delitem__(path))

    def sync_directory(self, directory: Path) -> None:
        with self._powered():
            for change in self._renames:
                change(self._durable)
            self._renames.clear()

    def free_bytes(self, directory: Path) -> int:
        with self._powered():
            return self._size_bytes - sum(len(file.seen) for file in self._seen.values())

    def _file(self, path: Path) -> _File:
        if path not in self._seen:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return self._seen[path]

    def _opened(self, fd: int) -> _File:
        if fd not in self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._open[fd]

    def _change_directory(self, change: Callable[[dict[Path, _File]], None]) -> None:
        change(self._seen)
        self._renames.append(change)


def _survivor(file: _File, random: Random, in_order: bool) -> _File:
    content = bytearray(file.durable)
    kept = random.randint(0, len(file.changes))
    chance = random.random()
    for number, change in enumerate(file.changes):
        if number < kept if in_order else random.random() < chance:
            change(content)
    return _File(bytearray(content), content)


def _change(file: _File, change: Callable[[bytearray], None]) -> None:
    change(file.seen)
    file.changes.append(change)


def _sector_write(offset: int, data: bytes) -> Callable[[bytearray], None]:
    def write(content: bytearray) -> None:
        if len(content) < offset:
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(data)] = data

    return write
