"""`read`: the records of logs as one DataFrame, old ones from Parquet files by Spark itself, new ones by our source.

Both come from one plan: files up to where the broker's own store begins, from there on the broker up to the end that
the plan names. So the two never overlap, and nothing falls between them. Spark's own Parquet reader is the faster one,
and knows how to skip row groups by what is filtered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from esker.spark.errors import EskerSparkError, wrong_option
from esker.spark.options import DEFAULT_ENDPOINT, ReadOptions, read_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from esker.spark.plan import ColdFile, PartitionPlan, Plan

DEAD_RUNS_MAX: Final = 200  # in the filter of a scan; files with more of them are read by our source
# What is not in files is fetched at once where it is little: a task of ours takes longer to start than to read it.
TAIL_ROWS_MAX: Final = 20_000
TAIL_BYTES_MAX: Final = 8 << 20
_OPTIONS: Final = ("retryTimeoutMs", "failOnDataLoss", "direct", "minPartitions", "maxRecordsPerPartition")
_STORED: Final = "seq bigint, ts timestamp, node string, tag string, meta string, data binary"


def read(
    spark: SparkSession,
    topics: str | Sequence[str],
    *,
    endpoint: str = DEFAULT_ENDPOINT,
    api_key: str | None = None,
    columns: Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The records of one or more logs, as they stand now: the columns of `format("esker")`, or some of them.

    `options` are some of the source's: how to reach the broker, and how to cut the work (`_OPTIONS`).
    A file that the broker lets go of before the DataFrame is used (a cap, an age) fails the query; read again then.
    Raises EskerSparkError when a topic is missing, or no log, or records are gone and `failOnDataLoss` is not false.
    Spark's own reader knows nothing of the checksums of files, so these are looked at here, before it gets them.
    """
    given = _options(topics, endpoint, api_key, options)
    parsed = read_options(given, streaming=False)
    from esker.spark.client import client
    from esker.spark.cold import check_files, local_folder, reachable
    from esker.spark.plan import ask_plan, data_loss, lost, need_type
    from esker.spark.schemas import RECORDS

    names = list(columns) if columns is not None else RECORDS.fieldNames()
    unknown = [name for name in names if name not in RECORDS.fieldNames()]
    if unknown or not names:
        raise EskerSparkError(f"columns: no column {', '.join(unknown)}; there are {', '.join(RECORDS.fieldNames())}")
    plan = ask_plan(client(parsed.connection), parsed.choice)
    need_type(plan, "log", "records", 'its jobs are .option("table", "jobs")')
    folder = local_folder(plan.archive) if plan.archive is not None else None
    by_spark = folder is not None and reachable(plan.archive, plan.node, parsed.direct)
    frames: list[DataFrame] = []
    for part in plan.partitions(parsed.choice).values():
        gaps = lost(part, part.earliest, part.next)
        if gaps and parsed.fail_on_data_loss:
            raise data_loss(part.topic, part.partition, gaps)
        files = [file for file in part.files if file.last >= part.earliest and file.first < part.hot_from]
        if not by_spark or not files:
            frames.append(_from_source(spark, given, part, part.earliest, part.next, names))
            continue
        whole, gnawed = divided(files)
        if whole:
            assert plan.archive is not None
            check_files(plan.archive, whole)
            frames.append(_from_files(spark, [f"{folder}/{file.path}" for file in whole], whole, part, names))
        for file in gnawed:
            low, high = max(file.first, part.earliest), min(file.last + 1, part.hot_from)
            frames.append(_from_source(spark, given, part, low, high, names))
        if part.hot_from < part.next:
            tail = _tail(spark, plan, part, parsed, names)
            frames.append(tail or _from_source(spark, given, part, part.hot_from, part.next, names))
    if not frames:
        raise EskerSparkError("there is no topic to read")
    return reduce(lambda one, other: one.unionByName(other), frames)


