"""Does a deep backlog slow a node down, and what does a waiting job cost in memory?

Nodes with a shallow and with deep backlogs stand side by side, and the measure goes round them, so that the machine's
drift hits all alike. A slice adds some jobs and then leases and acks as many, so that a depth hardly moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import msgspec

from bench import bars, load
from bench.figures import Run, joined
from bench.fill import fill
from bench.peers import Bench, Esker
from bench.report import Row, compared
from bench.talk import PAYLOAD_BYTES

DEPTHS, DEPTHS_QUICK = (10_000, 200_000, 2_000_000), (10_000, 100_000, 300_000)
CONNECTIONS = 50
SLICES, SLICES_QUICK = 4, 2
SLICE_UNITS = 5_000  # half of the shallowest depth
SLICE_SECONDS = 10.0
REST_SECONDS_MAX = 120.0
QUEUE = "backlog"


class Backlog(msgspec.Struct):
    """One node, its depth, and the runs it gave."""

    esker: Esker
    jobs: int
    empty_bytes: int
    full_bytes: int
    fill_seconds: float
    enqueue: list[Run] = []
    lease: list[Run] = []


def measure(bench: Bench) -> Iterator[Row]:
    with ExitStack() as stack:
        backlogs = [_filled(stack, bench, jobs) for jobs in (DEPTHS_QUICK if bench.quick else DEPTHS)]
        for turn in range(bench.rounds):
            for backlog in backlogs:
                _round(backlog, SLICES_QUICK if bench.quick else SLICES, turn)
    shallow = backlogs[0]
    for backlog in backlogs[1:]:
        for kind, here, there in (
            ("enqueue", backlog.enqueue, shallow.enqueue),
            ("lease + ack", backlog.lease, shallow.lease),
        ):
            case = f"{kind}, {backlog.jobs:,} jobs wait"
            yield compared("backlog", case, f"{shallow.jobs:,} jobs", here, there, bars.DEPTH)
    yield from (_memory(backlog, deepest=backlog is backlogs[-1]) for backlog in backlogs)


def _filled(stack: ExitStack, bench: Bench, jobs: int) -> Backlog:
    esker = stack.enter_context(bench.esker())
    empty = esker.resident_bytes()
    seconds = fill(esker, QUEUE, jobs)
    esker.rest(REST_SECONDS_MAX)
    return Backlog(esker, jobs, empty or 0, esker.resident_bytes() or 0, seconds)


def _round(backlog: Backlog, slices: int, turn: int) -> None:
    """One round at one depth: enqueueing and leasing in turns."""
    added, leased = [], []
    for number in range(slices):
        seed = 1 + turn * slices + number
        added.append(_slice(backlog, "esker-enqueue", SLICE_UNITS, seed))
        leased.append(_slice(backlog, "esker-lease", added[-1].count, seed))
    backlog.enqueue.append(joined(added))
    backlog.lease.append(joined(leased))


def _slice(backlog: Backlog, talk: str, units: int, seed: int) -> Run:
    plan = load.Plan(
        talk=talk, port=backlog.esker.port, queue=QUEUE, connections=CONNECTIONS, units=units,
        seconds=SLICE_SECONDS, seed=seed,
    )  # fmt: skip
    return load.run(plan)


def _memory(backlog: Backlog, *, deepest: bool) -> Row:
    grown = backlog.full_bytes - backlog.empty_bytes
    beyond = grown / backlog.jobs - PAYLOAD_BYTES
    return Row(
        measure="memory",
        case=f"a job beyond its payload, {backlog.jobs:,} jobs wait",
        esker=f"{backlog.full_bytes / 2**20:,.0f} MiB",
        against=f"{backlog.empty_bytes / 2**20:,.0f} MiB empty",
        value=beyond,
        unit=" B",
        # In a shallow backlog the node's own caches weigh more than the jobs; the bar is about the deepest.
        bar=bars.JOB_BYTES if deepest else None,
        note=f"{grown / backlog.jobs:.0f} B with it; filled at {backlog.jobs / backlog.fill_seconds:,.0f} jobs/s",
    )
