"""What a restart leaves of a queue: jobs by their class, leases by promise, floors and keys always."""

from __future__ import annotations

import msgspec
import pytest

from esker.engine import limits
from esker.engine.commands import (
    Ack,
    AckHeld,
    Append,
    ConfigureTopic,
    CreateTopic,
    DeleteRecords,
    Enqueue,
    Lease,
    NewJob,
    NewRecord,
    Read,
    TopicState,
)  # fmt: skip
from esker.engine.config import Durability, TopicConfig
from esker.engine.queues.job import Job, decode_jobs, encode_job
from esker.engine.replies import Deleted, Delivery, Leased, Records, SlotsDone, TopicStatus, TopicView, Written
from esker.testing.engine import Engine
from tests.engine.audit import audit
from tests.engine.rig import Q, expect

WORKER = b"w1"


def start(config: TopicConfig | None = None, jobs: int = 3) -> Engine:
    """With no config the queue is one of the Redis front, made on first use."""
    engine = Engine()
    if config is not None:
        expect(TopicView, engine.handle(CreateTopic(Q, config)))
    engine.handle(Enqueue(Q, [NewJob(b"%d" % number, retry_ms=60_000) for number in range(1, jobs + 1)]))
    return engine


def claim(engine: Engine, count: int = 1) -> list[Delivery]:
    return list(expect(Leased, engine.handle(Lease(Q, count, holder=WORKER))).deliveries)


def come_back(engine: Engine, checkpointed: bool) -> None:
    if checkpointed:
        engine.checkpoint()
    engine.crash()
    audit(engine.machine)


def status(engine: Engine) -> TopicStatus:
    return expect(TopicStatus, engine.handle(TopicState(Q)))


@pytest.mark.parametrize("checkpointed", [False, True])
def test_leases_end_with_the_process_unless_they_are_durable(checkpointed: bool) -> None:
    engine = start(TopicConfig())
    (lost,) = claim(engine)
    come_back(engine, checkpointed)
    assert (status(engine).ready, status(engine).in_flight) == (3, 0)
    assert expect(SlotsDone, engine.handle(AckHeld(Q, [1], WORKER, [lost.token]))).skipped == [1]
    (again,) = claim(engine)
    assert (again.id, again.attempts) == (lost.id, 2)
    come_back(engine, checkpointed)
    assert claim(engine)[0].attempts == 3


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("config", [TopicConfig(leases_durable=True), None])
def test_durable_leases_and_those_of_the_redis_front_survive_with_their_holder(
    config: TopicConfig | None, checkpointed: bool
) -> None:
    engine = start(config)
    first, second = claim(engine, 2)
    come_back(engine, checkpointed)
    assert (status(engine).ready, status(engine).in_flight) == (1, 2)
    assert engine.machine.names[Q].partitions[0].holders == {1: WORKER, 2: WORKER}
    done = expect(SlotsDone, engine.handle(AckHeld(Q, [1, 2], WORKER, [first.token, second.token])))
    assert (done.count, done.skipped) == (2, [])


def test_a_lease_forgotten_once_stays_forgotten_through_a_checkpoint() -> None:
    engine = start(TopicConfig())
    engine.checkpoint()
    claim(engine, 2)
    engine.crash()
    engine.checkpoint()
    engine.crash()
    audit(engine.machine)
    assert [each.attempts for each in claim(engine, 3)] == [2, 2, 1]


@pytest.mark.parametrize("checkpointed", [False, True])
def test_an_acked_job_stays_gone_and_a_repeated_write_known(checkpointed: bool) -> None:
    engine = start(TopicConfig())
    engine.checkpoint()
    engine.handle(Append(Q, [NewRecord(b"4", b"t"), NewRecord(b"5")], b"key"))
    claim(engine)
    engine.handle(AckHeld(Q, [1], WORKER))
    come_back(engine, checkpointed)
    assert [record.seq for record in expect(Records, engine.handle(Read(Q))).records] == [2, 3, 4, 5]
    again = expect(Written, engine.handle(Append(Q, [NewRecord(b"4"), NewRecord(b"5")], b"key")))
    assert again == Written(4, 5, 5, created=False, deduped=True)
    assert expect(Deleted, engine.handle(DeleteRecords(Q, tag=b"t"))).deleted == 1


