"""How records are forwarded: order, chains, cycles, fan-out, back-pressure, gaps."""

from __future__ import annotations

import pytest

from esker.engine import limits
from esker.engine.commands import Append, DeleteRecords, Forward, NewRecord, PutRouter, Read
from esker.engine.config import Discard, Durability, RouterOptions, TopicConfig
from esker.engine.events import LogTrimmed, RecordsAppended, RecordsForwarded, SeqReserved, encode_batch
from esker.engine.replies import Count, Records, Tombstone
from tests.engine.rig import expect
from tests.engine.routers.routes import FSYNC_LOG, LOG, Routes

ALLOW_CYCLE = RouterOptions(allow_cycle=True)


@pytest.fixture
def rig() -> Routes:
    return Routes()


# -- order


def test_only_what_is_written_after_a_router_was_made_is_forwarded(rig: Routes) -> None:
    rig.topic(b"a")
    rig.write(b"a", b"before")
    rig.route(b"a>b")
    rig.write(b"a", b"after")
    assert rig.data(b"b") == [b"after"]


def test_copies_are_in_the_order_of_their_source(rig: Routes) -> None:
    rig.route(b"a>b")
    written = []
    for batch in range(30):
        data = [b"%d.%d" % (batch, each) for each in range(batch)]
        written += data
        if data:
            rig.write(b"a", *data)
        if batch % 7 == 0:
            rig.forward()
    assert rig.data(b"b") == written


def test_direct_writes_and_copies_interleave_and_each_keep_their_order(rig: Routes) -> None:
    rig.route(b"a>b")
    for each in range(10):
        rig.write(b"a", b"copy %d" % each)
        rig.write(b"b", b"direct %d" % each)
    found = rig.data(b"b")
    assert [data for data in found if data.startswith(b"copy")] == [b"copy %d" % each for each in range(10)]
    assert [data for data in found if data.startswith(b"direct")] == [b"direct %d" % each for each in range(10)]


def test_a_reader_of_the_destination_sees_what_was_acknowledged_on_the_source(rig: Routes) -> None:
    rig.route(b"a>b")
    rig.route(b"b>c")
    rig.route(b"c>d")
    rig.write(b"a", *[b"x"] * 5000)
    assert expect(Records, rig.do(Read(b"d", 0, 1000))).head_seq == 5000


def test_a_step_is_bounded_and_steps_finish_the_work(rig: Routes) -> None:
    for each in range(10):
        rig.route(b"a>b%d" % each)
    rig.write(b"a", *[b"x"] * 1000)
    first = expect(Count, rig.do(Forward())).count
    assert first <= limits.FORWARD_COPIES_PER_STEP
    assert first + rig.forward() == 10_000
    assert [rig.data(b"b%d" % each) for each in range(10)] == [[b"x"] * 1000] * 10


def test_forwarding_wakes_those_who_wait_for_the_destination(rig: Routes) -> None:
    rig.route(b"a>b")
    rig.write(b"a", b"1")
    rig.machine.watched_topics = {b"b"}
    rig.forward()
    assert rig.machine.changed == {b"b"}


# -- fan-out


def test_one_append_is_one_write_of_its_payload_whatever_the_fan_out(rig: Routes) -> None:
    payload = b"p" * 10_000
    for each in range(1000):
        rig.route(b"a>b%d" % each)
    rig.write(b"a", b"0")
    rig.forward()  # and so all seqs are reserved
    rig.write(b"a", payload)
    assert [type(event) for event in rig.last] == [RecordsAppended]
    written = len(encode_batch(rig.last))
    rig.do(Forward())
    assert [type(event) for event in rig.last] == [RecordsForwarded] * 1000
    assert not rig.synced
    assert len(encode_batch(rig.last)) < 40 * 1000
    assert written < len(payload) + 100
    assert rig.data(b"b0") == rig.data(b"b999") == [b"0", payload]


