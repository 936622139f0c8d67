"""A job that failed too often moves to another topic, says where it came from, and can come back."""

from __future__ import annotations

import msgspec
import pytest

from esker.engine import limits
from esker.engine.commands import (
    Append,
    CreateTopic,
    DeleteTopic,
    Details,
    Enqueue,
    Lease,
    Length,
    NewJob,
    NewRecord,
    PauseTopic,
    Read,
    ReplayDeadLetters,
    TopicState,
)  # fmt: skip
from esker.engine.config import Discard, Durability, Mode, Pause, TopicConfig, TopicType
from esker.engine.ids import message_id, place, to_ulid
from esker.engine.queues.deadletters import provenance
from esker.engine.replies import Added, Count, Done, JobView, Leased, Record, Records, TopicStatus, TopicView
from esker.errors import Code
from tests.engine.audit import audit
from tests.engine.dump import dump
from tests.engine.rig import Q, Rig, expect

GRAVE = b"grave"
CONFIG = TopicConfig(max_deliveries=2, dead_letter=GRAVE, mode=Mode.MAX)


def with_grave(config: TopicConfig = CONFIG) -> Rig:
    """A queue that buries in another queue."""
    rig = Rig(config)
    rig.do(CreateTopic(GRAVE, TopicConfig(mode=config.mode)))
    return rig


def text(**values: str) -> bytes:
    """Meta with these keys below `$dead_letter_`."""
    return msgspec.json.encode({f"$dead_letter_{key}": value for key, value in values.items()})


def bury(rig: Rig, topic: bytes = Q, deliveries: int = 2) -> JobView:
    """Fails the first job of a queue until it is buried; the letter."""
    for _ in range(deliveries):
        rig.nack(rig.lease_one(topic), delay_ms=0)
    before = set() if GRAVE not in rig.machine.names else ids(rig)
    assert expect(Leased, rig.do(Lease(topic))).deliveries == []
    assert rig.synced
    (letter,) = ids(rig) - before
    return rig.show(letter)


def ids(rig: Rig) -> set[int]:
    topic = rig.machine.names[GRAVE]
    return {
        message_id(job.created_ms, topic.number, partition.index, job.seq)
        for partition in topic.partitions
        for job in partition.jobs.values()
    }


def replay(rig: Rig, *letters: int) -> Done:
    return expect(Done, rig.do(ReplayDeadLetters(GRAVE, letters)))


def test_the_delivery_that_would_be_one_too_many_is_a_burial() -> None:
    rig = with_grave()
    job_id = rig.add(b"poison", 5)
    rig.machine.woken.clear()
    letter = bury(rig)
    assert not rig.knows(job_id)
    assert rig.stats().dead_lettered == 1
    assert GRAVE in rig.machine.woken
    assert (letter.payload, letter.priority, letter.attempts) == (b"poison", 5, 0)
    audit(rig.machine)


def test_a_letter_says_where_it_came_from_and_keeps_what_it_carried() -> None:
    rig = with_grave()
    details = Details(tag=b"t", node=b"n", meta=b'{"mine":"1"}', key=b"k", producer=b"p", epoch=1, sequence=2)
    job_id = rig.add(b"poison", ttl_ms=60_000, details=details)
    letter = bury(rig)
    assert letter.details is not None
    assert (letter.details.tag, letter.details.node, letter.details.key) == (b"t", b"n", b"")
    assert msgspec.json.decode(letter.details.meta) == {
        "mine": "1",
        "$dead_letter_from": "q",
        "$dead_letter_deliveries": "2",
        "$dead_letter_src_seq": "1",
        "$dead_letter_id": to_ulid(job_id),
        "$dead_letter_ttl_ms": "60000",
    }


def test_provenance_finds_room_in_a_full_meta() -> None:
    for full in (
        msgspec.json.encode({str(number): "" for number in range(limits.META_KEYS_MAX)}),
        b'{"k":"%b"}' % (b"v" * (limits.META_BYTES_MAX - 8)),
    ):
        rig = with_grave()
        rig.add(b"poison", details=Details(meta=full))
        letter = bury(rig)
        assert letter.details is not None
        meta = msgspec.json.decode(letter.details.meta)
        assert (meta.pop("$dead_letter_from"), meta.pop("$dead_letter_src_seq")) == ("q", "1")
        assert msgspec.json.decode(full).items() <= meta.items()
        replay(rig, letter.id)
        details = rig.lease_one().details
        assert details is not None
        assert details.meta == full


