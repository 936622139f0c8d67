"""The events of a retired journal segment as files, one for each day in it.

Columns: position and ordinal (the place of a row: of its batch in the journal, and in the batch; together they are the
order of everything), time, kind, topic, topic_number, partition, seq, message_id, priority, attempts, node, tag, lease,
reason. rows.py says what each kind of event tells. The same segment always gives the same files under the same names,
so writing it twice does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from esker.archive.parquet import ROW_GROUP_ROWS, FileWriter, Kind, Values
from esker.archive.paths import day_of, events_path
from esker.archive.rows import Births, Names, Row, rows_of, text
from esker.engine.events import Event, decode_batch

FORMAT = 1

KINDS: Mapping[str, Kind] = {
    "position": Kind.NUMBER,
    "ordinal": Kind.NUMBER,
    "time": Kind.TIME,
    "kind": Kind.TEXT,
    "topic": Kind.TEXT,
    "topic_number": Kind.NUMBER,
    "partition": Kind.NUMBER,
    "seq": Kind.NUMBER,
    "message_id": Kind.TEXT,
    "priority": Kind.NUMBER,
    "attempts": Kind.NUMBER,
    "node": Kind.TEXT,
    "tag": Kind.TEXT,
    "lease": Kind.TEXT,
    "reason": Kind.TEXT,
}

_Line = tuple[int, int, int, str | None, Row, str | None]  # position, ordinal, time, topic, row, id


class EventsFile(NamedTuple):
    name: str
    data: bytes


def events_files(batches: Sequence[tuple[int, bytes]], names: Names) -> Iterator[EventsFile]:
    """The files of a segment: positions, and what was appended there. `names` learns from it.

    Runs in a thread; holds one file and a row group of rows in memory.
    """
    births = Births()
    time_ms = _first_time(batches)  # an event without a time has that of the one before it
    file: _File | None = None
    for position, batch in batches:
        happened = decode_batch(batch)
        if not happened:
            continue
        time_ms = next((ms for event in happened if (ms := _time_of(event))), time_ms)
        if file is not None and file.day != day_of(time_ms):
            yield file.finish()
            file = None
        if file is None:
            file = _File(time_ms, position)
        ordinal = 0
        file.last_position = position
        for event in happened:
            time_ms = _time_of(event) or time_ms
            names.learn(event)
            for row in rows_of(event, names):
                file.add((position, ordinal, time_ms, names.topic(row.topic), row, births.ulid(row)))
                ordinal += 1
    if file is not None:
        yield file.finish()


def _first_time(batches: Sequence[tuple[int, bytes]]) -> int:
    return next((ms for _, batch in batches for event in decode_batch(batch) if (ms := _time_of(event))), 0)


def _time_of(event: Event) -> int:
    """0: it does not say."""
    return getattr(event, "ts", 0)


class _File:
    """A file in the making."""

    def __init__(self, time_ms: int, position: int) -> None:
        self.day = day_of(time_ms)
        self._time_ms = time_ms
        self._first_position = position
        self.last_position = position
        self._writer = FileWriter(KINDS, sorted_by=["position", "ordinal"])
        self._lines: list[_Line] = []

    def add(self, line: _Line) -> None:
        self._lines.append(line)
        if len(self._lines) >= ROW_GROUP_ROWS:
            self._flush()

    def finish(self) -> EventsFile:
        self._flush()
        footer = {
            "esker.format": str(FORMAT),
            "esker.first_position": str(self._first_position),
            "esker.last_position": str(self.last_position),
        }
        name = events_path(self._time_ms, self._first_position, self.last_position)
        return EventsFile(name, self._writer.finish(footer))

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        if not lines:
            return
        rows = [line[4] for line in lines]
        columns: dict[str, Values] = {
            "position": [line[0] for line in lines],
            "ordinal": [line[1] for line in lines],
            "time": [line[2] for line in lines],
            "kind": [row.kind for row in rows],
            "topic": [line[3] for line in lines],
            "topic_number": [row.topic for row in rows],
            "partition": [row.partition for row in rows],
            "seq": [row.seq for row in rows],
            "message_id": [line[5] for line in lines],
            "priority": [row.priority for row in rows],
            "attempts": [row.attempts for row in rows],
            "node": [text(row.node) if row.node else None for row in rows],
            "tag": [text(row.tag) if row.tag else None for row in rows],
            "lease": [None if row.lease is None else f"{row.lease:x}" for row in rows],
            "reason": [row.reason for row in rows],
        }
        self._writer.add(columns)