def test_copies_from_a_weaker_source_are_journalled_on_their_own(rig: Routes) -> None:
    rig.topic(b"a", LOG)
    rig.topic(b"b", FSYNC_LOG)
    rig.route(b"a>b")
    rig.write(b"a", b"1")
    rig.do(Forward())
    assert [type(event) for event in rig.last] == [RecordsAppended, RecordsForwarded]
    assert rig.synced, "a reader of a class that loses nothing must not see what a crash may take"


def test_copies_for_an_ephemeral_destination_are_not_journalled_at_all(rig: Routes) -> None:
    rig.topic(b"b", LOG, durability=Durability.EPHEMERAL)
    rig.route(b"a>b")
    rig.write(b"a", b"0")
    rig.forward()
    rig.write(b"a", b"1")
    rig.do(Forward())
    assert [type(event) for event in rig.last] == [RecordsForwarded]
    assert rig.data(b"b") == [b"0", b"1"]


# -- chains, trees, cycles


def test_chains_and_trees_carry_everything_to_every_end(rig: Routes) -> None:
    for way in (b"a>b", b"a>c", b"b>d", b"c>e", b"c>f"):
        rig.route(way)
    rig.write(b"a", b"1", b"2")
    rig.forward()
    for topic in (b"b", b"c", b"d", b"e", b"f"):
        assert rig.data(topic) == [b"1", b"2"]


def test_two_routers_of_one_source_into_one_topic_both_copy(rig: Routes) -> None:
    rig.route(b"a>b", RouterOptions(filter_tag=b"x"))
    rig.do(PutRouter(b"second", b"a", b"b", RouterOptions(filter_tag=b"y")))
    rig.append(b"a", [NewRecord(b"1", b"x"), NewRecord(b"2", b"y"), NewRecord(b"3", b"z")])
    assert sorted(rig.data(b"b")) == [b"1", b"2"]


@pytest.mark.parametrize("how", ["step", "read"])
def test_in_a_cycle_a_record_stops_after_its_hops(rig: Routes, how: str) -> None:
    rig.route(b"a>b", ALLOW_CYCLE)
    rig.route(b"b>a", ALLOW_CYCLE)
    rig.write(b"a", b"round")
    if how == "step":
        rig.forward()
    copies = len(rig.data(b"a")) + len(rig.data(b"b")) - 1
    assert copies == limits.ROUTER_HOPS_MAX
    assert rig.router(b"a>b").forwarded + rig.router(b"b>a").forwarded == copies
    assert rig.forward() == 0


def test_a_cycle_through_a_queue_ends_too(rig: Routes) -> None:
    rig.topic(b"q", TopicConfig())
    rig.route(b"a>q", ALLOW_CYCLE)
    rig.route(b"q>a", ALLOW_CYCLE)
    rig.write(b"a", b"1")
    rig.forward()
    assert rig.router(b"a>q").forwarded + rig.router(b"q>a").forwarded == limits.ROUTER_HOPS_MAX


def test_the_node_of_a_record_goes_round_unchanged_so_its_writer_can_leave_it_out(rig: Routes) -> None:
    rig.route(b"a>b", ALLOW_CYCLE)
    rig.route(b"b>a", ALLOW_CYCLE)
    rig.write(b"a", b"mine", node=b"A")
    page = expect(Records, rig.do(Read(b"b", nodes=frozenset({b"A"}))))
    assert page.records == []
    assert {record.node for record in rig.records(b"b")} == {b"A"}


# -- deletes


def test_a_delete_on_the_source_does_not_reach_the_copies(rig: Routes) -> None:
    rig.route(b"a>b")
    rig.write(b"a", b"1", b"2", tag=b"t")
    rig.do(DeleteRecords(b"a", tag=b"t"))
    assert rig.data(b"a") == []
    assert rig.data(b"b") == [b"1", b"2"]


