"""Durable logs that are written to slowly, beside bursts of large jobs: growing blocks compete with payloads for
memory. Nothing acknowledged may be lost or mixed up, before and after kill -9.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
import redis.asyncio

from tests.crash.process import NodeProcess
from tests.crash.talk import Done, Talk, Wrote, every_record

LOGS = [f"log{number}" for number in range(20)]
WRITERS = 4


class Ledger:
    """What was acknowledged: the value at each seq of each log."""

    def __init__(self) -> None:
        self.values: dict[str, dict[int, int]] = {log: {} for log in LOGS}
        self._next = 0

    def value(self) -> int:
        self._next += 1
        return self._next

    async def check(self, port: int) -> None:
        talk = await Talk.to(port)
        for log, expected in self.values.items():
            records, gaps = await every_record(talk, log)
            assert not gaps, f"{log} has gaps"
            assert {record.seq: record.data for record in records} == expected, (
                f"{log} differs from what was acknowledged"
            )
        await talk.close()


async def _append(ledger: Ledger, port: int, ended: asyncio.Event, pause_s: float) -> None:
    talk = await Talk.to(port)
    while not ended.is_set():
        for log in LOGS:
            value = ledger.value()
            wrote = await talk.ask("POST", f"/v0/topics/{log}", {"records": [{"data": value}]}, Wrote)
            ledger.values[log][wrote.seqs[0]] = value
        await asyncio.sleep(pause_s)
    await talk.close()


async def _bursts(port: int, bursts: int, jobs: int, size: int, pause_s: float, ended: asyncio.Event) -> int:
    """Returns how many jobs were acknowledged."""
    added = 0
    async with redis.asyncio.Redis(port=port, protocol=2) as client:
        for burst in range(bursts):
            for number in range(jobs):
                payload = b"%08d" % (burst * jobs + number) + b"x" * (size - 8)
                await client.execute_command("ADDJOB", "large", payload, 0)  # type: ignore[no-untyped-call]
                added += 1
            await asyncio.sleep(pause_s)
    ended.set()
    return added


async def _run(node: NodeProcess, bursts: int, jobs: int, size: int, pause_s: float) -> tuple[Ledger, int]:
    ledger = Ledger()
    talk = await Talk.to(node.http_port)
    for log in LOGS:
        await talk.ask("PUT", f"/v0/topics/{log}", {"durable": True}, Done)
    await talk.close()
    ended = asyncio.Event()
    writers = [_append(ledger, node.http_port, ended, pause_s / 30) for _ in range(WRITERS)]
    running = asyncio.gather(*writers)
    added = await _bursts(node.port, bursts, jobs, size, pause_s, ended)
    await running
    await ledger.check(node.http_port)
    return ledger, added


def _check(data: Path, bursts: int, jobs: int, size: int, pause_s: float, *options: str) -> None:
    node = NodeProcess(data, *options)
    with node:
        ledger, added = asyncio.run(_run(node, bursts, jobs, size, pause_s))
        for _ in range(2):  # the first start folds the journal, the second loads what the first has saved
            node.kill()
            node.start()
            asyncio.run(ledger.check(node.http_port))
            assert node.client().execute_command("QLEN", "large") == added  # type: ignore[no-untyped-call]


def test_records_acknowledged_beside_bursts_of_large_jobs_are_all_there(tmp_path: Path) -> None:
    little_memory = ["--set", "hot_payloads=1mb", "--set", "checkpoint_after=8mb", "--set", "checkpoint_interval_s=1"]
    _check(tmp_path / "data", 5, 40, 50_000, 2.2, *little_memory)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_records_acknowledged_beside_bursts_of_large_jobs_for_minutes_are_all_there(tmp_path: Path) -> None:
    """With default settings: payloads of a megabyte in bursts of 80, three seconds apart."""
    minutes = float(os.environ.get("ESKER_SOAK_MINUTES", "5"))
    _check(tmp_path / "data", int(minutes * 60 / 3.5), 80, 1_000_000, 3.0)
