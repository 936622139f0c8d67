"""What a log lets go of, and what its readers are told."""

from __future__ import annotations

import pytest

from esker.engine.commands import Append, NewRecord
from esker.engine.config import Discard
from esker.engine.replies import Tombstone
from esker.errors import Code
from tests.engine.logs.rig import LogRig, T
from tests.engine.rig import START_MS


def facts(rig: LogRig) -> tuple[int, int, int, int]:
    state = rig.state()
    return state.head_seq, state.earliest_seq, state.count, state.bytes


def test_nothing_is_lost_by_default() -> None:
    rig = LogRig()
    rig.write_many(1000)
    rig.pass_ms(10**10)
    assert facts(rig) == (1000, 1, 1000, 1000)


def test_an_empty_log_begins_behind_its_head() -> None:
    rig = LogRig()
    assert facts(rig) == (0, 1, 0, 0)
    rig.write_many(3)
    rig.delete(before=4)
    assert facts(rig) == (3, 4, 0, 0)


@pytest.mark.parametrize("count", [1, 5, 10, 11, 300])
def test_a_cap_of_records_is_exact_to_the_record(count: int) -> None:
    rig = LogRig(cap_records=10)
    for _ in range(count):
        rig.write(b"1")
    assert facts(rig) == (count, max(1, count - 9), min(count, 10), min(count, 10))


def test_a_cap_of_bytes_counts_data_and_meta() -> None:
    rig = LogRig(cap_bytes=20)
    rig.do(Append(T, [NewRecord(b"1" * 8, meta=b"{}")] * 3))
    assert facts(rig) == (3, 2, 2, 20)
    rig.write(b"1")
    assert facts(rig) == (4, 3, 2, 11)


def test_whichever_cap_is_hit_first_counts() -> None:
    rig = LogRig(cap_records=3, cap_bytes=10)
    rig.write(b"1", b"2", b"3", b"4")
    assert rig.seqs() == [2, 3, 4]
    rig.write(b"1" * 9)
    assert rig.seqs() == [4, 5]


def test_a_write_larger_than_the_cap_keeps_its_own_end() -> None:
    rig = LogRig(cap_records=3)
    assert rig.write_many(700).last_seq == 700
    assert rig.seqs() == [698, 699, 700]


def test_a_record_larger_than_the_cap_of_bytes_goes_at_once() -> None:
    rig = LogRig(cap_bytes=5)
    rig.write(b"1", b"2" * 6)
    assert facts(rig) == (2, 3, 0, 0)
    assert rig.read().tombstone == Tombstone(1, 2, "cap", 2, 3, 2)


def test_deleted_records_do_not_count_towards_the_cap() -> None:
    rig = LogRig(cap_records=3)
    rig.write(b"1", b"2", b"3")
    rig.delete(before=3)
    rig.write(b"4", b"5")
    assert rig.seqs() == [3, 4, 5]
    assert rig.read(0).tombstone is None


def test_a_log_that_refuses_says_when_it_is_full_and_appends_nothing() -> None:
    rig = LogRig(cap_records=3, discard=Discard.REJECT)
    rig.write(b"1", b"2")
    refusal = rig.refused(Append(T, [NewRecord(b"3"), NewRecord(b"4")]))
    assert refusal.code == Code.TOPIC_FULL
    assert refusal.detail == {"cap_records": 3, "cap_bytes": 0, "head_seq": 2, "earliest_seq": 1}
    assert refusal.retryable
    assert rig.write(b"3").last_seq == 3
    rig.delete(before=3)
    assert rig.write(b"4", b"5").last_seq == 5


def test_a_log_that_refuses_counts_bytes_too() -> None:
    rig = LogRig(cap_bytes=10, discard=Discard.REJECT)
    rig.write(b"1" * 8)
    assert rig.code(Append(T, [NewRecord(b"123")])) == Code.TOPIC_FULL
    rig.write(b"12")


@pytest.mark.parametrize("cap", [{"cap_records": 2}, {"cap_bytes": 2}])
def test_a_write_larger_than_the_whole_cap_can_never_succeed(cap: dict[str, int]) -> None:
    rig = LogRig(discard=Discard.REJECT, **cap)
    refusal = rig.refused(Append(T, [NewRecord(b"1")] * 3))
    assert refusal.code == Code.RECORD_TOO_LARGE
    assert not refusal.retryable