@pytest.mark.parametrize("name", [b"q\xff", "schlange-\u00e4".encode(), b"\\xff", b"\xed\xa0\x80"])
def test_a_letter_names_its_topic_whatever_its_bytes(name: bytes) -> None:
    rig = with_grave()
    rig.do(CreateTopic(name, CONFIG))
    rig.add(b"poison", topic=name)
    letter = bury(rig, name)
    assert letter.details is not None
    assert provenance(letter.details.meta) == (name, 2)
    rig.do(DeleteTopic(name))
    rig.do(CreateTopic(name, CONFIG))  # so that only the name leads back
    assert replay(rig, letter.id).count == 1
    assert rig.drain(name) == [b"poison"]


def test_a_letter_of_a_letter_tells_of_the_last_move_only() -> None:
    rig = Rig(CONFIG)
    rig.do(CreateTopic(GRAVE, TopicConfig(max_deliveries=1, dead_letter=b"deep")))
    rig.do(CreateTopic(b"deep", TopicConfig()))
    rig.add(b"poison", details=Details(max_deliveries=2))
    bury(rig)
    rig.nack(rig.lease_one(GRAVE), delay_ms=0)
    assert rig.lease(1, GRAVE) == []
    details = rig.lease_one(b"deep").details
    assert details is not None
    meta = msgspec.json.decode(details.meta)
    assert (meta["$dead_letter_from"], meta["$dead_letter_deliveries"]) == ("grave", "1")
    assert "$dead_letter_max_deliveries" not in meta


def test_a_grave_that_is_full_and_refuses_loses_nothing() -> None:
    rig = Rig(CONFIG)
    rig.do(CreateTopic(GRAVE, TopicConfig(cap_records=1, discard=Discard.REJECT)))
    rig.add_many(b"1", b"2")
    for _ in range(2):
        rig.nack(*rig.lease(2), delay_ms=0)
    (again,) = rig.lease(5)
    assert (again.payload, again.attempts) == (b"2", 3)
    assert rig.drain(GRAVE) == [b"1"]


def test_a_grave_that_is_full_and_drops_keeps_the_latest() -> None:
    rig = Rig(CONFIG)
    rig.do(CreateTopic(GRAVE, TopicConfig(cap_records=1)))
    rig.add_many(b"1", b"2")
    for _ in range(2):
        rig.nack(*rig.lease(2), delay_ms=0)
    assert rig.lease(5) == []
    assert rig.drain(GRAVE) == [b"2"]
    audit(rig.machine)


def test_a_job_may_bring_its_own_limit_and_gets_it_back() -> None:
    rig = with_grave(TopicConfig(dead_letter=GRAVE))
    rig.add(b"strict", details=Details(max_deliveries=1))
    letter = bury(rig, deliveries=1)
    assert replay(rig, letter.id).count == 1
    assert bury(rig, deliveries=1).payload == b"strict"


def test_without_a_grave_or_a_limit_a_job_is_tried_for_ever() -> None:
    for config in (TopicConfig(max_deliveries=1), TopicConfig(dead_letter=GRAVE)):
        rig = Rig(config)
        rig.add()
        for attempt in range(1, 20):
            delivery = rig.lease_one()
            assert delivery.attempts == attempt
            rig.nack(delivery, delay_ms=0)


def test_the_burial_is_one_batch() -> None:
    rig = with_grave()
    rig.add()
    bury(rig)
    assert len(rig.replayed().names[GRAVE].partitions[0].jobs) == 1
    assert dump(rig.replayed()) == dump(rig.machine)


def test_a_replayed_job_has_its_old_id_priority_and_place_and_no_deliveries() -> None:
    rig = with_grave()
    job_id = rig.add(b"poison", 5, ttl_ms=60_000, details=Details(tag=b"t", meta=b'{"mine":"1"}'))
    letter = bury(rig)
    rig.add(b"younger", 5)
    rig.pass_ms(1000)
    assert replay(rig, letter.id) == Done(1, [])
    assert Q in rig.machine.woken
    view = rig.show(job_id)
    assert (view.priority, view.attempts, view.nacks, view.expires_ms) == (5, 0, 0, rig.now + 60_000)
    assert view.details == Details(tag=b"t", meta=b'{"mine":"1"}')
    assert not rig.knows(letter.id)
    assert rig.drain() == [b"poison", b"younger"]
    audit(rig.machine)


