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


_Names = dict[Path, _File]  # of a directory, too: an empty file

_ROOTS = (Path(), Path("/"))  # are there, whatever happens


class RamDisk:
    """One directory tree in memory; one lock, since journals use it from several threads.

    A sync of a directory keeps its own entries and no others; a directory whose entry is lost takes all it holds along.
    """

    def __init__(self, size_bytes: int = 1 << 30) -> None:
        self._size_bytes = size_bytes
        self._lock = Lock()
        self._seen: _Names = {}
        self._durable: _Names = {}
        self._directories: set[Path] = set()
        self._entries: list[tuple[set[Path], Callable[[_Names], object]]] = []  # changes of these directories, unsynced
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
            for _, change in self._entries[: random.randint(0, len(self._entries))]:
                change(names)
            names = {path: file for path, file in names.items() if _reached(path, names)}
            after = RamDisk(self._size_bytes)
            after._directories = self._directories & names.keys()
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
            after._seen, after._durable = self._seen, self._durable
            after._directories, after._entries = self._directories, self._entries
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

    def is_directory(self, directory: Path) -> bool:
        with self._powered():
            return directory in _ROOTS or directory in self._directories

    def mkdir(self, directory: Path) -> None:
        with self._powered():
            if directory not in self._directories:
                fresh = _File()
                self._directories.add(directory)
                self._change_entries({directory.parent}, lambda names: names.__setitem__(directory, fresh))

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
                self._change_entries({path.parent}, lambda names: names.__setitem__(path, fresh))
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
            file = self._file(old)

            def rename(names: _Names) -> None:
                names.pop(old, None)
                names[new] = file

            self._change_entries({old.parent, new.parent}, rename)

    def link(self, old: Path, new: Path) -> None:
        with self._powered():
            file = self._file(old)
            self._change_entries({new.parent}, lambda names: names.__setitem__(new, file))

    def unlink(self, path: Path) -> None:
        with self._powered():
            self._file(path)
            self._change_entries({path.parent}, lambda names: names.pop(path, None))

    def sync_directory(self, directory: Path) -> None:
        with self._powered():
            for directories, change in self._entries:
                if directory in directories:
                    change(self._durable)
            self._entries = [entry for entry in self._entries if directory not in entry[0]]

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

    def _change_entries(self, directories: set[Path], change: Callable[[_Names], object]) -> None:
        change(self._seen)
        self._entries.append((directories, change))


def _reached(path: Path, names: _Names) -> bool:
    """Whether every directory on the way to it is there."""
    return all(parent in names or parent in _ROOTS for parent in path.parents)


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
