"""The columns of each table, and how batches of the broker become exactly what Spark expects.

Spark refuses a batch whose order, types or nullability differ from the schema of the query, and that schema may be the
user's: `.schema("value binary, offset long")` asks for two columns, and only those are asked of the broker.
"""

# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from esker.spark.errors import EskerSparkError
from esker.spark.options import ReadOptions, Table

LOG_APPEND_TIME: Final = 1  # Kafka's number for a time that the broker gave, as ours does

HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType(), False), StructField("value", BinaryType(), True)]), True
)


def _struct(*columns: tuple[str, DataType, bool]) -> StructType:
    return StructType([StructField(name, kind, nullable) for name, kind, nullable in columns])


_TEXT, _LONG, _INT, _TIME, _BYTES = StringType(), LongType(), IntegerType(), TimestampType(), BinaryType()

RECORDS: Final = _struct(
    ("key", _BYTES, True), ("value", _BYTES, False), ("topic", _TEXT, False), ("partition", _INT, False),
    ("offset", _LONG, False), ("timestamp", _TIME, False), ("timestampType", _INT, False),
    ("tag", _TEXT, True), ("node", _TEXT, True), ("meta", _TEXT, True),
)  # fmt: skip
RECORDS_WITH_HEADERS: Final = StructType(
    [*RECORDS.fields[:7], StructField("headers", HEADERS, True), *RECORDS.fields[7:]]
)

JOBS: Final = _struct(
    ("message_id", _TEXT, False), ("topic", _TEXT, False), ("partition", _INT, False), ("offset", _LONG, False),
    ("state", _TEXT, False), ("priority", _LONG, False), ("attempts", _INT, False), ("nacks", _INT, False),
    ("requeues", _INT, False), ("created", _TIME, False), ("due", _TIME, True), ("expires", _TIME, True),
    ("lease", _TEXT, True), ("holder", _TEXT, True), ("tag", _TEXT, True), ("node", _TEXT, True),
    ("meta", _TEXT, True), ("key", _TEXT, True), ("value", _BYTES, False), ("size", _LONG, False),
)  # fmt: skip

EVENTS: Final = _struct(
    ("position", _LONG, False), ("ordinal", _LONG, False), ("time", _TIME, False), ("kind", _TEXT, False),
    ("topic", _TEXT, True), ("topic_number", _LONG, True), ("partition", _LONG, True), ("seq", _LONG, True),
    ("message_id", _TEXT, True), ("priority", _LONG, True), ("attempts", _LONG, True), ("node", _TEXT, True),
    ("tag", _TEXT, True), ("lease", _TEXT, True), ("reason", _TEXT, True), ("due", _TIME, True),
    ("expires", _TIME, True), ("source_seq", _LONG, True), ("router", _LONG, True), ("detail", _TEXT, True),
)  # fmt: skip

DEADLETTERS: Final = _struct(
    ("topic", _TEXT, False), ("partition", _INT, False), ("offset", _LONG, False), ("source_topic", _TEXT, True),
    ("source_seq", _LONG, True), ("source_id", _TEXT, True), ("reason", _TEXT, True), ("attempts", _INT, True),
    ("died", _TIME, False), ("priority", _LONG, True), ("tag", _TEXT, True), ("node", _TEXT, True),
    ("meta", _TEXT, True), ("value", _BYTES, False),
)  # fmt: skip

_TABLES: Final[Mapping[Table, StructType]] = {
    Table.RECORDS: RECORDS, Table.JOBS: JOBS, Table.EVENTS: EVENTS, Table.DEADLETTERS: DEADLETTERS,
}  # fmt: skip


def full_schema(options: ReadOptions) -> StructType:
    """All columns of the table."""
    return RECORDS_WITH_HEADERS if options.include_headers else _TABLES[options.table]


def check_schema(asked: StructType, options: ReadOptions) -> None:
    """Refuses a schema that asks for what the table has not. Any choice and order of its columns is fine."""
    known = {field.name: field.dataType for field in full_schema(options).fields}
    nullable = {field.name for field in full_schema(options).fields if field.nullable}
    if options.table is Table.RECORDS and not options.include_headers and "headers" in asked.fieldNames():
        raise EskerSparkError('column headers: say .option("includeHeaders", "true") as well')
    if not asked.fields:
        raise EskerSparkError(f"the schema is empty; the table {options.table} has {', '.join(known)}")
    for name in asked.fieldNames():
        if asked.fieldNames().count(name) > 1:
            raise EskerSparkError(f"column {name} is in the schema twice")
    for field in asked.fields:
        if field.name not in known:
            raise EskerSparkError(
                f"column {field.name}: the table {options.table} has no such column; it has {', '.join(known)}"
            )
        if not _same_type(field.dataType, known[field.name]):
            raise EskerSparkError(
                f"column {field.name}: the schema says {field.dataType.simpleString()}, "
                f"it is {known[field.name].simpleString()}; cast it after reading"
            )
        if not field.nullable and field.name in nullable:
            raise EskerSparkError(f"column {field.name}: the schema says NOT NULL, but not every row has it")


def _same_type(one: DataType, other: DataType) -> bool:
    """Whether a value may be null matters to nobody but Arrow, and is taken from the schema of the query."""
    return one.simpleString() == other.simpleString()


@dataclass(frozen=True, slots=True)
class Shape:
    """Turns batches of the broker into batches of a query. Made once for each read.

    `makers` build columns that the broker does not send, from those it does.
    """

    arrow: pa.Schema
    makers: Mapping[str, Callable[[pa.RecordBatch], pa.Array]]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = []
        for field in self.arrow:
            maker = self.makers.get(field.name)
            column = batch.column(field.name) if maker is None else maker(batch)
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)


Maker = Callable[[pa.RecordBatch], pa.Array]


def arrow_schema(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def records_columns(asked: Sequence[str]) -> list[str]:
    """What the broker must send for these columns of Spark. The offset always: from it a cut stream is resumed."""
    needed = {"offset"}
    for name in asked:
        match name:
            case "key":
                needed.add("tag")
            case "headers":
                needed.add("meta")
            case "topic" | "partition" | "timestampType":
                continue
            case _:
                needed.add(name)
    return [name for name in ("offset", "timestamp", "value", "tag", "node", "meta") if name in needed]


def records_shape(schema: StructType, topic: str, partition: int) -> Shape:
    def constant(value: object, kind: pa.DataType) -> Maker:
        scalar = pa.scalar(value, kind)
        return lambda batch: pa.repeat(scalar, batch.num_rows)

    makers: dict[str, Maker] = {
        "key": lambda batch: batch.column("tag").cast(pa.binary()),
        "topic": constant(topic, pa.string()),
        "partition": constant(partition, pa.int32()),
        "timestampType": constant(LOG_APPEND_TIME, pa.int32()),
    }
    arrow = arrow_schema(schema)
    if "headers" in schema.fieldNames():
        kind = arrow.field("headers").type
        makers["headers"] = lambda batch: pa.array(map(headers_of, batch.column("meta").to_pylist()), kind)
    return Shape(arrow, makers)


def headers_of(meta: str | None) -> list[dict[str, object]] | None:
    """Meta as Kafka's headers."""
    if not meta:
        return None
    try:
        found = json.loads(meta)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    return [{"key": key, "value": header_value(value)} for key, value in found.items()]


def header_value(value: object) -> bytes | None:
    """A value of a meta as that of a header: a string as its text, null as null, anything else as JSON. Half of a
    surrogate pair has no bytes; it stays the escape that it is in JSON."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()
