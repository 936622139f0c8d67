"""The store in memory, for tests and for brokers that need no disk. It can play a crash."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from esker.store.interface import Puts, Ranges, StoreView


class MemoryStore:
    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._persisted: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key in self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)]:
            yield key, self._values[key]

    def write(self, puts: Puts, deletes: Sequence[bytes] = (), ranges: Ranges = ()) -> bool:
        for start, end in ranges:
            for key, _ in list(self.scan(start, end)):
                self._drop(key)
        for key in deletes:
            if key in self._values:
                self._drop(key)
        for key, value in puts:
            if key not in self._values:
                insort(self._keys, key)
            self._values[key] = value
        return True

    def snapshot(self) -> StoreView:
        view = MemoryStore()
        view._values, view._keys = dict(self._values), list(self._keys)
        return view

    def persist(self) -> None:
        self._persisted = dict(self._values)

    def reopen(self) -> None:
        """Nothing ever fails here."""

    def close(self) -> None:
        self.persist()

    def crash(self) -> None:
        """Forgets what was not persisted."""
        self._values = dict(self._persisted)
        self._keys = sorted(self._values)

    def _drop(self, key: bytes) -> None:
        del self._values[key]
        del self._keys[bisect_left(self._keys, key)]
