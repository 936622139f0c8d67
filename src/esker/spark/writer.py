# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)
"""The sinks: batches and streams into a log or a queue, each row exactly once.

Tasks stage their rows at the broker, where nobody sees them; when all are done, the driver commits the batch, and the
broker publishes it, also through a crash of its own. A batch is known by its load and its number: the query and the
batch of a stream, or `loadId` and `batchId`. One that was committed before is not taken again, so a batch that Spark
runs twice appears once.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from esker.spark.client import ARROW, Client, client
from esker.spark.errors import EskerSparkError, Refused
from esker.spark.options import WriteOptions
from esker.spark.schemas import HEADERS, header_value

BATCH_ROWS: Final = 65_536  # in a batch of the Arrow stream
BATCH_BYTES: Final = 8 << 20
BODY_BYTES: Final = (
    32 << 20
)  # staged in one request, which is kept until the broker has it: it may have to be sent again
PARTS_OF_TASK: Final = 1_000_000
POLL_MS: Final = 10_000
DROP_MS: Final = 2000

_log = logging.getLogger("esker.spark")

_TEXTS = (StringType,)
_BYTES = (BinaryType, StringType)
_NUMBERS = (ByteType, ShortType, IntegerType, LongType)
_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "value": _BYTES, "topic": _TEXTS, "key": _BYTES, "tag": _TEXTS, "node": _TEXTS, "meta": _TEXTS,
    "priority": _NUMBERS, "delay_ms": _NUMBERS, "ttl_ms": _NUMBERS, "retry_ms": _NUMBERS, "max_deliveries": _NUMBERS,
}  # fmt: skip
_OF_QUEUES: Final = ("priority", "delay_ms", "ttl_ms", "retry_ms", "max_deliveries")


@dataclass
class Staged(WriterCommitMessage):
    """What a task has staged."""

    load: str
    batch: int
    parts: tuple[str, ...]
    rows: int


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Refuses what the sink cannot write, before a task starts."""
    names = schema.fieldNames()
    if "value" not in names:
        raise EskerSparkError(f"the column value is missing; there are {', '.join(names) or 'none'}")
    extra = [name for name in names if name not in _COLUMNS and name != "headers"]
    if extra:
        raise EskerSparkError(
            f"column {', '.join(extra)}: not known to the sink; select what it takes: {', '.join(_COLUMNS)}, headers"
        )
    for name in names:
        if names.count(name) > 1:
            raise EskerSparkError(f"column {name} is there twice")
    for field in schema.fields:
        if field.name == "headers":
            if field.dataType.simpleString() != HEADERS.simpleString():
                raise EskerSparkError(
                    f"column headers: {field.dataType.simpleString()}; it is {HEADERS.simpleString()}"
                )
        elif not isinstance(field.dataType, _COLUMNS[field.name]):
            wanted = " or ".join(kind().simpleString() for kind in _COLUMNS[field.name])
            raise EskerSparkError(f"column {field.name}: {field.dataType.simpleString()}; it is {wanted}")
    if options.topic is None and "topic" not in names:
        raise EskerSparkError("option topic: say where to write, or have a column topic")
    if options.type == "log":
        for name in _OF_QUEUES:
            if name in names:
                raise EskerSparkError(f"column {name}: only the jobs of a queue have it, and option type is log")


def check_mode(overwrite: bool) -> None:
    if overwrite:
        raise EskerSparkError(
            'mode("overwrite"): a topic cannot be overwritten, others read and write it; use mode("append"), '
            "and delete the topic first if it is to be made anew"
        )


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        check_mode(overwrite)
        check_columns(schema, options)
        self._options = options
        self._load = options.load or f"batch-{uuid.uuid4().hex}"
        self._batch = options.batch or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs in a task."""
        return stage(iterator, self._load, self._batch, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs on the driver."""
        publish(self._load, self._batch, _staged(messages), self._options)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        drop(self._load, self._batch, self._options)


