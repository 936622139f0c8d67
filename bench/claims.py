"""Claim and ack of jobs in batches, with a sync before the reply: 50 workers that share one queue.

A worker claims 8 jobs with one request and acks these 8 with the next, over HTTP; and, to tell the front's share, with
GETJOB and ACKJOB over the Redis protocol. On Redis that is XREADGROUP COUNT 8 and one XACK of 8 ids with appendfsync
always; on JetStream a pull of 8 and 8 acks that are confirmed one by one, with sync_interval always.

Beside them stands a server that only answers, with bytes made beforehand: what it reaches against Redis is the most
that anything can reach in this measure.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from bench import bars, load
from bench.figures import Run, in_turns
from bench.fill import fill as fill_queue
from bench.jetstream import CONSUMER
from bench.peers import Bench, Peer
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
    contenders = (_esker, _esker_resp, _redis, _canned, _jetstream)
    esker, esker_resp, redis, canned, jetstream = in_turns(bench.rounds, [partial(each, bench) for each in contenders])
    case = f"{WORKERS} workers, {BATCH} jobs at a time"
    yield compared("claims", case, "XREADGROUP + XACK", esker, redis, bars.CLAIMS)
    yield compared("claims", f"{case}, GETJOB and ACKJOB", "XREADGROUP + XACK", esker_resp, redis, None)
    yield compared("claims", f"{case}, answers made beforehand", "XREADGROUP + XACK", canned, redis, None)
    yield compared("claims", case, "JetStream work queue", esker, jetstream, None)


def _esker(bench: Bench) -> Run:
    with bench.esker_http() as esker:
        esker.put_topic(QUEUE, type="queue", durability="fsync")
        jobs = JOBS_QUICK if bench.quick else JOBS
        fill("esker-write", esker.port, QUEUE, jobs)
        esker.rest(REST_SECONDS_MAX)
        return _worked(bench, "esker-claim", esker, jobs)


def _esker_resp(bench: Bench) -> Run:
    with bench.esker() as esker:
        jobs = JOBS_QUICK if bench.quick else JOBS
        fill_queue(esker, QUEUE, jobs, priorities=1)  # in order of arrival, as over HTTP and from Redis's stream
        esker.rest(REST_SECONDS_MAX)
        return _worked(bench, "esker-lease", esker, jobs)


def _redis(bench: Bench) -> Run:
    with bench.redis() as redis:
        redis.ask(resp(b"XGROUP", b"CREATE", QUEUE.encode(), GROUP, b"0", b"MKSTREAM"))
        jobs = JOBS_QUICK if bench.quick else JOBS
        fill("redis-write", redis.port, QUEUE, jobs)
        redis.rest(REST_SECONDS_MAX)
        return _worked(bench, "redis-claim", redis, jobs)


def _jetstream(bench: Bench) -> Run:
    with bench.jetstream(synced=True) as jetstream:
        jetstream.add_stream(QUEUE, worked=CONSUMER.decode())
        fill("nats-batch", jetstream.port, QUEUE, JOBS_JETSTREAM)
        jetstream.rest(REST_SECONDS_MAX)
        return _worked(bench, "nats-claim", jetstream, JOBS_JETSTREAM)


def _canned(bench: Bench) -> Run:
    with bench.canned(BATCH) as canned:
        return _worked(bench, "esker-claim", canned, JOBS_QUICK if bench.quick else JOBS)


def _worked(bench: Bench, talk: str, peer: Peer, jobs: int) -> Run:
    """Ends before the jobs do, so that every claim is a full one."""
    spent = peer.processor_seconds()
    run = load.run(
        load.Plan(
            talk=talk, port=peer.port, queue=QUEUE, connections=WORKERS, units=jobs // BATCH - WORKERS,
            seconds=SECONDS_QUICK if bench.quick else SECONDS, batch=BATCH,
        )
    )  # fmt: skip
    return msgspec.structs.replace(run, server_us=(peer.processor_seconds() - spent) / run.count * 1e6)
