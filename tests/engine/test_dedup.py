"""A producer that tries again adds nothing twice."""

from __future__ import annotations

import pytest

from esker.engine import limits
from esker.engine.commands import Ack, Details, Enqueue, NewJob, Tick
from esker.engine.config import TopicConfig
from esker.engine.dedup import Dedup
from esker.engine.queues.sums import Totals
from esker.engine.replies import Added
from tests.engine.rig import Q, Rig, expect


def add(rig: Rig, *details: Details, partition_key: bytes | None = None) -> Added:
    jobs = [NewJob(b"work", details=each, partition_key=partition_key) for each in details]
    return expect(Added, rig.do(Enqueue(Q, jobs)))


def producer(sequence: int, epoch: int = 1, name: bytes = b"p") -> Details:
    return Details(producer=name, epoch=epoch, sequence=sequence)


@pytest.mark.parametrize("partitions", [1, 8])
@pytest.mark.parametrize("details", [Details(key=b"k"), producer(1), Details(key=b"k", producer=b"p", sequence=4)])
@pytest.mark.parametrize("partition_key", [None, b"", b"here"])
def test_a_repeated_job_is_answered_with_the_first_ones_id(
    details: Details, partitions: int, partition_key: bytes | None
) -> None:
    rig = Rig(TopicConfig(partitions=partitions))
    first = add(rig, details, partition_key=partition_key)
    assert list(first.duplicates) == []
    rig.now += 1000
    again = add(rig, details, partition_key=partition_key)
    assert (list(again.ids), list(again.duplicates)) == (list(first.ids), [0])
    assert rig.last == []
    assert rig.stats().ready == 1


def test_a_repetition_inside_one_batch_is_found() -> None:
    rig = Rig(TopicConfig())
    added = add(rig, producer(1), producer(2), producer(1))
    assert list(added.duplicates) == [2]
    assert added.ids[0] == added.ids[2] != added.ids[1]
    assert rig.stats().ready == 2


def test_producer_epoch_and_sequence_all_count() -> None:
    rig = Rig(TopicConfig())
    added = add(rig, producer(1), producer(2), producer(1, epoch=2), producer(1, name=b"q"), Details(key=b"1.1.p"))
    assert list(added.duplicates) == []
    assert rig.stats().ready == 5


def test_a_job_that_is_long_done_is_still_known() -> None:
    rig = Rig(TopicConfig())
    (job_id,) = add(rig, producer(1)).ids
    rig.do(Ack([job_id]))
    assert list(add(rig, producer(1)).duplicates) == [0]
    assert rig.stats().ready == 0


@pytest.mark.parametrize(("passed", "known"), [(999, True), (1000, False), (1001, False)])
def test_the_window_ends_to_the_millisecond(passed: int, known: bool) -> None:
    rig = Rig(TopicConfig(idempotency_window_ms=1000))
    add(rig, producer(1))
    rig.now += passed
    assert bool(add(rig, producer(1)).duplicates) is known


def test_without_a_window_nothing_is_known() -> None:
    rig = Rig(TopicConfig(idempotency_window_ms=0))
    assert list(add(rig, producer(1), producer(1)).duplicates) == []


def test_what_is_past_the_window_is_forgotten_and_the_store_is_told() -> None:
    rig = Rig(TopicConfig(idempotency_window_ms=1000))
    add(rig, producer(1), producer(2))
    partition = rig.machine.names[Q].partitions[0]
    rig.machine.touched.clear()
    rig.now += 1000
    rig.do(Tick())
    assert partition.dedup.entries == {}
    assert rig.machine.touched == {partition}


def test_memory_is_bounded_and_the_oldest_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEDUP_KEYS_MAX", 3)
    rig = Rig(TopicConfig())
    add(rig, *[producer(number) for number in range(5)])
    assert len(rig.machine.names[Q].partitions[0].dedup.entries) == 3
    assert [bool(add(rig, producer(number)).duplicates) for number in (4, 3, 2, 0)] == [True, True, True, False]


def test_forgetting_is_a_bounded_step() -> None:
    dedup = Dedup(Totals())
    for number in range(10):
        dedup.remember(b"%d" % number, number, number)
    dedup.forget(since_ms=7, limit=3)
    assert list(dedup.entries) == [b"%d" % number for number in range(3, 10)]
    dedup.forget(since_ms=7, limit=100)
    assert list(dedup.entries) == [b"8", b"9"]


def test_a_checkpoint_learns_what_was_added_and_what_was_dropped() -> None:
    dedup = Dedup(Totals())
    dedup.remember(b"a", 1, 1)
    dedup.remember(b"b", 2, 2)
    dedup.forget(1, 10)
    assert (dedup.added, dedup.dropped) == ({b"b"}, {b"a"})
    dedup.remember(b"a", 3, 3)
    assert (dedup.added, dedup.dropped) == ({b"a", b"b"}, set())