def test_a_write_larger_than_the_whole_cap_does_not_make_its_topic() -> None:
    rig = LogRig()
    config = rig.put(b"other", cap_records=2, discard=Discard.REJECT).config
    assert rig.code(Append(b"new", [NewRecord(b"1")] * 3, config=config)) == Code.RECORD_TOO_LARGE
    assert b"new" not in rig.world.machine.names


def test_expired_records_make_room_in_a_log_that_refuses() -> None:
    rig = LogRig(cap_records=1, ttl_ms=100, discard=Discard.REJECT)
    rig.write(b"1")
    rig.now += 101
    assert rig.write(b"2").last_seq == 2


def test_a_record_expires_when_it_is_older_than_the_ttl_not_when_it_is_as_old() -> None:
    rig = LogRig(ttl_ms=100)
    rig.write(b"12", b"3")
    rig.now += 100
    assert facts(rig) == (2, 1, 2, 3)
    rig.now += 1
    assert facts(rig) == (2, 3, 0, 0)


def test_expiry_is_seen_by_readers_at_once_however_the_records_lie() -> None:
    rig = LogRig(ttl_ms=1000)
    for _ in range(600):
        rig.write(b"1")
        rig.now += 1
    # Record n came at n - 1; now is 600.
    rig.now += 700
    assert rig.seqs() == list(range(301, 601))
    assert rig.read().tombstone == Tombstone(1, 300, "ttl", 300, 301, 600)


def test_expired_records_are_reclaimed_without_any_reader() -> None:
    rig = LogRig(ttl_ms=1000)
    rig.write_many(600)
    rig.pass_ms(1001)
    rig.pass_ms(1000)
    assert rig.log.blocks == []
    assert rig.world.machine.wakes == []


def test_ticks_of_a_log_that_is_written_to_come_once_a_second_at_most() -> None:
    rig = LogRig(ttl_ms=10)
    for _ in range(400):
        rig.write(b"1")
        rig.pass_ms(1)
    assert len(rig.world.machine.wakes) < 10


def test_a_tombstone_is_told_exactly_when_living_records_were_lost_behind_the_cursor() -> None:
    rig = LogRig(cap_records=5)
    rig.write_many(12)
    for after in range(13):
        tombstone = rig.read(after).tombstone
        assert (tombstone is not None) == (after + 1 < 8)
        if tombstone is not None:
            assert tombstone == Tombstone(after + 1, 7, "cap", 7 - after, 8, 12)


def test_records_resume_behind_a_tombstone_in_the_same_reply() -> None:
    rig = LogRig(cap_records=2)
    rig.write_many(5)
    reply = rig.read(1)
    assert [record.seq for record in reply.records] == [4, 5]
    assert (reply.next_from_seq, reply.earliest_seq, reply.head_seq) == (5, 4, 5)


def test_deleting_moves_the_first_record_and_never_the_floor() -> None:
    rig = LogRig()
    rig.write_many(10)
    rig.delete(before=6)
    reply = rig.read(0)
    assert reply.tombstone is None
    assert (reply.earliest_seq, rig.log.evict_floor(rig.now)) == (6, 1)


def test_evicting_what_was_deleted_already_does_not_move_the_floor() -> None:
    rig = LogRig(ttl_ms=100)
    rig.write_many(5)
    rig.delete(before=4)
    rig.delete(before=6)
    rig.now += 101
    assert rig.read(0).tombstone is None
    assert rig.log.evict_floor(rig.now) == 1


def test_the_floor_stops_at_the_last_living_record_that_went() -> None:
    rig = LogRig(ttl_ms=100)
    rig.write(b"1", b"2", b"3")
    rig.write(b"4", b"5", tag=b"x")
    rig.delete(tag=b"x")
    rig.now += 101
    assert rig.read(3).tombstone is None
    assert rig.read(2).tombstone == Tombstone(3, 5, "ttl", 3, 6, 5)


