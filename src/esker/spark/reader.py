# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)
"""Batch reads. The plan is made on the driver, when Spark plans the query; the partitions carry all that tasks need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from esker.spark.client import client
from esker.spark.offsets import EARLIEST, LATEST, Edge
from esker.spark.options import ReadOptions
from esker.spark.plan import Slice, ask_plan, data_loss, lost, need_type, resolve, slices
from esker.spark.records import read_records
from esker.spark.schemas import check_schema, records_columns, records_shape


class RecordsReader(DataSourceReader):
    """The records of logs between two offsets. What is written after the plan is not in it."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Runs on the driver."""
        options = self._options
        starting = options.starting or Edge(place=EARLIEST)
        ending = options.ending or Edge(place=LATEST)
        times = sorted({*starting.times(), *ending.times()})
        plan = ask_plan(client(options.connection), options.choice, times)
        need_type(plan, "log", "records", 'its jobs are .option("table", "jobs")')
        parts = plan.partitions(options.choice)
        starts = resolve(
            starting, parts, "startingOffsets", end=False, missing_is_latest=options.missing_time_is_latest
        )
        ends = resolve(ending, parts, "endingOffsets", end=True)
        ranges = {spot: (starts[spot], ends[spot]) for spot in parts}
        if options.fail_on_data_loss:
            for (topic, number), (start, end) in ranges.items():
                gaps = lost(parts[topic, number], start, end)
                if gaps:
                    raise data_loss(topic, number, gaps)
        return list(slices(plan, parts, ranges, options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        if not isinstance(partition, Slice):  # Spark makes one of its own where there is nothing to read
            return
        yield from read_slice(partition, self._schema, self._options)


def read_slice(part: Slice, schema: StructType, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    shape = records_shape(schema, part.topic, part.partition)
    for batch in read_records(part, records_columns(schema.fieldNames()), options):
        yield shape(batch)
