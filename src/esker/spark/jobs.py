# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)
"""The jobs of queues, as they stood at one position of the journal.

The broker makes the snapshot when Spark plans the query, and keeps it as files in chunks, which tasks fetch. It stays
for a while after its last use, so a query may be run again on the same state; `load()` makes a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from esker.spark.client import Client, Cut, client, name_in_path
from esker.spark.errors import EskerSparkError, Refused, Unreachable
from esker.spark.handed import NotHanded, ask_file, batches_in, within_reach
from esker.spark.options import ReadOptions
from esker.spark.plan import Plan, ask_plan, need_type, slice_rows
from esker.spark.records import batches_of
from esker.spark.schemas import Shape, arrow_schema, check_schema

_log = logging.getLogger("esker.spark")


@dataclass
class JobSlice(InputPartition):
    """Some chunks of a snapshot."""

    topic: str
    snapshot: str
    chunks: tuple[int, ...]
    spool: str | None = None


class JobsReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        broker = client(self._options.connection)
        plan = ask_plan(broker, self._options.choice, files=False)
        need_type(plan, "queue", "jobs", 'its records are .option("table", "records")')
        columns = self._schema.fieldNames()
        return list(snapshots(broker, plan, [topic.name for topic in plan.topics], columns, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, JobSlice):
            shape = Shape(arrow_schema(self._schema), {})
            for batch in read_jobs(partition, self._options):
                yield shape(batch)


def snapshots(
    broker: Client, plan: Plan, topics: Sequence[str], columns: Sequence[str], options: ReadOptions
) -> list[JobSlice]:
    """Asks for snapshots of queues, and deals their chunks out. None is deleted: Spark never says when it is done with
    one, and the broker lets those go that nobody uses."""
    body = {
        "columns": list(columns),
        "priority_min": options.priority_min,
        "priority_max": options.priority_max,
        "states": None if options.states is None else list(options.states),
        "tag_prefix": options.tag_prefix,
        "since_ms": options.since_ms,
        "until_ms": options.until_ms,
    }
    told = {name: value for name, value in body.items() if value is not None}
    found: list[JobSlice] = []
    for topic in topics:
        answer = broker.ask("POST", f"/v0/topics/{name_in_path(topic)}/snapshots", body=told)
        name, jobs, chunks = _taken(answer.body)
        found += deal(topic, name, chunks, jobs, options, plan.spool)
    return found


def _taken(answer: Mapping[str, object]) -> tuple[str, int, int]:
    try:
        return str(answer["snapshot"]), int(str(answer["jobs"])), int(str(answer["chunks"]))
    except (KeyError, ValueError):
        raise Refused("the broker's answer to a snapshot cannot be read; is it of another version?") from None


def deal(
    topic: str, name: str, chunks: int, jobs: int, options: ReadOptions, spool: str | None = None
) -> list[JobSlice]:
    tasks = min(chunks, max(options.partitions_min, -(-jobs // slice_rows(jobs, options))))
    return [JobSlice(topic, name, tuple(range(number, chunks, tasks)), spool) for number in range(tasks)]


def read_jobs(part: JobSlice, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Batches with the columns that the snapshot was asked for. A chunk that is cut is read again and passed over as
    far as it had come: it is a file, and does not change."""
    broker = client(options.connection)
    files = within_reach(part.spool, options.direct)
    try:
        for chunk in part.chunks:
            path = f"/v0/snapshots/{name_in_path(part.snapshot)}/{chunk}"
            if files:
                try:
                    yield from batches_in(ask_file(broker, f"{path}/file")["path"])
                    continue
                except NotHanded as problem:
                    _log.info("the snapshot of queue %r is streamed: %s", part.topic, problem)
                    files = False
            yield from _streamed(broker, part.topic, path)
    except Refused as refused:
        if refused.code == "snapshot_gone":
            raise EskerSparkError(
                f"the snapshot of queue {part.topic!r} is gone: it was not used for a while, or the broker was "
                "restarted; load the table again"
            ) from None
        raise


def _streamed(broker: Client, topic: str, path: str) -> Iterator[pa.RecordBatch]:
    done = 0
    patience = broker.retrying()
    while True:
        passed = 0
        try:
            with broker.stream(path) as stream:
                for batch in batches_of(stream):
                    fresh = batch.slice(max(0, done - passed))
                    passed += batch.num_rows
                    if fresh.num_rows:
                        done = passed
                        yield fresh
                        patience.renew()
            return
        except Cut as problem:
            if not patience.pause():
                raise Unreachable(f"the snapshot of queue {topic!r} was cut, and again ({problem})") from None
