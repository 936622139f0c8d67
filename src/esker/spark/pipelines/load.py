"""Bulk load: files of Parquet, CSV or JSON into a queue or a log, each row once.

The files are put in order, cut into groups of about `batch_mb`, and each group is one batch of one load: Spark stages
its rows, the broker publishes them. The load's name is made from the files (path, size, time of change) and the
parameters that shape the rows, so the same command run again is the same load: batches that were published are passed
over, one that was being published is waited for, one that was only staged is staged anew. That holds whoever was killed
in between, since the broker takes a batch of a load once.

A file that was added or changed makes another load, which would bring all rows again: load new files by their own
names, or from their own folder. `load_id` names a load by hand, where the files' times mean nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from esker.errors import EskerError, SettingsError
from esker.spark.client import client
from esker.spark.pipelines.failures import in_one_line
from esker.spark.pipelines.mapping import only_where, to_topic_columns
from esker.spark.pipelines.parameters import Values
from esker.spark.pipelines.progress import Progress, watching
from esker.spark.pipelines.registry import Order, Result

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader
    from pyspark.sql.types import StructType

_SUFFIXES: Final = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json",
                    ".ndjson": "json"}  # fmt: skip
_PACKED: Final = re.compile(r"\.(gz|bz2|zst|lz4|snappy)$")
_LOAD_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_WAIT_MS: Final = 2000
_FILES_MAX: Final = 1_000_000
_PUBLISH_MS: Final = 24 * 3600 * 1000  # the broker may have other work; a load that makes no progress tells so
# Parameters that change how a load runs, not which rows it brings.
_NOT_ROWS: Final = ("share", "create", "load_id")


class InputFile(NamedTuple):
    path: str
    size: int
    changed_us: int


class Published(NamedTuple):
    """How the broker stands with a batch."""

    state: str
    rows: int
    published: int
    message: str | None


def run(spark: SparkSession, order: Order, progress: Progress) -> Result:
    values = order.values
    _check_target(values)
    progress.stage("looking at the files")
    files = list_files(spark, values.text("input"))
    source = _Input(spark, values, files)
    groups = group_files(files, values.integer("batch_mb") << 20)
    load = values.optional("load_id") or load_name(files, values)
    if _LOAD_ID.fullmatch(load) is None:
        raise SettingsError(f"load_id cannot be {load!r}: expected 1 to 128 letters, digits, '.', '_' and '-'")
    _rows(source, files[:1], values)  # a wrong expression is told before anything is staged
    size = sum(file.size for file in files)
    progress.stage(f"{len(files):,} files, {size / 1e6:,.1f} MB into {values.optional('topic') or 'their topics'}")
    before = rows_before = rows = 0
    uncounted: list[InputFile] = []
    for number, group in enumerate(groups):
        found = _settled(order, load, number, rows_before + rows, progress)
        if found.state == "done":
            before += 1
            rows_before += found.rows
            uncounted += () if found.rows else group
        else:
            rows += _publish(order, load, number, _rows(source, group, values), rows_before + rows, progress)
        progress.advance(rows_before + rows)
    if uncounted:  # the broker knows how many rows the last batch of a load had, not those before it
        progress.stage("counting the rows that were there already")
        rows_before += _rows(source, uncounted, values).count()
    into = values.optional("topic") or "their topics"
    known = f"; {before} of {len(groups)} batches ({rows_before:,} rows) were there already" if before else ""
    return Result(
        [f"{rows_before + rows:,} rows of {len(files):,} files are in {into}{known}"],
        {
            "load": load, "rows": rows_before + rows, "rows_before": rows_before, "files": len(files),
            "batches": len(groups), "batches_before": before,
        },
    )  # fmt: skip


def list_files(spark: SparkSession, pattern: str) -> list[InputFile]:
    """Every file under a path or pattern, in the order of their names; on any file system that Spark knows."""
    listing = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        rows = listing.load(pattern).select("path", "length", "modificationTime").limit(_FILES_MAX + 1).collect()
    except AnalysisException as error:
        raise SettingsError(f"input {pattern!r}: {in_one_line(error)}") from None
    if not rows:
        raise SettingsError(f"input {pattern!r}: there is no file")
    if len(rows) > _FILES_MAX:
        raise SettingsError(f"input {pattern!r}: more than {_FILES_MAX:,} files; load them in parts")
    return sorted(InputFile(row[0], row[1], int(row[2].timestamp() * 1_000_000)) for row in rows)


def group_files(files: Sequence[InputFile], bytes_max: int) -> list[list[InputFile]]:
    """Neighbours together up to the size; a larger file alone. The same files give the same groups."""
    groups: list[list[InputFile]] = []
    room = 0
    for file in files:
        if not groups or file.size > room:
            groups.append([])
            room = bytes_max
        groups[-1].append(file)
        room -= file.size
    return groups


def load_name(files: Sequence[InputFile], values: Values) -> str:
    shaping = {name: value for name, value in values.everything().items() if name not in _NOT_ROWS}
    told = json.dumps([list(map(list, files)), shaping], sort_keys=True, default=str)
    return "load-" + hashlib.sha256(told.encode()).hexdigest()[:40]


def format_of(files: Sequence[InputFile]) -> str:
    """By the ends of their names."""
    names = [_PACKED.sub("", file.path.lower()) for file in files]
    formats = {_SUFFIXES.get(os.path.splitext(name)[1]) for name in names}  # noqa: PTH122 they are URLs, not paths
    if len(formats) == 1 and (found := formats.pop()) is not None:
        return found
    raise SettingsError("format cannot be auto: the files are not all .parquet, .csv or .json; name the format")


class _Input:
    """Reads groups of the files under one schema, which is found once over all of them."""

    def __init__(self, spark: SparkSession, values: Values, files: Sequence[InputFile]) -> None:
        self._spark = spark
        self._format = values.text("format") if values.text("format") != "auto" else format_of(files)
        self._options = values.family("read")
        self._schema: str | StructType | None = self._options.pop("schema", None)
        pattern = values.text("input")
        if not re.search(r"[*?\[{]", pattern) and not (len(files) == 1 and files[0].path.endswith(pattern)):
            self._options.setdefault("basePath", pattern)  # folders such as day=2026-01-31 are columns
        if self._format == "csv":
            self._options.setdefault("header", "true")
        try:
            self._schema = self._reader().load([file.path for file in files]).schema
        except AnalysisException as error:
            raise SettingsError(f"input {pattern!r}: {in_one_line(error)}") from None

    def read(self, files: Sequence[InputFile]) -> DataFrame:
        return self._reader().load([file.path for file in files])

    def _reader(self) -> DataFrameReader:
        reader = self._spark.read.format(self._format).options(**self._options)
        return reader if self._schema is None else reader.schema(self._schema)


def _rows(source: _Input, files: Sequence[InputFile], values: Values) -> DataFrame:
    data = only_where(source.read(files), values.optional("where"))
    return to_topic_columns(data, values.optional("value"), values.family("map"))


def _check_target(values: Values) -> None:
    mapped = values.family("map")
    if (values.optional("topic") is None) == ("topic" not in mapped):
        raise SettingsError("pipeline load needs either topic or map.topic, and not both")


def _settled(order: Order, load: str, batch: int, before: int, progress: Progress) -> Published:
    """How a batch stands, once nothing moves: what an earlier run committed is published to its end first."""
    found = _look(order, load, batch)
    while found.state == "publishing":
        progress.advance(before + found.published)
        found = _look(order, load, batch, _WAIT_MS)
    if found.state == "failed":
        raise EskerError(f"batch {batch} of load {load} failed after {found.published:,} rows: {found.message}")
    return found


def _publish(order: Order, load: str, batch: int, rows: DataFrame, before: int, progress: Progress) -> int:
    """Stages and publishes one batch; how many rows it has."""

    def look() -> None:
        try:
            progress.advance(before + _look(order, load, batch).published)
        except EskerError as error:
            progress.note(f"the broker does not tell how far it is: {error}")

    with watching(look):
        rows.write.format("esker").options(**_sink_options(order, load, batch)).mode("append").save()
    return _look(order, load, batch).rows


def _sink_options(order: Order, load: str, batch: int) -> dict[str, str]:
    values = order.values
    options = {
        **order.source_options(),
        "type": values.text("type"),
        "share": str(values.number("share")),
        "create": str(values.switch("create")).lower(),
        "loadId": load,
        "batchId": str(batch),
        "publishTimeoutMs": str(_PUBLISH_MS),
    }
    topic = values.optional("topic")
    if topic is not None:
        options["topic"] = topic
    if values.text("type") == "log":
        options["valueFormat"] = values.text("value_format")
    return options


def _look(order: Order, load: str, batch: int, wait_ms: int = 0) -> Published:
    body = client(order.connection()).ask("GET", f"/v0/loads/{load}/{batch}", {"wait_ms": wait_ms}).body
    message = body.get("message")
    rows, published = body.get("rows"), body.get("published")
    return Published(
        str(body.get("state")),
        rows if isinstance(rows, int) else 0,
        published if isinstance(published, int) else 0,
        None if message is None else str(message),
    )
