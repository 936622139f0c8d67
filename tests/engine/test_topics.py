"""Topics: epochs, partitions, idleness, and seqs that are never given twice."""

from __future__ import annotations

from random import Random

import pytest

from esker.engine import limits
from esker.engine.commands import (
    Ack,
    ConfigureTopic,
    CreateTopic,
    DeleteAllTopics,
    DeleteTopic,
    Details,
    Enqueue,
    Lease,
    NewJob,
    PauseTopic,
    Purge,
    Tick,
)  # fmt: skip
from esker.engine.config import Durability, Mode, Pause, TopicConfig
from esker.engine.events import encode_batch
from esker.engine.ids import place
from esker.engine.machine import Machine
from esker.engine.placement import partition_of
from esker.engine.replies import Done, TopicView
from tests.engine.audit import audit
from tests.engine.rig import Q, Rig, expect, fold


def test_a_topic_made_again_has_a_new_number_and_does_not_know_old_ids() -> None:
    rig = Rig(TopicConfig())
    old = rig.add(b"old")
    rig.do(DeleteTopic(Q))
    assert expect(TopicView, rig.do(CreateTopic(Q, TopicConfig()))).number == 2
    new = rig.add(b"new")
    assert place(new).seq == place(old).seq
    assert not rig.knows(old)
    assert expect(Done, rig.do(Ack([old]))) == Done(0, [old])
    assert rig.drain() == [b"new"]


def test_a_deleted_topic_takes_its_jobs_and_their_memory_with_it() -> None:
    rig = Rig(TopicConfig())
    rig.add_many(b"1", b"2")
    rig.add(topic=b"other")
    assert expect(Done, rig.do(DeleteTopic(Q))).count == 1
    assert rig.machine.totals.jobs == 1
    assert rig.machine.memory_bytes() == rig.machine.names[b"other"].memory_bytes + limits.JOB_MEMORY_BYTES + 4
    assert expect(Done, rig.do(DeleteAllTopics())).count == 1
    assert rig.machine.memory_bytes() == 0
    audit(rig.machine)


def test_a_purge_takes_every_job_and_keeps_the_topic_and_its_seqs() -> None:
    rig = Rig(TopicConfig(partitions=3))
    rig.add_many(*[b"x"] * 9)
    rig.lease(2)
    before = [partition.next_seq for partition in rig.machine.names[Q].partitions]
    assert expect(Done, rig.do(Purge(Q))).count == 9
    assert [partition.next_seq for partition in rig.machine.names[Q].partitions] == before
    assert rig.lease() == []
    rig.pass_ms(10**6)
    audit(rig.machine)


def test_the_best_job_of_all_partitions_is_next() -> None:
    rig = Rig(TopicConfig(partitions=7, mode=Mode.MAX))
    dice = Random(3)
    priorities = [dice.randrange(-1000, 1000) for _ in range(200)]
    for priority in priorities:
        rig.add(b"%d" % priority, priority)
    assert len({partition.index for partition in rig.machine.names[Q].partitions if partition.jobs}) == 7
    assert [int(payload) for payload in rig.drain()] == sorted(priorities, reverse=True)


def test_jobs_without_a_key_are_spread_evenly() -> None:
    rig = Rig(TopicConfig(partitions=4))
    rig.add_many(*[b"x"] * 40)
    assert [len(partition.jobs) for partition in rig.machine.names[Q].partitions] == [10] * 4


def test_the_jobs_of_a_key_stay_together() -> None:
    rig = Rig(TopicConfig(partitions=16))
    ids = [rig.add(partition_key=b"user 7") for _ in range(5)]
    assert {place(job_id).partition for job_id in ids} == {partition_of(b"user 7", 16)}


@pytest.mark.parametrize(
    ("key", "partitions", "partition"),
    [(b"", 5, 0), (b"user 7", 16, 8), (b"user 8", 16, 13), (b"user 7", 1024, 567), (b"\xff\x00", 3, 0), (b"x", 1, 0)],
)
def test_the_place_of_a_key_never_changes(key: bytes, partitions: int, partition: int) -> None:
    assert partition_of(key, partitions) == partition


def test_growing_moves_only_keys_to_the_new_partition() -> None:
    keys = [b"%d" % number for number in range(500)]
    moved = [key for key in keys if partition_of(key, 8) != partition_of(key, 9)]
    assert all(partition_of(key, 9) == 8 for key in moved)
    assert 20 < len(moved) < 100


def lazy_rig(watched: frozenset[bytes] = frozenset()) -> Rig:
    rig = Rig(watched=watched)
    job_id = rig.add(topic=b"lazy")
    rig.do(Ack([job_id]))
    return rig


def test_an_idle_queue_that_nobody_configured_leaves() -> None:
    rig = lazy_rig()
    rig.pass_ms(limits.IDLE_TOPIC_MS)
    assert b"lazy" in rig.machine.names
    rig.pass_ms(1)
    assert rig.machine.names == {}
    assert fold(rig.batches).names == {}


