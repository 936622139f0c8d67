"""Which partition a key belongs to: rendezvous hashing, so that growing moves only what must move."""

from __future__ import annotations

from hashlib import blake2b


def partition_of(key: bytes, partitions: int) -> int:
    """The same for the same key for ever; no two processes may disagree about it."""
    if partitions == 1:
        return 0
    return max(range(partitions), key=lambda index: _weight(key, index))


def _weight(key: bytes, index: int) -> bytes:
    return blake2b(key, digest_size=8, salt=index.to_bytes(8, "big")).digest()