class StreamWriter(DataSourceStreamArrowWriter):
    """The load of a stream is its query, which only tasks know: the driver learns it from what they hand in."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        # Spark calls a sink in complete mode with `overwrite`: each batch is the whole result, and is appended.
        check_columns(schema, options)
        if options.load is not None or options.batch is not None:
            raise EskerSparkError("option loadId: a stream has one of its own, which its checkpoint keeps")
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        if not query or batch is None:
            raise EskerSparkError("Spark tells no query id, without which a batch cannot be told from another")
        return stage(iterator, query, int(batch), self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        staged = _staged(messages)
        if staged:
            publish(staged[0].load, batchId, staged, self._options)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        for load in {message.load for message in _staged(messages)}:
            drop(load, batchId, self._options)


# -- in a task


def stage(batches: Iterator[pa.RecordBatch], load: str, batch: int, options: WriteOptions) -> Staged:
    """Sends the rows of a task in bodies of bounded size. What a task that failed has staged is never committed."""
    broker = client(options.connection)
    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    attempt = uuid.uuid4().hex
    query = {
        "attempt": attempt, "topic": options.topic, "type": options.type, "value_format": options.value_format,
    }  # fmt: skip
    parts: list[str] = []
    rows = 0
    for number, (body, count) in enumerate(bodies(batches, options)):
        path = f"/v0/loads/{load}/{batch}/{task * PARTS_OF_TASK + number}"
        answer = broker.ask("PUT", path, query, body, media=ARROW).body
        parts.append(str(answer.get("staged")))
        rows += count
    return Staged(load, batch, tuple(parts), rows)


def bodies(batches: Iterator[pa.RecordBatch], options: WriteOptions) -> Iterator[tuple[bytes, int]]:
    """Arrow streams of up to `BODY_BYTES`, or one batch, and their numbers of rows."""
    sink: pa.BufferOutputStream | None = None
    writer: pa.ipc.RecordBatchStreamWriter | None = None
    rows = seen = 0
    for whole in batches:
        ready = prepared(whole, options, seen)
        seen += whole.num_rows
        for piece in _pieces(ready):
            if sink is None or writer is None:
                sink = pa.BufferOutputStream()
                writer = pa.ipc.new_stream(sink, piece.schema)
            writer.write_batch(piece)
            rows += piece.num_rows
            if sink.tell() >= BODY_BYTES:
                writer.close()
                yield sink.getvalue().to_pybytes(), rows
                sink, writer, rows = None, None, 0
    if sink is not None and writer is not None:
        writer.close()
        yield sink.getvalue().to_pybytes(), rows


def prepared(batch: pa.RecordBatch, options: WriteOptions, first: int = 0) -> pa.RecordBatch:
    """The columns as the broker takes them. `first`: the number of the first row, for messages.

    Raises EskerSparkError for what the broker would change: a tag is text, so a key that becomes one must be text, and
    so are the values of a meta, which has each name once.
    """
    columns: dict[str, pa.Array] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name != "headers":
            _check_text(name, column, batch, options, first)
        if name == "headers" or (name == "topic" and options.topic is not None):
            continue  # the option beats the column, as for Kafka
        if name in ("value", "topic") and column.null_count:
            raise EskerSparkError(f"column {name}: it is null in {column.null_count} rows, and must not be")
        columns[name] = column.cast(_wire_type(column.type))
    if "headers" in batch.schema.names:
        metas = columns["meta"].to_pylist() if "meta" in columns else [None] * batch.num_rows
        columns["meta"] = pa.array(_metas(metas, batch, options, first), pa.string())
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _check_text(name: str, column: pa.Array, batch: pa.RecordBatch, options: WriteOptions, first: int) -> None:
    """Texts must be UTF-8, which a string of Spark's need not be. A key is bytes only as the key of a job."""
    is_bytes = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    if is_bytes and (name != "key" or options.type == "queue"):
        return
    if not is_bytes and not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return
    try:
        column.cast(pa.string()) if is_bytes else column.validate(full=True)
    except pa.ArrowInvalid:
        row, value = _first_broken(column)
        why = "; as the tag of a record it is text, as the key of a job (option type queue) it may be bytes"
        raise _wrong_row(
            name, batch, options, first, row, f"{value[:40]!r} is not UTF-8{why if is_bytes else ''}"
        ) from None


def _first_broken(column: pa.Array) -> tuple[int, bytes]:
    for row, value in enumerate(column.cast(pa.binary())):
        data: bytes = value.as_py() or b""
        try:
            data.decode()
        except UnicodeDecodeError:
            return row, data
    raise AssertionError("a column that is no UTF-8 has a value that is none")


def _wrong_row(
    name: str, batch: pa.RecordBatch, options: WriteOptions, first: int, row: int, why: str
) -> EskerSparkError:
    """Rows have no numbers in Spark: that of the task and its own, with the topic, is what there is to find it by."""
    context = TaskContext.get()
    task = "" if context is None else f" of task {context.partitionId()}"
    topic = options.topic
    if topic is None and "topic" in batch.schema.names and name != "topic":
        topic = str(batch.column("topic")[row].as_py())
    to = "" if topic is None else f" for topic {topic!r}"
    return EskerSparkError(f"column {name}, row {first + row}{task}{to}: {why}")


