"""Idempotency keys in the store: they belong to a partition of any kind."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from esker.engine.dedup import Dedup, Remembered
from esker.store import keys
from esker.store.interface import WRITE_KEYS, Store
from esker.store.slices import Slice, batched

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(keys.StoredKey).decode


class KeyShare:
    """What had to be saved of a partition's keys when the checkpoint began."""

    def __init__(self, place: tuple[int, int], dedup: Dedup, journaled: bool) -> None:
        """Takes the changes off `dedup`. Where a restart forgets records it must forget keys too: none are added."""
        self._place = place
        self._dedup = dedup
        self._added = dedup.added if journaled else set[bytes]()
        self._dropped = dedup.dropped
        dedup.added, dedup.dropped = set(), set()

    def slices(self) -> Iterator[Slice]:
        entries = self._dedup.entries
        for batch in batched(self._dropped, WRITE_KEYS):
            yield Slice([], [keys.dedup_key(*self._place, key) for key in batch if key not in entries], [], [])
        for batch in batched(self._added, WRITE_KEYS):
            puts = [(keys.dedup_key(*self._place, key), _stored(entries[key])) for key in batch if key in entries]
            yield Slice(puts, [], [], [])


def _stored(entry: Remembered) -> bytes:
    return _encode(keys.StoredKey(entry.created_ms, entry.seq, entry.count))


def load_keys(store: Store, place: tuple[int, int], dedup: Dedup) -> None:
    start, end = keys.partition_range(b"d", *place)
    found = [(key[len(start) :], _decode(value)) for key, value in store.scan(start, end)]
    found.sort(key=lambda entry: entry[1].created_ms)
    dedup.load({key: Remembered(entry.created_ms, entry.seq, entry.count) for key, entry in found})
