"""What Spark reads from a node and writes to it: against Parquet, and against the least that Python can do in Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench import bars, enqueue, load
from bench.bars import Bar
from bench.figures import Latency, Run, alternated, median_latency
from bench.fill import fill as fill_queue
from bench.peers import Bench, EskerWhole, PeerFailed
from bench.records import fill as fill_log
from bench.report import Row, compared
from bench.sparkpeer import Bare
from bench.talk import PAYLOAD_BYTES
from esker.spark import read, session

ROWS, ROWS_QUICK = 2_000_000, 200_000
BATCH = 200_000
LOAD_ROWS, LOAD_ROWS_QUICK = 1_000_000, 100_000
FILL_BATCH, FILL_SECONDS = 10_000, 600.0
REST_SECONDS_MAX = 60.0
WARM_READS = 4  # by then the JVM has compiled most of what either of them runs
ARCHIVE_SECONDS_MAX = 300.0
IDLE_SECONDS, SLICE_SECONDS = 4.0, 1.0
TOPIC = "records"
NO_LATENCY = Latency(0, 0, 0, 0)


def measure(bench: Bench) -> Iterator[Row]:
    rows = ROWS_QUICK if bench.quick else ROWS
    with _session(bench) as spark:
        with bench.esker_whole() as esker:
            fill_log("esker-write", esker.port, TOPIC, rows, FILL_BATCH, FILL_SECONDS)
            esker.rest(REST_SECONDS_MAX)
            yield from _records(bench, spark, esker, rows)
            yield from _streams(bench, spark, esker, rows)
        yield _cold(bench, spark, rows)
        yield from _jobs(bench, spark, rows)
        yield from _loads(bench, spark)


@contextmanager
def _session(bench: Bench) -> Iterator[SparkSession]:
    spark = session("bench", master="local[2]", config={"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"})
    try:
        spark.dataSource.register(Bare)
        yield spark
    finally:
        spark.stop()


def _timed(rows: int, make: Callable[[], DataFrame], before: Callable[[], object] = lambda: None) -> Run:
    """Reads everything and throws it away."""
    before()
    began = time.perf_counter()
    make().write.format("noop").mode("overwrite").save()
    return Run(rows, time.perf_counter() - began, NO_LATENCY)


class _Parquet:
    """The same rows in Parquet files that Spark wrote."""

    def __init__(self, bench: Bench, spark: SparkSession, name: str, rows: int, ours: Callable[[], DataFrame]) -> None:
        self._bench = bench
        self._spark = spark
        self._folder = str(bench.folder / f"{name}.parquet")
        self._rows = rows
        ours().write.option("compression", "zstd").parquet(self._folder)
        found = self._read().count()
        if found != rows:
            raise PeerFailed(f"Spark read {found:,} of {rows:,} rows of {name}")

    def _read(self) -> DataFrame:
        return self._spark.read.parquet(self._folder)

    def beside(
        self, case: str, bar: Bar | None, ours: Callable[[], DataFrame], before: Callable[[], object] = lambda: None
    ) -> Row:
        """Both are read a few times before it counts. `before`: what is done before each read of ours, uncounted."""
        one, two = partial(_timed, self._rows, ours, before), partial(_timed, self._rows, self._read)
        for _ in range(WARM_READS):
            one(), two()
        here, there = alternated(self._bench.rounds, one, two)
        return compared("spark", case, "Parquet", here, there, bar)


def _topic(spark: SparkSession, esker: EskerWhole, **options: str) -> DataFrame:
    return spark.read.format("esker").options(endpoint=esker.url, subscribe=TOPIC, **options).load()


def _records(bench: Bench, spark: SparkSession, esker: EskerWhole, rows: int) -> Iterator[Row]:
    def ours(**options: str) -> Callable[[], DataFrame]:
        return lambda: _topic(spark, esker, **options)

    def restart() -> None:
        esker.stop()
        esker.start()

    with _watched(esker) as peak:
        parquet = _Parquet(bench, spark, "records", rows, ours())
        yield parquet.beside(f"{rows:,} records of a log, on its machine", bars.SPARK_RECORDS, ours())
        yield parquet.beside("… streamed, as to another machine", None, ours(direct="false"))
    yield Row(
        measure="spark", case=f"the node's memory while {rows:,} records are read", value=peak() / 1e6, unit=" MB",
        bar=bars.SPARK_MEMORY,
    )  # fmt: skip
    yield parquet.beside("… for the first time since the node's start", None, ours(), restart)


@contextmanager
def _watched(esker: EskerWhole) -> Iterator[Callable[[], int]]:
    """Gives, at the end, by how much the node's memory was larger at its largest than at first."""
    first = highest = esker.resident_bytes() or 0
    over = threading.Event()

    def look() -> None:
        nonlocal highest
        while not over.wait(0.05):
            highest = max(highest, esker.resident_bytes() or 0)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield lambda: highest - first
    finally:
        over.set()
        thread.join()


