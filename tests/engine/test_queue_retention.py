"""What a queue loses to its caps and to time: never silently, never more than it must."""

from __future__ import annotations

import pytest

from esker.engine import events, limits
from esker.engine.commands import (
    Ack,
    Append,
    ConfigureTopic,
    CreateTopic,
    Details,
    Enqueue,
    NewJob,
    NewRecord,
    Read,
    ReplayDeadLetters,
    Tick,
    TopicState,
)  # fmt: skip
from esker.engine.config import Discard, TopicConfig
from esker.engine.ids import message_id, place
from esker.engine.queues import retention
from esker.engine.queues.clockwork import next_wake_ms
from esker.engine.replies import Added, Done, Records, TopicStatus, TopicView, Written
from esker.errors import Code
from tests.engine.audit import audit
from tests.engine.dump import dump
from tests.engine.rig import Q, Rig, expect


def write(rig: Rig, *data: bytes) -> Written:
    written = expect(Written, rig.do(Append(Q, [NewRecord(each) for each in data])))
    audit(rig.machine)
    assert dump(rig.replayed()) == dump(rig.machine)
    return written


def read(rig: Rig, after: int = 0) -> Records:
    reply = expect(Records, rig.do(Read(Q, after)))
    audit(rig.machine)
    return reply


def seqs(records: Records) -> list[int]:
    return [record.seq for record in records.records]


def gap(records: Records) -> tuple[int, int, str] | None:
    stone = records.tombstone
    if stone is None:
        return None
    assert stone.missed_estimate == stone.gap_to + 1 - stone.gap_from
    assert (stone.head_seq, stone.earliest_seq) == (records.head_seq, records.earliest_seq)
    return stone.gap_from, stone.gap_to, stone.reason


def status(rig: Rig) -> TopicStatus:
    return expect(TopicStatus, rig.do(TopicState(Q)))


# -- caps


def test_a_full_queue_drops_its_oldest_and_tells_readers() -> None:
    rig = Rig(TopicConfig(cap_records=3))
    write(rig, b"1", b"2")
    assert gap(read(rig)) is None
    written = write(rig, b"3", b"4", b"5")
    assert (written.first_seq, written.last_seq) == (3, 5)
    found = read(rig)
    assert (seqs(found), gap(found)) == ([3, 4, 5], (1, 2, "cap"))
    assert gap(read(rig, 1)) == (2, 2, "cap")
    assert gap(read(rig, 2)) is None
    assert (status(rig).count, status(rig).earliest_seq) == (3, 3)


def test_what_is_leased_goes_too_and_its_ack_is_skipped() -> None:
    rig = Rig(TopicConfig(cap_records=2, max_in_flight=1))
    write(rig, b"1", b"2")
    held = rig.lease(1)
    rig.machine.woken.clear()
    write(rig, b"3")
    assert Q in rig.machine.woken
    assert rig.ack(*held) == Done(0, [held[0].id])
    assert [each.payload for each in rig.lease(5)] == [b"2"]


def test_bytes_cap_a_queue_as_records_do() -> None:
    rig = Rig(TopicConfig(cap_bytes=10))
    write(rig, b"1" * 4, b"2" * 4)
    write(rig, b"3" * 7)
    assert (seqs(read(rig)), status(rig).bytes) == ([3], 7)
    write(rig, b"4" * 3)
    assert (seqs(read(rig)), status(rig).bytes) == ([3, 4], 10)


def test_a_write_larger_than_the_cap_keeps_its_own_latest() -> None:
    rig = Rig(TopicConfig(cap_records=2))
    write(rig, *(b"%d" % number for number in range(1, 6)))
    found = read(rig)
    assert (seqs(found), gap(found)) == ([4, 5], (1, 3, "cap"))


def test_nothing_fits_a_queue_smaller_than_one_job() -> None:
    rig = Rig(TopicConfig(cap_bytes=3))
    write(rig, b"1234")
    found = read(rig)
    assert (seqs(found), gap(found), found.earliest_seq) == ([], (1, 1, "cap"), 2)


def test_acked_jobs_make_room_and_leave_no_tombstone() -> None:
    rig = Rig(TopicConfig(cap_records=2))
    write(rig, b"1", b"2")
    rig.ack(*rig.lease(2))
    write(rig, b"3", b"4")
    assert (seqs(read(rig)), gap(read(rig))) == ([3, 4], None)


def test_a_gap_reaches_up_to_the_first_record_there_is() -> None:
    rig = Rig(TopicConfig(cap_records=3))
    write(rig, b"1", b"2", b"3", b"4")
    rig.ack(*rig.lease(1))
    assert gap(read(rig)) == (1, 2, "cap")
    assert gap(read(rig, 1)) is None


