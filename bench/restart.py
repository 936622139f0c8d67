"""How long a node with a deep backlog is away: from exec until it counts every job again."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

from bench import bars
from bench.fill import fill
from bench.peers import Bench, Esker
from bench.report import Row

JOBS, JOBS_QUICK = 2_000_000, 300_000
TAIL_JOBS = 50_000  # added right before the kill, so that recovery also has a journal to fold
REST_SECONDS_MAX = 120.0
QUEUE = "restart"


def measure(bench: Bench) -> Iterator[Row]:
    jobs = JOBS_QUICK if bench.quick else JOBS
    with bench.esker() as esker:
        fill(esker, QUEUE, jobs)
        esker.rest(REST_SECONDS_MAX)
        polite = [_restart(esker, signal.SIGTERM, jobs) for _ in range(bench.rounds)]
        yield _row(f"SIGTERM, {jobs:,} jobs", polite)
        killed = []
        for _ in range(bench.rounds):
            fill(esker, QUEUE, TAIL_JOBS, first=jobs)
            jobs += TAIL_JOBS
            killed.append(_restart(esker, signal.SIGKILL, jobs))
        yield _row(f"SIGKILL, up to {jobs:,} jobs", killed)


def _restart(esker: Esker, how: signal.Signals, jobs: int) -> tuple[float, float]:
    """Seconds to stop, and seconds from exec to every job being counted."""
    began = time.monotonic()
    esker.stop(how)
    stopped = time.monotonic()
    esker.start()
    esker.wait_until(lambda: esker.length(QUEUE) == jobs, f"count {jobs:,} jobs")
    return stopped - began, time.monotonic() - stopped


def _row(case: str, seconds: list[tuple[float, float]]) -> Row:
    """The slowest round counts: an operator waits for the worst, not for the median."""
    return Row(
        measure="restart",
        case=case,
        value=max(away for _, away in seconds),
        unit=" s",
        bar=bars.RESTART,
        esker="/".join(f"{away:.1f}" for _, away in seconds) + " s",
        note="stopping took " + "/".join(f"{stop:.1f}" for stop, _ in seconds) + " s",
    )
