"""A machine that loses power right after a checkpoint of a class that is not synced before its reply."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from random import Random

import pytest

from esker.engine.commands import Enqueue, Length, NewJob
from esker.engine.config import Durability
from esker.engine.replies import Added, Count
from esker.node.runtime import Node
from esker.node.settings import Settings
from esker.testing.ram_disk import RamDisk
from tests.engine.rig import Q, expect

JOBS = 50


def _settings(data: Path) -> Settings:
    return Settings(data=str(data), queue_durability=Durability.DISK, sync_interval_ms=3_600_000, segment_size=1 << 20)


@pytest.mark.parametrize("seed", range(5))
def test_the_store_is_never_ahead_of_the_synced_journal(tmp_path: Path, seed: int) -> None:
    data, image = tmp_path / "data", tmp_path / "image"
    disk = asyncio.run(_checkpoint_then_lose_power(data, image, seed))
    shutil.rmtree(data)
    image.rename(data)
    assert asyncio.run(_count(data, disk)) == JOBS


async def _checkpoint_then_lose_power(data: Path, image: Path, seed: int) -> RamDisk:
    disk = RamDisk()
    node = Node(_settings(data), disk)
    for number in range(JOBS):
        expect(Added, node.handle(Enqueue(Q, [NewJob(b"job %d" % number)])))
        await asyncio.sleep(0)
    await _until(node, "Persistence", "journal_events", JOBS)  # written, and by nobody's wish synced
    node.checkpoint()
    await _until(node, "Loop", "checkpoints_done", 1)
    shutil.copytree(data, image)
    found = disk.lose_power(Random(seed))
    await node.close()
    return found


async def _until(node: Node, section: str, fact: str, least: int) -> None:
    """What a node tells of itself is the only sign of these."""
    while int(node.facts()[section][fact]) < least:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def _count(data: Path, disk: RamDisk) -> int:
    node = Node(_settings(data), disk)
    count = expect(Count, node.handle(Length(Q))).count
    await node.close()
    return count