def test_a_delete_on_the_destination_leaves_the_source_alone_and_copies_nothing_again(rig: Routes) -> None:
    rig.route(b"a>b")
    rig.write(b"a", b"1", b"2")
    rig.do(DeleteRecords(b"b", before_seq=10))
    assert rig.data(b"b") == []
    assert rig.data(b"a") == [b"1", b"2"]
    assert rig.router(b"a>b").forwarded == 2


# -- the destination's own retention


def test_a_destination_that_discards_old_ones_evicts_for_copies(rig: Routes) -> None:
    rig.topic(b"b", LOG, cap_records=3)
    rig.route(b"a>b")
    rig.write(b"a", *[b"%d" % each for each in range(10)])
    page = rig.read(b"b")
    assert [record.data for record in page.records] == [b"7", b"8", b"9"]
    assert page.tombstone is not None
    assert (page.tombstone.reason, page.tombstone.gap_from, page.tombstone.gap_to) == ("cap", 1, 7)
    assert rig.router(b"a>b").forwarded == 10


def test_the_ttl_of_a_destination_counts_from_the_copy(rig: Routes) -> None:
    rig.topic(b"b", LOG, ttl_ms=1000)
    rig.route(b"a>b")
    rig.write(b"a", b"1")
    rig.pass_ms(600)
    rig.forward()
    rig.pass_ms(600)
    assert rig.data(b"b") == [b"1"]
    rig.pass_ms(600)
    assert rig.data(b"b") == []


def full_destination(rig: Routes) -> None:
    rig.topic(b"b", LOG, cap_records=2, discard=Discard.REJECT)
    rig.route(b"a>b")
    rig.write(b"a", b"1", b"2", b"3", b"4")
    rig.forward()


def test_a_full_destination_that_rejects_holds_the_router_back(rig: Routes) -> None:
    full_destination(rig)
    assert rig.data(b"b") == [b"1", b"2"]
    assert list(rig.machine.routers.stalled) == [rig.machine.routers.names[b"a>b"].number]
    assert rig.machine.routers.behind == {}
    rig.do(DeleteRecords(b"b", before_seq=2))
    assert rig.data(b"b") == [b"2", b"3"], "who reads need not wait for the next try"
    rig.do(DeleteRecords(b"b", before_seq=4))
    assert rig.data(b"b") == [b"4"]
    assert rig.machine.routers.stalled == {}


def test_a_stalled_router_is_tried_again_later_and_later(rig: Routes) -> None:
    full_destination(rig)
    routers = rig.machine.routers
    waits = []
    for _ in range(20):
        due = routers.next_retry_ms()
        assert due is not None
        waits.append(due - rig.now)
        rig.now = due - 1
        rig.do(Forward())
        assert routers.next_retry_ms() == due, "too early to try"
        rig.now = due
        rig.do(Forward())
    assert waits[0] == limits.ROUTER_RETRY_MS_MIN
    assert waits == sorted(waits)
    assert waits[-1] == limits.ROUTER_RETRY_MS_MAX
    rig.do(DeleteRecords(b"b", before_seq=3))
    rig.now += limits.ROUTER_RETRY_MS_MAX
    assert expect(Count, rig.do(Forward())).count == 2
    assert routers.next_retry_ms() is None


def test_a_cap_in_bytes_holds_back_too(rig: Routes) -> None:
    rig.topic(b"b", LOG, cap_bytes=25, discard=Discard.REJECT)
    rig.route(b"a>b")
    rig.write(b"a", b"x" * 10, b"y" * 10, b"z" * 10)
    assert rig.data(b"b") == [b"x" * 10, b"y" * 10]


# -- records that left the source too early


def trimmed(rig: Routes) -> Tombstone:
    """`a` holds two and forgot what its full destination could not take; then there is room."""
    rig.topic(b"a", LOG, cap_records=2)
    full_destination(rig)
    rig.write(b"a", b"5", b"6")
    rig.do(DeleteRecords(b"b", before_seq=3))
    tombstone = rig.read(b"b", 2).tombstone
    assert tombstone is not None
    return tombstone


