# mypy: disable-error-code="no-any-unimported"
"""Events of the journal as columns: one row for each event, or for each record or job where an event tells of many.

Every row has a `kind`, which is the name of its event (`kind_of` says of which it is not), and a place: `position` of
its batch in the journal, `ordinal` in the batch. What an event does not tell is null (eventkinds.py says what each
tells). Events are gathered by type and turned into columns a type at a time, so that a row costs about a microsecond,
and then put back in order.

The id of a job is known where its making was among the events that the same `EventColumns` was given. One is made for
each segment of the journal, and sees it from its start, so that a row is the same whoever asks for it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from esker.columns.arrow import BATCH_BYTES, BATCH_ROWS, NUMBER, TEXT, TIME, joined, texts, times
from esker.columns.eventkinds import MAKERS, SIZES, Columns, Same, Values, learn
from esker.columns.eventnames import Names
from esker.columns.eventwish import COLUMNS, EVERYTHING, Wanted, kind_of
from esker.columns.jobids import JobIds
from esker.engine import events
from esker.engine.events import Event

_NUMBERS: Final = frozenset(
    {"position", "ordinal", "topic_number", "partition", "seq", "priority", "attempts", "source_seq", "router"}
)
_TIMES: Final = frozenset({"time", "due", "expires"})
_BYTES: Final = frozenset({"node", "tag"})  # texts that makers leave as they are
_ALWAYS: Final = frozenset({"position", "ordinal", "time", "kind"})


def _field(name: str) -> pa.Field:
    kind = NUMBER if name in _NUMBERS else TIME if name in _TIMES else TEXT
    return pa.field(name, kind, nullable=name not in _ALWAYS)


SCHEMA: Final = pa.schema([_field(name) for name in COLUMNS])


def schema_of(wanted: Wanted) -> pa.Schema:
    return pa.schema([SCHEMA.field(name) for name in wanted.columns])


def time_of(happened: Sequence[Event]) -> int:
    """Of a batch: that of its first event that has one; 0: none has."""
    return next((event.ts for event in happened if not isinstance(event, events.SeqReserved)), 0)


class _Made(NamedTuple):
    """The rows of one kind."""

    kind: str
    columns: Columns
    rows: int


class EventColumns:
    """Takes the batches of a segment in order, from its first on; gives blocks of rows. `names` learns from it."""

    def __init__(self, names: Names, wanted: Wanted = EVERYTHING) -> None:
        self._names = names
        self._wanted = wanted
        self._ids = JobIds() if "message_id" in wanted.columns else None
        self._last_ms = 0
        self._begin()

    def _begin(self) -> None:
        self.rows = 0
        self._gathered: dict[type, tuple[list[Event], list[int]]] = {kind: ([], []) for kind in MAKERS}
        self._reserved_ms: list[int] = []
        self._positions: list[int] = []
        self._ordinals: list[int] = []

    def add(self, position: int, happened: Sequence[Event]) -> None:
        """A batch; what `time_of` says of it is the time of those of its events that have none."""
        self._last_ms = time_of(happened) or self._last_ms
        gathered, sizes = self._gathered, SIZES
        row = first = self.rows
        for event in happened:
            kind = type(event)
            alike, starts = gathered[kind]
            alike.append(event)
            starts.append(row)
            if kind in sizes:
                row += sizes[kind](event)
            else:
                row += 1
        reserved = len(gathered[events.SeqReserved][0]) - len(self._reserved_ms)
        if reserved:
            self._reserved_ms += [self._last_ms] * reserved
        count = row - first
        self._positions += [position] * count
        self._ordinals += range(count)
        self.rows = row

    def pass_over(self, happened: Sequence[Event]) -> None:
        """A batch whose rows nobody wants; but what it tells about later ones is kept."""
        self._last_ms = time_of(happened) or self._last_ms
        for event in happened:
            learn(type(event), (event,), self._names, self._ids)

    def take(self) -> pa.RecordBatch:
        """The rows of all that was added since this was last called."""
        for kind, (alike, _) in self._gathered.items():
            if alike:
                learn(kind, alike, self._names, self._ids)
        made: list[_Made] = []
        places = array("q")
        for kind, (alike, starts) in self._gathered.items():
            if alike and self._wanted.kind(kind_of(kind)):
                columns = MAKERS[kind](alike, self._names, self._ids)
                if kind is events.SeqReserved:
                    columns["time"] = self._reserved_ms
                rows = _rows_of(kind, alike, starts)
                places.extend(rows)
                made.append(_Made(kind_of(kind), columns, len(rows)))
        block = self._assemble(made, places)
        self._begin()
        return block

    def _assemble(self, made: Sequence[_Made], places: array[int]) -> pa.RecordBatch:
        """All kinds together, in order, without what is not wanted. `places` are the rows that each made, in turn."""
        rows = pa.Array.from_buffers(NUMBER, len(places), [None, pa.py_buffer(places)])
        order = pc.sort_indices(rows)
        wanted = self._wanted
        if wanted.by_topic:
            order = order.filter(self._visible(_joined("topic_number", made).take(order)))
        rows = rows.take(order)
        arrays = []
        for name in wanted.columns:
            if name == "position":
                arrays.append(pa.array(self._positions, NUMBER).take(rows))
            elif name == "ordinal":
                arrays.append(pa.array(self._ordinals, NUMBER).take(rows))
            elif name == "topic":
                arrays.append(self._topics(_joined("topic_number", made).take(order)))
            elif name == "kind":
                arrays.append(_kinds(made).take(order))
            elif any(name in each.columns for each in made):
                arrays.append(_joined(name, made).take(order))
            else:
                arrays.append(pa.nulls(len(rows), SCHEMA.field(name).type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema_of(wanted))

    def _visible(self, numbers: pa.Array) -> pa.Array:
        """Which rows are of a topic that is asked for, and may be seen."""
        known = self._names.known
        seen = [each for each in pc.unique(numbers).to_pylist() if each is not None and self._wanted.topic(known(each))]
        return pc.is_in(numbers, value_set=pa.array(seen, pa.int64()))

    def _topics(self, numbers: pa.Array) -> pa.Array:
        coded = numbers.dictionary_encode()
        texts = [self._names.topic(number) for number in coded.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(coded.indices)


def _rows_of(kind: type, alike: Sequence[Event], starts: list[int]) -> Sequence[int]:
    size = SIZES.get(kind)
    if size is None:
        return starts
    return list(
        chain.from_iterable(range(start, start + size(event)) for start, event in zip(starts, alike, strict=True))
    )


def _joined(name: str, made: Sequence[_Made]) -> pa.Array:
    """One column of all kinds, one after the other."""
    return joined([_array(each.columns.get(name), each.rows, name) for each in made], SCHEMA.field(name).type)


def _kinds(made: Sequence[_Made]) -> pa.Array:
    return joined([_array(Same(each.kind), each.rows, "kind") for each in made], TEXT)


def _array(values: Values | None, count: int, name: str) -> pa.Array:
    of = SCHEMA.field(name).type
    if values is None:
        return pa.nulls(count, of)
    if isinstance(values, Same):
        return pa.repeat(pa.scalar(values.value, of), count)
    if name in _TIMES:
        return times(values)  # type: ignore[arg-type]  # of a column of times
    if name in _BYTES:
        return texts(values)  # type: ignore[arg-type]  # of a column of bytes
    return pa.array(values, of)


def blocks(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """In pieces of at most `BATCH_ROWS` rows, and of about `BATCH_BYTES`."""
    step = BATCH_ROWS
    if rows.nbytes > BATCH_BYTES:
        step = max(1, min(step, rows.num_rows * BATCH_BYTES // rows.nbytes))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
