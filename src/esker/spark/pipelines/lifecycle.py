# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)
"""`lifecycle`: what became of the jobs of each queue, minute by minute, and how long it took.

    from esker.spark.pipelines.lifecycle import lifecycle, report, write

    with lifecycle(spark.read.parquet("archive/events")) as computed:
        tables = write(computed, "jobs-report")
    Path("jobs-report/report.html").write_text(report(tables))

The history is folded once (fold.py), as for `audit`. Times are those of the node's clock:

    wait    from when a job could be leased (it came, its delay or backoff ended, it was given back) to its lease
    run     from its lease to its ack
    rank    how many better jobs of its partition were ready when it was leased; 0 for a strict priority queue

Jobs that still wait are measured at `now_ms`, or else at the last event of the whole history. The backlog is followed
event by event, so that its peak is known and not only how it stood when a minute ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Window
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from esker.errors import SettingsError
from esker.spark.pipelines.codes import Job, Reason, State
from esker.spark.pipelines.facts import Facts
from esker.spark.pipelines.fold import PartitionFold
from esker.spark.pipelines.positions import Span, span_of_frame
from esker.spark.pipelines.report import Collected, busiest, html
from esker.spark.pipelines.rows import check_columns, collect_facts, fold_rows, partitions_in
from esker.spark.pipelines.rules import Findings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MINUTE_MS: Final = 60_000
_PERCENTS: Final = (50, 90, 99)
_ACCURACY: Final = 2000  # of percentiles: an error of 0.05 % in rank
_LISTED_MAX: Final = 10_000  # topics that a report is told of
_LINES_MAX: Final = 500_000  # minutes, of all topics that are shown
_SHOWN_MAX: Final = 50  # priorities and workers of one topic
_BATCH: Final = 16_384  # rows given to Spark at a time

CAME, LEASED, ACKED, RETURNED, EXPIRED, DEAD, DELETED, WAITING, DEPTH = range(9)
_LEFT: Final[dict[int, int]] = {Reason.EXPIRED: EXPIRED, Reason.DEAD_LETTERED: DEAD}

_MOMENTS: Final = StructType(
    [
        StructField("what", IntegerType(), False),  # CAME ... DEPTH
        StructField("topic_number", LongType(), False),
        StructField("time_ms", LongType(), False),
        StructField("count", LongType(), False),  # of DEPTH: by how much the backlog grew in the second
        StructField("priority", LongType(), True),
        StructField("ms", LongType(), True),  # waited (LEASED, WAITING), or ran (ACKED, RETURNED)
        StructField("rank", LongType(), True),  # of DEPTH: the peak in the second, above what was there before
        StructField("worker", StringType(), True),
    ]
)
_ARROW: Final = pa.schema(
    [
        pa.field("what", pa.int32(), False),
        pa.field("topic_number", pa.int64(), False),
        pa.field("time_ms", pa.int64(), False),
        pa.field("count", pa.int64(), False),
        pa.field("priority", pa.int64()),
        pa.field("ms", pa.int64()),
        pa.field("rank", pa.int64()),
        pa.field("worker", pa.string()),
    ]
)
_Moment = tuple[int, int, int, int, int | None, int | None, int | None, str | None]


@dataclass(frozen=True, slots=True)
class Tables:
    """`minutes`: what happened in each minute of a topic. `priorities`: times, order and starvation by priority.
    `workers`: who did how much. `topics`: the sums. `bucket_ms`: the length of a minute. `span`: the positions that the
    history has; None: not known."""

    minutes: DataFrame
    priorities: DataFrame
    workers: DataFrame
    topics: DataFrame
    bucket_ms: int = MINUTE_MS
    span: Span | None = None

    def by_name(self) -> dict[str, DataFrame]:
        return {
            "minutes": self.minutes, "priorities": self.priorities, "workers": self.workers, "topics": self.topics,
        }  # fmt: skip


@contextmanager
def lifecycle(
    events: DataFrame,
    *,
    bucket_ms: int = MINUTE_MS,
    tasks: int | None = None,
    span: Span | None = None,
    now_ms: int | None = None,
) -> Iterator[Tables]:
    """The tables of a history; they are computed when they are used, from a fold that is kept until the end.

    Raises SettingsError when `events` is not a history. `bucket_ms`: the length of a "minute". `span`: the positions
    that `events` has; None: as the names of its files say, if it is read from an archive. `now_ms`: the time at which
    waiting jobs are measured, by the node's clock; None: that of the last event.
    """
    if bucket_ms <= 0:
        raise SettingsError(f"bucket_ms is {bucket_ms}; it must be at least 1")
    span = span_of_frame(events) if span is None else span
    moments = moments_of(events, tasks, span, now_ms).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield replace(_tables(moments, bucket_ms), span=span)
    finally:
        moments.unpersist()


def moments_of(
    events: DataFrame, tasks: int | None = None, span: Span | None = None, now_ms: int | None = None
) -> DataFrame:
    """One row for each thing that happened to a job, with how long that took; comings and goings without times, and the
    backlog, are summed by second."""
    check_columns(events)
    facts = collect_facts(events)
    facts.holes(() if span is None else span.holes)
    now = _last_ms(events) if now_ms is None else now_ms

    def fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _fold(batches, facts, now)

    moments = fold_rows(events, tasks=tasks, holders=True).mapInArrow(fold, _MOMENTS)
    names = events.sparkSession.createDataFrame(
        sorted(facts.names.items()) or [(0, "")], "topic_number long, topic string"
    )
    named = moments.join(sf.broadcast(names), "topic_number", "left")
    return named.withColumn("topic", sf.coalesce("topic", sf.col("topic_number").cast("string")))


def _last_ms(events: DataFrame) -> int:
    found = events.agg(sf.max(sf.unix_millis("time"))).collect()[0][0]
    return 0 if found is None else int(found)


def report(tables: Tables) -> str:
    """The report as one HTML page. Needs matplotlib."""
    topics = _lines(tables.topics.orderBy(sf.desc(sf.col("enqueued") + sf.col("delivered"))).limit(_LISTED_MAX))
    shown = [str(line["topic"]) for line in busiest(topics)]
    of_shown = sf.col("topic").isin(*shown)
    minutes = tables.minutes.filter(of_shown).withColumn("minute_ms", sf.unix_millis("minute")).drop("minute")
    data = Collected(
        topics,
        _lines(minutes.orderBy("topic", "minute_ms").limit(_LINES_MAX)),
        _lines(_first(tables.priorities.filter(of_shown), sf.desc(sf.col("delivered") + sf.col("waiting")))),
        _lines(_first(tables.workers.filter(of_shown), sf.desc("delivered"))),
        tables.bucket_ms,
        [] if tables.span is None else tables.span.lines(),
    )
    return html(data)


def _first(table: DataFrame, order: Column) -> DataFrame:
    """The first lines of each topic."""
    number = sf.row_number().over(Window.partitionBy("topic").orderBy(order))
    return table.withColumn("number", number).filter(sf.col("number") <= _SHOWN_MAX).orderBy("topic", "number")


def _lines(table: DataFrame) -> list[dict[str, object]]:
    return [row.asDict() for row in table.collect()]


def write(tables: Tables, folder: str) -> Tables:
    """Each table as one Parquet file in a folder of its own. Returns the tables as they are there."""
    for name, table in tables.by_name().items():
        table.coalesce(1).write.mode("overwrite").parquet(f"{folder}/{name}")
    read = tables.topics.sparkSession.read
    written = {name: read.parquet(f"{folder}/{name}") for name in tables.by_name()}
    return Tables(**written, bucket_ms=tables.bucket_ms, span=tables.span)


# -- tables


def _tables(moments: DataFrame, bucket_ms: int) -> Tables:
    start = (sf.floor(sf.col("time_ms") / bucket_ms) * bucket_ms).cast("long")
    minute = sf.timestamp_millis(start).alias("minute")
    happened = moments.filter(~sf.col("what").isin(WAITING, DEPTH))
    minutes = happened.groupBy("topic", minute).agg(*_counts(), *_times(LEASED, "wait"), *_times(ACKED, "run"))
    depths = _depths(moments).groupBy("topic", minute).agg(
        sf.max_by("backlog", "time_ms").alias("backlog"), sf.max("peak").alias("backlog_max")
    )  # fmt: skip
    so_far = Window.partitionBy("topic").orderBy("minute").rowsBetween(Window.unboundedPreceding, 0)
    backlog = sf.coalesce(sf.last("backlog", ignorenulls=True).over(so_far), sf.lit(0))
    minutes = (
        minutes.join(depths, ["topic", "minute"], "left")
        .withColumn("backlog", backlog)
        .withColumn("backlog_max", sf.coalesce("backlog_max", "backlog"))
    )
    timed = moments.filter(sf.col("what").isin(LEASED, ACKED, WAITING))
    priorities = timed.groupBy("topic", "priority").agg(
        _sum(LEASED, "delivered"), *_times(LEASED, "wait"), _max(LEASED, "ms", "wait_max_ms"), *_times(ACKED, "run"),
        _inversions(), _max(LEASED, "rank", "rank_max"), _sum(WAITING, "waiting"),
        _max(WAITING, "ms", "waiting_longest_ms"),
    )  # fmt: skip
    held = moments.filter(sf.col("what").isin(LEASED, ACKED, RETURNED))
    worker = sf.coalesce("worker", sf.lit("(no name)")).alias("worker")
    workers = held.groupBy("topic", worker).agg(
        _sum(LEASED, "delivered"), _sum(ACKED, "acked"), _sum(RETURNED, "returned"), *_times(ACKED, "run"),
        sf.coalesce(sf.sum(sf.when(sf.col("what") != LEASED, sf.col("ms"))), sf.lit(0)).alias("busy_ms"),
    )  # fmt: skip
    whole = sf.sum("delivered").over(Window.partitionBy("topic"))
    workers = workers.withColumn("share", sf.when(whole > 0, sf.col("delivered") / whole).otherwise(0.0))
    topics = moments.filter(sf.col("what") != DEPTH).groupBy("topic").agg(
        *_counts(), *_times(LEASED, "wait"), *_times(ACKED, "run"), _sum(WAITING, "waiting"),
        _max(WAITING, "ms", "waiting_longest_ms"),
    )  # fmt: skip
    return Tables(
        minutes.orderBy("topic", "minute"), priorities.orderBy("topic", "priority"),
        workers.orderBy("topic", sf.desc("delivered"), "worker"), topics.orderBy("topic"), bucket_ms,
    )  # fmt: skip


def _depths(moments: DataFrame) -> DataFrame:
    """The backlog behind each second in which it changed, and its peak there. Of several partitions, the peaks of one
    second are added up: they may not have been at one moment, but there was never more."""
    seconds = moments.filter(sf.col("what") == DEPTH).groupBy("topic", "time_ms")
    changes = seconds.agg(sf.sum("count").alias("grew"), sf.sum("rank").alias("above"))
    before = Window.partitionBy("topic").orderBy("time_ms").rowsBetween(Window.unboundedPreceding, -1)
    there = sf.coalesce(sf.sum("grew").over(before), sf.lit(0))
    return changes.select(
        "topic", "time_ms", (there + sf.col("grew")).alias("backlog"), (there + sf.col("above")).alias("peak")
    )


def _counts() -> list[Column]:
    return [
        _sum(CAME, "enqueued"), _sum(LEASED, "delivered"), _sum(ACKED, "acked"), _sum(RETURNED, "retried"),
        _sum(EXPIRED, "expired"), _sum(DEAD, "dead_lettered"), _sum(DELETED, "deleted"), _inversions(),
    ]  # fmt: skip


def _inversions() -> Column:
    return sf.coalesce(sf.sum(sf.when(sf.col("rank") > 0, 1)), sf.lit(0)).alias("inversions")


def _sum(what: int, name: str) -> Column:
    return sf.coalesce(sf.sum(sf.when(sf.col("what") == what, sf.col("count"))), sf.lit(0)).alias(name)


def _max(what: int, column: str, name: str) -> Column:
    return sf.max(sf.when(sf.col("what") == what, sf.col(column))).alias(name)


def _times(what: int, name: str) -> list[Column]:
    ms = sf.when(sf.col("what") == what, sf.col("ms"))
    return [sf.percentile_approx(ms, each / 100, _ACCURACY).alias(f"{name}_p{each}_ms") for each in _PERCENTS]


# -- in the tasks


class Moments:
    """Gathers what the fold tells of one partition."""

    def __init__(self, topic: int) -> None:
        self._topic = topic
        self.rows: list[_Moment] = []
        self._sums: dict[tuple[int, int], int] = {}
        self._second = 0  # whose depth is followed
        self._grew = self._peak = 0

    def came(self, time_ms: int) -> None:
        self._count(CAME, time_ms, 1)
        self._grow(time_ms, 1)

    def leased(self, time_ms: int, job: Job, rank: int) -> None:
        waited = max(0, time_ms - job.ready_ms)
        self.rows.append((LEASED, self._topic, time_ms, 1, job.priority, waited, rank, job.holder))

    def settled(self, time_ms: int, job: Job, acked: bool) -> None:
        """An ack of a job that nobody held tells no time."""
        what = ACKED if acked else RETURNED
        ran = time_ms - job.leased_ms if job.state in (State.LEASED, State.SPENT) else None
        self.rows.append((what, self._topic, time_ms, 1, job.priority, ran, None, job.holder))
        if acked:
            self._grow(time_ms, -1)

    def left(self, time_ms: int, reason: int, count: int) -> None:
        self._count(_LEFT.get(reason, DELETED), time_ms, count)
        self._grow(time_ms, -count)

    def lost_sight(self, count: int) -> None:
        self._grow(self._second * 1000, -count)

    def _grow(self, time_ms: int, by: int) -> None:
        """Times of a partition do not go back; should they, the change counts for the later second."""
        second = max(self._second, time_ms // 1000)
        if second != self._second:
            self._end_second()
            self._second = second
        self._grew += by
        self._peak = max(self._peak, self._grew)

    def _end_second(self) -> None:
        if self._grew or self._peak:
            at = self._second * 1000
            self.rows.append((DEPTH, self._topic, at, self._grew, None, None, self._peak, None))
        self._grew = self._peak = 0

    def _count(self, what: int, time_ms: int, count: int) -> None:
        second = time_ms // 1000
        self._sums[what, second] = self._sums.get((what, second), 0) + count

    def take(self) -> list[_Moment]:
        """What was gathered since this was last called, but for the depth in the second that is not over."""
        rows, self.rows = self.rows, []
        rows += [
            (what, self._topic, second * 1000, count, None, None, None, None)
            for (what, second), count in self._sums.items()
        ]
        self._sums = {}
        return rows

    def finish(self) -> list[_Moment]:
        """The same, when nothing comes any more."""
        self._end_second()
        return self.take()


def _fold(batches: Iterator[pa.RecordBatch], facts: Facts, now_ms: int) -> Iterator[pa.RecordBatch]:
    place: tuple[int, int] | None = None
    fold: PartitionFold | None = None
    moments = Moments(0)
    rows: list[_Moment] = []
    for here, _, piece in partitions_in(batches):
        if here != place:
            if fold is not None:
                rows += _finish(fold, moments, now_ms)
            place, moments = here, Moments(here[0])
            fold = PartitionFold(
                *here, facts.story(here[0]), Findings(), starts_told=facts.starts_told, times=moments
            )  # fmt: skip
        assert fold is not None
        fold.run(piece)
        rows += moments.take()
        while len(rows) >= _BATCH:
            yield _batch(rows[:_BATCH])
            rows = rows[_BATCH:]
    if fold is not None:
        rows += _finish(fold, moments, now_ms)
    if rows:
        yield _batch(rows)


def _finish(fold: PartitionFold, moments: Moments, now_ms: int) -> list[_Moment]:
    """What the end of a partition's history brings: jobs may leave with their topic behind its last row."""
    fold.finish()
    return [*moments.finish(), *_waiting(fold, max(now_ms, fold.last_ms))]


def _waiting(fold: PartitionFold, now_ms: int) -> list[_Moment]:
    """Who still waits: how many, and the longest, by priority."""
    longest: dict[int, tuple[int, int]] = {}
    for job in fold.jobs.values():
        if job.state in (State.READY, State.DELAYED) and job.ready_ms <= now_ms:
            count, ms = longest.get(job.priority, (0, 0))
            longest[job.priority] = count + 1, max(ms, now_ms - job.ready_ms)
    return [(WAITING, fold.topic, now_ms, count, priority, ms, None, None) for priority, (count, ms) in longest.items()]


def _batch(rows: list[_Moment]) -> pa.RecordBatch:
    arrays = [pa.array(column, each.type) for column, each in zip(zip(*rows, strict=True), _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
