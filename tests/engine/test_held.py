"""Leases settled by seq and holder: acks, nacks and heartbeats that may be repeated, late or another's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from esker.engine import events
from esker.engine.commands import (
    AckHeld,
    Append,
    Command,
    CreateTopic,
    ExtendHeld,
    Lease,
    NackHeld,
    NewRecord,
    Release,
    Tick,
)  # fmt: skip
from esker.engine.config import Durability, TopicConfig, TopicType
from esker.engine.ids import PARTITION_SHIFT, SLOT_MASK, place, slot
from esker.engine.queues.lifecycle import moves_of
from esker.engine.replies import Delivery, Done, Leased, SlotsDone
from esker.errors import Code
from tests.engine.audit import audit
from tests.engine.dump import dump
from tests.engine.rig import Q, Rig, expect

WORKER, OTHER = b"w1", b"w2"
SETTLING: list[Callable[..., AckHeld | NackHeld | ExtendHeld]] = [
    AckHeld,
    NackHeld,
    lambda topic, seqs, holder, tokens=None: ExtendHeld(topic, seqs, holder, 5000, tokens),
]


def queue(jobs: int = 3, **config: object) -> Rig:
    rig = Rig(TopicConfig(lease_ms=1000, **config))  # type: ignore[arg-type]
    if jobs:
        rig.do(Append(Q, [NewRecord(b"%d" % number) for number in range(1, jobs + 1)]))
    return rig


def claim(rig: Rig, count: int = 1, holder: bytes = WORKER) -> list[Delivery]:
    return rig.lease(count, holder=holder)


def seqs(deliveries: list[Delivery]) -> list[int]:
    return [place(delivery.id).seq for delivery in deliveries]


def settle(rig: Rig, command: Command) -> SlotsDone:
    done = expect(SlotsDone, rig.do(command))
    audit(rig.machine)
    return done


def test_an_ack_removes_the_job_and_counts_what_is_left() -> None:
    rig = queue()
    claim(rig, 2)
    assert settle(rig, AckHeld(Q, [1], WORKER)) == SlotsDone(1, [], ready=1, in_flight=1)
    assert rig.stats().acked == 1
    assert dump(rig.replayed()) == dump(rig.machine)


def test_an_ack_may_be_repeated_and_is_then_skipped() -> None:
    rig = queue()
    claim(rig)
    assert settle(rig, AckHeld(Q, [1, 1, 99], WORKER)) == SlotsDone(1, [1, 99], 2, 0)
    assert settle(rig, AckHeld(Q, [1], WORKER)) == SlotsDone(0, [1], 2, 0)
    assert rig.last == []


@pytest.mark.parametrize("command", SETTLING)
def test_a_seq_named_twice_is_settled_once(command: Callable[..., Command]) -> None:
    rig = queue()
    claim(rig, 2)
    done = settle(rig, command(Q, [2, 2, 1, 2], WORKER))
    assert (done.count, done.skipped) == (2, [2, 2])


@pytest.mark.parametrize("command", SETTLING)
def test_only_the_holder_settles_a_lease(command: Callable[..., Command]) -> None:
    rig = queue()
    claim(rig)
    before = dump(rig.machine)
    assert settle(rig, command(Q, [1, 2], OTHER)).skipped == [1, 2]
    assert dump(rig.machine) == before
    assert settle(rig, command(Q, [1], WORKER)).count == 1


@pytest.mark.parametrize("command", SETTLING)
def test_a_stale_token_settles_nothing_and_the_live_one_does(command: Callable[..., Command]) -> None:
    rig = queue(1)
    (first,) = claim(rig)
    rig.pass_ms(1001)
    (second,) = claim(rig)  # by the same worker, so that the token alone tells the leases apart
    assert settle(rig, command(Q, [1], WORKER, [first.token])).skipped == [1]
    assert settle(rig, command(Q, [1], WORKER, [second.token])).count == 1


def test_no_token_among_tokens_asks_for_none() -> None:
    rig = queue()
    first, second = claim(rig, 2)
    done = settle(rig, AckHeld(Q, [1, 2], WORKER, [None, first.token]))
    assert (done.count, done.skipped) == (1, [2])
    assert settle(rig, AckHeld(Q, [2], WORKER, [second.token])).count == 1


@pytest.mark.parametrize("command", SETTLING)
@pytest.mark.parametrize(("late_ms", "count"), [(999, 1), (1000, 1), (1001, 0)])
def test_a_lease_is_live_until_its_deadline_has_passed(
    command: Callable[..., Command], late_ms: int, count: int
) -> None:
    rig = queue(1)
    claim(rig)
    rig.now += late_ms
    assert settle(rig, command(Q, [1], WORKER)).count == count


def test_a_late_ack_finds_the_job_ready_again() -> None:
    rig = queue(1)
    claim(rig)
    rig.now += 1001
    assert settle(rig, AckHeld(Q, [1], WORKER)) == SlotsDone(0, [1], ready=1, in_flight=0)


def test_a_nack_gives_back_at_once_or_later_and_a_delayed_job_counts_nowhere() -> None:
    rig = queue()
    claim(rig, 2)
    assert settle(rig, NackHeld(Q, [1], WORKER, delay_ms=500)) == SlotsDone(1, [], ready=1, in_flight=1)
    assert settle(rig, NackHeld(Q, [2], WORKER)) == SlotsDone(1, [], ready=2, in_flight=0)
    assert seqs(rig.lease(5)) == [2, 3]
    rig.now += 500
    (back,) = claim(rig)
    assert (place(back.id).seq, back.attempts, back.nacks) == (1, 2, 1)


def test_an_extension_sets_the_deadline_and_counts_no_delivery() -> None:
    rig = queue(1)
    claim(rig)
    rig.now += 700
    done = settle(rig, ExtendHeld(Q, [1, 2], WORKER, 400))
    assert done == SlotsDone(1, [2], 0, 1, {1: rig.now + 400})
    rig.pass_ms(401)
    assert claim(rig)[0].attempts == 2


def test_an_extension_stays_within_the_topics_longest_lease() -> None:
    rig = queue(1, max_lease_ms=2000)
    claim(rig)
    assert settle(rig, ExtendHeld(Q, [1], WORKER, 86_400_000)).deadlines_ms == {1: rig.now + 2000}


@pytest.mark.parametrize("command", SETTLING)
def test_all_seqs_of_a_command_are_one_batch(command: Callable[..., Command]) -> None:
    rig = queue(50)
    claim(rig, 50)
    batches = len(rig.batches)
    assert settle(rig, command(Q, range(1, 51), WORKER)).count == 50
    assert len(rig.batches) == batches + 1
    assert sum(len(moves_of(event)) for event in rig.last) == 50
    assert dump(rig.replayed()) == dump(rig.machine)


def test_an_ack_waits_for_the_disk_and_a_heartbeat_only_where_leases_are_durable() -> None:
    for durable in (False, True):
        rig = queue(2, leases_durable=durable)
        claim(rig, 2)
        settle(rig, ExtendHeld(Q, [1], WORKER, 500))
        assert rig.synced == durable
        settle(rig, AckHeld(Q, [1], WORKER))
        assert rig.synced
    rig = queue(1, durability=Durability.DISK)
    claim(rig)
    settle(rig, AckHeld(Q, [1], WORKER))
    assert not rig.synced


def test_settling_wakes_those_who_wait_for_room_or_jobs() -> None:
    rig = queue(2, max_in_flight=1)
    claim(rig)
    rig.machine.woken.clear()
    settle(rig, AckHeld(Q, [1], WORKER))
    assert rig.machine.woken == {Q}
    rig = queue(1)
    claim(rig)
    rig.machine.woken.clear()
    settle(rig, NackHeld(Q, [1], WORKER))
    assert rig.machine.woken == {Q}


@pytest.mark.parametrize("command", SETTLING)
def test_what_cannot_be_asked_is_refused_with_its_name(command: Callable[..., Command]) -> None:
    rig = queue()
    rig.do(CreateTopic(b"log", TopicConfig(type=TopicType.LOG)))
    missing = rig.refused(command(b"nowhere", [1], WORKER))
    assert (missing.code, missing.detail) == (Code.TOPIC_NOT_FOUND, {"topic": b"nowhere"})
    log = rig.refused(command(b"log", [1], WORKER))
    assert (log.code, log.detail) == (Code.NOT_A_QUEUE, {"topic": b"log"})
    assert rig.code(command(Q, [1, 2], WORKER, [7])) == Code.BAD_REQUEST


@pytest.mark.parametrize("command", SETTLING)
def test_a_slot_names_a_job_in_any_partition(command: Callable[..., Command]) -> None:
    rig = Rig(TopicConfig(partitions=4, lease_ms=1000))
    rig.add_many(*(b"%d" % number for number in range(8)))
    held = rig.lease(6, holder=WORKER)
    slots = [each.id & SLOT_MASK for each in held]
    assert len({slot >> PARTITION_SHIFT for slot in slots}) == 4
    before = dump(rig.machine)
    seq_of_none = slot(7, 1)
    assert settle(rig, command(Q, [*slots, seq_of_none], OTHER)).skipped == [*slots, seq_of_none]
    assert settle(rig, command(Q, slots, WORKER, [1] * 6)).skipped == slots
    assert dump(rig.machine) == before
    done = settle(rig, command(Q, [*slots, slots[0]], WORKER, [*(each.token for each in held), None]))
    assert (done.count, done.skipped) == (6, [slots[0]])
    stats = rig.stats()
    assert (done.ready, done.in_flight) == (stats.ready, stats.leased)
    assert set(done.deadlines_ms) in (set(), set(slots))
    assert dump(rig.replayed()) == dump(rig.machine)


@pytest.mark.parametrize("command", SETTLING)
def test_no_seqs_at_all_change_nothing(command: Callable[..., Command]) -> None:
    rig = queue()
    claim(rig)
    done = settle(rig, command(Q, [], WORKER))
    assert (done.count, done.skipped, done.ready, done.in_flight) == (0, [], 2, 1)
    assert rig.last == []


def test_a_job_of_either_front_is_settled_by_the_other() -> None:
    rig = queue(0)
    added = rig.add(b"by the Redis front", retry_ms=5000)
    (delivery,) = claim(rig)
    assert delivery.id == added
    assert settle(rig, AckHeld(Q, [place(added).seq], WORKER)).count == 1
    rig.do(Append(Q, [NewRecord(b'"by HTTP"')]))
    (delivery,) = claim(rig)
    assert rig.ack(delivery) == Done(1, [])


def test_a_release_gives_back_all_that_a_holder_holds_in_any_topic() -> None:
    rig = queue(2)
    rig.do(CreateTopic(b"wide", TopicConfig(partitions=3)))
    for number in range(6):
        rig.add(b"%d" % number, topic=b"wide")
    claim(rig, 1)
    claim(rig, 1, OTHER)
    rig.lease(6, b"wide", holder=WORKER)
    assert expect(Done, rig.do(Release(WORKER))).count == 7
    audit(rig.machine)
    assert expect(Done, rig.do(Release(WORKER))).count == 0
    assert rig.stats().leased == 1


def test_a_release_looks_only_where_the_holder_holds() -> None:
    rig = queue(1)
    for number in range(50):
        rig.do(CreateTopic(b"topic-%d" % number, TopicConfig()))
    claim(rig)
    partition = rig.machine.names[Q].partitions[0]
    assert rig.machine.totals.holdings == {WORKER: {partition}}
    settle(rig, AckHeld(Q, [1], WORKER))
    assert rig.machine.totals.holdings == {}


def test_expired_leases_and_due_nacks_come_before_fresh_jobs() -> None:
    rig = queue(4)
    claim(rig, 2)
    settle(rig, NackHeld(Q, [1], WORKER, delay_ms=1500))
    rig.now += 1001  # the lease of 2 has ended
    assert seqs(claim(rig, 1, OTHER)) == [2]
    rig.now += 500  # the delay of 1 too
    assert seqs(claim(rig, 9, OTHER)) == [1, 3, 4]


def test_every_delivery_is_counted_reclaims_included() -> None:
    rig = queue(1)
    for attempt in range(1, 5):
        assert claim(rig)[0].attempts == attempt
        if attempt % 2:
            settle(rig, NackHeld(Q, [1], WORKER))
        else:
            rig.pass_ms(1001)


def test_a_claim_of_a_paused_or_missing_topic_gets_nothing_and_of_a_log_a_refusal() -> None:
    rig = queue()
    rig.do(CreateTopic(b"log", TopicConfig(type=TopicType.LOG)))
    assert expect(Leased, rig.do(Lease(b"nowhere"))).deliveries == ()
    assert rig.refused(Lease(b"log")).detail == {"topic": b"log"}
    assert expect(Leased, rig.do(Lease(Q, 2))).ready == 1


def test_a_lease_that_ran_out_says_so_in_the_journal() -> None:
    rig = queue(1)
    claim(rig)
    rig.now += 1001
    rig.do(Tick())
    assert [type(event) for event in rig.last] == [events.JobReturned]
