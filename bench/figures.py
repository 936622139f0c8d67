"""Rates, percentiles and medians: the numbers a run gives, and how several runs become one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import msgspec


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds."""

    p50: float
    p95: float
    p99: float
    max: float


class Run(msgspec.Struct, frozen=True):
    """One load against one peer. `client_cpu` is the load generator's share of one core: near 1 it was the limit.

    `server_us` is the processor time, in microseconds, that the peer spent on each of what was counted.
    """

    count: int
    seconds: float
    latency: Latency
    client_cpu: float | None = None
    server_us: float | None = None

    @property
    def rate(self) -> float:
        return self.count / self.seconds


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of values in ascending order."""
    if not ordered:
        raise ValueError("no percentile of nothing")
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def latency_of(seconds: Sequence[float]) -> Latency:
    ordered = sorted(value * 1000 for value in seconds)
    p50, p95, p99 = (round(percentile(ordered, share), 3) for share in (0.50, 0.95, 0.99))
    return Latency(p50, p95, p99, round(ordered[-1], 3))


def joined(runs: Sequence[Run]) -> Run:
    """Slices of one measurement as one run: counts and times add up, latencies are the median slice's."""
    return Run(sum(run.count for run in runs), sum(run.seconds for run in runs), median_latency(runs), cpu(runs))


def alternated(rounds: int, one: Callable[[], Run], two: Callable[[], Run]) -> tuple[list[Run], list[Run]]:
    """Runs both in every round, and swaps who goes first: the first one's files may keep the disk busy."""
    ones: list[Run] = []
    twos: list[Run] = []
    for turn in range(rounds):
        order = ((one, ones), (two, twos)) if turn % 2 else ((two, twos), (one, ones))
        for run, runs in order:
            runs.append(run())
    return ones, twos


def in_turns(rounds: int, runs: Sequence[Callable[[], Run]]) -> list[list[Run]]:
    """As `alternated`, for any number: every round begins with the next one."""
    found: list[list[Run]] = [[] for _ in runs]
    for turn in range(rounds):
        for step in range(len(runs)):
            place = (turn + step) % len(runs)
            found[place].append(runs[place]())
    return found


def median_rate(runs: Sequence[Run]) -> float:
    return median(run.rate for run in runs)


def median_latency(runs: Sequence[Run]) -> Latency:
    """Each percentile's median over the rounds; the worst of the maxima."""
    return Latency(
        median(run.latency.p50 for run in runs),
        median(run.latency.p95 for run in runs),
        median(run.latency.p99 for run in runs),
        max(run.latency.max for run in runs),
    )


def cpu(runs: Sequence[Run]) -> float | None:
    """The busiest the load generator was; None when it does not say."""
    known = [run.client_cpu for run in runs if run.client_cpu is not None]
    return max(known) if known else None


def server_us(runs: Sequence[Run]) -> float | None:
    """The median of what the peer spent; None when nobody looked."""
    known = [run.server_us for run in runs if run.server_us is not None]
    return median(known) if known else None
