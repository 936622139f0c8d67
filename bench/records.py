"""Writing and reading event logs over HTTP: Esker against Redis Streams and NATS JetStream.

By class of durability: `fsync` meets Redis with appendfsync always and JetStream with sync_interval always, `disk`
everysec and JetStream's default, `memory` and `ephemeral` a Redis without a file and a stream in memory. A batch is one
request of many records on Esker, as many pipelined XADDs on Redis, and on JetStream as many pipelined publishes or one
atomic batch, whichever does better.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench import bars, load
from bench.figures import Run, in_turns, median_rate
from bench.peers import Bench, EskerHttp, JetStream, Redis
from bench.report import Row, compared

CLASSES = {"ephemeral": "off", "memory": "off", "disk": "everysec", "fsync": "always"}  # and what Redis is told
WRITERS, BATCH = 16, 100
SECONDS, SECONDS_QUICK = 1.5, 0.7
UNITS = 1 << 40  # time ends a run, not a count

READERS = 4
PAGES = (1, 256, 1000)
DEPTH = 100_000
FILL_BATCH = 1000
FILL_SECONDS = 120.0
REST_SECONDS_MAX = 20.0

TOPIC = "records"


def single(bench: Bench) -> Iterator[Row]:
    for durability in CLASSES:
        yield from _written(bench, durability, 1, 1, f"1 record, 1 writer, {durability}")


def batches(bench: Bench) -> Iterator[Row]:
    for durability in CLASSES:
        case = f"{BATCH} records a request, {WRITERS} writers, {durability}"
        yield from _written(bench, durability, WRITERS, BATCH, case)


def _written(bench: Bench, durability: str, writers: int, batch: int, case: str) -> Iterator[Row]:
    contenders = {
        "Redis": partial(_redis, bench, durability, writers, batch),
        "JetStream": partial(_jetstream, bench, durability, "nats-write", writers, batch),
    }
    if batch > 1 and durability in bars.WRITES:
        contenders["JetStream, atomic"] = partial(_jetstream, bench, durability, "nats-batch", writers, batch)
    esker, *others = in_turns(bench.rounds, [partial(_esker, bench, durability, writers, batch), *contenders.values()])
    best = max(others, key=median_rate)
    for name, runs in zip(contenders, others, strict=True):
        bar = bars.WRITES.get(durability) if batch > 1 and runs is best else None
        yield compared("single" if batch == 1 else "batches", case, name, esker, runs, bar)


def _esker(bench: Bench, durability: str, writers: int, batch: int) -> Run:
    with bench.esker_http() as esker:
        esker.put_topic(TOPIC, durability=durability)
        return _load(bench, "esker-write", esker.port, writers, batch)


def _redis(bench: Bench, durability: str, writers: int, batch: int) -> Run:
    with bench.redis(CLASSES[durability]) as redis:
        return _load(bench, "redis-write", redis.port, writers, batch)


def _jetstream(bench: Bench, durability: str, talk: str, writers: int, batch: int) -> Run:
    with bench.jetstream(synced=durability == "fsync") as jetstream:
        jetstream.add_stream(TOPIC, in_memory=durability in ("ephemeral", "memory"))
        return _load(bench, talk, jetstream.port, writers, batch)


def _load(bench: Bench, talk: str, port: int, connections: int, batch: int, depth: int = 0) -> Run:
    return load.run(
        load.Plan(
            talk=talk, port=port, queue=TOPIC, connections=connections, units=UNITS,
            seconds=SECONDS_QUICK if bench.quick else SECONDS, batch=batch, depth=depth,
        )
    )  # fmt: skip


def diff(bench: Bench) -> Iterator[Row]:
    """Pages from all over a topic. The same nodes serve all sizes of page: nothing changes by reading."""
    with bench.esker_http() as esker, bench.redis("everysec") as redis, bench.jetstream(synced=False) as jetstream:
        _filled(esker, redis, jetstream)
        for page in PAGES:
            here, xrange, get = in_turns(
                bench.rounds,
                [
                    partial(_load, bench, "esker-diff", esker.port, READERS, page, DEPTH),
                    partial(_load, bench, "redis-range", redis.port, READERS, page, DEPTH),
                    partial(_load, bench, "nats-get", jetstream.port, READERS, page, DEPTH),
                ],
            )
            case = f"pages of {page:,} records, {READERS} readers"
            yield compared("diff", case, "XRANGE", here, xrange, bars.DIFF.get(page))
            yield compared("diff", case, "JetStream direct get", here, get, None)


def _filled(esker: EskerHttp, redis: Redis, jetstream: JetStream) -> None:
    jetstream.add_stream(TOPIC)
    for talk, port in (("esker-write", esker.port), ("redis-fill", redis.port), ("nats-write", jetstream.port)):
        fill(talk, port, TOPIC, DEPTH)
    for peer in (esker, redis, jetstream):
        peer.rest(REST_SECONDS_MAX)


def fill(talk: str, port: int, topic: str, records: int, batch: int = FILL_BATCH, seconds: float = FILL_SECONDS) -> Run:
    """Writes exactly as many records through one connection. Raises LoadFailed when time runs out."""
    plan = load.Plan(
        talk=talk, port=port, queue=topic, connections=1, units=records // batch, seconds=seconds, batch=batch
    )
    run = load.run(plan)
    if run.count != records:
        raise load.LoadFailed(f"{talk}: {run.count:,} of {records:,} records within {seconds:.0f} s")
    return run