def test_jobs_of_the_redis_front_obey_the_caps() -> None:
    rig = Rig(TopicConfig(cap_records=2))
    rig.add_many(b"1", b"2", b"3")
    rig.add(b"urgent", -9)
    assert [each.payload for each in rig.lease(9)] == [b"urgent", b"3"]
    rig = Rig(TopicConfig(cap_records=2, discard=Discard.REJECT))
    rig.add_many(b"1", b"2")
    assert rig.code(Enqueue(Q, [NewJob(b"3")])) == Code.TOPIC_FULL


def test_the_oldest_of_all_partitions_goes_first() -> None:
    rig = Rig(TopicConfig(partitions=3, cap_records=4))
    for number in range(9):
        rig.now += 1
        rig.add(b"%d" % number)
        audit(rig.machine)
    assert sorted(each.payload for each in rig.lease(9)) == [b"5", b"6", b"7", b"8"]
    assert dump(rig.replayed()) == dump(rig.machine)


def test_a_queue_that_refuses_says_what_it_holds_and_changes_nothing() -> None:
    rig = Rig(TopicConfig(cap_records=3, cap_bytes=100, discard=Discard.REJECT))
    write(rig, b"1", b"2")
    rig.ack(*rig.lease(1))
    write(rig, b"3")
    before = dump(rig.machine)
    refusal = rig.refused(Append(Q, [NewRecord(b"4"), NewRecord(b"5")]))
    assert (refusal.code, refusal.retryable) == (Code.TOPIC_FULL, True)
    assert refusal.detail == {"cap_records": 3, "cap_bytes": 100, "head_seq": 3, "earliest_seq": 2}
    assert dump(rig.machine) == before
    assert write(rig, b"4").last_seq == 4


def test_a_write_that_can_never_fit_is_told_so_even_before_the_topic_is_made() -> None:
    config = TopicConfig(cap_records=2, cap_bytes=10, discard=Discard.REJECT)
    rig = Rig(config)
    for records in ([NewRecord(b"1")] * 3, [NewRecord(b"x" * 11)]):
        refusal = rig.refused(Append(Q, records))
        assert (refusal.code, refusal.retryable) == (Code.RECORD_TOO_LARGE, False)
        assert rig.code(Append(b"new", records, config=config)) == Code.RECORD_TOO_LARGE
    assert b"new" not in rig.machine.names


def test_leased_jobs_count_until_they_are_acked() -> None:
    rig = Rig(TopicConfig(cap_records=1, discard=Discard.REJECT))
    write(rig, b"1")
    held = rig.lease(1)
    assert rig.code(Append(Q, [NewRecord(b"2")])) == Code.TOPIC_FULL
    rig.ack(*held)
    write(rig, b"2")


def test_what_was_delivered_at_most_once_gives_way_first() -> None:
    for discard in Discard:
        rig = Rig(TopicConfig(cap_records=2, cap_bytes=8, discard=discard))
        rig.add(b"once", retry_ms=0)
        rig.add(b"keep")
        rig.lease(1)
        write(rig, b"new1")
        found = read(rig)
        assert ([record.data for record in found.records], gap(found)) == ([b"keep", b"new1"], None)


def test_a_known_job_needs_no_room() -> None:
    rig = Rig(TopicConfig(cap_records=1, discard=Discard.REJECT))
    first = rig.add(b"1", details=Details(key=b"k"))
    again = expect(Added, rig.do(Enqueue(Q, [NewJob(b"1", details=Details(key=b"k"))])))
    assert (list(again.ids), list(again.duplicates)) == ([first], [0])


@pytest.mark.parametrize("cap", [1, 700, 1999])
def test_a_tightened_cap_applies_at_once_whatever_it_costs(cap: int) -> None:
    rig = Rig(TopicConfig())
    for _ in range(2):
        write(rig, *[b"x"] * 1000)
    rig.lease(1990, holder=b"w")
    expect(TopicView, rig.do(ConfigureTopic(Q, TopicConfig(cap_records=cap))))
    audit(rig.machine)
    assert dump(rig.replayed()) == dump(rig.machine)
    shown = status(rig)
    assert (shown.count, shown.earliest_seq, shown.in_flight) == (cap, 2001 - cap, max(0, cap - 10))
    assert gap(read(rig)) == (1, 2000 - cap, "cap")


def test_many_jobs_go_in_few_events() -> None:
    rig = Rig(TopicConfig())
    for _ in range(3):
        write(rig, *[b"x"] * 1000)
    rig.do(ConfigureTopic(Q, TopicConfig(cap_records=10)))
    assert len(rig.last) == 3
    assert retention._ONE_BY_ONE < 2990


def test_a_replay_never_pushes_others_out_nor_comes_back_to_be_pushed_out() -> None:
    rig = Rig(TopicConfig(cap_records=1, dead_letter=b"grave", max_deliveries=1))
    rig.do(CreateTopic(b"grave", TopicConfig()))
    write(rig, b"1")
    rig.nack(rig.lease_one(), delay_ms=0)
    rig.lease()
    write(rig, b"2")
    assert expect(Done, rig.do(ReplayDeadLetters(b"grave"))).count == 0
    rig.ack(*rig.lease(1))
    assert expect(Done, rig.do(ReplayDeadLetters(b"grave"))).count == 1
    assert seqs(read(rig)) == [1]


