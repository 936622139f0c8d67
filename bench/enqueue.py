"""Enqueue with a sync before the reply: ADDJOB on Esker against LPUSH on Redis, by Redis's own load generator.

The rows that count are of mixed traffic, as users make it: several load generators at once, each with payloads of its
own size, a queue of its own, a priority and other options. The uniform rows (one size, one queue, no options) show the
simplest traffic there is.
"""

from __future__ import annotations

import csv
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from bench import bars
from bench.figures import Latency, Run, alternated, median_latency
from bench.peers import Bench, Peer, PeerFailed, program
from bench.report import Row, compared
from bench.talk import PAYLOAD_BYTES

CASES = ((50, 1), (200, 1), (50, 16), (200, 16))  # connections, depth of pipeline
REQUESTS = {1: 150_000, 16: 1_000_000}  # by depth of pipeline: two to five seconds each
REQUESTS_QUICK = {1: 50_000, 16: 300_000}
MORE_ROUNDS = 5  # without a pipeline: two seconds each, in which one slow moment of the disk decides who is ahead
SECONDS_MAX = 180
PAYLOAD = "x" * PAYLOAD_BYTES

# Of mixed traffic: the size, the queue and the options of what each load generator sends. Median 200 bytes.
MIX = (
    (50, "q1", ("PRIORITY", "5")),
    (200, "q2", ("PRIORITY", "1", "RETRY", "60")),
    (200, "q3", ("DELAY", "0", "PRIORITY", "-3")),
    (4000, "q4", ("PRIORITY", "9", "TTL", "3600")),
)
MIXED_CONNECTIONS = 12  # of each load generator
MIXED_REQUESTS = {1: 40_000, 16: 200_000}  # of each, by depth of pipeline
MIXED_REQUESTS_QUICK = {1: 12_000, 16: 60_000}

Load = Callable[[Peer, Sequence[str]], Run]


def measure(bench: Bench) -> Iterator[Row]:
    for connections, pipeline in CASES:
        requests = (REQUESTS_QUICK if bench.quick else REQUESTS)[pipeline]
        load = partial(benchmark, connections, pipeline, requests)
        rounds = bench.rounds * (MORE_ROUNDS if pipeline == 1 else 1)
        esker, redis = alternated(rounds, partial(_addjob, bench, load), partial(_lpush, bench, load))
        case = f"{connections} connections, P{pipeline}"
        yield compared("enqueue", case, "Redis", esker, redis, bars.ENQUEUE[pipeline])
    for pipeline in (1, 16):
        rounds = bench.rounds * (MORE_ROUNDS if pipeline == 1 else 1)
        esker, redis = alternated(
            rounds, partial(_mixed_addjob, bench, pipeline), partial(_mixed_lpush, bench, pipeline)
        )
        case = f"mixed sizes, priorities and queues, {len(MIX) * MIXED_CONNECTIONS} connections, P{pipeline}"
        yield compared("enqueue", case, "Redis", esker, redis, bars.ENQUEUE_MIXED[pipeline])


def _mixed_addjob(bench: Bench, pipeline: int) -> Run:
    with bench.esker() as esker:
        return _mixed(bench, pipeline, esker, [("ADDJOB", queue, "x" * size, "0", *rest) for size, queue, rest in MIX])


def _mixed_lpush(bench: Bench, pipeline: int) -> Run:
    with bench.redis() as redis:
        return _mixed(bench, pipeline, redis, [("LPUSH", queue, "x" * size) for size, queue, _ in MIX])


def _mixed(bench: Bench, pipeline: int, peer: Peer, commands: Sequence[Sequence[str]]) -> Run:
    """All load generators at once; the run lasts until the last one is done."""
    requests = (MIXED_REQUESTS_QUICK if bench.quick else MIXED_REQUESTS)[pipeline]
    began = time.monotonic()
    with ThreadPoolExecutor(len(commands)) as pool:
        runs = list(pool.map(lambda words: benchmark(MIXED_CONNECTIONS, pipeline, requests, peer, words), commands))
    return Run(requests * len(commands), time.monotonic() - began, median_latency(runs))


def _addjob(bench: Bench, load: Load) -> Run:
    with bench.esker() as esker:
        return load(esker, ("ADDJOB", "q", PAYLOAD, "0"))


def _lpush(bench: Bench, load: Load) -> Run:
    with bench.redis() as redis:
        return load(redis, ("LPUSH", "q", PAYLOAD))


def benchmark(connections: int, pipeline: int, requests: int, peer: Peer, words: Sequence[str]) -> Run:
    """One run of redis-benchmark that sends the command `words` again and again."""
    command = [
        program("redis-benchmark"), "-h", "127.0.0.1", "-p", str(peer.port), "-c", str(connections),
        "-P", str(pipeline), "-n", str(requests), "--csv", *words,
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    except subprocess.SubprocessError as failure:
        raise PeerFailed(f"redis-benchmark against {peer.name}: {failure}; it printed: {peer.said()}") from failure
    rows = [row for row in csv.reader(done.stdout.splitlines()) if len(row) > 1]
    if len(rows) < 2 or "Error" in done.stdout:
        raise PeerFailed(
            f"redis-benchmark against {peer.name} gave no figures: {done.stdout[-500:]}{done.stderr[-500:]}"
        )
    return _parsed(dict(zip(rows[0], rows[-1], strict=True)), requests)


def _parsed(fields: dict[str, str], requests: int) -> Run:
    percentiles = [float(fields[f"{name}_latency_ms"]) for name in ("p50", "p95", "p99", "max")]
    return Run(requests, requests / float(fields["rps"]), Latency(*percentiles))
