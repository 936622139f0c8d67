"""What a simulated node stands on: a store and an archive that outlive it, can be slow, and can be cut off from it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from esker.errors import ArchiveError, StoreFailed
from esker.store.interface import Puts, Ranges
from esker.store.rocksdb import RocksStore
from tests.properties.world import PrefixStore


class CutOff(Exception):
    """A process that was killed still does something."""


class StallingStore(PrefixStore):
    """Refuses writes now and then until it was persisted, as RocksDB does when its memtables are full.

    And fails now and then, on a full disk say: then it takes nothing until it was opened again, and has lost what was
    not persisted, from some write on. In some histories it never does.
    """

    def __init__(self, dice: Random) -> None:
        super().__init__()
        self._dice = dice
        self._chance = dice.choice((0.0, 0.01, 0.05))  # of each write and persist to fail
        self._full = False
        self._failed = False
        self.dead = False
        self.stalls = 0
        self.failures = 0

    def write(self, puts: Puts, deletes: Sequence[bytes] = (), ranges: Ranges = ()) -> bool:
        self._alive()
        self._meet()
        if not self._full and self._dice.random() < 0.02:
            self._full = True
            self.stalls += 1
        return not self._full and super().write(puts, deletes, ranges)

    def persist(self) -> None:
        self._alive()
        self._meet()
        self._full = False
        super().persist()

    def reopen(self) -> None:
        self._alive()
        self._open_again()
        if self._dice.random() < 0.3:
            self._failed = True
            raise StoreFailed("the store could not be opened")

    def close(self) -> None:
        self._failed, self._chance = False, 0.0
        super().close()

    def after_crash(self) -> StallingStore:
        """Keeps what was persisted, and the first few writes behind that."""
        self.dead = False
        self._open_again()
        return self

    def after_end(self) -> StallingStore:
        return self.after_crash()

    def _open_again(self) -> None:
        chance, self._chance = self._chance, 0.0
        self._full = self._failed = False
        self.crash_keeping(self._dice.randint(0, len(self.unpersisted)))
        self._chance = chance

    def _meet(self) -> None:
        if not self._failed and self._dice.random() < self._chance:
            self._failed = True
            self.failures += 1
        if self._failed:
            raise StoreFailed("the store could not write")

    def _alive(self) -> None:
        if self.dead:
            raise CutOff("the store is written to by a node that was killed")


class KilledRocks(RocksStore):
    """The real store. A crash leaves what its directory holds at that moment."""

    stalls = failures = 0

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._directory = directory
        self.dead = False

    def write(self, puts: Puts, deletes: Sequence[bytes] = (), ranges: Ranges = ()) -> bool:
        self._alive()
        return super().write(puts, deletes, ranges)

    def persist(self) -> None:
        self._alive()
        super().persist()

    def after_crash(self) -> KilledRocks:
        after = self._directory.with_name(f"{int(self._directory.name) + 1}")
        self._copy(after)
        self.close()
        shutil.rmtree(self._directory)
        return KilledRocks(after)

    def _copy(self, after: Path) -> None:
        """As the files are now. RocksDB may remove one in the middle, after it has written another: then all again."""
        while True:
            try:
                shutil.copytree(self._directory, after, ignore=shutil.ignore_patterns("LOCK"))
            except shutil.Error:
                shutil.rmtree(after)
            else:
                return

    def after_end(self) -> KilledRocks:
        self.close()
        return KilledRocks(self._directory)

    def _alive(self) -> None:
        if self.dead:
            raise CutOff("the store is written to by a node that was killed")


class MemoryArchive:
    """Files in memory. Where it is given dice, it is out of reach now and then."""

    def __init__(self, dice: Random | None = None) -> None:
        self._files: dict[str, bytes] = {}
        self._dice = dice
        self.puts = 0
        self.deletes = 0
        self.gets = 0
        self.failures = 0

    @property
    def where(self) -> str:
        return "memory"

    def has(self, name: str) -> bool:
        return name in self._files

    def put(self, name: str, data: bytes) -> None:
        self._reach()
        self.puts += 1
        self._files[name] = data

    def get(self, name: str) -> bytes | None:
        self.gets += 1
        return self._files.get(name)

    def names(self, prefix: str) -> Iterator[str]:
        self._reach()
        return iter([name for name in self._files if name.startswith(prefix + "/")])

    def delete(self, name: str) -> None:
        self._reach()
        if self._files.pop(name, None) is not None:
            self.deletes += 1

    def _reach(self) -> None:
        if self._dice is not None and self._dice.random() < 0.05:
            self.failures += 1
            raise ArchiveError("the archive is out of reach")
