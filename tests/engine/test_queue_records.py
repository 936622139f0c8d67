"""A queue as a topic of records: written, read and deleted like a log, whatever happens to the jobs meanwhile."""

from __future__ import annotations

import pytest

from esker.engine import limits
from esker.engine.commands import (
    Ack,
    Append,
    Command,
    CreateTopic,
    Delete,
    DeleteMore,
    DeleteRecords,
    DeleteTopic,
    Details,
    Lease,
    Nack,
    NewRecord,
    PauseTopic,
    Purge,
    Read,
    ReplayDeadLetters,
    TopicState,
)  # fmt: skip
from esker.engine.config import Durability, Pause, TopicConfig, TopicType
from esker.engine.ids import message_id, place
from esker.engine.queues import partition as partitions
from esker.engine.replies import Deleted, Record, Records, TopicStatus, Written
from esker.errors import Code, Refusal
from tests.engine.audit import audit
from tests.engine.dump import dump
from tests.engine.rig import Q, Rig, expect

META = b'{"k":[1,2]}'


def write(rig: Rig, *data: bytes, tag: bytes = b"", node: bytes = b"", key: bytes = b"", topic: bytes = Q) -> Written:
    records = [NewRecord(each, tag, node) for each in data]
    return expect(Written, rig.do(Append(topic, records, key)))


def read(rig: Rig, after: int = 0, limit: int = 256, **more: object) -> Records:
    reply = expect(Records, rig.do(Read(Q, after, limit, **more)))  # type: ignore[arg-type]
    audit(rig.machine)
    return reply


def data(records: Records) -> list[bytes]:
    return [record.data for record in records.records]


def seqs(records: Records) -> list[int]:
    return [record.seq for record in records.records]


def status(rig: Rig, topic: bytes = Q) -> TopicStatus:
    return expect(TopicStatus, rig.do(TopicState(topic)))


def delete(rig: Rig, before_seq: int | None = None, tag: bytes | None = None, prefix: bool = False) -> Deleted:
    reply = expect(Deleted, rig.do(DeleteRecords(Q, before_seq, tag, prefix)))
    audit(rig.machine)
    assert dump(rig.replayed()) == dump(rig.machine)
    return reply


# -- writing


def test_each_record_is_a_job_with_the_topics_lease_and_ttl() -> None:
    rig = Rig(TopicConfig(lease_ms=700, ttl_ms=9000))
    reply = rig.do(Append(Q, [NewRecord(b"1"), NewRecord(b"2", b"tag", b"node", META)]))
    assert reply == Written(1, 2, 2, created=False, deduped=False)
    first, second = rig.lease(2)
    assert (first.payload, first.priority, first.retry_ms, first.ttl_ms, first.details) == (b"1", 0, 700, 9000, None)
    assert second.details == Details(tag=b"tag", node=b"node", meta=META)
    assert (first.deadline_ms, place(second.id).created_ms) == (rig.now + 700, rig.now)
    assert Q in rig.machine.woken
    assert dump(rig.replayed()) == dump(rig.machine)


def test_a_missing_queue_is_made_by_the_write_and_is_not_lazy() -> None:
    rig = Rig()
    config = TopicConfig(durability=Durability.DISK)
    assert rig.do(Append(Q, [NewRecord(b"1")], config=config)) == Written(1, 1, 1, created=True, deduped=False)
    topic = rig.machine.names[Q]
    assert (topic.config, topic.lazy) == (config, False)
    assert rig.code(Append(b"other", [NewRecord(b"1")], config=config, create=False)) == Code.TOPIC_NOT_FOUND


def test_a_repeated_write_is_answered_like_the_first_and_adds_nothing() -> None:
    rig = Rig(TopicConfig(idempotency_window_ms=5000))
    first = write(rig, b"1", b"2", b"3", key=b"k")
    write(rig, b"4")
    rig.ack(*rig.lease(2))
    rig.now += 4999
    again = write(rig, b"1", b"2", b"3", key=b"k")
    assert (again.first_seq, again.last_seq, again.head_seq, again.deduped) == (1, 3, first.head_seq, True)
    assert rig.last == []
    assert dump(rig.replayed()) == dump(rig.machine)
    rig.now += 1
    assert write(rig, b"x", key=b"k") == Written(5, 5, 5, created=False, deduped=False)


