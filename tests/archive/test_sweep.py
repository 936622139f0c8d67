"""The first look at an archive removes what a crash left behind, and no file that a log could still ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from esker.engine import limits
from esker.engine.commands import Append, DeleteRecords, NewRecord, PutTopic, Read
from esker.engine.config import Durability, TopicConfig, TopicType
from esker.engine.replies import Deleted, Records
from esker.errors import ArchiveError
from esker.node.settings import Settings
from esker.testing.ram_disk import RamDisk
from esker.testing.virtual_loop import VirtualLoop
from esker.testing.virtual_node import VirtualNode
from tests.engine.rig import expect
from tests.properties.world import PrefixStore
from tests.wholenode.adapters import MemoryArchive

SETTINGS = Settings(
    memory_limit=1 << 30, segment_size=1 << 16, sync_interval_ms=3_600_000, checkpoint_interval_s=3600,
    archive_hot_blocks=1, archive_after_s=0,
)  # fmt: skip


class AwayArchive(MemoryArchive):
    away = False

    def names(self, prefix: str) -> Iterator[str]:
        if self.away:
            raise ArchiveError("out of reach")
        return super().names(prefix)


class Nothing(Random):
    """Of what was not synced, nothing is kept."""

    def randint(self, a: int, b: int) -> int:
        return a


@pytest.mark.parametrize("at_once", [False, True])
def test_a_file_stays_while_what_released_it_may_be_lost(monkeypatch: pytest.MonkeyPatch, at_once: bool) -> None:
    monkeypatch.setattr(limits, "BLOCK_RECORDS_MAX", 4)
    loop = VirtualLoop(Random(1))
    try:
        loop.run_until_complete(_delete_before_the_first_look(at_once))
    finally:
        loop.close()


async def _delete_before_the_first_look(at_once: bool) -> None:
    """`at_once`: in the turn of the start. Else while the archive is out of reach."""
    ram, store, archive, dice = RamDisk(), PrefixStore(), AwayArchive(), Random(1)
    node = VirtualNode(SETTINGS, ram, store, archive, dice)
    node.shard.handle(PutTopic(b"t", TopicConfig(type=TopicType.LOG, durability=Durability.DISK)))
    node.shard.handle(Append(b"t", [NewRecord(b"%d" % seq) for seq in range(1, 21)], create=False))
    node.checkpointer.ask()
    await asyncio.sleep(5)
    assert archive.puts > 0
    await node.close()

    archive.away = not at_once
    node = VirtualNode(SETTINGS, ram, store, archive, dice)
    if not at_once:
        await asyncio.sleep(1)
    assert expect(Deleted, node.shard.handle(DeleteRecords(b"t", before_seq=17))).deleted == 16
    archive.away = False
    await asyncio.sleep(60)  # it is tried again

    after = ram.lose_power(Nothing(), in_order=True)  # the delete was not synced: nobody may rely on it
    await node.kill()
    store.crash_keeping(0)
    node = VirtualNode(SETTINGS, after, store, archive, dice)
    found = expect(Records, await node.read(Read(b"t")))
    assert [record.data for record in found.records] == [b"%d" % seq for seq in range(1, 21)]
    await node.close()
