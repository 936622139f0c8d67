"""What a simulated node stands on: a store and an archive that outlive it, can be slow, and can be cut off from it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from esker.errors import ArchiveError, DataDirectoryError
from esker.store.interface import Puts, Ranges
from esker.store.rocksdb import RocksStore
from esker.testing.faulty_store import FaultyStore


class CutOff(Exception):
    """A process that was killed still does something."""


class UnreliableStore(FaultyStore):
    """Makes writers wait now and then; in some histories its writes fail, too, and it has to be opened again.

    A crash, and opening it again, leave what was persisted and the first few writes behind that.
    """

    def __init__(self, dice: Random) -> None:
        super().__init__(dice.getrandbits(32), chance=dice.choice((0.0, 0.0, 0.01, 0.05)), stalls=0.02)
        self.dead = False
        self.stalled = 0

    def write(self, puts: Puts, deletes: Sequence[bytes] = (), ranges: Ranges = ()) -> bool:
        self._alive()
        written = super().write(puts, deletes, ranges)
        self.stalled += not written
        return written

    def persist(self) -> None:
        self._alive()
        super().persist()

    def reopen(self) -> None:
        self._alive()
        super().reopen()

    def after_crash(self) -> UnreliableStore:
        self.dead = False
        self.crash()
        return self

    def after_end(self) -> UnreliableStore:
        """As after a crash where the last checkpoint was given up: the journal has what it would have saved."""
        if self.broken:
            return self.after_crash()
        self.persist()
        return self

    def close(self) -> None:
        """The history is over, and with it the memory that this was in."""

    def _alive(self) -> None:
        if self.dead:
            raise CutOff("the store is written to by a node that was killed")


class KilledRocks(RocksStore):
    """The real store. A crash leaves what its directory holds at that moment."""

    stalled = failures = 0
    chance = 0.0

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
        """The files as they are now. RocksDB may remove or add some in the middle of the copy: then all again."""
        after = self._directory.with_name(f"{int(self._directory.name) + 1}")
        while True:
            try:
                shutil.copytree(self._directory, after, ignore=shutil.ignore_patterns("LOCK"))
                return self._left_for(KilledRocks(after))
            except (shutil.Error, DataDirectoryError):
                shutil.rmtree(after)

    def _left_for(self, found: KilledRocks) -> KilledRocks:
        self.close()
        shutil.rmtree(self._directory)
        return found

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
