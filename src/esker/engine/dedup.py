"""Idempotent enqueue: what was added lately, so that a producer that tries again adds nothing twice.

A job may carry an idempotency key, or (producer, epoch, sequence), or both; a whole write of records may carry one key.
The first letter of an entry says which, so that they never meet. Each is remembered for the topic's window and at most
`DEDUP_KEYS_MAX` at a time; a dict keeps them oldest first, so forgetting is from the front. Forgetting needs no event:
an entry counts only while its window lasts, whether or not it is still here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from esker.engine import limits
from esker.engine.commands import Details
from esker.engine.queues.sums import Totals


class Remembered(NamedTuple):
    """What a key stands for: `count` jobs or records from `seq` on."""

    created_ms: int
    seq: int
    count: int = 1  # type: ignore[assignment]  # the name is taken by tuples, for what nobody needs here


def write_key(key: bytes) -> bytes:
    """Of a write of records as a whole."""
    return b"w" + key


def dedup_keys(details: Details) -> Iterator[bytes]:
    if details.key:
        yield b"k" + details.key
    if details.producer:
        yield b"p%d.%d." % (details.epoch, details.sequence) + details.producer


class Dedup:
    __slots__ = ("_bytes", "_totals", "added", "dropped", "entries")

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._bytes = 0  # of memory, counted in the totals
        self.entries: dict[bytes, Remembered] = {}
        self.added: set[bytes] = set()  # since the last checkpoint
        self.dropped: set[bytes] = set()

    def find(self, key: bytes, since_ms: int) -> Remembered | None:
        entry = self.entries.get(key)
        return entry if entry is not None and entry.created_ms > since_ms else None

    def remember(self, key: bytes, created_ms: int, seq: int, count: int = 1) -> None:
        if self.entries.pop(key, None) is None:  # so that it moves to the young end
            self._count(limits.DEDUP_KEY_MEMORY_BYTES + len(key))
        self.entries[key] = Remembered(created_ms, seq, count)
        self.added.add(key)
        self.dropped.discard(key)
        if len(self.entries) > limits.DEDUP_KEYS_MAX:
            self._drop(next(iter(self.entries)))

    def forget(self, since_ms: int, limit: int) -> None:
        """Drops up to `limit` entries whose window is over."""
        old: list[bytes] = []
        for key, entry in self.entries.items():
            if entry.created_ms > since_ms or len(old) == limit:
                break
            old.append(key)
        for key in old:
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        del self.entries[key]
        self._count(-limits.DEDUP_KEY_MEMORY_BYTES - len(key))
        if key in self.added:
            self.added.discard(key)
        self.dropped.add(key)

    def load(self, entries: dict[bytes, Remembered]) -> None:
        """What a checkpoint had, oldest first."""
        self.forget_totals()
        self.entries = entries
        self._count(len(entries) * limits.DEDUP_KEY_MEMORY_BYTES + sum(map(len, entries)))

    def clear(self) -> None:
        """Forgets all; the store has to, too."""
        self.dropped.update(self.entries)
        self.added.clear()
        self.entries.clear()
        self.forget_totals()

    def forget_totals(self) -> None:
        """It is about to go, or was emptied."""
        self._count(-self._bytes)

    def _count(self, amount: int) -> None:
        self._bytes += amount
        self._totals.kept_bytes += amount