def test_what_the_source_trimmed_before_it_was_forwarded_is_a_gap_in_the_destination(rig: Routes) -> None:
    tombstone = trimmed(rig)
    assert (tombstone.reason, tombstone.gap_from, tombstone.gap_to, tombstone.missed_estimate) == (
        "source_trim", 3, 4, 2,
    )  # fmt: skip
    page = rig.read(b"b", 2)
    assert [(record.seq, record.data) for record in page.records] == [(5, b"5"), (6, b"6")]
    assert rig.router(b"a>b").forwarded == 4


def test_a_gap_is_told_down_the_chain(rig: Routes) -> None:
    rig.route(b"b>c")
    trimmed(rig)
    page = rig.read(b"c", 2)
    assert page.tombstone is not None
    assert page.tombstone.reason == "source_trim"
    assert [record.data for record in page.records] == [b"5", b"6"]


def test_a_source_does_not_trim_what_a_router_can_still_take(rig: Routes) -> None:
    rig.topic(b"a", LOG, cap_records=2)
    rig.route(b"a>b")
    rig.write(b"a", *[b"%d" % each for each in range(10)])
    assert rig.data(b"a") == [b"8", b"9"]
    page = rig.read(b"b")
    assert (len(page.records), page.tombstone) == (10, None)


def test_a_source_at_its_cap_forwards_in_steps_like_any_other(rig: Routes) -> None:
    rig.topic(b"a", LOG, cap_records=2)
    rig.route(b"a>b")
    rig.write(b"a", b"1", b"2")
    rig.forward()
    rig.write(b"a", b"3")
    assert not any(isinstance(event, RecordsForwarded) for event in rig.last), "what goes was forwarded long ago"
    assert rig.forward() == 1


def test_records_of_an_ephemeral_time_are_journalled_with_their_copies(rig: Routes) -> None:
    """No event tells of them, so folding could not make their copies again."""
    rig.topic(b"a", LOG, durability=Durability.EPHEMERAL)
    rig.route(b"a>b")
    rig.write(b"a", b"1")
    rig.topic(b"a", LOG)
    rig.do(Forward())
    assert [type(event) for event in rig.last if not isinstance(event, SeqReserved)] == [
        RecordsAppended, RecordsForwarded,
    ]  # fmt: skip
    rig.write(b"a", b"2")
    rig.do(Forward())
    assert [type(event) for event in rig.last] == [RecordsForwarded]
    copies = rig.replayed().names[b"b"].log
    assert copies is not None
    assert [body.data for body in copies.bodies([1, 2])] == [b"1", b"2"]


# -- queues


def test_a_router_into_a_queue_makes_jobs(rig: Routes) -> None:
    rig.topic(b"q", TopicConfig())
    rig.route(b"a>q")
    rig.write(b"a", b'"work"', tag=b"t", node=b"n", meta=b'{"k":"v"}')
    rig.forward()
    delivery = rig.lease_one(b"q")
    details = delivery.details
    assert delivery.payload == b'"work"'
    assert details is not None
    assert (details.tag, details.node, details.meta) == (b"t", b"n", b'{"k":"v"}')


def test_a_router_out_of_a_queue_copies_its_jobs_even_those_that_are_done_at_once(rig: Routes) -> None:
    rig.topic(b"q", TopicConfig())
    rig.route(b"q>b")
    rig.add(b'"one"', topic=b"q")
    rig.ack(rig.lease_one(b"q"))
    rig.do(Append(b"q", [NewRecord(b'"two"', b"t")]))
    assert rig.data(b"b") == [b'"one"', b'"two"']
    assert rig.records(b"b")[1].tag == b"t"


def test_trimming_is_recorded_for_the_destination(rig: Routes) -> None:
    rig.topic(b"b", LOG, cap_records=1)
    rig.route(b"a>b")
    rig.write(b"a", b"1", b"2")
    rig.do(Forward())
    kinds = [type(event) for event in rig.last if not isinstance(event, SeqReserved)]
    assert kinds == [RecordsForwarded, LogTrimmed]
