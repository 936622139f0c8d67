"""What crashes and restarts leave of a log, by class and through changes of class."""

from __future__ import annotations

import pytest

from esker.engine import limits
from esker.engine.commands import (
    Ack,
    Append,
    CreateTopic,
    DropTopic,
    Enqueue,
    Lease,
    Length,
    NewJob,
    NewRecord,
    PutTopic,
)
from esker.engine.config import Durability, TopicConfig
from esker.engine.events import NodeStarted
from esker.engine.replies import Added, Count, Leased, Tombstone, TopicPut, TopicView
from tests.engine.logs.rig import LogRig, T
from tests.engine.rig import expect


@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK, Durability.MEMORY])
@pytest.mark.parametrize("saved", [True, False])
def test_what_the_disk_has_survives_a_crash(durability: Durability, saved: bool) -> None:
    rig = LogRig(durability=durability)
    rig.write_many(300)
    before = rig.read(), rig.state()
    if saved:
        rig.checkpoint()
    rig.crash()
    after = rig.read(), rig.state(touch=False)
    assert after[0] == before[0]
    assert (after[1].head_seq, after[1].count, after[1].bytes) == (300, 300, 300)
    assert after[1].last_write_ms == before[1].last_write_ms


def test_a_synced_log_goes_on_where_it_was() -> None:
    rig = LogRig(durability=Durability.FSYNC)
    rig.write_many(3)
    rig.crash()
    assert rig.write(b"4").first_seq == 4


def test_a_seq_that_a_crash_took_is_never_given_out_again() -> None:
    rig = LogRig(durability=Durability.DISK)
    rig.write(b"1")
    rig.world.sync()
    lost = rig.write(b"2").first_seq
    rig.crash_losing(1)
    assert rig.state().head_seq == 1
    first = rig.write(b"3").first_seq
    assert first > lost


def test_readers_that_pass_a_hole_of_a_crash_are_told_once_something_lies_behind_it() -> None:
    rig = LogRig(durability=Durability.DISK)
    rig.write(b"1")
    rig.crash()
    reply = rig.read(0)
    assert ([record.seq for record in reply.records], reply.tombstone, reply.next_from_seq) == ([1], None, 1)
    assert rig.read(1).tombstone is None
    first = rig.write(b"2").first_seq
    assert first == 2 + limits.SEQ_RESERVE
    reply = rig.read(1)
    assert reply.tombstone == Tombstone(2, first - 1, "lost", first - 2, first, first)
    assert [record.seq for record in reply.records] == [first]
    # Behind some records it is told by the next reply.
    reply = rig.read(0)
    assert ([record.seq for record in reply.records], reply.tombstone, reply.next_from_seq) == ([1], None, 1)
    assert rig.read(first - 1).tombstone is None


@pytest.mark.parametrize("saved", [True, False])
def test_a_hole_is_still_known_after_the_next_crash(saved: bool) -> None:
    rig = LogRig(durability=Durability.DISK)
    rig.write(b"1")
    rig.crash()
    first = rig.write(b"2").first_seq
    if saved:
        rig.checkpoint()
    rig.crash()
    tombstone = rig.read(1).tombstone
    assert tombstone is not None
    assert (tombstone.gap_from, tombstone.gap_to, tombstone.reason) == (2, first - 1, "lost")


def test_a_cursor_behind_what_a_crash_took_starts_over() -> None:
    rig = LogRig(durability=Durability.DISK)
    rig.write(b"1")
    rig.world.sync()
    rig.write(b"2")
    rig.crash_losing(1)
    tombstone = rig.read(2).tombstone
    assert tombstone is not None
    assert tombstone.reason == "recreated"


def test_an_orderly_restart_leaves_no_hole() -> None:
    rig = LogRig(durability=Durability.DISK)
    rig.write(b"1")
    rig.restart()
    assert rig.write(b"2").first_seq == 2
    assert rig.seqs() == [1, 2]
    assert rig.read(1).tombstone is None


def test_an_ephemeral_log_is_not_journalled_and_a_restart_forgets_it_but_for_its_seqs() -> None:
    rig = LogRig(durability=Durability.EPHEMERAL)
    rig.write(b"1", key=b"k")
    position = rig.world.journal.last_position
    rig.write(b"2", b"3")
    assert rig.world.journal.last_position == position
    rig.restart()
    state = rig.state()
    assert (state.head_seq, state.earliest_seq, state.count) == (3, 4, 0)
    assert rig.read(1).tombstone == Tombstone(2, 3, "lost", 2, 4, 3)
    assert rig.read(3).tombstone is None
    assert rig.write(b"4", key=b"k").first_seq == 4
    assert rig.seqs(3) == [4]


def test_an_ephemeral_log_never_reuses_a_seq_after_a_crash() -> None:
    rig = LogRig(durability=Durability.EPHEMERAL)
    rig.write_many(3)
    rig.checkpoint()
    rig.write_many(4)
    rig.crash()
    assert rig.state().head_seq == 3
    assert rig.write(b"1").first_seq > 7


