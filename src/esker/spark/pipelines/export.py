"""A log as Parquet files or as a Delta table, by day: each run adds what is new, and each record is there once.

A stream reads on from where its checkpoint stands. Each batch is written aside by Spark and then taken in by the driver
as one change of the folder (exportfolder.py); a Delta table gets its files in one commit that carries the stream's id
and the number of the batch, so that both know a batch that Spark runs again.
"""

# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 the name that everybody knows it by

from esker.errors import SettingsError
from esker.spark.pipelines.compact import compact
from esker.spark.pipelines.exportfolder import Change, ExportFolder, query_id, staged_moves
from esker.spark.pipelines.progress import Progress, StreamTotals, follow
from esker.spark.pipelines.registry import Order, Result

_POLL: Final = "10 seconds"  # an export that goes on makes a file each time there is something new
_TEXT = pa.string()
_SCHEMA: Final = pa.schema(
    [("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")), ("value", _TEXT), ("tag", _TEXT),
     ("node", _TEXT), ("meta", _TEXT), ("day", _TEXT)]
)  # fmt: skip


class Target(Protocol):
    def take(self, batch: DataFrame, number: int) -> None:
        """One batch of the stream, once: a second call with the same number changes nothing."""

    def compact(self, file_bytes: int, progress: Progress) -> str:
        """Makes large files out of small ones; says what came of it."""


def run(spark: SparkSession, order: Order, progress: Progress) -> Result:
    values = order.values
    root = _local(order.folder("output"), "output")
    checkpoint = root / "_export" / "checkpoint" if order.checkpoint is None else _local(order.checkpoint, "checkpoint")
    folder = ExportFolder(root)
    with folder.hold(values.text("topic"), values.text("format")):
        files = ParquetFiles(folder, checkpoint)
        target: Target = files if values.text("format") == "parquet" else DeltaFiles(files)
        progress.stage(f"{values.text('topic')} → {root}")
        totals = _stream(spark, order, target, checkpoint, progress)
        lines = [f"{totals.rows:,} records in {totals.batches:,} batches are new in {root}"]
        if values.switch("compact"):
            progress.stage("making large files out of small ones")
            lines.append(target.compact(values.integer("file_mb") << 20, progress))
    return Result(lines, {"rows": totals.rows, "batches": totals.batches}, [str(root)])


def _stream(spark: SparkSession, order: Order, target: Target, checkpoint: Path, progress: Progress) -> StreamTotals:
    values = order.values
    # Other programs, Delta's among them, do not read the old form of times that Spark writes by default.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    records = (
        spark.readStream.format("esker")
        .options(**order.source_options())
        .option("subscribe", values.text("topic"))
        .option("startingOffsets", values.text("starting"))
        .option("maxOffsetsPerTrigger", values.integer("batch_rows"))
        .option("failOnDataLoss", str(values.switch("fail_on_data_loss")).lower())
        .schema("offset long, timestamp timestamp, value binary, tag string, node string, meta string")
        .load()
    )
    rows = records.select(
        "offset", "timestamp", F.col("value").cast("string").alias("value"), "tag", "node", "meta",
        F.date_format("timestamp", "yyyy-MM-dd").alias("day"),
    )  # fmt: skip
    writer = rows.writeStream.foreachBatch(target.take).option("checkpointLocation", str(checkpoint))
    started = writer.trigger(processingTime=_POLL) if order.continuous else writer.trigger(availableNow=True)
    return follow(started.start(), progress, order.stopping)


def _local(text: str, option: str) -> Path:
    if re.match(r"[a-z][a-z0-9+.-]*://", text):
        raise SettingsError(f"--{option} {text}: expected a folder that this machine and every worker can reach")
    return Path(text).absolute()


class ParquetFiles:
    """Plain files under day=… folders."""

    def __init__(self, folder: ExportFolder, checkpoint: Path) -> None:
        self.folder = folder
        self._checkpoint = checkpoint

    def query(self) -> str:
        return query_id(self._checkpoint)

    def take(self, batch: DataFrame, number: int) -> None:
        query = self.query()
        if self.folder.has(query, number):
            return
        self.folder.make(Change(query, number, self.stage(batch, number)))

    def stage(self, batch: DataFrame, number: int) -> dict[str, str]:
        place = self.folder.staging(f"batch-{number}")
        batch.write.partitionBy("day").option("compression", "zstd").mode("overwrite").parquet(str(place))
        return staged_moves(self.folder, place, number)

    def compact(self, file_bytes: int, progress: Progress) -> str:
        done = compact(self.folder, file_bytes, progress)
        return f"{done.files_before:,} files are {done.files_after:,} now"


class DeltaFiles:
    """The same files, and a Delta table around them. The commit decides: a file that no commit names is no data."""

    def __init__(self, files: ParquetFiles) -> None:
        self._files = files
        self._root = files.folder.root

    def take(self, batch: DataFrame, number: int) -> None:
        folder, query = self._files.folder, self._files.query()
        table = self._table()
        done = table.transaction_version(query)
        if done is not None and number <= done:
            return
        if done is None and table.version() > 0:
            folder.has(query, number)  # tells of a folder that another stream filled
        moves = self._files.stage(batch, number)
        folder.make(Change(query, number, moves))
        table.create_write_transaction(
            [self._added(self._root / target) for target in moves.values()],
            mode="append",
            schema=table.schema(),
            partition_by=["day"],
            commit_properties=CommitProperties(app_transactions=[Transaction(query, number)]),
        )

    def compact(self, file_bytes: int, progress: Progress) -> str:
        table = self._table()
        told = table.optimize.compact(target_size=file_bytes)
        table.vacuum(dry_run=False)  # only what was replaced longer ago than readers may look back
        return f"{told['numFilesRemoved']:,} small files are {told['numFilesAdded']:,} now"

    def _table(self) -> DeltaTable:
        if DeltaTable.is_deltatable(str(self._root)):
            return DeltaTable(str(self._root))
        return DeltaTable.create(str(self._root), _SCHEMA, mode="ignore", partition_by=["day"])

    def _added(self, path: Path) -> AddAction:
        status = path.stat()
        rows = pq.read_metadata(path).num_rows
        return AddAction(
            path=self._files.folder.relative(path),
            size=status.st_size,
            partition_values={"day": path.parent.name.removeprefix("day=")},
            modification_time=int(status.st_mtime * 1000),
            data_change=True,
            stats=json.dumps({"numRecords": rows}),
        )