def test_the_key_of_a_write_and_that_of_a_job_are_different_things() -> None:
    rig = Rig(TopicConfig())
    rig.add(b"job", details=Details(key=b"k"))
    assert not write(rig, b"record", key=b"k").deduped
    assert write(rig, b"record", key=b"k").deduped


TOO_BIG = b'"%b"' % (b"x" * limits.RECORD_BYTES_MAX)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ([], Code.BAD_REQUEST),
        ([NewRecord(b"1")] * (limits.ENQUEUE_JOBS_MAX + 1), Code.BATCH_TOO_LARGE),
        ([NewRecord(b"1"), NewRecord(TOO_BIG)], Code.RECORD_TOO_LARGE),
        ([NewRecord(TOO_BIG[: limits.RECORD_BYTES_MAX], meta=b"{}")], Code.RECORD_TOO_LARGE),
        ([NewRecord(b"1", tag=b"t" * 257)], Code.BAD_REQUEST),
        ([NewRecord(b"1", node=b"n" * 129)], Code.BAD_REQUEST),
        ([NewRecord(b"1", meta=b"[]")], Code.BAD_REQUEST),
    ],
)
def test_a_bad_record_refuses_the_whole_write_and_makes_no_topic(records: list[NewRecord], code: Code) -> None:
    rig = Rig(TopicConfig())
    before = dump(rig.machine)
    assert rig.code(Append(Q, records)) == code
    assert rig.code(Append(b"new", records, config=TopicConfig())) == code
    assert dump(rig.machine) == before


def test_a_queue_that_cannot_take_records_says_so() -> None:
    rig = Rig(TopicConfig(max_payload_bytes=3))
    assert rig.code(Append(Q, [NewRecord(b"1234")])) == Code.RECORD_TOO_LARGE


def test_a_paused_queue_and_a_full_shard_refuse_records() -> None:
    rig = Rig(TopicConfig())
    rig.do(PauseTopic(Q, Pause.IN))
    assert rig.code(Append(Q, [NewRecord(b"1")])) == Code.PAUSED
    rig.do(PauseTopic(Q, Pause.NONE))
    rig.machine.refuse_new = Refusal(Code.DISK_FULL, "full")
    assert rig.code(Append(Q, [NewRecord(b"1")])) == Code.DISK_FULL
    rig.machine.refuse_new = None
    write(rig, b"1")
    rig.machine.memory_limit = 1
    assert rig.code(Append(Q, [NewRecord(b"1")])) == Code.OUT_OF_MEMORY


# -- reading


def test_a_read_shows_jobs_of_any_state_in_order_and_leases_none() -> None:
    rig = Rig(TopicConfig())
    write(rig, b"1", b"2", b"3")
    rig.add(b"urgent", -5)
    rig.add(b"later", details=Details(delay_ms=60_000))
    rig.lease(1)
    before = dump(rig.machine)
    found = read(rig)
    assert data(found) == [b"1", b"2", b"3", b"urgent", b"later"]
    assert (found.next_from_seq, found.head_seq, found.earliest_seq, found.tombstone) == (5, 5, 1, None)
    assert dump(rig.machine) == before


def test_a_read_carries_all_of_a_record() -> None:
    rig = Rig(TopicConfig())
    rig.do(Append(Q, [NewRecord(b"1", b"t", b"n", META), NewRecord(b"2")]))
    assert read(rig).records == [
        Record(1, rig.now, b"1", b"n", b"t", META),
        Record(2, rig.now, b"2", b"", b"", b""),
    ]


def test_what_was_acked_or_deleted_is_a_silent_gap() -> None:
    rig = Rig(TopicConfig())
    write(rig, *(b"%d" % number for number in range(1, 7)))
    rig.ack(*rig.lease(2))
    rig.do(Delete([message_id(rig.now, rig.machine.names[Q].number, 0, 5)]))
    found = read(rig)
    assert (seqs(found), found.earliest_seq, found.tombstone, found.next_from_seq) == ([3, 4, 6], 3, None, 6)


