"""A job that failed too often moves to another topic, says where it came from, and can come back."""

from __future__ import annotations

import pytest

from esker.engine.commands import (
    CreateTopic,
    DeleteTopic,
    Details,
    Enqueue,
    Lease,
    Length,
    NewJob,
    PauseTopic,
    ReplayDeadLetters,
)  # fmt: skip
from esker.engine.config import Durability, Mode, Pause, TopicConfig
from esker.engine.ids import message_id, place, to_ulid
from esker.engine.replies import Added, Count, Done, JobView, Leased, TopicView
from esker.errors import Code
from tests.engine.audit import audit
from tests.engine.dump import dump
from tests.engine.rig import Q, Rig, expect

GRAVE = b"grave"
CONFIG = TopicConfig(max_deliveries=2, dead_letter=GRAVE, mode=Mode.MAX)


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
    rig = Rig(CONFIG)
    job_id = rig.add(b"poison", 5)
    rig.machine.woken.clear()
    letter = bury(rig)
    assert not rig.knows(job_id)
    assert rig.stats().dead_lettered == 1
    assert GRAVE in rig.machine.woken
    assert (letter.payload, letter.priority, letter.attempts) == (b"poison", 5, 0)
    audit(rig.machine)


def test_a_letter_says_where_it_came_from_and_keeps_what_it_carried() -> None:
    rig = Rig(CONFIG)
    details = Details(tag=b"t", node=b"n", meta=((b"mine", b"1"),), key=b"k", producer=b"p", epoch=1, sequence=2)
    job_id = rig.add(b"poison", ttl_ms=60_000, details=details)
    letter = bury(rig)
    assert letter.details is not None
    assert (letter.details.tag, letter.details.node, letter.details.key) == (b"t", b"n", b"")
    assert dict(letter.details.meta) == {
        b"mine": b"1",
        b"$dead_letter_from": Q,
        b"$dead_letter_deliveries": b"2",
        b"$dead_letter_src_seq": b"1",
        b"$dead_letter_id": to_ulid(job_id).encode(),
        b"$dead_letter_ttl_ms": b"60000",
    }


def test_a_grave_is_made_like_its_source() -> None:
    rig = Rig(TopicConfig(max_deliveries=1, dead_letter=GRAVE, mode=Mode.MAX, durability=Durability.DISK))
    rig.add()
    rig.nack(rig.lease_one(), delay_ms=0)
    rig.lease()
    view = rig.stats(GRAVE)
    assert (view.config.mode, view.config.durability) == (Mode.MAX, Durability.DISK)


def test_a_job_may_bring_its_own_limit_and_gets_it_back() -> None:
    rig = Rig(TopicConfig(dead_letter=GRAVE))
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
    rig = Rig(CONFIG)
    rig.add()
    bury(rig)
    assert len(rig.replayed().names[GRAVE].partitions[0].jobs) == 1
    assert dump(rig.replayed()) == dump(rig.machine)


def test_a_replayed_job_has_its_old_id_priority_and_place_and_no_deliveries() -> None:
    rig = Rig(CONFIG)
    job_id = rig.add(b"poison", 5, ttl_ms=60_000, details=Details(tag=b"t", meta=((b"mine", b"1"),)))
    letter = bury(rig)
    rig.add(b"younger", 5)
    rig.pass_ms(1000)
    assert replay(rig, letter.id) == Done(1, [])
    assert Q in rig.machine.woken
    view = rig.show(job_id)
    assert (view.priority, view.attempts, view.nacks, view.expires_ms) == (5, 0, 0, rig.now + 60_000)
    assert view.details == Details(tag=b"t", meta=((b"mine", b"1"),))
    assert not rig.knows(letter.id)
    assert rig.drain() == [b"poison", b"younger"]
    audit(rig.machine)


def test_a_replay_into_a_topic_made_anew_is_a_new_job_there() -> None:
    rig = Rig(CONFIG)
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
    rig = Rig(CONFIG)
    rig.add()
    letter = bury(rig)
    rig.do(DeleteTopic(Q))
    before = dump(rig.machine)
    assert replay(rig, letter.id) == Done(0, [letter.id])
    assert dump(rig.machine) == before
    assert rig.code(ReplayDeadLetters(b"nowhere")) == Code.TOPIC_NOT_FOUND


def test_a_replay_by_count_takes_the_oldest() -> None:
    rig = Rig(CONFIG)
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
        ((b"$dead_letter_id", b"nonsense"),),
        ((b"$dead_letter_id", b"\xff\xfe"), (b"$dead_letter_from", Q), (b"$dead_letter_ttl_ms", b"0")),
        ((b"$dead_letter_id", to_ulid(1).encode()), (b"$dead_letter_from", Q), (b"$dead_letter_ttl_ms", b"soon")),
        ((b"$dead_letter_id", to_ulid(1).encode()), (b"$dead_letter_from", Q), (b"$dead_letter_ttl_ms", b"-5")),
        ((b"$dead_letter_id", to_ulid(1).encode()), (b"$dead_letter_from", Q)),
    ],
)
def test_a_letter_with_nonsense_for_an_origin_stays_where_it_is(forged: tuple[tuple[bytes, bytes], ...]) -> None:
    rig = Rig(CONFIG)
    forgery = rig.add(b"forged", topic=GRAVE, details=Details(meta=forged))
    before = dump(rig.machine)
    assert replay(rig, forgery) == Done(0, [forgery])
    assert dump(rig.machine) == before


@pytest.mark.parametrize("seq", [1, 0, 77, (1 << 46) - 1])
@pytest.mark.parametrize("partition", [0, 9])
def test_a_forged_origin_can_neither_replace_a_live_job_nor_spoil_the_seqs(seq: int, partition: int) -> None:
    rig = Rig(CONFIG)
    alive = rig.add(b"alive")
    number = rig.machine.names[Q].number
    origin = to_ulid(message_id(rig.now, number, partition, seq)).encode()
    meta = ((b"$dead_letter_id", origin), (b"$dead_letter_from", Q), (b"$dead_letter_ttl_ms", b"0"))
    forgery = rig.add(b"forged", topic=GRAVE, details=Details(meta=meta))
    replay(rig, forgery)
    assert rig.show(alive).payload == b"alive"
    (after,) = expect(Added, rig.do(Enqueue(Q, [NewJob(b"next")]))).ids
    assert place(after).seq == 3
    assert sorted(rig.drain()) == [b"alive", b"forged", b"next"]
    audit(rig.machine)
