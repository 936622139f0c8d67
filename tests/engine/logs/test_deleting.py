"""Deleting: permanent, at once, silent, and only what is there."""

from __future__ import annotations

import pytest

from esker.engine.commands import DeleteRecords
from esker.engine.replies import Deleted
from esker.errors import Code
from tests.engine.logs.rig import LogRig, T


def tagged() -> LogRig:
    """1 a, 2 ab, 3 b, 4 none, 5 a."""
    rig = LogRig()
    for tag in (b"a", b"ab", b"b", b"", b"a"):
        rig.write(b"10", tag=tag)
    return rig


def test_a_delete_says_what_to_delete() -> None:
    assert tagged().code(DeleteRecords(T)) == Code.BAD_REQUEST


def test_a_delete_on_a_missing_topic_is_refused() -> None:
    assert tagged().code(DeleteRecords(b"new", 3)) == Code.TOPIC_NOT_FOUND


def test_below_a_seq_everything_goes() -> None:
    rig = tagged()
    assert rig.delete(before=4) == Deleted(3, 4, 5, 2, 4)
    assert rig.seqs() == [4, 5]


def test_a_tag_matches_as_a_whole() -> None:
    rig = tagged()
    assert rig.delete(tag=b"a") == Deleted(2, 2, 5, 3, 6)
    assert rig.seqs() == [2, 3, 4]


def test_a_prefix_matches_every_tag_that_begins_so() -> None:
    rig = tagged()
    assert rig.delete(tag=b"a", prefix=True).deleted == 3
    assert rig.seqs() == [3, 4]


def test_a_record_without_a_tag_never_matches() -> None:
    rig = tagged()
    assert rig.delete(tag=b"").deleted == 0
    assert rig.delete(tag=b"", prefix=True).deleted == 4
    assert rig.seqs() == [4]


def test_seq_and_tag_must_both_match() -> None:
    rig = tagged()
    assert rig.delete(before=5, tag=b"a").deleted == 1
    assert rig.seqs() == [2, 3, 4, 5]


def test_deleting_again_deletes_nothing() -> None:
    rig = tagged()
    rig.delete(tag=b"a")
    assert rig.delete(tag=b"a").deleted == 0
    rig.delete(before=4)
    assert rig.delete(before=4).deleted == 0


def test_what_comes_later_is_not_deleted() -> None:
    rig = tagged()
    rig.delete(tag=b"a")
    rig.delete(before=1000)
    rig.write(b"1", tag=b"a")
    assert rig.seqs() == [6]


def test_a_delete_is_silent_wherever_the_cursor_is() -> None:
    rig = tagged()
    rig.delete(before=3)
    rig.delete(tag=b"a")
    for after in range(6):
        reply = rig.read(after)
        assert reply.tombstone is None
        assert [record.seq for record in reply.records] == [seq for seq in (3, 4) if seq > after]
        assert reply.next_from_seq == 5


@pytest.mark.parametrize("saved", [(), ("before",), ("after",), ("before", "after")])
@pytest.mark.parametrize("cool", [True, False])
def test_a_delete_survives_a_crash(saved: tuple[str, ...], cool: bool) -> None:
    rig = LogRig()
    for number in range(600):
        rig.write(b"1", tag=b"even" if number % 2 else b"odd")
    if "before" in saved:
        rig.checkpoint(cool)
    rig.delete(before=100)
    rig.delete(tag=b"even")
    if "after" in saved:
        rig.checkpoint(cool)
    rig.crash()
    assert rig.seqs() == list(range(101, 601, 2))
    assert (rig.state().count, rig.state().bytes) == (250, 250)
    assert rig.delete(tag=b"o", prefix=True).deleted == 250
    rig.restart()
    assert rig.state().count == 0


def test_a_whole_log_deleted_leaves_the_store() -> None:
    rig = LogRig()
    rig.write(*[b"1"] * 1000, tag=b"x")
    rig.checkpoint()
    rig.write(b"2")
    rig.delete(tag=b"x")
    rig.checkpoint()
    rig.checkpoint()
    for kind in (b"x", b"r", b"g"):
        assert [int.from_bytes(key[-8:], "big") for key, _ in rig.world.store.scan(kind, kind + b"\xff")] == [769]


def test_a_block_deleted_from_the_middle_leaves_memory_and_the_store() -> None:
    rig = LogRig()
    rig.write(*[b"1"] * 256)
    rig.write(*[b"1"] * 256, tag=b"x")
    rig.write(*[b"1"] * 256)
    rig.checkpoint()
    rig.delete(tag=b"x")
    assert len(rig.log.blocks) == 2
    rig.checkpoint()
    rig.crash()
    assert len(rig.log.blocks) == 2
    rig.checkpoint()
    rig.checkpoint()
    assert len(list(rig.world.store.scan(b"r", b"s"))) == 2
    assert len(rig.seqs()) == 512


def test_payloads_of_deleted_records_leave_memory() -> None:
    rig = LogRig()
    rig.write(b"1" * 1000, b"2" * 1000, tag=b"x")
    rig.write(b"3")
    before = rig.log.hot_bytes
    rig.delete(tag=b"x")
    rig.checkpoint()
    rig.checkpoint()
    assert rig.log.hot_bytes == before - 2000
    assert rig.log.unsaved.rests is False


def test_the_tag_index_forgets_what_is_gone() -> None:
    rig = LogRig(cap_records=100)
    for _ in range(40):
        rig.write(*[b"1"] * 1000, tag=b"x")
    assert len(rig.log.tags) < 5000
    assert rig.delete(tag=b"x").deleted == 100
