"""The whole life of a job, enqueue -> lease -> ack: Esker against beanstalkd with -f0.

Both sync the enqueue and the ack before their replies. beanstalkd writes nothing for a lease (system calls counted: two
syncs a life) and syncs for each connection by itself, where Esker shares one sync among all that wait. So the ratio
is for the most part that of group commit to none, and grows with the connections.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import bars, load
from bench.figures import Run
from bench.peers import Bench
from bench.report import Row, compared

CONNECTIONS = 50
LIVES, LIVES_QUICK = 60_000, 10_000
SECONDS, SECONDS_QUICK = 20.0, 5.0


def measure(bench: Bench) -> Iterator[Row]:
    esker_runs, beanstalkd_runs = [], []
    for _ in range(bench.rounds):
        with bench.beanstalkd() as beanstalkd:
            beanstalkd_runs.append(_run(bench, "beanstalkd-life", beanstalkd.port))
        with bench.esker() as esker:
            esker_runs.append(_run(bench, "esker-life", esker.port))
    yield compared("life", f"{CONNECTIONS} connections", "beanstalkd", esker_runs, beanstalkd_runs, bars.LIFE)


def _run(bench: Bench, talk: str, port: int) -> Run:
    plan = load.Plan(
        talk=talk, port=port, queue="life", connections=CONNECTIONS,
        units=LIVES_QUICK if bench.quick else LIVES, seconds=SECONDS_QUICK if bench.quick else SECONDS,
    )  # fmt: skip
    return load.run(plan)
