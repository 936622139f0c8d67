"""The store: the checkpointed state of a shard, as ordered keys and values.

It is always behind the journal and can be rebuilt from an older checkpoint and the journal, so it needs no log of its
own. What it promises:
* `write` is atomic and visible at once; after a crash the store holds a prefix of the writes, never a part of one.
* After `persist` returns, every write before it survives any crash.
* `write` and `persist` raise `StoreFailed` when the disk fails them, and from then on until `reopen`. Reads go on.
* `write` of at most `WRITE_KEYS` keys takes about a millisecond or two: it is called on the event loop. `persist` may
  take long and is called in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

# Keys in one write: RocksDB through rocksdict takes about 1 us a key and holds the GIL, so a slice stays near 1 ms.
WRITE_KEYS = 512
# Bytes in one write, for the same reason; a single larger value goes alone.
WRITE_BYTES = 1 << 20

Puts = Sequence[tuple[bytes, bytes]]
Ranges = Sequence[tuple[bytes, bytes]]


class StoreView(Protocol):
    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys of [start, end) in order."""


class Store(StoreView, Protocol):
    def write(self, puts: Puts, deletes: Sequence[bytes] = (), ranges: Ranges = ()) -> bool:
        """First removes `ranges` ([start, end) each), then `deletes`, then puts.

        False: it would have to wait, and nothing was written; after `persist` there is room again.
        """

    def snapshot(self) -> StoreView:
        """The store as it is now, for any thread, whatever is written later. To be dropped before `close`.

        Its scans hold in memory what they find.
        """

    def persist(self) -> None: ...

    def reopen(self) -> None:
        """After a failure: writes are taken again, behind a prefix of the earlier ones that holds all persisted ones.

        What was behind that prefix has to be written again. Views end: they raise `StoreFailed`. May take long and is
        called in a thread. Raises `StoreFailed` when it cannot be done now; reads go on in any case.
        """

    def close(self) -> None: ...
