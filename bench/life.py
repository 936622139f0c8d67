"""The whole life of a job, enqueue -> lease -> ack: Esker against beanstalkd with -f0.

Both sync the enqueue and the ack before their replies. beanstalkd writes nothing for a lease (system calls counted: two
syncs a life) and syncs for each connection by itself, where Esker shares one sync among all that wait. So the ratio
is for the most part that of group commit to none, and grows with the connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench import bars, load
from bench.figures import Run, alternated
from bench.peers import Bench
from bench.report import Row, compared

CONNECTIONS = 50
LIVES, LIVES_QUICK = 60_000, 10_000
SECONDS, SECONDS_QUICK = 20.0, 5.0


def measure(bench: Bench) -> Iterator[Row]:
    esker, beanstalkd = alternated(bench.rounds, partial(_esker, bench), partial(_beanstalkd, bench))
    yield compared("life", f"{CONNECTIONS} connections", "beanstalkd", esker, beanstalkd, bars.LIFE)


def _esker(bench: Bench) -> Run:
    with bench.esker() as esker:
        return _run(bench, "esker-life", esker.port)


def _beanstalkd(bench: Bench) -> Run:
    with bench.beanstalkd() as beanstalkd:
        return _run(bench, "beanstalkd-life", beanstalkd.port)


def _run(bench: Bench, talk: str, port: int) -> Run:
    plan = load.Plan(
        talk=talk, port=port, queue="life", connections=CONNECTIONS,
        units=LIVES_QUICK if bench.quick else LIVES, seconds=SECONDS_QUICK if bench.quick else SECONDS,
    )  # fmt: skip
    return load.run(plan)
