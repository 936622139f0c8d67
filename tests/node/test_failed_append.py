"""A shard whose append failed writes nothing more to the store: what memory holds the journal may not have."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from esker.engine.commands import Enqueue, NewJob
from esker.engine.queues.job import Job
from esker.engine.queues.partition import QueuePartition
from esker.errors import ShardStopped
from esker.node.settings import Settings
from esker.store.checkpoint import stored_meta
from esker.store.memory import MemoryStore
from esker.testing.faults import FaultyDisk
from esker.testing.ram_disk import RamDisk
from esker.testing.virtual_loop import VirtualLoop
from esker.testing.virtual_node import VirtualNode


@pytest.mark.parametrize("seed", range(8))
def test_a_checkpoint_does_not_name_a_position_that_the_journal_failed_to_take(seed: int) -> None:
    loop = VirtualLoop(Random(seed))
    try:
        loop.run_until_complete(_fail_in_a_checkpoint(Random(seed)))
    finally:
        loop.close()


async def _fail_in_a_checkpoint(dice: Random) -> None:
    ram, store = RamDisk(), MemoryStore()
    disk, settings = FaultyDisk(ram), Settings(memory_limit=1 << 30, segment_size=1 << 16)
    node = VirtualNode(settings, disk, store, None, dice)
    node.shard.handle(Enqueue(b"q", [NewJob(b"kept")]))
    await node.shard.settled()
    disk.fail_sync(of=".segment")
    node.checkpointer.ask()
    while not node.checkpointer.running:  # a commit waits while each turn brings more: the checkpoint appends first
        node.shard.handle(Enqueue(b"q", [NewJob(b"lost")]))
        await asyncio.sleep(0)
    await asyncio.sleep(10)
    assert isinstance(node.shard.stopped, ShardStopped)
    meta = stored_meta(store)
    assert meta is None or meta.position < 2
    await node.kill()

    after = ram.lose_process()
    node = VirtualNode(settings, FaultyDisk(after), store, None, dice)
    assert [node.machine.payload(*found) for found in _jobs(node)] == [b"kept"]
    await node.close()


def _jobs(node: VirtualNode) -> list[tuple[QueuePartition, Job]]:
    return [(partition, job) for partition in node.machine.names[b"q"].partitions for job in partition.jobs.values()]
