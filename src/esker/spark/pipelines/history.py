# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)
"""The history for `audit` and `lifecycle`: from a broker, or from files of an archive; and the live state beside it.

A broker gives everything up to now, from its archive and its journal. Files alone end with the last segment that was
retired, and nothing lives beside them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from esker.errors import SettingsError
from esker.spark.client import Client, client, name_in_path
from esker.spark.jobs import JobSlice, read_jobs
from esker.spark.options import Choice, ReadOptions, read_options
from esker.spark.pipelines.audit import Head, Live, Violations, audit
from esker.spark.pipelines.codes import Bound
from esker.spark.pipelines.failures import in_one_line
from esker.spark.pipelines.lifecycle import lifecycle, report, write
from esker.spark.pipelines.positions import Span, span_of_files, span_of_plan
from esker.spark.pipelines.progress import Progress
from esker.spark.pipelines.registry import Order, Result
from esker.spark.pipelines.soundness import check_sound
from esker.spark.plan import Plan, ask_plan

EXIT_VIOLATIONS: Final = 1
_SHOWN: Final = 20  # violations on the terminal; all that were asked for are in the facts
_PLACES: Final = pa.schema(
    [pa.field("topic_number", pa.int64()), pa.field("partition", pa.int64()), pa.field("seq", pa.int64())]
)


def run_audit(spark: SparkSession, order: Order, progress: Progress) -> Result:
    values = order.values
    live = None
    if values.optional("archive") is None and values.switch("live"):
        progress.stage("looking at what lives", unit="jobs")
        live = living(spark, order, progress)
    progress.stage("checking the history", unit="events")
    history = _history(spark, order)
    found = audit(
        history.events,
        live,
        span=history.span,
        grace_ms=values.integer("grace_ms"),
        best_of=values.integer("best_of"),
        evidence_max=values.integer("evidence"),
    )
    progress.advance(found.rows)
    return _judged(found, None if live is None else live.jobs.count())


def run_lifecycle(spark: SparkSession, order: Order, progress: Progress) -> Result:
    folder = Path(order.folder("output"))
    folder.mkdir(parents=True, exist_ok=True)
    progress.stage("following the jobs")
    history = _history(spark, order)
    bucket_ms = order.values.integer("bucket_s") * 1000
    with lifecycle(history.events, bucket_ms=bucket_ms, span=history.span, now_ms=history.now_ms) as made:
        tables = write(made, str(folder))
    progress.stage("drawing the report")
    page = folder / "report.html"
    page.write_text(report(tables), encoding="utf-8")
    sums = tables.topics.selectExpr("count(*)", "sum(enqueued)", "sum(delivered)", "sum(acked)").collect()[0]
    topics, came, delivered, done = (each or 0 for each in sums)
    span = tables.span
    return Result(
        [f"{topics:,} queues: {came:,} jobs came, {delivered:,} deliveries, {done:,} done", *_told(span)],
        {
            "topics": topics,
            "enqueued": came,
            "delivered": delivered,
            "acked": done,
            "report": str(page),
            **_facts(span),
        },
        [str(page), *(str(folder / name) for name in tables.by_name())],
        exit_code=EXIT_VIOLATIONS if span is not None and span.holes else 0,
    )


def living(spark: SparkSession, order: Order, progress: Progress) -> Live:
    """Every job of every queue, each queue as it was at one position of the journal. Only places come, not payloads, so
    what a broker holds fits the driver."""
    broker = client(order.connection())
    heads = _heads(broker)
    options = read_options({**order.source_options(), "table": "jobs", "subscribe": "-"}, streaming=False)
    batches: list[pa.RecordBatch] = []
    positions: dict[int, int] = {}
    done = 0
    for topic in dict.fromkeys(each.name for each in _plan(broker).topics if each.type == "queue"):
        number, position, pieces = _snapshot(broker, topic, options)
        positions[number] = position
        batches += pieces
        done += sum(piece.num_rows for piece in pieces)
        progress.advance(done)
    return Live(spark.createDataFrame(pa.Table.from_batches(batches, _PLACES)), positions, heads)


def _plan(broker: Client, events: bool = False) -> Plan:
    return ask_plan(broker, Choice(), events=events, files=False)


def _heads(broker: Client) -> list[Head]:
    """Between two plans, so that the seqs lie between those of two positions, whatever is written meanwhile. The batch
    at the position of the first may still grow behind it; the one before it is complete."""
    before = _plan(broker).position - 1
    plan = _plan(broker)
    parts = [part for topic in plan.topics for part in topic.partitions]
    return [
        Head(part.epoch, part.partition, position, part.next, bound)
        for part in parts
        for position, bound in ((before, Bound.LEAST), (plan.position, Bound.MOST))
    ]


def _snapshot(broker: Client, topic: str, options: ReadOptions) -> tuple[int, int, list[pa.RecordBatch]]:
    taken = broker.ask(
        "POST", f"/v0/topics/{name_in_path(topic)}/snapshots", body={"columns": ["partition", "offset"]}
    ).body
    name, number, position, chunks = (taken[key] for key in ("snapshot", "epoch", "position", "chunks"))
    try:
        part = JobSlice(topic, str(name), tuple(range(int(str(chunks)))))
        pieces = [_places(batch, int(str(number))) for batch in read_jobs(part, options)]
    finally:
        broker.ask("DELETE", f"/v0/snapshots/{name_in_path(str(name))}")
    return int(str(number)), int(str(position)), pieces


def _places(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    columns = [
        pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows),
        batch.column("partition").cast(pa.int64()),
        batch.column("offset").cast(pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_PLACES)


class _History(NamedTuple):
    """`now_ms` None: there is no broker to ask, so the last event is the latest time that is known."""

    events: DataFrame
    span: Span | None
    now_ms: int | None


def _history(spark: SparkSession, order: Order) -> _History:
    archive = order.values.optional("archive")
    if archive is None:
        plan = _plan(client(order.connection()), events=True)
        events = spark.read.format("esker").options(**order.source_options()).option("table", "events").load()
        return _History(events, None if plan.events is None else span_of_plan(plan.events), plan.now_ms)
    try:
        events = spark.read.option("mergeSchema", "true").parquet(f"{archive.rstrip('/')}/events")
        files = events.inputFiles()
        check_sound(spark, files)
        return _History(events, span_of_files(files), None)
    except AnalysisException as error:
        raise SettingsError(f"archive {archive!r}: {in_one_line(error)}") from None


def _told(span: Span | None) -> list[str]:
    return [] if span is None else span.lines()


def _facts(span: Span | None) -> dict[str, object]:
    return (
        {} if span is None else {"first": span.first, "last": span.last, "holes": [list(hole) for hole in span.holes]}
    )


def _judged(found: Violations, living_jobs: int | None) -> Result:
    beside = "" if living_jobs is None else f" and {living_jobs:,} living jobs"
    facts: dict[str, object] = {
        "rows": found.rows, "living": living_jobs, "broken": dict(found.broken), "notes": dict(found.notes),
        "evidence": [str(each) for each in found.evidence], **_facts(found.span),
    }  # fmt: skip
    notes = [*_told(found.span), *(f"{count:,} × {note}" for note, count in sorted(found.notes.items()))]
    if found.honest:
        return Result([f"{found.rows:,} events{beside} were checked: no promise was broken", *notes], facts)
    lines = [f"{count:,} × {rule}" for rule, count in found.broken.items()]
    lines += [str(each) for each in found.evidence[:_SHOWN]]
    if len(found.evidence) > _SHOWN:
        lines.append(f"… and {len(found.evidence) - _SHOWN:,} more; --json tells them")
    head = f"{found.rows:,} events{beside} were checked: {sum(found.broken.values()):,} violations"
    return Result([head, *lines, *notes], facts, exit_code=EXIT_VIOLATIONS)
