"""A check that RocksDB's own logs can be read to their end.

RocksDB 9.8 loops for ever on a record whose type says that its file is recycled (facebook/rocksdb issue 13333). Esker
recycles no files, so such a type is damage. Everything else that may be wrong with these files RocksDB notices itself.
"""

from __future__ import annotations

from pathlib import Path

_BLOCK = 32_768  # records are in blocks of this size; none goes beyond the end of one
_HEAD = 7  # a checksum of 4 bytes, the length in 2, the type in 1
_RECYCLED = frozenset({5, 6, 7, 8, 11})  # full, first, middle, last; size of timestamps


def damaged_log(directory: Path) -> Path | None:
    """A manifest or write-ahead log of the store in `directory` at which RocksDB would stay for ever."""
    paths = sorted([*directory.glob("MANIFEST-*"), *directory.glob("*.log")])
    return next((path for path in paths if _has_recycled(path)), None)


def _has_recycled(path: Path) -> bool:
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            at = 0
            while at + _HEAD <= len(block):
                if block[at + 6] in _RECYCLED:
                    return True
                at += _HEAD + int.from_bytes(block[at + 4 : at + 6], "little")
    return False