def test_a_gap_that_is_partly_deleted_reaches_to_the_first_living_record() -> None:
    rig = LogRig(cap_records=6)
    rig.write_many(8)  # 1 and 2 are evicted
    rig.delete(before=5)
    assert rig.read(0).tombstone == Tombstone(1, 4, "cap", 4, 5, 8)
    assert rig.read(2).tombstone is None
    assert rig.seqs(2) == [5, 6, 7, 8]


def test_the_reason_is_mixed_when_both_floors_lie_behind_the_cursor() -> None:
    rig = LogRig(cap_records=4, ttl_ms=100)
    rig.write_many(6)  # 1 and 2 by the cap
    rig.now += 101
    rig.write(b"7")
    tombstones = [rig.read(after).tombstone for after in range(8)]
    reasons = [None if tombstone is None else tombstone.reason for tombstone in tombstones]
    assert reasons == ["mixed", "mixed", "ttl", "ttl", "ttl", "ttl", None, None]


def test_a_cursor_from_the_future_is_told_that_the_topic_was_made_anew() -> None:
    rig = LogRig()
    rig.write_many(3)
    reply = rig.read(9)
    assert reply.tombstone == Tombstone(1, 3, "recreated", 3, 1, 3)
    assert [record.seq for record in reply.records] == [1, 2, 3]
    assert rig.read(3).tombstone is None


def test_a_cursor_from_the_future_of_an_empty_log() -> None:
    rig = LogRig()
    reply = rig.read(9)
    assert reply.tombstone == Tombstone(1, 0, "recreated", 0, 1, 0)
    assert (reply.records, reply.next_from_seq) == ([], 0)


def test_tightened_caps_apply_at_once_and_loosened_ones_bring_nothing_back() -> None:
    rig = LogRig()
    rig.write_many(10)
    rig.put(cap_records=4)
    assert rig.seqs() == [7, 8, 9, 10]
    rig.put()
    assert rig.seqs() == [7, 8, 9, 10]
    rig.now += 50
    rig.put(ttl_ms=10)
    assert rig.seqs() == []
    assert rig.read(0).tombstone == Tombstone(1, 10, "mixed", 10, 11, 10)


def test_a_longer_ttl_brings_nothing_back_that_was_too_old() -> None:
    rig = LogRig(ttl_ms=10)
    rig.write(b"1")
    rig.now += 11
    rig.put(ttl_ms=1000)
    assert rig.seqs() == []


def test_a_ttl_that_comes_later_counts_from_when_records_came() -> None:
    rig = LogRig()
    rig.write(b"1")
    rig.now += 60
    rig.put(ttl_ms=100)
    rig.pass_ms(41)
    assert rig.state().count == 0
    assert rig.now == START_MS + 101


@pytest.mark.parametrize("saved", [True, False])
def test_floors_survive_a_crash(saved: bool) -> None:
    rig = LogRig(cap_records=4, ttl_ms=100)
    rig.write_many(6)
    rig.now += 101
    rig.read()
    rig.write_many(2)
    if saved:
        rig.checkpoint()
    rig.crash()
    assert rig.read(0).tombstone == Tombstone(1, 6, "mixed", 6, 7, 8)
    assert rig.read(2).tombstone == Tombstone(3, 6, "ttl", 4, 7, 8)
    assert rig.seqs() == [7, 8]


def test_what_was_evicted_leaves_the_store() -> None:
    rig = LogRig(cap_records=10)
    rig.write_many(2000)
    rig.checkpoint()
    rig.write_many(2000)
    rig.checkpoint()
    rig.checkpoint()
    kept = [key for key, _ in rig.world.store.scan(b"x", b"y")]
    assert len(kept) == len(rig.log.blocks) == 1
    assert len(list(rig.world.store.scan(b"r", b"s"))) == 1


def test_a_batch_with_tags_that_crosses_a_block_leaves_the_next_block_whole() -> None:
    """The second block has no tag, so it keeps no sizes of its own: not those of some of its records either."""
    rig = LogRig(cap_records=400)
    batch = [NewRecord(b"1", b"x" if place == 0 else b"") for place in range(300)]
    rig.do(Append(T, batch))
    for _ in range(500):
        rig.write(b"1")
    assert facts(rig) == (800, 401, 400, 400)
