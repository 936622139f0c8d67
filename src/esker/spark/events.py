# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)
"""The event history as a table and as a stream: everything that happened, in the order of the journal.

An offset is a position of the journal; one position may have many rows. Old events are in files of the archive, the
newest in the journal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from esker.spark.client import Client, Cut, Pace, client
from esker.spark.cold import FileGone, plain_text, reachable, read_file
from esker.spark.errors import DataLoss, EskerSparkError, Refused, Unreachable
from esker.spark.offsets import EARLIEST, LATEST, Edge, Json, events_json, events_position
from esker.spark.options import Choice, ReadOptions
from esker.spark.plan import ColdFile, EventsPlan, Plan, ask_plan, cut
from esker.spark.records import batches_of
from esker.spark.schemas import EVENTS, Shape, arrow_schema, check_schema

HOT_POSITIONS: Final = 20_000  # of the journal, for a task
HOT_SLICES_MAX: Final = 8  # each of them reads through the segment before its part

_ORDER: Final = ("position", "ordinal")
_MICROS = pa.timestamp("us", tz="UTC")


@dataclass
class EventSlice(InputPartition):
    """Positions from `start` to before `end`, of a file, or of the broker where there is none."""

    start: int
    end: int
    file: ColdFile | None
    archive: str | None
    node: str


class EventsReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        plan, events = ask_events(self._options)
        low = _position(self._options.starting or Edge(place=EARLIEST), events, "startingOffsets")
        high = _position(self._options.ending or Edge(place=LATEST), events, "endingOffsets")
        low = _from_first(low, events, self._options)
        return list(event_slices(plan, events, low, high))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, EventSlice):
            yield from read_slice(partition, self._schema, self._options)


class EventsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options
        self._schema = schema
        self._target: int | None = None
        self._latest: int | None = None
        self._pace = Pace()

    def initialOffset(self) -> Json:
        _, events = ask_events(self._options)
        edge = self._options.starting or Edge(place=LATEST)
        return events_json(_position(edge, events, "startingOffsets"))

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = ask_events(self._options)[1].next

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        begun = _begun(start)
        self._pace.wait(idle=begun == self._latest)
        self._latest = ask_events(self._options)[1].next
        end = self._latest if self._target is None else min(self._target, self._latest)
        if isinstance(limit, ReadMaxRows):
            end = min(end, begun + limit.max_rows)
        return events_json(max(begun, end))

    def reportLatestOffset(self) -> Json | None:
        return None if self._latest is None else events_json(self._latest)

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        plan, events = ask_events(self._options)
        low = _from_first(_begun(start), events, self._options)
        return list(event_slices(plan, events, low, _begun(end)))

    def commit(self, end: Json) -> None:
        """Nothing waits for it."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, EventSlice)
        yield from read_slice(partition, self._schema, self._options)


def ask_events(options: ReadOptions) -> tuple[Plan, EventsPlan]:
    """Names are only a filter here: the history tells of topics that are long gone."""
    plan = ask_plan(client(options.connection), Choice(names=()), events=True, lenient=True)
    if plan.events is None:
        raise EskerSparkError("the broker tells nothing of its events; is it of another version?")
    return plan, plan.events