def test_a_replay_into_a_topic_made_anew_is_a_new_job_there() -> None:
    rig = with_grave()
    job_id = rig.add(b"poison", 5)
    letter = bury(rig)
    rig.do(DeleteTopic(Q))
    number = expect(TopicView, rig.do(CreateTopic(Q, TopicConfig(partitions=2)))).number
    rig.now += 1
    assert replay(rig, letter.id).count == 1
    delivery = rig.lease_one()
    assert (delivery.payload, delivery.priority) == (b"poison", 5)
    assert place(delivery.id)[:2] == (rig.now, number)
    assert not rig.knows(job_id)


def test_a_replay_into_a_missing_topic_is_refused_and_loses_nothing() -> None:
    rig = with_grave()
    rig.add()
    letter = bury(rig)
    rig.do(DeleteTopic(Q))
    before = dump(rig.machine)
    assert replay(rig, letter.id) == Done(0, [letter.id])
    assert dump(rig.machine) == before
    assert rig.code(ReplayDeadLetters(b"nowhere")) == Code.TOPIC_NOT_FOUND


def test_a_replay_by_count_takes_the_oldest() -> None:
    rig = with_grave()
    letters = []
    for payload in (b"1", b"2", b"3"):
        rig.add(payload)
        letters.append(bury(rig).id)
    assert expect(Done, rig.do(ReplayDeadLetters(GRAVE, None, 2))).count == 2
    assert ids(rig) == {letters[2]}


def test_a_paused_queue_buries_nothing() -> None:
    rig = Rig(CONFIG)
    rig.add()
    for _ in range(2):
        rig.nack(rig.lease_one(), delay_ms=0)
    rig.do(PauseTopic(Q, Pause.OUT))
    rig.lease()
    assert expect(Count, rig.do(Length(Q))).count == 1


@pytest.mark.parametrize(
    "forged",
    [
        text(id="nonsense"),
        text(id="\u00ff\u00fe", **{"from": "q"}, ttl_ms="0"),
        text(id=to_ulid(1), **{"from": "q"}, ttl_ms="soon"),
        text(id=to_ulid(1), **{"from": "q"}, ttl_ms="-5"),
        text(**{"from": "q"}, ttl_ms="0"),
        text(id=to_ulid(1), **{"from": "q"}, priority=str(1 << 64)),
        text(id=to_ulid(1), **{"from": "q"}, retry_ms="-1"),
        text(id=to_ulid(1), **{"from": "q"}, max_deliveries="9" * 30),
        text(id=to_ulid(1), from_hex="x", ttl_ms="0"),
        b'{"$dead_letter_id":7,"$dead_letter_from":[],"$dead_letter_ttl_ms":null}',
    ],
)
def test_a_letter_with_nonsense_for_an_origin_stays_where_it_is(forged: bytes) -> None:
    rig = with_grave()
    forgery = rig.add(b"forged", topic=GRAVE, details=Details(meta=forged))
    before = dump(rig.machine)
    assert replay(rig, forgery) == Done(0, [forgery])
    assert dump(rig.machine) == before


@pytest.mark.parametrize("seq", [1, 0, 77, (1 << 46) - 1])
@pytest.mark.parametrize("partition", [0, 9])
def test_a_forged_origin_can_neither_replace_a_live_job_nor_spoil_the_seqs(seq: int, partition: int) -> None:
    rig = with_grave()
    alive = rig.add(b"alive")
    number = rig.machine.names[Q].number
    origin = to_ulid(message_id(rig.now, number, partition, seq))
    meta = text(id=origin, **{"from": "q"}, ttl_ms="0")
    forgery = rig.add(b"forged", topic=GRAVE, details=Details(meta=meta))
    replay(rig, forgery)
    assert rig.show(alive).payload == b"alive"
    (after,) = expect(Added, rig.do(Enqueue(Q, [NewJob(b"next")]))).ids
    assert place(after).seq == 3
    assert sorted(rig.drain()) == [b"alive", b"forged", b"next"]
    audit(rig.machine)


# -- in a log


def letters(rig: Rig) -> list[Record]:
    return list(expect(Records, rig.do(Read(GRAVE))).records)


def fail(rig: Rig, deliveries: int = 2) -> None:
    for _ in range(deliveries):
        rig.nack(rig.lease_one(), delay_ms=0)
    assert rig.lease(1) == []