def _cold(bench: Bench, spark: SparkSession, rows: int) -> Row:
    with bench.esker_whole(archive=True) as esker:
        fill_log("esker-write", esker.port, TOPIC, rows, FILL_BATCH, FILL_SECONDS)
        deadline = time.monotonic() + ARCHIVE_SECONDS_MAX
        while (archived := esker.archived()) < rows * 0.99:
            if time.monotonic() > deadline:
                raise PeerFailed(f"{archived:,} of {rows:,} records reached the archive in {ARCHIVE_SECONDS_MAX:.0f} s")
            time.sleep(1)
        esker.rest(REST_SECONDS_MAX)

        def ours() -> DataFrame:
            return read(spark, TOPIC, endpoint=esker.url)

        case = f"{rows:,} records, {archived / rows:.0%} of them in the archive"
        return _Parquet(bench, spark, "cold", rows, ours).beside(case, bars.SPARK_COLD, ours)


def _jobs(bench: Bench, spark: SparkSession, rows: int) -> Iterator[Row]:
    with bench.esker_whole() as esker:
        fill_queue(esker, TOPIC, rows)
        esker.rest(REST_SECONDS_MAX)
        more = iter(range(rows, 2 * rows))

        def ours() -> DataFrame:
            return _topic(spark, esker, table="jobs")

        parquet = _Parquet(bench, spark, "jobs", rows, ours)
        yield parquet.beside(f"{rows:,} jobs of a queue that rests", bars.SPARK_JOBS, ours)
        yield parquet.beside(
            "… that has changed since the last read", None, ours, lambda: fill_queue(esker, TOPIC, 1, next(more))
        )


# -- streams


def _streams(bench: Bench, spark: SparkSession, esker: EskerWhole, rows: int) -> Iterator[Row]:
    def ours() -> DataFrame:
        return (
            spark.readStream.format("esker")
            .schema("value binary, offset bigint")
            .option("endpoint", esker.url)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", BATCH)
            .load()
        )

    def bare() -> DataFrame:
        return spark.readStream.format("bare").option("rows", rows).option("batch", BATCH).load()

    batch = min(BATCH, rows)
    copies = iter(range(1 << 30))

    def into_log() -> Run:
        options = {"endpoint": esker.url, "topic": f"copy-{next(copies)}", "share": "1"}
        return _streamed(bench, ours().select("value"), rows, "esker", options)

    pairs = (
        (
            f"{batch:,} records a batch into a sink that keeps nothing",
            lambda: _streamed(bench, ours(), rows, "bare", {}),
        ),
        (f"{batch:,} records a batch from a log into a log", into_log),
    )
    for case, run in pairs:
        here, there = alternated(bench.rounds, run, lambda: _streamed(bench, bare(), rows, "bare", {}))
        yield compared("spark", case, "bare source and sink", here, there, bars.SPARK_STREAM)


