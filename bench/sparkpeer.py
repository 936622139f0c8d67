# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)
"""The least that a stream through Python can be: a source that makes rows from memory, a sink that throws them away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bench.talk import payload

SCHEMA: Final = "value binary, offset bigint"
TASKS: Final = 2
BLOCK_ROWS: Final = 65_536


class Rows(InputPartition):
    def __init__(self, first: int, count: int) -> None:
        super().__init__((first, count))
        self.first = first
        self.count = count


class BareReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`rows` in all, `batch` at a time."""

    def __init__(self, rows: int, batch: int) -> None:
        self._rows = rows
        self._batch = batch

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._batch)

    def prepareForTriggerAvailableNow(self) -> None:
        """All rows are there from the start."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"row": min(start["row"] + self._batch, self._rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        step = -(-(end["row"] - start["row"]) // TASKS) or 1
        return [Rows(first, min(step, end["row"] - first)) for first in range(start["row"], end["row"], step)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows)
        schema = pa.schema([pa.field("value", pa.binary()), pa.field("offset", pa.int64())])
        values = pa.array([payload(number) for number in range(1000)], pa.binary())
        block = pa.concat_arrays([values] * (BLOCK_ROWS // 1000 + 1))
        for done in range(0, partition.count, BLOCK_ROWS):
            count = min(BLOCK_ROWS, partition.count - done)
            offsets = pa.array(range(partition.first + done, partition.first + done + count), pa.int64())
            yield pa.RecordBatch.from_arrays([block.slice(0, count), offsets], schema=schema)


class BareWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            continue
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing was kept."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing was kept."""


class Bare(DataSource):
    @classmethod
    def name(cls) -> str:
        return "bare"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return BareReader(int(self.options["rows"]), int(self.options["batch"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return BareWriter()
