"""The events of a retired journal segment as files, one for each day in it.

The columns, and what each kind of event tells in them, are those of esker.columns.events. The same segment always gives
the same rows under the same names, so writing it twice does no harm.

`esker.format` in the footer is 3. Files of format 2 have no checksum there. Those of format 1 have none either, lack
the columns from `due` on, have times in milliseconds, and tell of copies that have records of their own in one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from esker.archive.parquet import ROW_GROUP_ROWS, BlockWriter
from esker.archive.paths import day_of, events_path
from esker.columns.eventnames import Names
from esker.columns.events import SCHEMA, EventColumns, time_of
from esker.engine.events import decode_batch

FORMAT = 3


class EventsFile(NamedTuple):
    name: str
    data: bytes


def events_files(batches: Iterable[tuple[int, bytes]], names: Names) -> Iterator[EventsFile]:
    """The files of a segment: positions, and what was appended there. `names` learns from it."""
    return (each for each in events_steps(batches, names) if each is not None)


def events_steps(batches: Iterable[tuple[int, bytes]], names: Names) -> Iterator[EventsFile | None]:
    """The same in steps of some 65,536 rows; None: one more is done. Holds one file and a row group in memory."""
    columns = EventColumns(names)
    time_ms = 0
    first = 0  # position that the next file begins with: names leave no hole, although batches may be empty
    file: _File | None = None
    for position, batch in batches:
        first = first or position
        happened = decode_batch(batch)
        time_ms = time_of(happened) or time_ms
        if file is not None and happened and file.day != day_of(time_ms):
            yield file.finish(columns)
            file, first = None, position
        if file is None and happened:
            file = _File(time_ms, first)
        if file is not None:
            file.last_position = position
        columns.add(position, happened)
        if file is not None and columns.rows >= ROW_GROUP_ROWS:
            file.flush(columns)
            yield None
    if file is None and first:  # nothing but empty batches
        file = _File(time_ms, first)
        file.last_position = position
    if file is not None:
        yield file.finish(columns)


class _File:
    """A file in the making."""

    def __init__(self, time_ms: int, position: int) -> None:
        self.day = day_of(time_ms)
        self._time_ms = time_ms
        self._first_position = position
        self.last_position = position
        self._writer = BlockWriter(SCHEMA, sorted_by=["position", "ordinal"])

    def flush(self, columns: EventColumns) -> None:
        if columns.rows:
            self._writer.add(columns.take())

    def finish(self, columns: EventColumns) -> EventsFile:
        self.flush(columns)
        footer = {
            "esker.format": str(FORMAT),
            "esker.first_position": str(self._first_position),
            "esker.last_position": str(self.last_position),
        }
        name = events_path(self._time_ms, self._first_position, self.last_position)
        return EventsFile(name, self._writer.finish(footer).data)
