# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)
"""Dead letters: the jobs that failed too often, wherever their queue sends them, a log or another queue.

What a letter says of its origin stands in its meta, under `$dead_letter_…` keys. A record that somebody else wrote into
the topic is a row as well, with nulls for what it does not tell.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from esker.spark.client import client
from esker.spark.jobs import JobSlice, read_jobs, snapshots
from esker.spark.options import ReadOptions
from esker.spark.plan import Plan, Slice, ask_plan, slices
from esker.spark.records import read_records
from esker.spark.schemas import Maker, Shape, arrow_schema, check_schema

PREFIX: Final = "$dead_letter_"
REASON: Final = "max_deliveries"  # the only one there is: it was delivered as often as its queue allows

_FROM_META: Final = ("source_topic", "source_seq", "source_id", "reason", "attempts")
_OF_LOG: Final = ("offset", "timestamp", "value", "tag", "node", "meta")
_OF_QUEUE: Final = ("partition", "offset", "created", "priority", "tag", "node", "meta", "value")


class DeadLettersReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        broker = client(options.connection)
        plan = ask_plan(broker, options.choice)
        found = _of_logs(plan, options)
        queues = [topic.name for topic in plan.topics if topic.type != "log"]
        return [*found, *snapshots(broker, plan, queues, self._columns(_OF_QUEUE), options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Slice):
            shape = self._shape(partition.topic, "timestamp", partition.partition)
            batches = read_records(partition, self._columns(_OF_LOG), self._options)
        elif isinstance(partition, JobSlice):
            shape = self._shape(partition.topic, "created", None)
            batches = read_jobs(partition, self._options)
        else:
            return
        for batch in batches:
            yield shape(batch)

    def _columns(self, there: Sequence[str]) -> list[str]:
        needed = {"offset", *self._schema.fieldNames()}
        if needed & {*_FROM_META, "priority"}:
            needed.add("meta")
        if "died" in needed:
            needed |= {"timestamp", "created"}
        return [name for name in there if name in needed]

    def _shape(self, topic: str, died: str, partition: int | None) -> Shape:
        makers: dict[str, Maker] = {
            "topic": lambda batch: pa.repeat(pa.scalar(topic, pa.string()), batch.num_rows),
            "died": lambda batch: batch.column(died),
        }
        for name in _FROM_META:
            makers[name] = _maker(name)
        if partition is not None:  # of a log: there letters have no priority of their own
            makers["partition"] = lambda batch: pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows)
            makers["priority"] = _maker("priority")
        return Shape(arrow_schema(self._schema), makers)


def origin(meta: str | None) -> dict[str, str | int | None]:
    """What a meta tells of where a letter came from: nothing, if it tells nonsense."""
    try:
        found = json.loads(meta) if meta else None
    except ValueError:
        found = None
    stamps = found if isinstance(found, dict) else {}
    source = _text(stamps, "from")
    return {
        "source_topic": source,
        "source_seq": _number(stamps, "src_seq"),
        "source_id": _text(stamps, "id"),
        "reason": None if source is None else REASON,
        "attempts": _number(stamps, "deliveries"),
        "priority": None if source is None else _number(stamps, "priority") or 0,
    }


def _of_logs(plan: Plan, options: ReadOptions) -> list[Slice]:
    logs = {
        (part.topic, part.partition): part for topic in plan.topics if topic.type == "log" for part in topic.partitions
    }
    return slices(plan, logs, {spot: (part.earliest, part.next) for spot, part in logs.items()}, options)


_TYPES: Final = {
    "source_topic": pa.string(), "source_seq": pa.int64(), "source_id": pa.string(), "reason": pa.string(),
    "attempts": pa.int32(), "priority": pa.int64(),
}  # fmt: skip


def _maker(name: str) -> Maker:
    return lambda batch: pa.array([origin(meta)[name] for meta in batch.column("meta").to_pylist()], _TYPES[name])


def _text(stamps: Mapping[str, object], name: str) -> str | None:
    value = stamps.get(PREFIX + name)
    return value if isinstance(value, str) else None


def _number(stamps: Mapping[str, object], name: str) -> int | None:
    """Stamps are texts; one that somebody else wrote may be anything."""
    text = _text(stamps, name)
    if text is None or len(text) > 18 or not text.removeprefix("-").isdecimal() or not text.isascii():
        return None
    return int(text)
