"""Claim and ack of jobs in batches, with a sync before the reply: 50 workers that share one queue.

A worker claims 8 jobs with one request and acks these 8 with the next, over HTTP; and, to tell the front's share, with
GETJOB and ACKJOB over the Redis protocol. On Redis that is XREADGROUP COUNT 8 and one XACK of 8 ids with appendfsync
always; on JetStream a pull of 8 and 8 acks that are confirmed one by one, with sync_interval always.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench import bars, load
from bench.figures import Run, in_turns
from bench.fill import fill as fill_queue
from bench.jetstream import CONSUMER
from bench.peers import Bench
from bench.records import fill
from bench.report import Row, compared
from bench.streams import GROUP
from bench.talk import resp

WORKERS, BATCH = 50, 8
JOBS, JOBS_QUICK = 200_000, 40_000
JOBS_JETSTREAM = 20_000  # it acks one by one, a sync each: more would outlast the run
SECONDS, SECONDS_QUICK = 8.0, 3.0
REST_SECONDS_MAX = 20.0
QUEUE = "claims"


def measure(bench: Bench) -> Iterator[Row]:
    contenders = (_esker, _esker_resp, _redis, _jetstream)
    esker, esker_resp, redis, jetstream = in_turns(bench.rounds, [partial(each, bench) for each in contenders])
    case = f"{WORKERS} workers, {BATCH} jobs at a time"
    yield compared("claims", case, "XREADGROUP + XACK", esker, redis, bars.CLAIMS)
    yield compared("claims", f"{case}, GETJOB and ACKJOB", "XREADGROUP + XACK", esker_resp, redis, None)
    yield compared("claims", case, "JetStream work queue", esker, jetstream, None)


def _esker(bench: Bench) -> Run:
    with bench.esker_http() as esker:
        esker.put_topic(QUEUE, type="queue", durability="fsync")
        jobs = JOBS_QUICK if bench.quick else JOBS
        fill("esker-write", esker.port, QUEUE, jobs)
        esker.rest(REST_SECONDS_MAX)
        return _worked(bench, "esker-claim", esker.port, jobs)


def _esker_resp(bench: Bench) -> Run:
    with bench.esker() as esker:
        jobs = JOBS_QUICK if bench.quick else JOBS
        fill_queue(esker, QUEUE, jobs)
        esker.rest(REST_SECONDS_MAX)
        return _worked(bench, "esker-lease", esker.port, jobs)


def _redis(bench: Bench) -> Run:
    with bench.redis() as redis:
        redis.ask(resp(b"XGROUP", b"CREATE", QUEUE.encode(), GROUP, b"0", b"MKSTREAM"))
        jobs = JOBS_QUICK if bench.quick else JOBS
        fill("redis-write", redis.port, QUEUE, jobs)
        redis.rest(REST_SECONDS_MAX)
        return _worked(bench, "redis-claim", redis.port, jobs)


def _jetstream(bench: Bench) -> Run:
    with bench.jetstream(synced=True) as jetstream:
        jetstream.add_stream(QUEUE, worked=CONSUMER.decode())
        fill("nats-batch", jetstream.port, QUEUE, JOBS_JETSTREAM)
        jetstream.rest(REST_SECONDS_MAX)
        return _worked(bench, "nats-claim", jetstream.port, JOBS_JETSTREAM)


def _worked(bench: Bench, talk: str, port: int, jobs: int) -> Run:
    """Ends before the jobs do, so that every claim is a full one."""
    return load.run(
        load.Plan(
            talk=talk, port=port, queue=QUEUE, connections=WORKERS, units=jobs // BATCH - WORKERS,
            seconds=SECONDS_QUICK if bench.quick else SECONDS, batch=BATCH,
        )
    )  # fmt: skip
