"""kill -9 in the middle of a load, again and again, on one data directory."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.crash.load import Ledger, run
from tests.crash.process import NodeProcess

KILLS = 20


@pytest.mark.timeout(600)
def test_no_acknowledged_job_is_lost_and_no_acked_one_returns_whenever_the_node_is_killed(tmp_path: Path) -> None:
    dice = random.Random(20)
    ledger = Ledger()
    # Small segments and frequent checkpoints, so that kills hit rolls, slices, flushes and retirements too.
    node = NodeProcess(
        tmp_path / "data", "--set", "segment_size=256kb", "--set", "checkpoint_interval_s=1",
        "--set", "checkpoint_after=20kb",
    )  # fmt: skip
    for _ in range(KILLS):
        with node:
            ledger.check(_all_jobs(node))
            asyncio.run(_load_then_kill(node, ledger, dice.uniform(0.02, 0.8)))
    with node:
        ledger.check(_all_jobs(node))
        assert node.stop() == 0
    with node:
        ledger.check(_all_jobs(node))
    assert len(ledger.acked) > 20 * KILLS, "the load did too little for the test to mean anything"


async def _load_then_kill(node: NodeProcess, ledger: Ledger, after_s: float) -> None:
    load = asyncio.create_task(run(node.port, ledger, asyncio.Event()))
    await asyncio.wait({load}, timeout=after_s)
    node.kill()
    await load


def _all_jobs(node: NodeProcess) -> list[tuple[bytes, bytes]]:
    with node.client() as client:
        jobs: list[tuple[bytes, bytes]] = []
        cursor = b"0"
        while True:
            cursor, page = client.execute_command("JSCAN", cursor, "COUNT", "1000", "REPLY", "all")
            for fields in page:
                shown = dict(zip(fields[::2], fields[1::2], strict=True))
                jobs.append((shown[b"id"], shown[b"body"]))
            if cursor == b"0":
                return jobs
