"""Blocks end at the same seqs whether a log was written to or recovered: files of the archive end where blocks do."""

from __future__ import annotations

from random import Random

import pytest

from esker.engine import limits
from esker.engine.commands import Append, ArchiveRecords, DeleteRecords, NewRecord, PutTopic, Read
from esker.engine.config import Durability, TopicConfig, TopicType
from esker.engine.logs.partition import LogPartition
from esker.engine.replies import Records, TopicPut
from tests.engine.logs.audit import audit_logs
from tests.engine.rig import START_MS, expect
from tests.properties.world import World

T = b"t"


class Cooling(Random):
    """Lets everything that may go leave memory."""

    def random(self) -> float:
        return 0.0


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(limits, "BLOCK_RECORDS_MAX", 4)
    world = World(None)
    expect(TopicPut, world.do(PutTopic(T, TopicConfig(type=TopicType.LOG)), START_MS))
    return world


class Warm(Random):
    """Lets nothing leave memory."""

    def random(self) -> float:
        return 1.0


def append(world: World, *seqs: int) -> None:
    for seq in seqs:
        world.do(Append(T, [NewRecord(b"%d" % seq)], create=False), START_MS)


def log_of(world: World) -> LogPartition:
    log = world.machine.names[T].log
    assert log is not None
    return log


def layout(world: World) -> list[tuple[int, int, int]]:
    return [(block.first_seq, block.count, block.gone) for block in log_of(world).blocks]


def checkpoint(world: World, cooling: Random | None = None) -> None:
    world.begin_checkpoint()
    world.finish_checkpoint(cooling or Cooling())


def cut_short(world: World) -> None:
    """A checkpoint that wrote all of its slices, and not its position."""
    world.begin_checkpoint()
    while world.make_slice():
        pass
    world.write_slices(Cooling())


def crash(world: World) -> None:
    world.sync()
    world.crash(world.journal.last_position, 1000)


def tagged(world: World, seq: int) -> None:
    world.do(Append(T, [NewRecord(b"%d" % seq, b"x")], create=False), START_MS)


def delete_tagged(world: World) -> None:
    world.do(DeleteRecords(T, tag=b"x"), START_MS)


def test_a_tail_that_was_deleted_before_more_came_is_not_written_on_by_a_recovery(world: World) -> None:
    append(world, 1, 2, 3, 4)
    tagged(world, 5)
    checkpoint(world)
    delete_tagged(world)
    append(world, 6, 7, 8, 9, 10)
    before = layout(world)
    cut_short(world)
    crash(world)
    assert layout(world) == before
    audit_logs(world.machine)


def test_a_tail_that_was_deleted_after_more_came_is_written_on_by_a_recovery(world: World) -> None:
    append(world, 1, 2, 3, 4)
    tagged(world, 5)
    checkpoint(world)
    tagged(world, 6)
    delete_tagged(world)
    append(world, 7, 8, 9, 10, 11)
    before = layout(world)
    cut_short(world)
    crash(world)
    assert layout(world) == before
    audit_logs(world.machine)


def test_a_tail_is_as_full_as_it_was_when_payloads_of_it_were_taken_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BLOCK_BYTES_MAX", 3)
    append(world, 1)
    tagged(world, 2)
    checkpoint(world, Warm())
    delete_tagged(world)
    checkpoint(world, Warm())
    checkpoint(world, Warm())
    append(world, 3)  # with it the block is full
    before = layout(world)
    cut_short(world)
    crash(world)
    assert layout(world) == before
    append(world, 4)
    assert [first for first, _, _ in layout(world)] == [1, 4]


def test_records_stay_in_the_store_until_all_of_their_block_is_in_the_archive(world: World) -> None:
    append(world, 1, 2, 3, 4)
    tagged(world, 5)
    checkpoint(world)
    delete_tagged(world)
    append(world, *range(6, 15))
    cut_short(world)
    world.do(ArchiveRecords(log_of(world).topic.number, 1, 9, "records/one.parquet"), START_MS)
    crash(world)
    checkpoint(world)
    checkpoint(world)
    checkpoint(world)
    reply = expect(Records, world.do(Read(T, 9), START_MS))
    assert [record.data for record in reply.records] == [b"%d" % seq for seq in range(10, 15)]


def test_blocks_of_a_first_checkpoint_that_was_cut_short_are_not_taken_for_others(world: World) -> None:
    ephemeral = TopicConfig(type=TopicType.LOG, durability=Durability.EPHEMERAL)
    expect(TopicPut, world.do(PutTopic(T, ephemeral), START_MS))
    append(world, 1)  # no event is written for it, so a crash loses it, and the blocks begin elsewhere
    expect(TopicPut, world.do(PutTopic(T, TopicConfig(type=TopicType.LOG)), START_MS))
    append(world, *range(2, 12))
    cut_short(world)
    crash(world)
    after = [(2, 4, 0), (6, 4, 0), (10, 2, 0)]
    assert layout(world) == after
    checkpoint(world)
    crash(world)
    assert layout(world) == after
    audit_logs(world.machine)