def test_a_job_that_is_delivered_at_most_once_is_gone_for_readers_when_it_was() -> None:
    rig = Rig(TopicConfig())
    rig.add(b"once", retry_ms=0)
    write(rig, b"2")
    rig.lease(1)
    found = read(rig)
    assert (data(found), found.earliest_seq, status(rig).count) == ([b"2"], 2, 1)


def test_a_read_ends_at_its_limits_and_says_where() -> None:
    rig = Rig(TopicConfig())
    write(rig, *[b"x" * 10] * 9)
    assert (seqs(read(rig, 2, 3)), read(rig, 2, 3).next_from_seq) == ([3, 4, 5], 5)
    assert seqs(read(rig, 0, max_bytes=25)) == [1, 2]
    assert seqs(read(rig, 4, max_bytes=1)) == [5]
    assert seqs(read(rig, 0, 0)) == [1]


def test_meta_counts_as_bytes_of_a_reply() -> None:
    rig = Rig(TopicConfig())
    rig.do(Append(Q, [NewRecord(b"12345", meta=b'{"a":"b"}')] * 3))
    assert seqs(read(rig, 0, max_bytes=28)) == [1, 2]


def test_records_of_unwanted_nodes_are_passed_over_and_the_cursor_moves_on() -> None:
    rig = Rig(TopicConfig())
    write(rig, b"1", node=b"a")
    write(rig, b"2")
    write(rig, b"3", node=b"b")
    assert data(read(rig, nodes=frozenset({b"a", b"b"}))) == [b"2"]
    found = read(rig, 2, nodes=frozenset({b"b"}))
    assert (data(found), found.next_from_seq, found.tombstone) == ([], 3, None)


def test_a_topic_may_want_its_echoes() -> None:
    rig = Rig(TopicConfig(dedupe_node=False))
    write(rig, b"1", node=b"a")
    assert data(read(rig, nodes=frozenset({b"a"}))) == [b"1"]


@pytest.mark.parametrize("few", [True, False])
def test_a_read_looks_at_so_many_seqs_and_tells_how_far_it_came(few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "READ_LOOK_MAX", 10)
    rig = Rig(TopicConfig())
    write(rig, *(b"%d" % number for number in range(1, 101)))
    kept = {1, 100} if few else {1, *range(85, 101)}
    number = rig.machine.names[Q].number
    rig.do(Ack([message_id(rig.now, number, 0, seq) for seq in range(1, 101) if seq not in kept]))
    found: list[int] = []
    calls = after = 0
    while after < 100:
        page = read(rig, after)
        assert page.scanned <= 10
        assert page.next_from_seq > after
        found += seqs(page)
        after = page.next_from_seq
        calls += 1
    assert (sorted(kept), calls) == (found, 1 if few else 10)


def test_a_cursor_from_the_future_means_that_the_topic_was_made_anew() -> None:
    rig = Rig(TopicConfig())
    write(rig, b"1", b"2")
    rig.do(DeleteTopic(Q))
    rig.do(CreateTopic(Q, TopicConfig()))
    found = read(rig, 2)
    assert found.tombstone is not None
    assert (found.tombstone.reason, found.tombstone.gap_from, found.tombstone.gap_to) == ("recreated", 1, 0)
    write(rig, b"new")
    found = read(rig, 2)
    assert (data(found), found.next_from_seq) == ([b"new"], 1)


def test_a_reader_that_is_caught_up_gets_nothing() -> None:
    rig = Rig(TopicConfig())
    assert read(rig) == Records([], 0, 0, 1, None, 0)
    write(rig, b"1")
    assert read(rig, 1) == Records([], 1, 1, 1, None, 0)


@pytest.mark.parametrize("command", [Read(b"wide"), DeleteRecords(b"wide", 5), DeleteRecords(b"wide", 5, b"tag")])
def test_records_have_one_order_so_a_queue_of_many_partitions_has_none(command: Command) -> None:
    rig = Rig()
    rig.do(CreateTopic(b"wide", TopicConfig(partitions=3)))
    refusal = rig.refused(command)
    assert (refusal.code, "3 partitions" in refusal.message) == (Code.BAD_REQUEST, True)
    assert rig.code(Read(b"nowhere")) == Code.TOPIC_NOT_FOUND


