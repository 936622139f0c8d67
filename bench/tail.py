"""Does the length of a topic slow the reading of its end? Two topics of one node, a long and a short one, in turns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench import bars, load
from bench.figures import Run, alternated
from bench.peers import Bench, EskerHttp
from bench.records import fill
from bench.report import Row, compared

SHORT = 50_000
LONG, LONG_QUICK = 5_000_000, 500_000
FILL_BATCH = 10_000
FILL_SECONDS = 900.0
REST_SECONDS_MAX = 120.0
READERS, PAGE = 4, 256
SECONDS, SECONDS_QUICK = 3.0, 1.5
ROUNDS_MIN = 3  # a slice is short, and the figure is a ratio near one


def measure(bench: Bench) -> Iterator[Row]:
    records = LONG_QUICK if bench.quick else LONG
    with bench.esker_http() as esker:
        fill("esker-write", esker.port, "short", SHORT, FILL_BATCH, FILL_SECONDS)
        filled = fill("esker-write", esker.port, "long", records, FILL_BATCH, FILL_SECONDS)
        esker.rest(REST_SECONDS_MAX)
        rounds = max(bench.rounds, ROUNDS_MIN)
        long, short = alternated(
            rounds, partial(_read, bench, esker, "long", records), partial(_read, bench, esker, "short", SHORT)
        )
        memory = (esker.resident_bytes() or 0) / 2**20
        case = f"the last {PAGE} of {records:,} records"
        yield compared("tail", case, f"of {SHORT:,}", long, short, bars.TAIL)
        yield Row(
            measure="tail",
            case=f"filling {records:,} records, {FILL_BATCH:,} a request",
            value=filled.rate,
            unit="/s",
            esker=f"{memory:,.0f} MiB resident",
            esker_latency=filled.latency,
        )


def _read(bench: Bench, esker: EskerHttp, topic: str, depth: int) -> Run:
    return load.run(
        load.Plan(
            talk="esker-tail", port=esker.port, queue=topic, connections=READERS, units=1 << 40,
            seconds=SECONDS_QUICK if bench.quick else SECONDS, batch=PAGE, depth=depth,
        )
    )  # fmt: skip