def test_a_log_that_is_ephemeral_no_more_keeps_what_it_has_from_the_next_checkpoint_on() -> None:
    rig = LogRig(durability=Durability.EPHEMERAL)
    rig.write_many(300)
    rig.delete(before=100)
    rig.checkpoint()
    rig.put(durability=Durability.FSYNC)
    rig.write(b"2", key=b"k")
    rig.checkpoint()
    rig.crash()
    assert rig.seqs(99) == list(range(100, 302))
    assert rig.write(b"2", key=b"k").deduped


def test_a_log_that_is_ephemeral_no_more_and_crashes_first_keeps_what_came_since() -> None:
    rig = LogRig(durability=Durability.EPHEMERAL)
    rig.write_many(3)
    rig.put(durability=Durability.FSYNC)
    rig.write(b"2")
    rig.crash()
    reply = rig.read(0)
    assert reply.tombstone is not None
    assert (reply.tombstone.gap_from, reply.tombstone.gap_to, reply.tombstone.reason) == (1, 3, "lost")
    assert [record.seq for record in reply.records] == [4]


@pytest.mark.parametrize("saved", [True, False])
def test_a_log_that_becomes_ephemeral_is_forgotten_by_a_restart(saved: bool) -> None:
    rig = LogRig(durability=Durability.FSYNC)
    rig.write_many(3)
    rig.checkpoint(cool=True)
    rig.put(durability=Durability.EPHEMERAL)
    rig.write(b"4")
    assert rig.seqs() == [1, 2, 3, 4]
    if saved:
        rig.checkpoint()
    rig.crash()
    assert rig.seqs() == []
    assert rig.write(b"5").first_seq > 4


def test_what_was_forgotten_does_not_come_back_with_the_class() -> None:
    rig = LogRig(durability=Durability.FSYNC)
    rig.write_many(3)
    rig.checkpoint()
    rig.put(durability=Durability.EPHEMERAL)
    rig.restart()
    rig.put(durability=Durability.FSYNC)
    rig.write(b"4")
    rig.restart()
    rig.restart()
    assert [record.data for record in rig.read(3).records] == [b"4"]
    assert rig.state().count == 1


def test_what_was_deleted_while_ephemeral_does_not_come_back_with_the_class() -> None:
    rig = LogRig(durability=Durability.FSYNC)
    rig.write_many(600, tag=b"x")
    rig.write(b"2")
    rig.checkpoint(cool=True)
    rig.put(durability=Durability.EPHEMERAL)
    rig.delete(tag=b"x")
    rig.checkpoint()
    rig.put(durability=Durability.FSYNC)
    rig.restart()
    assert rig.seqs() == [601]


def queue_rig(durability: Durability) -> LogRig:
    rig = LogRig()
    expect(TopicView, rig.do(CreateTopic(b"q", TopicConfig(durability=durability))))
    return rig


def set_class(rig: LogRig, durability: Durability) -> None:
    expect(TopicPut, rig.do(PutTopic(b"q", TopicConfig(durability=durability))))


def payloads(rig: LogRig) -> list[bytes]:
    return [each.payload for each in expect(Leased, rig.do(Lease(b"q", 100))).deliveries]


def test_a_queue_that_is_ephemeral_no_more_keeps_its_jobs_from_the_next_checkpoint_on() -> None:
    rig = queue_rig(Durability.EPHEMERAL)
    rig.do(Enqueue(b"q", [NewJob(b"a"), NewJob(b"b")]))
    rig.checkpoint()
    set_class(rig, Durability.FSYNC)
    rig.do(Enqueue(b"q", [NewJob(b"c")]))
    rig.checkpoint()
    rig.crash()
    assert payloads(rig) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("saved", [True, False])
def test_a_queue_that_becomes_ephemeral_is_forgotten_by_a_restart(saved: bool) -> None:
    rig = queue_rig(Durability.FSYNC)
    rig.do(Enqueue(b"q", [NewJob(b"a")]))
    rig.checkpoint(cool=True)
    set_class(rig, Durability.EPHEMERAL)
    if saved:
        rig.checkpoint()
    rig.crash()
    assert expect(Count, rig.do(Length(b"q"))).count == 0
    set_class(rig, Durability.FSYNC)
    rig.restart()
    assert expect(Count, rig.do(Length(b"q"))).count == 0


def test_a_job_acked_while_its_queue_was_ephemeral_does_not_come_back_with_the_class() -> None:
    rig = queue_rig(Durability.FSYNC)
    ids = expect(Added, rig.do(Enqueue(b"q", [NewJob(b"a"), NewJob(b"b")]))).ids
    rig.checkpoint(cool=True)
    set_class(rig, Durability.EPHEMERAL)
    rig.do(Ack([ids[0]]))
    rig.checkpoint()
    set_class(rig, Durability.FSYNC)
    rig.restart()
    assert payloads(rig) == [b"b"]