def event_slices(plan: Plan, events: EventsPlan, low: int, high: int) -> Iterator[EventSlice]:
    """By file, and what is not in one by positions."""
    at = low
    for file in sorted(events.files, key=lambda file: file.first):
        first, end = max(at, file.first), min(high, file.last + 1)
        if first >= end:
            continue
        if at < first:
            yield EventSlice(at, first, None, plan.archive, plan.node)
        yield EventSlice(first, end, file, plan.archive, plan.node)
        at = end
    if at < high:
        positions = max(HOT_POSITIONS, -(-(high - at) // HOT_SLICES_MAX))
        for first, end in cut(at, high, positions):
            yield EventSlice(first, end, None, plan.archive, plan.node)


def read_slice(part: EventSlice, schema: StructType, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    columns = _needed(schema.fieldNames(), options)
    shape = Shape(arrow_schema(schema), {})
    for batch in _raw(part, columns, options):
        found = _narrowed(batch, options)
        if found.num_rows:
            yield shape(found)


def _raw(part: EventSlice, columns: Sequence[str], options: ReadOptions) -> Iterator[pa.RecordBatch]:
    broker = client(options.connection)
    if part.file is None or part.archive is None or not reachable(part.archive, part.node, options.direct):
        yield from _from_broker(broker, part, columns, options)
        return
    done = (part.start, -1)
    try:
        for batch in read_file(part.archive, part.file, "position", part.start, part.end, columns):
            batch = pa.RecordBatch.from_arrays([_column(batch, name) for name in columns], names=list(columns))
            done = _last(batch)
            yield batch
    except FileGone:
        yield from _from_broker(broker, part, columns, options, done)


def _from_broker(
    broker: Client, part: EventSlice, columns: Sequence[str], options: ReadOptions, done: tuple[int, int] | None = None
) -> Iterator[pa.RecordBatch]:
    position, ordinal = done or (part.start, -1)
    patience = broker.retrying()
    topics = options.choice.names
    while True:
        query = {
            "from": position, "to": part.end, "columns": ",".join(columns),
            "topics": ",".join(topics) if topics else None,
            "kinds": ",".join(options.kinds) if options.kinds else None,
        }  # fmt: skip
        try:
            with broker.stream("/v0/events", query) as stream:
                for batch in batches_of(stream):
                    fresh = _behind(batch, position, ordinal)
                    if fresh.num_rows:
                        position, ordinal = _last(fresh)
                        yield fresh
                        patience.renew()
            return
        except Cut as problem:
            if not patience.pause():
                raise Unreachable(
                    f"the stream of events was cut at position {position} and could not be resumed ({problem})"
                ) from None
        except Refused as refused:
            if refused.code == "data_loss":
                raise DataLoss(f"events from position {part.start} to before {part.end}: {refused}") from None
            raise


def _behind(batch: pa.RecordBatch, position: int, ordinal: int) -> pa.RecordBatch:
    """What has not come yet: a position may be cut between two of its rows."""
    if ordinal < 0 or batch.column("position")[0].as_py() > position:
        return batch
    later = pc.greater(batch.column("position"), position)
    same = pc.and_(pc.equal(batch.column("position"), position), pc.greater(batch.column("ordinal"), ordinal))
    return batch.filter(pc.or_(later, same))


def _last(batch: pa.RecordBatch) -> tuple[int, int]:
    return batch.column("position")[-1].as_py(), batch.column("ordinal")[-1].as_py()


def _needed(asked: Sequence[str], options: ReadOptions) -> list[str]:
    needed = {*asked, *_ORDER}
    if options.choice.names or options.choice.pattern:
        needed.add("topic")
    if options.kinds:
        needed.add("kind")
    return [name for name in EVENTS.fieldNames() if name in needed]


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    if name == "time":
        return column.cast(_MICROS)
    return column if pa.types.is_integer(column.type) else plain_text(column)


def _narrowed(batch: pa.RecordBatch, options: ReadOptions) -> pa.RecordBatch:
    """What the broker narrows as well, and files do not; a pattern is known only here."""
    choice = options.choice
    if options.kinds:
        batch = batch.filter(pc.is_in(batch.column("kind"), pa.array(options.kinds, pa.string())))
    if choice.names:
        batch = batch.filter(pc.is_in(batch.column("topic"), pa.array(choice.names, pa.string())))
    if choice.pattern is not None:
        there = pc.unique(batch.column("topic")).to_pylist()
        wanted = [topic for topic in there if topic is not None and re.fullmatch(choice.pattern, topic)]
        batch = batch.filter(pc.is_in(batch.column("topic"), pa.array(wanted, pa.string())))
    return batch


def _position(edge: Edge, events: EventsPlan, option: str) -> int:
    if edge.place is not None or edge.position in (EARLIEST, LATEST):
        return events.first if EARLIEST in (edge.place, edge.position) else events.next
    if edge.position is None:
        raise EskerSparkError(f'option {option}: events have positions of the journal: {{"$events":{{"0":n}}}}')
    if edge.position > events.next:
        raise EskerSparkError(f"option {option}: position {edge.position} lies behind the end {events.next}")
    return edge.position


def _from_first(low: int, events: EventsPlan, options: ReadOptions) -> int:
    if low >= events.first:
        return low
    if options.fail_on_data_loss:
        raise DataLoss(
            f"events from position {low} to before {events.first} are gone: no archive took them; "
            "failOnDataLoss=false starts behind them"
        )
    return events.first


def _begun(offset: Json) -> int:
    try:
        return events_position(offset)
    except KeyError:
        raise EskerSparkError("the checkpoint is of a stream of records, not of events; use another one") from None