@pytest.mark.parametrize("why", ["watched", "configured", "paused", "holds a job", "remembers a key"])
def test_an_idle_queue_stays_when_it_is(why: str) -> None:
    rig = lazy_rig(frozenset({b"lazy"}) if why == "watched" else frozenset())
    if why == "configured":
        rig.do(ConfigureTopic(b"lazy", TopicConfig()))
    elif why == "paused":
        rig.do(PauseTopic(b"lazy", Pause.OUT))
    elif why == "holds a job":
        rig.add(topic=b"lazy")
    elif why == "remembers a key":
        rig.do(Ack([rig.add(topic=b"lazy", details=Details(key=b"k"))]))
    rig.pass_ms(limits.IDLE_TOPIC_MS + 1)
    rig.do(Tick())
    assert b"lazy" in rig.machine.names


def test_a_queue_enqueued_with_a_config_is_not_lazy() -> None:
    rig = Rig()
    rig.do(Enqueue(Q, [], config=TopicConfig(mode=Mode.FIFO)))
    rig.pass_ms(limits.IDLE_TOPIC_MS + 1)
    assert rig.stats().config.mode == Mode.FIFO


@pytest.mark.parametrize("durability", [Durability.EPHEMERAL, Durability.MEMORY, Durability.DISK])
def test_a_class_that_loses_its_tail_never_gives_a_seq_twice(durability: Durability) -> None:
    rig = Rig(TopicConfig(durability=durability))
    given = [(rig.add(), rig.synced) for _ in range(3)]
    assert [synced for _, synced in given] == [True, False, False], "only the reserve is waited for"
    kept = rig.batches[:2]  # the topic, and the first job with its reserve
    machine = fold(kept)
    machine.settle()
    assert machine.names[Q].partitions[0].next_seq > max(place(job_id).seq for job_id, _ in given)


def test_the_fsync_class_reserves_nothing() -> None:
    rig = Rig(TopicConfig())
    rig.add()
    assert rig.machine.names[Q].partitions[0].ceiling == 1
    machine = rig.replayed()
    machine.settle()
    assert machine.names[Q].partitions[0].next_seq == 2


def test_a_reserve_is_renewed_before_it_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SEQ_RESERVE", 4)
    rig = Rig(TopicConfig(durability=Durability.MEMORY))
    for _ in range(20):
        rig.do(Enqueue(Q, [NewJob(b"x")] * 3))
        partition = rig.machine.names[Q].partitions[0]
        assert partition.next_seq <= partition.ceiling


def test_a_class_lowered_later_reserves_at_once() -> None:
    rig = Rig(TopicConfig())
    rig.add_many(b"1", b"2")
    rig.do(ConfigureTopic(Q, TopicConfig(durability=Durability.MEMORY)))
    partition = rig.machine.names[Q].partitions[0]
    assert partition.ceiling > partition.next_seq


def test_a_class_raised_later_still_remembers_what_it_may_have_lost() -> None:
    rig = Rig(TopicConfig(durability=Durability.MEMORY))
    given = [rig.add() for _ in range(3)]
    kept = rig.batches[:2]  # the other jobs are lost
    second = fold(kept)
    second.settle()
    second.handle(ConfigureTopic(Q, TopicConfig()), rig.now)
    third = fold([*kept, encode_batch(second.outbox)])
    third.settle()
    assert third.names[Q].partitions[0].next_seq > max(place(job_id).seq for job_id in given)


def test_an_orderly_end_skips_no_seq() -> None:
    rig = Rig(TopicConfig(durability=Durability.MEMORY))
    rig.add()
    rig.machine.release_reserves()
    rig.machine.settle()
    assert rig.machine.names[Q].partitions[0].next_seq == 2


def test_a_topic_that_the_store_knew_first_keeps_its_name() -> None:
    """The elder of the same name came and went between the position of a checkpoint and the crash that cut it short."""
    rig = Rig(TopicConfig())
    rig.do(DeleteTopic(Q))
    rig.do(CreateTopic(Q, TopicConfig(mode=Mode.MAX)))
    ahead = fold(rig.batches)
    fold(rig.batches, ahead)
    assert ahead.names[Q].number == 2
    audit(ahead)


def test_topics_stay_in_order_of_creation_whatever_order_a_store_knew_them_in() -> None:
    rig = Rig(TopicConfig())
    rig.do(CreateTopic(b"two", TopicConfig()))
    ahead = fold(rig.batches[1:], Machine(Random(0)))
    fold(rig.batches, ahead)
    ahead.settle()
    assert list(ahead.topics) == [1, 2]


def test_ephemeral_jobs_leave_nothing_in_the_journal() -> None:
    rig = Rig(TopicConfig(durability=Durability.EPHEMERAL))
    rig.add()
    rig.add()
    rig.do(Lease(Q))
    assert rig.last == []
    machine = rig.replayed()
    assert machine.names[Q].jobs == 0
