"""How long a node with a million records is away, beside RocksDB alone, which only iterates as many.

From exec to the first state that counts every record, after SIGTERM and after SIGKILL. The yardstick is a process that
opens a RocksDB with as many records of the same size and goes through all of them, from its exec to its end
(iterate.py). It says how long the iteration itself took; that stands beside the figure.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from rocksdict import Rdict, WriteBatch

from bench import bars
from bench.iterate import options
from bench.peers import Bench, EskerHttp, PeerFailed
from bench.records import fill
from bench.report import Row
from bench.talk import payload

RECORDS, RECORDS_QUICK = 1_000_000, 200_000
FILL_BATCH = 10_000
FILL_SECONDS = 600.0
REST_SECONDS_MAX = 60.0
TOPIC = "replay"


def measure(bench: Bench) -> Iterator[Row]:
    records = RECORDS_QUICK if bench.quick else RECORDS
    folder = bench.folder / "rocksdb"
    _written(folder, records)
    with bench.esker_http() as esker:
        esker.put_topic(TOPIC, durability="fsync")
        fill("esker-write", esker.port, TOPIC, records, FILL_BATCH, FILL_SECONDS)
        killed, alone = _away(esker, bench, signal.SIGKILL, records, folder)
        yield _row(f"SIGKILL right after writing {records:,} records", records, killed[:1], alone)
        if len(killed) > 1:
            yield _row(f"SIGKILL right after a start, {records:,} records", records, killed[1:], alone)
        esker.rest(REST_SECONDS_MAX)
        polite, alone = _away(esker, bench, signal.SIGTERM, records, folder)
        yield _row(f"SIGTERM, {records:,} records", records, polite, alone)


def _away(
    esker: EskerHttp, bench: Bench, how: signal.Signals, records: int, folder: Path
) -> tuple[list[float], list[tuple[float, float]]]:
    away, alone = [], []
    for _ in range(bench.rounds):
        esker.stop(how)
        began = time.monotonic()
        esker.start()
        esker.wait_until(lambda: esker.held(TOPIC).count == records, f"count {records:,} records")
        away.append(time.monotonic() - began)
        alone.append(_iterated(folder, records))
    return away, alone


def _row(case: str, records: int, away: list[float], alone: list[tuple[float, float]]) -> Row:
    whole, inner = (median(each[part] for each in alone) for part in (0, 1))
    return Row(
        measure="replay",
        case=case,
        value=median(away) / whole,
        unit="x",
        bar=bars.REPLAY if records == RECORDS else None,  # with fewer, the start of Python is most of it
        esker="/".join(f"{seconds:.2f}" for seconds in away) + " s",
        against=f"RocksDB alone {whole:.2f} s",
        note=f"its iteration without the start of Python: {inner:.2f} s, {median(away) / inner:.1f}x",
    )


def _written(folder: Path, records: int) -> None:
    """A database with one key a record, on disk and at rest."""
    database = Rdict(str(folder), options())
    for first in range(0, records, FILL_BATCH):
        batch = WriteBatch(raw_mode=True)
        for number in range(first, min(first + FILL_BATCH, records)):
            batch.put(number.to_bytes(8, "big"), payload(number))
        database.write(batch)
    database.flush()
    database.close()


def _iterated(folder: Path, records: int) -> tuple[float, float]:
    """Seconds from exec to exit, and those of the iteration itself."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "bench.iterate", str(folder)], capture_output=True, text=True, check=False,
        cwd=Path(__file__).resolve().parents[1],
    )  # fmt: skip
    whole = time.monotonic() - began
    words = done.stdout.split()
    if done.returncode or len(words) != 2 or int(words[0]) != records:
        raise PeerFailed(f"iterating RocksDB gave {done.stdout!r}: {done.stderr[-500:]}")
    return whole, float(words[1])