def divided(files: Sequence[ColdFile]) -> tuple[list[ColdFile], list[ColdFile]]:
    """Files that Spark reads, and those with so many dead records that a filter for them would be too long."""
    whole: list[ColdFile] = []
    gnawed: list[ColdFile] = []
    runs = 0
    for file in sorted(files, key=lambda file: len(file.dead)):
        runs += len(file.dead) // 2
        (whole if runs <= DEAD_RUNS_MAX else gnawed).append(file)
    return sorted(whole, key=lambda file: file.first), sorted(gnawed, key=lambda file: file.first)


def _options(
    topics: str | Sequence[str], endpoint: str, api_key: str | None, more: Mapping[str, str] | None
) -> dict[str, str]:
    names = [topics] if isinstance(topics, str) else list(topics)
    if any("," in name for name in names):
        raise EskerSparkError("a topic with a comma in its name: use format('esker') with the option assign")
    takes = {name.lower() for name in _OPTIONS}
    for name in more or ():
        if name.lower() not in takes:
            raise wrong_option(
                name, f"read takes {', '.join(_OPTIONS)}; narrow with a filter, which Spark takes to the files, "
                "or use format('esker')",
            )  # fmt: skip
    given = {"endpoint": endpoint, "subscribe": ",".join(names), **(more or {})}
    return given if api_key is None else {**given, "apiKey": api_key}


def _from_files(
    spark: SparkSession, paths: list[str], files: Sequence[ColdFile], part: PartitionPlan, names: Sequence[str]
) -> DataFrame:
    from pyspark.sql import functions as f

    from esker.spark.schemas import LOG_APPEND_TIME

    made: dict[str, Column] = {
        "key": f.col("tag").cast("binary"),
        "value": f.col("data"),
        "topic": f.lit(part.topic),
        "partition": f.lit(part.partition).cast("int"),
        "offset": f.col("seq"),
        "timestamp": f.col("ts"),
        "timestampType": f.lit(LOG_APPEND_TIME).cast("int"),
        "tag": f.col("tag"),
        "node": f.col("node"),
        "meta": f.col("meta"),
    }
    stored = spark.read.schema(_STORED).parquet(*paths)
    if files[0].first < part.earliest:
        stored = stored.filter(f.col("seq") >= part.earliest)
    if files[-1].last >= part.hot_from:
        stored = stored.filter(f.col("seq") < part.hot_from)
    for first, count in (run for file in files for run in zip(file.dead[::2], file.dead[1::2], strict=True)):
        stored = stored.filter(~f.col("seq").between(first, first + count - 1))
    return stored.select(*(made[name].alias(name) for name in names))


def _tail(
    spark: SparkSession, plan: Plan, part: PartitionPlan, options: ReadOptions, names: Sequence[str]
) -> DataFrame | None:
    """The records that are in no file, read here and now; None: that would be too much."""
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from esker.spark.plan import Slice
    from esker.spark.reader import read_slice
    from esker.spark.schemas import RECORDS, arrow_schema

    if part.next - part.hot_from > TAIL_ROWS_MAX:
        return None
    schema = StructType([RECORDS[name] for name in names])
    piece = Slice(
        part.topic, part.partition, part.epoch, part.hot_from, part.next, part.hot_from, (), plan.archive, plan.node,
        plan.spool,
    )  # fmt: skip
    batches = []
    size = 0
    for batch in read_slice(piece, schema, options):
        batches.append(batch)
        size += batch.nbytes
        if size > TAIL_BYTES_MAX:
            return None
    return spark.createDataFrame(pa.Table.from_batches(batches, schema=arrow_schema(schema)), schema)


def _from_source(
    spark: SparkSession, given: Mapping[str, str], part: PartitionPlan, low: int, high: int, names: Sequence[str]
) -> DataFrame:
    from pyspark.sql.types import StructType

    from esker.spark.schemas import RECORDS

    number = str(part.partition)
    epochs = {"$epochs": {part.topic: part.epoch}}
    options = {name: value for name, value in given.items() if name != "subscribe"}
    return (
        spark.read.format("esker")
        .schema(StructType([RECORDS[name] for name in names]))
        .options(**options)
        .option("assign", json.dumps({part.topic: [part.partition]}))
        .option("startingOffsets", json.dumps({part.topic: {number: low}, **epochs}))
        .option("endingOffsets", json.dumps({part.topic: {number: high}, **epochs}))
        .load()
    )