@pytest.mark.parametrize("checkpointed", [False, True])
def test_floors_survive(checkpointed: bool) -> None:
    engine = start(TopicConfig(cap_records=2, ttl_ms=60_000))
    engine.advance(90_000)
    engine.handle(Append(Q, [NewRecord(b"4")]))
    come_back(engine, checkpointed)
    stone = expect(Records, engine.handle(Read(Q))).tombstone
    assert stone is not None
    assert (stone.gap_from, stone.gap_to, stone.reason) == (1, 3, "mixed")


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("below", [2, 1500, 2001])
def test_deleted_records_stay_deleted(below: int, checkpointed: bool) -> None:
    engine = start(TopicConfig(), jobs=2000)
    engine.checkpoint()
    engine.handle(DeleteRecords(Q, below))
    come_back(engine, checkpointed)
    shown = status(engine)
    assert (shown.count, shown.earliest_seq, shown.head_seq) == (2001 - below, below, 2000)
    claimed = claim(engine, 1)
    assert [each.payload for each in claimed] == ([b"%d" % below] if below < 2001 else [])


def test_the_head_does_not_jump_when_a_crash_may_have_taken_seqs() -> None:
    engine = start(TopicConfig(durability=Durability.DISK))
    engine.crash()
    assert (status(engine).head_seq, status(engine).count) == (3, 3)
    engine.checkpoint()
    engine.crash()
    assert status(engine).head_seq == 3
    found = expect(Records, engine.handle(Read(Q)))
    assert (found.next_from_seq, len(found.records)) == (3, 3)
    written = expect(Written, engine.handle(Append(Q, [NewRecord(b"4")])))
    assert written.first_seq > 3
    assert expect(Records, engine.handle(Read(Q, 3))).next_from_seq == written.head_seq == status(engine).head_seq


def test_an_ephemeral_queue_keeps_its_seqs_and_loses_its_jobs() -> None:
    engine = start(TopicConfig(durability=Durability.EPHEMERAL))
    engine.checkpoint()
    engine.crash()
    assert (status(engine).head_seq, status(engine).count, status(engine).earliest_seq) == (3, 0, 4)
    assert expect(Written, engine.handle(Append(Q, [NewRecord(b"4")]))).first_seq > 3


def test_the_stored_form_of_a_job_has_a_holder_only_where_there_is_one() -> None:
    job = Job(7, 1, 2, 3, 4, 2, 6, 7, 8, 9, 10, 11, None, b"payload")
    plain, held = encode_job(job), encode_job(job, WORKER)
    assert [job.payload for job in decode_jobs((plain, held))] == [None, WORKER]
    assert len(held) == len(plain) + 2 + len(WORKER)


def test_jobs_that_came_together_share_their_times_after_a_restart_too() -> None:
    first, second = decode_jobs(
        encode_job(Job(seq, 10**12, 0, 10**6, 2 * 10**12, 0, 0, 0, 0, 0, 0, 1, None)) for seq in (1, 2)
    )
    assert (first.seq, second.seq) == (1, 2)
    assert first.created_ms is second.created_ms
    assert first.retry_ms is second.retry_ms
    assert first.expires_ms is second.expires_ms


def test_a_settled_lease_is_not_loaded_again() -> None:
    engine = start(None)
    claim(engine, 2)
    engine.checkpoint()
    engine.handle(Ack([delivery.id for delivery in claim(engine)]))
    engine.handle(AckHeld(Q, [1], WORKER))
    engine.checkpoint()
    engine.crash()
    audit(engine.machine)
    assert engine.machine.names[Q].partitions[0].holders == {2: WORKER}


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_cap_that_was_tightened_before_the_crash_is_kept_to_after_it(checkpointed: bool, partitions: int) -> None:
    config = TopicConfig(partitions=partitions)
    engine = start(config, jobs=0)
    for _ in range(2):
        engine.handle(Enqueue(Q, [NewJob(b"x", retry_ms=60_000)] * limits.ENQUEUE_JOBS_MAX))
    engine.handle(ConfigureTopic(Q, msgspec.structs.replace(config, cap_records=10)))
    assert engine.machine.totals.jobs > 10, "it goes in steps"
    come_back(engine, checkpointed)
    for _ in range(4):
        engine.advance(1000)
    assert engine.machine.totals.jobs == 10