def test_a_write_to_a_queue_of_many_partitions_goes_to_one_of_them_as_a_whole() -> None:
    rig = Rig(TopicConfig(partitions=3))
    homes = []
    for _ in range(3):
        written = expect(Written, rig.do(Append(Q, [NewRecord(b"1"), NewRecord(b"2")])))
        assert (written.first_seq, written.last_seq) == (1, 2)
        homes.append(written.partition)
    assert sorted(home for home in homes if home is not None) == [0, 1, 2]
    first = expect(Written, rig.do(Append(Q, [NewRecord(b"3")], key=b"k")))
    again = expect(Written, rig.do(Append(Q, [NewRecord(b"3")], key=b"k")))
    assert (again.deduped, again.first_seq, again.partition) == (True, first.first_seq, first.partition)
    assert len(rig.lease(10)) == 7
    assert dump(rig.replayed()) == dump(rig.machine)


def test_a_delete_by_tag_reaches_every_partition() -> None:
    rig = Rig(TopicConfig(partitions=3))
    for number in range(9):
        rig.do(Append(Q, [NewRecord(b"%d" % number, b"odd" if number % 2 else b"even")]))
    reply = expect(Deleted, rig.do(DeleteRecords(Q, tag=b"odd")))
    while reply.rest is not None:
        reply = expect(Deleted, rig.do(DeleteMore(Q, reply.rest)))
    assert (reply.deleted, reply.count) == (4, 5)
    assert rig.drain() == [b"0", b"2", b"4", b"6", b"8"]


# -- the first record


def test_the_earliest_seq_follows_the_front_and_goes_back_for_a_replayed_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "_WALK", 3)
    rig = Rig(TopicConfig(dead_letter=b"grave", max_deliveries=1))
    rig.do(CreateTopic(b"grave", TopicConfig()))
    write(rig, *(b"%d" % number for number in range(1, 31)))
    first = rig.lease(1)
    rig.nack(*first, delay_ms=0)
    rig.ack(*rig.lease(25))
    assert status(rig).earliest_seq == 27
    rig.do(ReplayDeadLetters(b"grave"))
    audit(rig.machine)
    assert (status(rig).earliest_seq, seqs(read(rig))) == (1, [1, 27, 28, 29, 30])
    rig.ack(*rig.lease(5))
    assert status(rig).earliest_seq == 31


def test_finding_the_earliest_is_cheap_however_long_the_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(TopicConfig())
    for _ in range(20):
        write(rig, *[b"x"] * 10_000)
    partition = rig.machine.names[Q].partitions[0]
    keep = rig.lease(1)
    while deliveries := rig.lease(10_000):
        rig.do(Ack([each.id for each in deliveries if place(each.id).seq != 199_999]))
    rig.ack(*keep)
    looked = 0

    class Counting(dict[int, object]):
        def get(self, *arguments: object) -> object:
            nonlocal looked
            looked += 1
            return super().get(*arguments)  # type: ignore[call-overload]

    monkeypatch.setattr(partition, "jobs", Counting(partition.jobs))
    assert partition.earliest_seq() == 199_999
    assert looked <= 2 * partitions._WALK
    looked = 0
    assert partition.earliest_seq() == 199_999
    assert looked == 1


# -- deleting


def test_a_delete_below_a_seq_takes_jobs_leased_or_not() -> None:
    rig = Rig(TopicConfig(max_in_flight=2))
    write(rig, b"1", b"22", b"333", b"4")
    held = rig.lease(2)
    rig.machine.woken.clear()
    assert delete(rig, 4) == Deleted(3, 4, 4, 1, 1)
    assert Q in rig.machine.woken
    assert rig.synced
    assert rig.ack(*held).count == 0
    assert read(rig).tombstone is None


def test_a_delete_by_tag_takes_what_is_there_now_and_nothing_that_comes() -> None:
    rig = Rig(TopicConfig())
    write(rig, b"1", tag=b"chat:1")
    write(rig, b"2", tag=b"chat:2")
    write(rig, b"3")
    write(rig, b"4", tag=b"chat:1")
    assert delete(rig, tag=b"chat:1").deleted == 2
    write(rig, b"5", tag=b"chat:1")
    assert data(read(rig)) == [b"2", b"3", b"5"]
    assert delete(rig, tag=b"chat:", prefix=True).deleted == 2
    assert delete(rig, tag=b"", prefix=True).deleted == 0
    assert data(read(rig)) == [b"3"]


