"""Topics larger than memory: which blocks leave it, and which stay."""

from __future__ import annotations

from sys import getsizeof

import pytest

from esker.engine import limits
from esker.engine.commands import Append, NewRecord
from esker.engine.logs.block import Block, Content
from esker.engine.logs.warmth import Warmth
from esker.errors import Code, InvariantBroken, Refusal
from esker.store import keys
from esker.store.cooling import cool
from tests.engine.logs.rig import LogRig, T


def save(rig: LogRig) -> None:
    """A checkpoint that cools nothing by itself."""
    rig.world.begin_checkpoint()
    assert rig.world.checkpoint is not None
    pieces = [*rig.world.checkpoint.slices(), rig.world.checkpoint.last()]
    rig.world.sync()
    for piece in pieces:
        rig.world.store.write(piece.puts, piece.deletes, piece.ranges)
        cool(rig.world.machine, piece, rig.world.machine.totals.hot_bytes)
    rig.world.store.persist()
    rig.world.journal.retire(rig.world.checkpoint.position)
    rig.world.checkpoint = None


def hot(rig: LogRig) -> list[int]:
    return [block.first_seq for block in rig.log.blocks if block.content is not None]


def test_the_blocks_saved_longest_ago_leave_memory_first() -> None:
    rig = LogRig()
    rig.write_many(256 * 3)
    save(rig)
    rig.write_many(256 * 2)
    save(rig)
    machine = rig.world.machine
    one_block = machine.totals.hot_bytes // 5
    machine.warmth.cool(machine.totals.hot_bytes)
    assert len(hot(rig)) == 5
    machine.warmth.cool(2 * one_block)
    assert hot(rig) == [256 * 3 + 1, 256 * 4 + 1]
    assert rig.seqs(1000) == list(range(1001, 256 * 5 + 1))
    assert rig.seqs() == list(range(1, 1001))


def test_a_block_that_a_checkpoint_has_captured_and_not_yet_written_stays_in_memory() -> None:
    """The checkpoint writes other topics first, and memory is short by then."""
    rig = LogRig()
    later = b"later"  # topics are written in the order in which they were made
    rig.write_many(1)
    rig.write(*[b"1"] * 100, topic=later)
    save(rig)
    rig.write_many(1)
    rig.write(*[b"2"] * 100, topic=later)
    rig.world.begin_checkpoint()
    assert rig.world.checkpoint is not None
    for piece in rig.world.checkpoint.slices():
        rig.world.store.write(piece.puts, piece.deletes, piece.ranges)
        cool(rig.world.machine, piece, 0)
        assert [record.data for record in rig.read(topic=later).records] == [b"1"] * 100 + [b"2"] * 100
    assert rig.world.machine.totals.hot_bytes == 0


def test_a_block_that_is_shorter_in_the_store_than_it_should_be_is_never_served() -> None:
    rig = LogRig()
    rig.write_many(100)
    save(rig)
    shorter = rig.world.store.get(keys.block_key(b"r", rig.log.topic.number, 0, 1))
    rig.write_many(1)
    save(rig)
    rig.world.machine.warmth.cool(0)
    assert shorter is not None
    rig.world.store.write([(keys.block_key(b"r", rig.log.topic.number, 0, 1), shorter)])
    with pytest.raises(InvariantBroken, match="has 100 of 101 records in the store"):
        rig.seqs()
    with pytest.raises(InvariantBroken, match="has 100 of 101 records in the store"):
        rig.write_many(1)


def test_what_no_checkpoint_has_saved_stays_in_memory() -> None:
    rig = LogRig()
    rig.write_many(300)
    save(rig)
    rig.write_many(1)
    rig.world.machine.warmth.cool(0)
    assert hot(rig) == [257]
    save(rig)
    rig.world.machine.warmth.cool(0)
    assert hot(rig) == []
    assert len(rig.seqs()) == 301


def test_a_cold_block_costs_little_memory() -> None:
    rig = LogRig()
    rig.write_many(256)
    rig.checkpoint(cool=True)
    (block,) = rig.log.blocks
    assert block.content is None
    assert getsizeof(block) + getsizeof(block.first_ts) + 8 < 220


def test_blocks_that_leave_otherwise_are_not_remembered_for_ever() -> None:
    rig = LogRig()
    warmth = Warmth()
    for number in range(10_000):
        block = Block(number, 0, Content([], [], []))
        warmth.saved(rig.log, block)
        block.content = None
    assert len(warmth._saved) <= 2048


def test_a_write_is_refused_when_memory_is_full_and_taken_again_when_it_is_not() -> None:
    rig = LogRig()
    machine = rig.world.machine
    machine.memory_limit = 100_000
    rig.write(b"1" * 100_000)
    assert rig.code(Append(T, [NewRecord(b"1")])) == Code.OUT_OF_MEMORY
    rig.checkpoint(cool=True)
    rig.write(b"1")


def test_a_write_is_refused_while_the_disk_is_full() -> None:
    rig = LogRig()
    rig.world.machine.refuse_new = Refusal(Code.DISK_FULL, "full")
    assert rig.code(Append(T, [NewRecord(b"1")])) == Code.DISK_FULL
    rig.delete(before=1)


def test_what_records_cost_in_memory_is_counted_and_given_back() -> None:
    rig = LogRig()
    totals = rig.world.machine.totals
    rig.write_many(10, size=50)
    assert totals.hot_bytes == rig.log.hot_bytes == 10 * (50 + limits.RECORD_MEMORY_BYTES)
    rig.delete(before=11)
    assert totals.hot_bytes == 0
