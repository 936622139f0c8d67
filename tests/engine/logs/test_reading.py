"""Reading from a cursor on."""

from __future__ import annotations

import pytest

from esker.engine import limits
from esker.engine.commands import Append, DropTopic, NewRecord, Read
from esker.engine.replies import Records
from esker.errors import Code
from tests.engine.logs.rig import LogRig, T
from tests.engine.rig import expect


def test_a_cursor_is_the_last_seq_that_is_not_wanted() -> None:
    rig = LogRig()
    rig.write_many(5)
    assert rig.seqs(0) == [1, 2, 3, 4, 5]
    assert rig.seqs(3) == [4, 5]
    assert rig.seqs(5) == []


def test_reading_a_missing_topic_is_refused_and_makes_nothing() -> None:
    rig = LogRig()
    refusal = rig.refused(Read(b"new"))
    assert (refusal.code, refusal.detail) == (Code.TOPIC_NOT_FOUND, {"topic": b"new"})
    assert b"new" not in rig.world.machine.names


@pytest.mark.parametrize("limit", [1, 3, 256, 257, 1000])
def test_reading_on_from_next_from_seq_brings_every_record_once(limit: int) -> None:
    rig = LogRig()
    for _ in range(7):
        rig.write_many(100)
    seen: list[int] = []
    position = 0
    while position < 700:
        reply = rig.read(position, limit)
        assert 0 < len(reply.records) <= limit
        seen += [record.seq for record in reply.records]
        position = reply.next_from_seq
    assert seen == list(range(1, 701))


def test_a_reply_has_at_most_1000_records() -> None:
    rig = LogRig()
    rig.write_many(1500)
    reply = rig.read(0, 5000)
    assert (len(reply.records), reply.next_from_seq) == (limits.READ_RECORDS_MAX, 1000)


def test_a_reply_is_bounded_in_bytes_but_one_record_always_fits() -> None:
    rig = LogRig()
    rig.write(b"1" * 50, b"2" * 50, b"3" * 51, b"4")
    reply = expect(Records, rig.do(Read(T, 0, 10, max_bytes=100)))
    assert ([record.seq for record in reply.records], reply.next_from_seq) == ([1, 2], 2)
    reply = expect(Records, rig.do(Read(T, 2, 10, max_bytes=1)))
    assert ([record.seq for record in reply.records], reply.next_from_seq) == ([3], 3)


def test_records_of_the_readers_own_nodes_are_left_out_silently_and_the_cursor_passes_them() -> None:
    rig = LogRig()
    rig.write(b"1", node=b"a")
    rig.write(b"2", node=b"b")
    rig.write(b"3")
    rig.write(b"4", node=b"a")
    reply = rig.read(nodes=(b"a",))
    assert [record.seq for record in reply.records] == [2, 3]
    assert (reply.next_from_seq, reply.tombstone) == (4, None)
    assert [record.seq for record in rig.read(nodes=(b"a", b"b")).records] == [3]


def test_nodes_match_as_a_whole_and_a_record_without_one_always_passes() -> None:
    rig = LogRig()
    rig.write(b"1", node=b"ab")
    rig.write(b"2")
    assert len(rig.read(nodes=(b"a", b"")).records) == 2


def test_a_topic_can_ask_for_echoes() -> None:
    rig = LogRig(dedupe_node=False)
    rig.write(b"1", node=b"a")
    assert len(rig.read(nodes=(b"a",)).records) == 1


def test_a_reader_whose_node_wrote_nearly_everything_gets_its_turn_to_end() -> None:
    rig = LogRig()
    for _ in range(3):
        rig.write(*[b"1"] * 10_000, node=b"a")
    rig.write(b"2")
    reply = rig.read(nodes=(b"a",))
    assert (reply.records, reply.scanned, reply.next_from_seq) == ([], limits.READ_LOOK_MAX, limits.READ_LOOK_MAX)
    assert [record.seq for record in rig.read(reply.next_from_seq, nodes=(b"a",)).records] == [30_001]


def test_reading_counts_as_consuming() -> None:
    rig = LogRig()
    assert rig.state().last_read_ms == 0
    rig.read()
    assert rig.state().last_read_ms == rig.now


def test_cold_blocks_are_read_back_from_the_store() -> None:
    rig = LogRig()
    rig.do(Append(T, [NewRecord(b"%d" % number, b"t", b"n", b"{}") for number in range(1000)]))
    rig.now += 1
    rig.do(Append(T, [NewRecord(b"last")]))
    hot = rig.read(0), rig.read(990)
    rig.checkpoint(cool=True)
    assert rig.log.hot_bytes == 0
    assert (rig.read(0), rig.read(990)) == hot


def test_a_cold_tail_is_fetched_before_it_grows() -> None:
    rig = LogRig()
    rig.write(b"1", b"2")
    rig.checkpoint(cool=True)
    rig.write(b"3")
    assert [block.count for block in rig.log.blocks] == [3]
    rig.checkpoint(cool=True)
    assert [record.data for record in rig.read().records] == [b"1", b"2", b"3"]
    rig.crash()
    assert [record.data for record in rig.read().records] == [b"1", b"2", b"3"]


def test_watchers_hear_of_records_and_of_topics_that_come_and_go() -> None:
    rig = LogRig()
    machine = rig.world.machine
    machine.watched_topics = {T, b"new"}
    rig.write(b"1")
    rig.write(b"1", topic=b"unwatched")
    assert machine.changed == {T}
    machine.changed.clear()
    rig.write(b"1", topic=b"new")
    assert machine.changed == {b"new"}
    machine.changed.clear()
    rig.do(DropTopic(T))
    rig.do(DropTopic(b"unwatched"))
    assert machine.changed == {T}


def test_a_record_that_is_too_large_hides_none_behind_a_deleted_one() -> None:
    """Each page has one record, since even one is over the limit; what was deleted between them ends no block."""
    rig = LogRig()
    for place in range(6):
        rig.write(b"12345", tag=b"x" if place % 2 else b"")
    rig.delete(tag=b"x")
    seen: list[int] = []
    after = 0
    for _ in range(6):
        page = expect(Records, rig.do(Read(T, after, 10, 1)))
        seen += [record.seq for record in page.records]
        after = page.next_from_seq
    assert seen == [1, 3, 5]