def _streamed(bench: Bench, frame: DataFrame, rows: int, sink: str, options: dict[str, str]) -> Run:
    folder = bench.folder / f"checkpoint-{time.monotonic_ns()}"
    query = (
        frame.writeStream.format(sink)
        .options(**options)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    steps = [step for step in query.recentProgress if step.numInputRows]
    if sum(step.numInputRows for step in steps) != rows:
        raise PeerFailed(f"a stream had {sum(step.numInputRows for step in steps):,} of {rows:,} rows")
    counted = steps[1:] or steps  # the first pays for the start
    seconds = sum(step.durationMs["triggerExecution"] for step in counted) / 1000
    return Run(sum(step.numInputRows for step in counted), seconds, NO_LATENCY)


# -- loads


def _loads(bench: Bench, spark: SparkSession) -> Iterator[Row]:
    rows = LOAD_ROWS_QUICK if bench.quick else LOAD_ROWS
    folder = str(bench.folder / "jobs-to-load.parquet")
    numbered = f.rpad(f.format_string("%018d", f.col("id")), PAYLOAD_BYTES, "x")
    spark.range(rows).select(f.encode(numbered, "utf-8").alias("value")).write.parquet(folder)
    _loaded(bench, spark, folder, rows)
    here, there = alternated(
        bench.rounds, partial(_loaded, bench, spark, folder, rows), partial(_fastest, bench, rows)
    )  # fmt: skip
    yield compared("spark", f"{rows:,} jobs into a queue", "fastest client", here, there, bars.SPARK_LOAD)
    yield _polite(bench, spark, folder)


def _load(spark: SparkSession, esker: EskerWhole, folder: str, **options: str) -> None:
    writer = spark.read.parquet(folder).write.format("esker").mode("append")
    writer.options(endpoint=esker.url, topic=TOPIC, type="queue", **options).save()


def _loaded(bench: Bench, spark: SparkSession, folder: str, rows: int) -> Run:
    with bench.esker_whole() as esker:
        began = time.perf_counter()
        _load(spark, esker, folder, share="1")
        seconds = time.perf_counter() - began
        if esker.held(TOPIC).count != rows:
            raise PeerFailed(f"the queue has {esker.held(TOPIC).count:,} of {rows:,} jobs")
    return Run(rows, seconds, NO_LATENCY)


def _fastest(bench: Bench, rows: int) -> Run:
    with bench.esker() as esker:
        return enqueue.benchmark(200, 16, rows, esker, ("ADDJOB", TOPIC, enqueue.PAYLOAD, "0"))


def _polite(bench: Bench, spark: SparkSession, folder: str) -> Row:
    """One who enqueues job by job feels a load of Spark no more than so much."""
    with bench.esker_whole() as esker:
        before: list[Run] = []
        during: list[Run] = []
        for _ in range(bench.rounds):
            before.append(_interactive(esker, IDLE_SECONDS))
            # The load stays on this thread: Spark finds Python sources only from one that has a session.
            over = threading.Event()
            with ThreadPoolExecutor(1) as pool:
                asking = pool.submit(_until, over, esker)
                try:
                    _load(spark, esker, folder)
                finally:
                    over.set()
                during += asking.result()
    idle, loaded = median_latency(before), median_latency(during)
    return Row(
        measure="spark", case="somebody else's enqueues during a load, p99", value=loaded.p99 / idle.p99, unit="x",
        bar=bars.SPARK_POLITE, esker=f"{loaded.p99:.2f} ms", against=f"before it {idle.p99:.2f} ms",
        esker_latency=loaded, against_latency=idle, note=f"{len(during)} slices of {SLICE_SECONDS:g} s",
    )  # fmt: skip


def _until(over: threading.Event, esker: EskerWhole) -> list[Run]:
    runs = [_interactive(esker, SLICE_SECONDS)]
    while not over.is_set():
        runs.append(_interactive(esker, SLICE_SECONDS))
    return runs


def _interactive(esker: EskerWhole, seconds: float) -> Run:
    plan = load.Plan(
        talk="esker-enqueue", port=esker.resp_port, queue="other", connections=1, units=1 << 40, seconds=seconds
    )
    return load.run(plan)
