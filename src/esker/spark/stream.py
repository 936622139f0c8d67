# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)
"""Streams of records. One process of the driver owns the reader of a query and asks it, for every batch, how far it may
go and how to cut the way there.

After a crash Spark asks a new reader to cut a range that it planned before, so everything here follows from the two
offsets it gives: equal offsets, equal records, equal cuts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from esker.spark.client import Pace, client
from esker.spark.consumers import Reporter
from esker.spark.errors import DataLoss
from esker.spark.offsets import LATEST, Edge, Json, Progress, Spot, share
from esker.spark.options import ReadOptions
from esker.spark.plan import (
    PartitionPlan,
    Plan,
    Slice,
    ask_plan,
    check_epochs,
    data_loss,
    lost,
    need_type,
    resolve,
    slices,
)
from esker.spark.reader import read_slice
from esker.spark.schemas import check_schema

_log = logging.getLogger("esker.spark")


class RecordsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options
        self._schema = schema
        self._plan: Plan | None = None  # the latest; what it covers need not be asked again
        self._target: Progress | None = None  # of a query that ends with what is there now
        self._told: Json | None = None  # the end of the last batch
        self._pace = Pace()
        self._reporter = Reporter(options.connection, options.consumer)

    # -- on the driver

    def initialOffset(self) -> Json:
        options = self._options
        starting = options.starting or Edge(place=LATEST)
        plan = ask_plan(client(options.connection), options.choice, starting.times(), files=False)
        parts = self._parts(plan)
        offsets = resolve(
            starting, parts, "startingOffsets", end=False, missing_is_latest=options.missing_time_is_latest
        )
        return Progress(offsets, _epochs(parts)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        parts = self._parts(self._ask())
        self._target = Progress({spot: part.next for spot, part in parts.items()}, _epochs(parts))

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        begun = Progress.from_json(start)
        self._pace.wait(idle=start == self._told)
        parts = self._parts(self._ask())
        check_epochs(begun.epochs, parts)
        self._check_presence(begun, parts)
        spans: dict[Spot, tuple[int, int]] = {}
        for spot, part in parts.items():
            if self._target is not None and spot not in self._target.offsets:
                continue  # it came after the query was told to end with what there was
            low = begun.offsets.get(spot, part.earliest)
            end = part.next if self._target is None else min(part.next, self._target.offsets[spot])
            if low > part.next:
                self._lose(f"topic {spot[0]!r}, partition {spot[1]} ends at {part.next}, the query has read to {low}")
            spans[spot] = (low, max(low, end))
        ends = share(spans, limit.max_rows) if isinstance(limit, ReadMaxRows) else {s: e for s, (_, e) in spans.items()}
        epochs = {topic: epoch for topic, epoch in _epochs(parts).items() if any(spot[0] == topic for spot in ends)}
        # A topic that is gone keeps its place: it may not come back under the same epoch, but its offsets are known.
        progress = Progress({**begun.offsets, **ends}, {**begun.epochs, **epochs})
        self._reporter.report(begun)
        self._told = progress.to_json()
        return self._told

    def reportLatestOffset(self) -> Json | None:
        if self._plan is None:
            return None
        parts = self._plan.partitions(self._options.choice)
        return Progress({spot: part.next for spot, part in parts.items()}, _epochs(parts)).to_json()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        begun, ended = Progress.from_json(start), Progress.from_json(end)
        plan = self._plan
        if plan is None or not _covers(plan.partitions(self._options.choice), ended):
            plan = self._ask()
        parts = self._parts(plan)
        if _reaches_back(begun, ended, parts):
            plan = self._ask(files=True)
            parts = self._parts(plan)
        check_epochs(ended.epochs, parts)
        ranges: dict[Spot, tuple[int, int]] = {}
        for spot, high in ended.offsets.items():
            part = parts.get(spot)
            if part is None:
                if begun.offsets.get(spot, high) < high:
                    self._lose(f"topic {spot[0]!r} is gone, with records up to {high} that were not read yet")
                continue
            low = begun.offsets.get(spot, part.earliest)
            if high > part.next:
                self._lose(f"topic {spot[0]!r}, partition {spot[1]} ends at {part.next}, the batch at {high}")
            ranges[spot] = (low, min(high, part.next))
            self._check_gaps(part, low, high)
        self._reporter.report(begun)
        return slices(plan, parts, ranges, self._options, even=True)

    def commit(self, end: Json) -> None:
        """Spark says so a batch late, and never of the last: `latestOffset` is where progress is reported."""

    # -- in a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice)
        yield from read_slice(partition, self._schema, self._options)

    def _ask(self, files: bool = False) -> Plan:
        lenient = not self._options.fail_on_data_loss
        self._plan = ask_plan(client(self._options.connection), self._options.choice, lenient=lenient, files=files)
        return self._plan

    def _parts(self, plan: Plan) -> dict[Spot, PartitionPlan]:
        need_type(plan, "log", "records", "a queue cannot be streamed; its events can, and its jobs be read as a batch")
        return plan.partitions(self._options.choice)

    def _check_presence(self, begun: Progress, parts: Mapping[Spot, PartitionPlan]) -> None:
        gone = sorted({topic for topic, number in begun.offsets if (topic, number) not in parts})
        if gone:
            self._lose(f"topic {', '.join(map(repr, gone))} is gone, or no longer chosen by this query")

    def _check_gaps(self, part: PartitionPlan, low: int, high: int) -> None:
        gaps = lost(part, low, high)
        if not gaps:
            return
        if self._options.fail_on_data_loss:
            raise data_loss(part.topic, part.partition, gaps)
        count = sum(min(gap.last, high - 1) - max(gap.first, low) + 1 for gap in gaps)
        self._reporter.lose(count)
        _log.warning("passing over %d offsets: %s", count, data_loss(part.topic, part.partition, gaps))

    def _lose(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{what}; failOnDataLoss=false goes on with what there is")
        _log.warning("%s", what)


def _epochs(parts: Mapping[Spot, PartitionPlan]) -> dict[str, int]:
    return {topic: part.epoch for (topic, _), part in parts.items()}


def _reaches_back(begun: Progress, ended: Progress, parts: Mapping[Spot, PartitionPlan]) -> bool:
    """Whether something of the batch is in the archive only."""
    return any(
        begun.offsets.get(spot, parts[spot].earliest) < min(high, parts[spot].hot_from)
        for spot, high in ended.offsets.items()
        if spot in parts
    )


def _covers(parts: Mapping[Spot, PartitionPlan], ended: Progress) -> bool:
    return all(spot in parts and parts[spot].next >= offset for spot, offset in ended.offsets.items())
