"""Topics, through SQL or a Python function, into a topic, as a file declares it (declared.py).

Structured Streaming keeps the place in each source, the state of windows, joins and dedup, and the watermark in the
checkpoint folder; the sink takes each batch once. So every input row counts once, whoever is killed in between.

Rows that come later than the watermark are dropped by the operation that needed them in time, and counted. A window is
written once the watermark has passed it (mode append), or each time it changes (mode update).
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from esker.errors import SettingsError
from esker.spark.pipelines.declared import EVENT_TIME, RECORD_COLUMNS, Declaration, Sink, Source, read_declaration
from esker.spark.pipelines.failures import in_one_line
from esker.spark.pipelines.mapping import to_topic_columns
from esker.spark.pipelines.progress import Progress, StreamTotals, follow
from esker.spark.pipelines.registry import Order, Result
from esker.spark.writing import foreach_batch

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

POLL: Final = "500 milliseconds"  # how often an idle stream asks for news
_CORRUPT: Final = "_not_json"
_MALFORMED: Final = "malformed:"


def run(spark: SparkSession, order: Order, progress: Progress) -> Result:
    file = Path(order.values.text("file"))
    declared = read_declaration(file)
    try:
        query = start(spark, declared, order)
    except SettingsError as error:
        raise SettingsError(f"{file}: {error}") from None
    topics = ", ".join(source.topic for source in declared.sources)
    progress.stage(f"{declared.name}: {topics} → {declared.sink.topic or 'topics by row'}")
    totals = follow(query, progress, order.stopping)
    return Result(_told(declared, totals), {
        "name": declared.name, "rows": totals.rows, "batches": totals.batches, "late": totals.late,
        "malformed": {s.name: totals.observed.get(_MALFORMED + s.name, 0) for s in declared.sources},
    })  # fmt: skip


def start(spark: SparkSession, declared: Declaration, order: Order) -> StreamingQuery:
    """Begins the stream. Raises SettingsError that names the key where the declaration does not fit the data."""
    if declared.partitions is not None:
        spark.conf.set("spark.sql.shuffle.partitions", declared.partitions)
    tables = {source.name: _table(spark, source, order) for source in declared.sources}
    for name, table in tables.items():
        table.createOrReplaceTempView(name)
    result = _result(spark, declared, tables)
    columns = dict(declared.sink.columns)
    value = columns.pop("value", None)
    rows = to_topic_columns(result, value, columns, "sink.columns", "sink.columns.value")
    writer = _writer(rows, declared.sink, order)
    writer = writer.queryName(declared.name).option("checkpointLocation", order.folder("checkpoint"))
    try:
        return (writer.trigger(processingTime=POLL) if order.continuous else writer.trigger(availableNow=True)).start()
    except AnalysisException as error:
        raise SettingsError(f"sql: {in_one_line(error)}") from None


def _table(spark: SparkSession, source: Source, order: Order) -> DataFrame:
    """The records of a topic as the table that the SQL names."""
    records = (
        spark.readStream.format("esker")
        .options(**order.source_options())
        .option("subscribe", source.topic)
        .option("startingOffsets", source.starting)
        .option("maxOffsetsPerTrigger", order.values.integer("batch_rows"))
        .load()
    )
    of_record = [
        F.col(name).alias(f"record_{name if name != 'timestamp' else 'time'}")
        for name in ("offset", "timestamp", "tag", "node", "meta")
    ]
    text = F.col("value").cast(T.StringType())
    if source.schema is None:
        table = records.select(text.alias("value"), *of_record)
    else:
        table = _parsed(records.select(text.alias("value"), *of_record), source, _schema(source))
    table = table.withColumn(EVENT_TIME, _event_time(table, source))
    if source.watermark is not None:
        table = table.withWatermark(EVENT_TIME, source.watermark)
    if source.dedup:
        for name in source.dedup:
            if name not in table.columns:
                raise SettingsError(f"sources.{source.name}.dedup: there is no column {name!r}")
        table = table.dropDuplicatesWithinWatermark(list(source.dedup))
    return table


def _schema(source: Source) -> T.StructType:
    try:
        schema = T.StructType.fromDDL(source.schema or "")
    except (ParseException, AnalysisException) as error:
        raise SettingsError(f"sources.{source.name}.schema: {in_one_line(error)}") from None
    if not isinstance(schema, T.StructType):
        raise SettingsError(f"sources.{source.name}.schema: expected columns, such as id STRING, amount DOUBLE")
    taken = [name for name in schema.fieldNames() if name in (*RECORD_COLUMNS, EVENT_TIME)]
    if taken:
        raise SettingsError(f"sources.{source.name}.schema: the column {taken[0]!r} has a meaning already")
    return schema


def _parsed(records: DataFrame, source: Source, schema: T.StructType) -> DataFrame:
    with_corrupt = T.StructType([*schema.fields, T.StructField(_CORRUPT, T.StringType())])
    parsed = records.withColumn(
        "parsed", F.from_json("value", with_corrupt, {"columnNameOfCorruptRecord": _CORRUPT, "mode": "PERMISSIVE"})
    )
    wrong = F.col("parsed").isNull() | F.col(f"parsed.{_CORRUPT}").isNotNull()
    if source.fails_on_malformed:
        told = F.format_string(
            f"record %d of topic {source.topic} does not fit sources.{source.name}.schema", "record_offset"
        )
        parsed = parsed.withColumn("parsed", F.when(wrong, F.raise_error(told)).otherwise(F.col("parsed")))
    else:
        counted = F.coalesce(F.sum(F.when(wrong, 1).otherwise(0)), F.lit(0)).cast(T.LongType())
        parsed = parsed.observe(_MALFORMED + source.name, counted.alias("rows")).where(~wrong)
    return parsed.select(*(F.col(f"parsed.`{name}`") for name in schema.fieldNames()), *RECORD_COLUMNS)


def _event_time(table: DataFrame, source: Source) -> Column:
    if source.time is None:
        return F.col("record_time")
    where = f"sources.{source.name}.time"
    try:
        column = F.expr(source.time)
        kind = table.select(column).schema.fields[0].dataType
    except (AnalysisException, ParseException) as error:
        raise SettingsError(f"{where}: {in_one_line(error)}") from None
    if not isinstance(kind, T.TimestampType):
        raise SettingsError(f"{where} is of type {kind.simpleString()}; expected a timestamp, such as to_timestamp(…)")
    return column


def _result(spark: SparkSession, declared: Declaration, tables: dict[str, DataFrame]) -> DataFrame:
    if declared.python is not None:
        result = _function(*declared.python)(tables)
        if not isinstance(result, DataFrame) or not result.isStreaming:
            raise SettingsError(f"python: {declared.python[1]} gave no streaming DataFrame")
        return result
    try:
        result = spark.sql(declared.sql or "")
    except (AnalysisException, ParseException) as error:
        raise SettingsError(f"sql: {in_one_line(error)}") from None
    if not result.isStreaming:
        raise SettingsError(f"sql reads none of the sources {', '.join(tables)}")
    return result


def _function(path: Path, name: str) -> Callable[[dict[str, DataFrame]], object]:
    found = runpy.run_path(str(path)).get(name)
    if not callable(found):
        raise SettingsError(f"python: {path} has no function {name!r}")
    chosen: Callable[[dict[str, DataFrame]], object] = found
    return chosen


def _writer(rows: DataFrame, sink: Sink, order: Order) -> DataStreamWriter:
    options = {"type": sink.type, "share": str(order.values.number("share"))}
    options |= {f"topic.{name}": json.dumps(value) for name, value in sink.config.items()}
    if sink.updates:  # a sink in Python takes no updates, so each batch is written by itself
        write = foreach_batch(sink.topic, endpoint=order.endpoint, api_key=order.api_key, options=options)
        return rows.writeStream.outputMode("update").foreachBatch(write)
    if sink.topic is not None:
        options["topic"] = sink.topic
    return rows.writeStream.outputMode("append").format("esker").options(**order.source_options(), **options)


def _told(declared: Declaration, totals: StreamTotals) -> list[str]:
    lines = [f"{declared.name}: {totals.rows:,} rows read in {totals.batches:,} batches"]
    if totals.late:
        lines.append(f"{totals.late:,} rows came later than the watermark and were left out")
    lines += [
        f"{wrong:,} records of {source.topic} did not fit sources.{source.name}.schema"
        for source in declared.sources
        if (wrong := totals.observed.get(_MALFORMED + source.name, 0))
    ]
    return lines
