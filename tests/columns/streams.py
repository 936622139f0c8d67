"""Reading ranges without a node: a machine, a store, an archive, and what clients would get."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pyarrow as pa

from esker.columns.arrow import END
from esker.engine.logs.gaps import Gap
from esker.engine.replies import Record
from esker.node.coldreading import ColdReader
from esker.node.ranges import Ranges, RangeWish
from tests.archive.tiers import TOPIC, Tiers

T = TypeVar("T")


def whole(data: bytes) -> list[dict[str, object]]:
    """The rows of a stream, which must have its end."""
    assert data.endswith(END)
    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all()
    table.validate(full=True)
    rows: list[dict[str, object]] = table.to_pylist()
    return rows


def shown(record: Record) -> dict[str, object]:
    """As a row of all columns."""
    texts = {
        name: value.decode("utf-8", "backslashreplace") if value else None
        for name, value in (("tag", record.tag), ("node", record.node), ("meta", record.meta))
    }
    return {"offset": record.seq, "timestamp": record.ts, "value": record.data, **texts}


class Bulk:
    """Reads of a log with its tiers."""

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers

    def read(self, wish: RangeWish | None = None) -> tuple[list[dict[str, object]], list[Gap]]:
        """Rows with their times in milliseconds, and the gaps."""

        async def read(ranges: Ranges) -> tuple[bytes, list[Gap]]:
            found = ranges.open(wish or RangeWish(TOPIC, skip_gaps=True))
            return b"".join([piece async for piece in found.pieces()]), found.gaps

        data, gaps = self.run(read)
        rows = whole(data)
        for row in rows:
            if "timestamp" in row:
                row["timestamp"] = round(row["timestamp"].timestamp() * 1000)  # type: ignore[attr-defined]
        return rows, gaps

    def run(self, use: Callable[[Ranges], Awaitable[T]]) -> T:
        async def run() -> T:
            tiers = self._tiers
            reader = ColdReader(tiers.archive, tiers.handle, lambda name: tiers.machine.names[name].number)
            with TemporaryDirectory() as folder:
                ranges = Ranges(tiers.machine, tiers.store, tiers.handle, reader.file, Path(folder) / "spool")
                try:
                    return await use(ranges)
                finally:
                    ranges.close()
                    reader.close()

        return asyncio.run(run())
