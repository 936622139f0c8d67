"""What the journal does to the disk, counted where it does it.

Only the calls that carry the journal are counted: filling a spare segment, which happens beside them on a thread of its
own, is not. Counters are written by the one thread whose turn it is to write the journal, and read by the loop.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from pathlib import Path
from time import perf_counter_ns
from typing import Final

from esker.journal.disk import RealDisk

SYNC_BOUNDS_US: Final = (50, 100, 250, 500, 1000, 5000, 10_000, 50_000, 100_000)


class MeteredDisk(RealDisk):
    """The operating system, with counters."""

    def __init__(self) -> None:
        self.writes = 0
        self.bytes_written = 0
        self.syncs = 0
        self.sync_us = 0
        self.sync_counts = [0] * (len(SYNC_BOUNDS_US) + 1)  # by bound; the last: beyond them all
        self.segments_opened = 0
        self._filling: set[int] = set()

    def open(self, path: Path, create: bool = False) -> int:
        fd = super().open(path, create)
        if create:
            self._filling.add(fd)
        else:
            self.segments_opened += 1
        return fd

    def close(self, fd: int) -> None:
        self._filling.discard(fd)
        super().close(fd)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        written = os.pwrite(fd, data, offset)
        if fd not in self._filling:
            self.writes += 1
            self.bytes_written += written
        return written

    def fdatasync(self, fd: int) -> None:
        began_ns = perf_counter_ns()
        os.fdatasync(fd)
        if fd not in self._filling:
            took_us = (perf_counter_ns() - began_ns) // 1000
            self.syncs += 1
            self.sync_us += took_us
            self.sync_counts[bisect_left(SYNC_BOUNDS_US, took_us)] += 1

    def facts(self) -> dict[str, int | float | str]:
        """`syncs_le_<us>` are cumulative, as a histogram wants them."""
        found: dict[str, int | float | str] = {
            "writes": self.writes,
            "bytes_written": self.bytes_written,
            "syncs": self.syncs,
            "sync_us": self.sync_us,
            "rotations": max(0, self.segments_opened - 1),
        }
        total = 0
        for bound, count in zip(SYNC_BOUNDS_US, self.sync_counts, strict=False):
            total += count
            found[f"syncs_le_{bound}"] = total
        return found