def test_a_checkpoint_cut_short_changes_nothing() -> None:
    rig = LogRig(durability=Durability.FSYNC)
    rig.write_many(100, tag=b"x")
    rig.checkpoint()
    rig.write_many(400, tag=b"y")
    rig.delete(tag=b"x")
    rig.world.begin_checkpoint()
    while rig.world.make_slice():
        pass
    rig.write_many(3)
    rig.world.write_slices(rig.world.machine.dice)
    rig.world.crash(rig.world.journal.last_position, 100)
    assert rig.seqs() == list(range(101, 504))
    rig.checkpoint()
    rig.crash()
    assert rig.seqs() == list(range(101, 504))
    assert rig.delete(tag=b"y").deleted == 400


def test_records_written_while_a_checkpoint_runs_are_not_lost() -> None:
    rig = LogRig(durability=Durability.FSYNC)
    rig.write_many(10)
    rig.world.begin_checkpoint()
    rig.write_many(300)
    rig.world.finish_checkpoint(rig.world.machine.dice)
    rig.crash()
    assert rig.do(Append(T, [NewRecord(b"1")])) is not None
    assert len(rig.seqs()) == 311


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("cut_short", [True, False])
def test_a_last_block_that_was_all_deleted_is_never_filled_again(saved: bool, cut_short: bool) -> None:
    rig = LogRig(durability=Durability.FSYNC)
    rig.write_many(256)
    rig.checkpoint()
    rig.write_many(10, tag=b"x")
    if saved:
        rig.checkpoint()
    rig.delete(tag=b"x")
    rig.checkpoint()
    rig.write_many(5, tag=b"y")
    if cut_short:
        rig.world.begin_checkpoint()
        while rig.world.make_slice():
            pass
        rig.world.write_slices(rig.world.machine.dice)
        rig.world.crash(rig.world.journal.last_position, 100)
    else:
        rig.crash()
    assert [block.first_seq for block in rig.log.blocks] == [1, 267]
    for _ in range(3):
        rig.checkpoint()
        rig.crash()
        assert rig.seqs() == [*range(1, 257), *range(267, 272)]
    assert rig.delete(tag=b"y").deleted == 5


def idle(rig: LogRig) -> None:
    for _ in range(2):  # the first look sees that seqs were given out, the second that none were since
        rig.pass_ms(limits.SEQ_RESERVE_IDLE_MS)


@pytest.mark.parametrize("durability", [Durability.DISK, Durability.MEMORY])
@pytest.mark.parametrize("saved", [True, False])
def test_a_crash_leaves_no_hole_in_a_log_that_was_idle(durability: Durability, saved: bool) -> None:
    rig = LogRig(durability=durability)
    rig.write_many(3)
    idle(rig)
    if saved:
        rig.checkpoint()
    rig.crash()
    assert rig.state().next_seq == 4
    assert rig.write(b"4").first_seq == 4
    assert rig.read().tombstone is None


def test_a_crash_that_takes_the_end_of_an_idle_log_still_gives_out_no_seq_twice() -> None:
    rig = LogRig(durability=Durability.DISK)
    rig.write(b"1")
    rig.world.sync()
    lost = rig.write(b"2").first_seq
    idle(rig)
    rig.crash_losing(2)  # the record, and the event that gave the reserve back
    assert rig.write(b"3").first_seq > lost


def test_a_log_that_is_written_to_keeps_its_reserve() -> None:
    rig = LogRig(durability=Durability.DISK)
    for number in range(5):
        rig.write(b"%d" % number)
        rig.pass_ms(limits.SEQ_RESERVE_IDLE_MS)
    assert rig.log.ceiling > rig.log.next_seq


def test_a_topic_that_was_made_again_is_not_taken_for_the_idle_one() -> None:
    rig = LogRig(durability=Durability.DISK)
    rig.write(b"1")
    rig.do(DropTopic(T))
    rig.put(durability=Durability.DISK)
    idle(rig)
    assert rig.write(b"1").first_seq == 1


def test_an_idle_ephemeral_log_goes_on_behind_the_last_seq_that_it_gave_out() -> None:
    rig = LogRig(durability=Durability.EPHEMERAL)
    rig.write_many(3)
    idle(rig)
    rig.crash()
    assert rig.write(b"4").first_seq == 4


def test_an_orderly_end_leaves_no_hole_even_if_its_checkpoint_fails() -> None:
    rig = LogRig(durability=Durability.DISK)
    rig.write(b"1")
    rig.world.machine.release_reserves()
    rig.world.append()
    rig.crash()
    assert rig.write(b"2").first_seq == 2


@pytest.mark.parametrize("saved", [True, False])
def test_what_a_restart_took_from_an_ephemeral_log_does_not_come_back_with_another_class(saved: bool) -> None:
    """The log was not ephemeral before, so its records are in the journal or in the store, and files may be removed."""
    rig = LogRig(durability=Durability.FSYNC)
    rig.write_many(3)
    if saved:
        rig.checkpoint()
    rig.put(durability=Durability.EPHEMERAL)
    rig.crash()
    assert rig.seqs() == []
    rig.world.machine.record(None, NodeStarted(rig.now), sync=False)  # as a node does with its first batch
    rig.put(durability=Durability.FSYNC)
    after = rig.write(b"4").first_seq
    rig.crash()
    assert rig.seqs() == [after]