# -- time


def test_expired_records_are_never_read_and_readers_are_told() -> None:
    rig = Rig(TopicConfig(ttl_ms=1000))
    write(rig, b"1", b"2")
    rig.now += 600
    write(rig, b"3")
    assert gap(read(rig)) is None
    rig.now += 400  # to the millisecond, whether or not a tick came by
    found = read(rig)
    assert (seqs(found), gap(found), found.earliest_seq) == ([3], (1, 2, "ttl"), 3)
    assert (status(rig).count, status(rig).bytes) == (1, 1)
    assert dump(rig.replayed()) == dump(rig.machine)


def test_a_reader_who_saw_them_in_time_is_told_nothing() -> None:
    rig = Rig(TopicConfig(ttl_ms=1000))
    write(rig, b"1", b"2")
    rig.pass_ms(5000)
    write(rig, b"3")
    assert (seqs(read(rig, 2)), gap(read(rig, 2))) == ([3], None)
    assert gap(read(rig, 1)) == (2, 2, "ttl")


def test_both_reasons_together_are_mixed() -> None:
    rig = Rig(TopicConfig(ttl_ms=1000, cap_records=2))
    write(rig, b"1", b"2", b"3")
    rig.pass_ms(3000)
    write(rig, b"4")
    assert gap(read(rig)) == (1, 3, "mixed")
    assert gap(read(rig, 1)) == (2, 3, "ttl")


def test_time_raises_the_floor_once_for_many_jobs() -> None:
    rig = Rig(TopicConfig(ttl_ms=1000))
    write(rig, *[b"x"] * 50)
    rig.pass_ms(3000)
    floors = [event for batch in rig.batches for event in events.decode_batch(batch)]
    assert [event.ttl_floor for event in floors if isinstance(event, events.QueueTrimmed)] == [51]


def test_a_job_that_expires_before_an_older_one_widens_the_gap_and_hides_nothing() -> None:
    rig = Rig(TopicConfig())
    rig.add(b"lasts")
    rig.add(b"fleeting", ttl_ms=1000)
    rig.add(b"lasts too")
    rig.now += 1000
    found = read(rig)  # the walk itself meets the expired one
    assert (seqs(found), gap(found)) == ([1, 3], (1, 2, "ttl"))
    assert (seqs(read(rig, 1)), gap(read(rig, 1))) == ([3], (2, 2, "ttl"))
    assert gap(read(rig, 2)) is None
    rig.pass_ms(5000)
    assert (seqs(read(rig)), gap(read(rig))) == ([1, 3], (1, 2, "ttl"))


def test_an_acked_job_that_would_have_expired_is_no_loss() -> None:
    rig = Rig(TopicConfig(ttl_ms=1000))
    write(rig, b"1", b"2")
    rig.do(Ack([message_id(rig.now, rig.machine.names[Q].number, 0, 2)]))
    rig.pass_ms(5000)
    assert gap(read(rig)) == (1, 2, "ttl")
    assert gap(read(rig, 1)) is None


def test_a_job_delivered_at_most_once_expires_without_a_word() -> None:
    rig = Rig(TopicConfig())
    rig.add(b"once", retry_ms=0, ttl_ms=1000)
    rig.lease(1)
    rig.pass_ms(5000)
    assert gap(read(rig)) is None


def test_an_expired_job_makes_room_in_a_queue_that_refuses() -> None:
    rig = Rig(TopicConfig(ttl_ms=1000, cap_records=1, discard=Discard.REJECT))
    write(rig, b"1")
    assert rig.code(Append(Q, [NewRecord(b"2")])) == Code.TOPIC_FULL
    rig.now += 1000
    assert write(rig, b"2").first_seq == 2


def test_an_expired_job_met_by_a_claim_is_told_to_readers() -> None:
    rig = Rig(TopicConfig())
    rig.add(b"fleeting", ttl_ms=1000)
    rig.now += 1000
    assert rig.lease(1) == []
    assert gap(read(rig)) == (1, 1, "ttl")
    assert place(rig.add(b"next")).seq == 2


def test_a_cap_that_was_tightened_far_is_met_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRIM_STEP", 50)
    for partitions in (1, 3):
        rig = Rig(TopicConfig(partitions=partitions))
        rig.add_many(*[b"x"] * 400)
        rig.do(ConfigureTopic(Q, TopicConfig(partitions=partitions, cap_records=70)))
        assert rig.stats().ready == 350
        steps = 0
        while next_wake_ms(rig.machine) == rig.now + 1:
            before = rig.stats().ready
            rig.now += 1
            rig.do(Tick())
            assert before - rig.stats().ready <= 50
            steps += 1
        assert (rig.stats().ready, steps) == (70, 6)
        audit(rig.machine)