def test_a_missing_grave_is_made_as_a_log_of_the_sources_class() -> None:
    rig = Rig(TopicConfig(max_deliveries=2, dead_letter=GRAVE, durability=Durability.FSYNC))
    rig.do(Append(Q, [NewRecord(b'"poison"', b"t", b"n", b'{"mine":[1]}')]))
    fail(rig)
    topic = rig.machine.names[GRAVE]
    assert (topic.config.type, topic.config.durability, topic.lazy) == (TopicType.LOG, Durability.FSYNC, False)
    (letter,) = letters(rig)
    assert (letter.seq, letter.data, letter.tag, letter.node) == (1, b'"poison"', b"t", b"n")
    meta = msgspec.json.decode(letter.meta)
    assert meta.pop("$dead_letter_id")
    assert meta == {
        "mine": [1],
        "$dead_letter_from": "q",
        "$dead_letter_deliveries": "2",
        "$dead_letter_src_seq": "1",
    }
    status = expect(TopicStatus, rig.do(TopicState(Q)))
    assert (status.dead_lettered, status.count) == (1, 0)
    assert expect(Records, rig.do(Read(Q))).tombstone is None


def test_the_burial_in_a_log_is_one_batch() -> None:
    rig = Rig(CONFIG)
    rig.add()
    fail(rig)
    assert [type(event).__name__ for event in rig.last] == ["TopicCreated", "RecordsAppended", "JobRemoved"]
    replayed = rig.replayed()
    assert dump(replayed) == dump(rig.machine)
    log = replayed.names[GRAVE].log
    assert log is not None
    assert log.count == 1


def test_a_job_replayed_from_a_log_has_its_old_id_priority_and_place() -> None:
    rig = Rig(CONFIG)
    details = Details(tag=b"t", node=b"n", meta=b'{"mine":"1"}', max_deliveries=2)
    job_id = rig.add(b"poison", 5, retry_ms=700, ttl_ms=60_000, details=details)
    fail(rig)
    rig.add(b"younger", 5)
    (letter,) = letters(rig)
    rig.pass_ms(1000)
    letter_id = message_id(letter.ts, rig.machine.names[GRAVE].number, 0, letter.seq)
    assert replay(rig, letter_id) == Done(1, [])
    view = rig.show(job_id)
    assert (view.priority, view.attempts, view.retry_ms, view.expires_ms) == (5, 0, 700, rig.now + 60_000)
    assert view.details == details
    assert letters(rig) == []
    assert replay(rig, letter_id) == Done(0, [letter_id])
    assert rig.drain() == [b"poison", b"younger"]
    audit(rig.machine)


def test_a_replay_of_a_log_by_count_takes_the_oldest_and_leaves_what_is_no_letter() -> None:
    rig = Rig(CONFIG)
    rig.do(CreateTopic(GRAVE, TopicConfig(type=TopicType.LOG)))
    rig.do(Append(GRAVE, [NewRecord(b'"someone wrote this"')]))
    for payload in (b"1", b"2", b"3"):
        rig.add(payload)
        fail(rig)
    done = expect(Done, rig.do(ReplayDeadLetters(GRAVE, None, 3)))
    assert (done.count, len(done.missed)) == (2, 1)
    assert rig.drain() == [b"1", b"2"]
    assert [letter.data for letter in letters(rig)] == [b'"someone wrote this"', b"3"]


@pytest.mark.parametrize("wrong", [0, 1 << 80, 5])
def test_an_id_that_is_no_letters_is_missed(wrong: int) -> None:
    rig = Rig(CONFIG)
    rig.add()
    fail(rig)
    (letter,) = letters(rig)
    letter_id = message_id(letter.ts, rig.machine.names[GRAVE].number, 0, letter.seq) + wrong
    other = letter_id if wrong else message_id(letter.ts, rig.machine.names[Q].number, 0, 1)
    assert replay(rig, other) == Done(0, [other])
    assert len(letters(rig)) == 1


def test_a_log_that_is_full_and_refuses_loses_nothing() -> None:
    rig = Rig(CONFIG)
    rig.do(CreateTopic(GRAVE, TopicConfig(type=TopicType.LOG, cap_records=1, discard=Discard.REJECT)))
    rig.add_many(b"1", b"2")
    for _ in range(2):
        rig.nack(*rig.lease(2), delay_ms=0)
    (again,) = rig.lease(5)
    assert (again.payload, again.attempts) == (b"2", 3)
    assert [letter.data for letter in letters(rig)] == [b"1"]