def test_tag_and_seq_together_take_what_fits_both() -> None:
    rig = Rig(TopicConfig())
    for number in range(5):
        write(rig, b"%d" % number, tag=b"v" if number % 2 == 0 else b"w")
    assert delete(rig, before_seq=5, tag=b"v").deleted == 2
    assert seqs(read(rig)) == [2, 4, 5]


@pytest.mark.parametrize("below", [1, 2, 1500, 2001, 2002, 9999])
def test_a_prefix_goes_whatever_its_length(below: int) -> None:
    rig = Rig(TopicConfig())
    write(rig, *[b"x"] * 1000)
    write(rig, *[b"x"] * 1001, tag=b"t")
    rig.lease(3, holder=b"w")
    rig.do(Nack([each.id for each in rig.lease(2)], delay_ms=500))
    rig.lease(1990, holder=b"w")
    gone = min(below, 2002) - 1
    assert delete(rig, below) == Deleted(gone, min(below, 2002), 2001, 2001 - gone, 2001 - gone)
    assert len(rig.machine.names[Q].partitions[0].held_by(b"w")) <= 2001 - gone
    assert write(rig, b"next").first_seq == 2002


def test_a_delete_says_what_it_wants_gone() -> None:
    rig = Rig(TopicConfig())
    assert rig.code(DeleteRecords(Q)) == Code.BAD_REQUEST
    assert delete(rig, 100) == Deleted(0, 1, 0, 0, 0)


def test_a_tag_is_known_again_when_its_job_is_replayed() -> None:
    rig = Rig(TopicConfig(dead_letter=b"grave", max_deliveries=1))
    rig.do(CreateTopic(b"grave", TopicConfig()))
    write(rig, b"1", tag=b"t")
    rig.nack(rig.lease_one(), delay_ms=0)
    assert expect(Deleted, rig.do(DeleteRecords(Q, tag=b"t"))).deleted == 1
    write(rig, b"2", tag=b"t")
    rig.nack(rig.lease_one(), delay_ms=0)
    rig.lease()
    assert delete(rig, tag=b"t").deleted == 0
    rig.do(ReplayDeadLetters(b"grave"))
    assert delete(rig, tag=b"t").deleted == 1


# -- counting


def test_the_status_of_a_queue_counts_what_is_where() -> None:
    rig = Rig(TopicConfig(lease_ms=1000))
    write(rig, b"1", b"22", b"333", b"4444")
    rig.nack(*rig.lease(1), delay_ms=400)
    rig.lease(1)
    shown = status(rig)
    assert (shown.head_seq, shown.earliest_seq, shown.count, shown.bytes) == (4, 1, 4, 10)
    assert (shown.ready, shown.in_flight, shown.dead_lettered) == (2, 1, 0)
    rig.now += 400
    assert (status(rig).ready, status(rig).in_flight) == (3, 1)
    rig.now += 601
    assert (status(rig).ready, status(rig).in_flight) == (4, 0)


def test_the_status_of_an_empty_queue() -> None:
    rig = Rig(TopicConfig())
    shown = status(rig)
    assert (shown.head_seq, shown.earliest_seq, shown.count, shown.bytes) == (0, 1, 0, 0)
    write(rig, b"1")
    rig.do(Purge(Q))
    shown = status(rig)
    assert (shown.head_seq, shown.earliest_seq, shown.count) == (1, 2, 0)


def test_the_status_of_many_partitions_is_their_sum() -> None:
    rig = Rig(TopicConfig(partitions=3))
    for number in range(7):
        rig.add(b"%d" % number)
    shown = status(rig)
    assert (shown.head_seq, shown.earliest_seq, shown.count, shown.ready) == (3, 1, 7, 7)


def test_a_log_is_not_a_queue() -> None:
    rig = Rig()
    rig.do(CreateTopic(b"log", TopicConfig(type=TopicType.LOG)))
    assert rig.refused(Lease(b"log")).code == Code.NOT_A_QUEUE
