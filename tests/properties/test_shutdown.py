"""An orderly end keeps everything, whatever it interrupts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from esker.engine.commands import Enqueue, Length, NewJob
from esker.engine.replies import Added, Count
from esker.node.runtime import Node
from esker.node.settings import Settings
from tests.engine.rig import Q, expect

JOBS = 20_000
END_SECONDS_MAX = 20


@pytest.mark.parametrize("turns", [1, 2, 5, 20, 60])
def test_a_node_that_ends_in_the_middle_of_a_checkpoint_loses_nothing(tmp_path: Path, turns: int) -> None:
    asyncio.run(asyncio.wait_for(end_in_a_checkpoint(tmp_path, turns), END_SECONDS_MAX))
    assert asyncio.run(count(tmp_path)) == JOBS


async def end_in_a_checkpoint(tmp_path: Path, turns: int) -> None:
    node = Node(Settings(data=str(tmp_path)))
    for _ in range(JOBS // 1000):
        expect(Added, node.handle(Enqueue(Q, [NewJob(b"x" * 100)] * 1000)))
    node.checkpoint()
    for _ in range(turns):
        await asyncio.sleep(0)
    await node.close()


async def count(tmp_path: Path) -> int:
    node = Node(Settings(data=str(tmp_path)))
    jobs = expect(Count, node.handle(Length(Q))).count
    await node.close()
    return jobs