def _metas(
    metas: Sequence[str | None], batch: pa.RecordBatch, options: WriteOptions, first: int
) -> Iterator[str | None]:
    headers = batch.column("headers")
    try:
        headers.validate(full=True)
    except pa.ArrowInvalid as error:
        raise EskerSparkError(f"column headers, rows from {first} on: a key is not UTF-8 ({error})") from None
    for row, (meta, given) in enumerate(zip(metas, headers.to_pylist(), strict=True)):
        try:
            yield meta_with(meta, given)
        except ValueError as error:
            raise _wrong_row("headers", batch, options, first, row, str(error)) from None


def meta_with(meta: str | None, headers: Sequence[dict[str, object]] | None) -> str | None:
    """Kafka's headers as keys of the meta. Raises ValueError for what a meta cannot hold: bytes that are no text, two
    headers of one name, and one beside a key of the meta that says something else."""
    if not headers:
        return meta
    found: dict[str, object] = {}
    for header in headers:
        name, value = str(header["key"]), header["value"]
        if name in found:
            raise ValueError(f"the key {name[:80]!r} is there twice, and a meta has each key once")
        try:
            found[name] = value.decode() if isinstance(value, bytes) else None
        except UnicodeDecodeError:
            raise ValueError(f"the value of {name[:80]!r} is not UTF-8, and the values of a meta are text") from None
    if meta:
        try:
            own = json.loads(meta)
        except ValueError:
            own = None
        if not isinstance(own, dict):
            raise ValueError(f"the column meta beside it, {meta[:80]!r}, is no JSON object")
        for name in found.keys() & own.keys():
            if header_value(own[name]) != header_value(found[name]):
                raise ValueError(f"the key {name[:80]!r} is in the column meta as well, with another value")
        found.update(own)
    return json.dumps(found)


def _wire_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind):
        return pa.int64()
    return pa.binary() if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else pa.string()


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    rows = max(1, min(BATCH_ROWS, batch.num_rows * BATCH_BYTES // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


# -- on the driver


def publish(load: str, batch: int, staged: Sequence[Staged], options: WriteOptions) -> None:
    """Commits a batch and waits until it is published. Raises EskerSparkError when it fails, or stands still."""
    parts = [part for message in staged for part in message.parts]
    if not parts:
        return  # of nothing there is nothing to remember: it stays nothing when it is run again
    optional = {
        "type": options.type,
        "config": options.config,
        "share": options.share,
        "value_format": options.value_format,
    }
    told = {name: value for name, value in optional.items() if value is not None}
    body = {"parts": parts, "topic": options.topic, "create": options.create, **told}
    broker = client(options.connection)
    broker.ask("POST", f"/v0/loads/{load}/{batch}/commit", body=body)
    _await_done(broker, load, batch, options)


def _await_done(broker: Client, load: str, batch: int, options: WriteOptions) -> None:
    published, moved_at = -1, time.monotonic()
    while True:
        answer = broker.ask("GET", f"/v0/loads/{load}/{batch}", {"wait_ms": POLL_MS}).body
        state = answer.get("state")
        if state == "done":
            return
        if state not in ("publishing", "staged"):
            raise EskerSparkError(f"load {load}, batch {batch} is {state}: {answer.get('message') or 'no reason told'}")
        now = time.monotonic()
        if answer.get("published") != published:
            published, moved_at = int(str(answer.get("published") or 0)), now
        elif (now - moved_at) * 1000 > options.publish_ms:
            raise EskerSparkError(
                f"load {load}, batch {batch} stands still at {published} rows for {options.publish_ms} ms "
                "(option publishTimeoutMs); the broker goes on with it when it can"
            )


def drop(load: str, batch: int, options: WriteOptions) -> None:
    """Lets go of what was staged. A batch that was committed goes on: it cannot be taken back.

    It is called when something has failed, and what that was is what matters: so it fails nothing itself, and does not
    try for long. What stays staged was never visible, and the broker drops it after a day.
    """
    connection = replace(options.connection, retry_ms=min(options.connection.retry_ms, DROP_MS))
    try:
        client(connection).ask("DELETE", f"/v0/loads/{load}/{batch}")
    except EskerSparkError as error:
        if not (isinstance(error, Refused) and error.status in (404, 409)):
            _log.warning("load %s, batch %d: what was staged could not be dropped: %s", load, batch, error)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]
