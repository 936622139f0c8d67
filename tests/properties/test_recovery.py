"""Recoveries that chance rarely meets: one scene each."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from esker.engine.commands import (
    Ack,
    Command,
    CreateTopic,
    DeleteTopic,
    Details,
    Enqueue,
    Lease,
    Nack,
    NewJob,
    Purge,
    ReplayDeadLetters,
    Show,
)  # fmt: skip
from esker.engine.config import Durability, TopicConfig
from esker.engine.machine import Machine
from esker.engine.replies import Added, Done, Jobs, Leased, Reply
from esker.errors import DataDirectoryError
from esker.journal.memory import MemoryJournal
from esker.node.recovery import recover
from esker.store.memory import MemoryStore
from tests.engine.audit import audit
from tests.engine.dump import dump
from tests.engine.rig import START_MS, Q, expect
from tests.properties.world import World


class Always(Random):
    """Cools every payload that can be."""

    def random(self) -> float:
        return 0.0


@pytest.fixture
def world() -> Iterator[World]:
    world = World(None)
    yield world
    world.close()


def do(world: World, command: Command) -> Reply:
    return world.do(command, START_MS)


def checkpoint(world: World) -> None:
    world.begin_checkpoint()
    world.finish_checkpoint(Always())


def crash(world: World) -> None:
    world.sync()
    world.crash(world.journal.last_position, 0)


def add(world: World, *jobs: NewJob) -> list[int]:
    return list(expect(Added, do(world, Enqueue(Q, jobs))).ids)


def payloads(world: World) -> list[bytes]:
    return [each.payload for each in expect(Leased, do(world, Lease(Q, 100))).deliveries]


@pytest.mark.parametrize("between", [True, False])
def test_a_job_replayed_under_its_old_seq_keeps_its_payload(world: World, between: bool) -> None:
    do(world, CreateTopic(Q, TopicConfig(max_deliveries=1, dead_letter=b"grave")))
    (job_id,) = add(world, NewJob(b"precious"))
    checkpoint(world)
    do(world, Lease(Q))
    do(world, Nack([job_id], delay_ms=0))
    do(world, Lease(Q))  # buries it
    if between:
        checkpoint(world)  # the store forgets the old seq
    assert expect(Done, do(world, ReplayDeadLetters(b"grave"))).count == 1
    checkpoint(world)
    crash(world)
    assert payloads(world) == [b"precious"]


def test_a_job_replayed_after_a_purge_survives_the_purge_in_the_store(world: World) -> None:
    do(world, CreateTopic(Q, TopicConfig(max_deliveries=1, dead_letter=b"grave")))
    (job_id,) = add(world, NewJob(b"precious"))
    do(world, Lease(Q))
    do(world, Nack([job_id], delay_ms=0))
    do(world, Lease(Q))
    add(world, NewJob(b"purged"))
    checkpoint(world)
    do(world, Purge(Q))
    do(world, ReplayDeadLetters(b"grave"))
    checkpoint(world)
    crash(world)
    assert payloads(world) == [b"precious"]


def test_an_ephemeral_queue_forgets_its_idempotency_keys_with_its_jobs(world: World) -> None:
    do(world, CreateTopic(Q, TopicConfig(durability=Durability.EPHEMERAL)))
    job = NewJob(b"work", details=Details(key=b"k"))
    add(world, job)
    assert expect(Added, do(world, Enqueue(Q, [job]))).duplicates == [0]
    checkpoint(world)
    world.restart()
    assert expect(Added, do(world, Enqueue(Q, [job]))).duplicates == []
    assert payloads(world) == [b"work"]


@pytest.mark.parametrize("how", [DeleteTopic(Q), Purge(Q)])
def test_jobs_that_go_while_they_are_being_saved_are_subtracted_once(world: World, how: Command) -> None:
    do(world, CreateTopic(Q, TopicConfig()))
    add(world, *[NewJob(b"x" * 10)] * 5)
    world.begin_checkpoint()
    while world.make_slice():
        pass
    do(world, how)
    world.finish_checkpoint(Always())
    assert (world.machine.totals.jobs, world.machine.totals.hot_bytes) == (0, 0)
    audit(world.machine)


def test_a_cold_payload_is_read_back_wherever_it_is_asked_for(world: World) -> None:
    (first, second) = add(world, NewJob(b"one"), NewJob(b"two"))
    checkpoint(world)
    assert world.machine.totals.hot_bytes == 0
    assert [job.payload for job in expect(Jobs, do(world, Show(first))).jobs] == [b"one"]
    assert payloads(world) == [b"one", b"two"]
    do(world, Ack([first, second]))
    audit(world.machine)


def test_what_a_restart_finds_is_what_was_there(world: World) -> None:
    do(world, CreateTopic(Q, TopicConfig(durability=Durability.DISK, leases_durable=True)))
    add(
        world,
        NewJob(b"a"),
        NewJob(b"b", ttl_ms=9000),
        NewJob(b"c", details=Details(delay_ms=5)),
        NewJob(b"d", retry_ms=0),
    )
    do(world, Lease(Q, 1))
    world.machine.release_reserves()
    before = dump(world.machine)
    world.restart()
    assert dump(world.machine) == before
    audit(world.machine)


def test_counters_are_exact_after_a_restart_and_after_a_crash_without_a_checkpoint(world: World) -> None:
    do(world, CreateTopic(Q, TopicConfig()))
    add(world, *[NewJob(b"x")] * 5)
    ids = [each.id for each in expect(Leased, do(world, Lease(Q, 3))).deliveries]
    do(world, Ack(ids[:2]))
    crash(world)
    world.restart()
    counters = world.machine.names[Q].partitions[0].counters
    assert (counters.jobs_in, counters.jobs_out, counters.acked) == (5, 3, 2)


def test_a_journal_that_begins_too_late_is_refused() -> None:
    journal = MemoryJournal()
    for _ in range(3):
        journal.append(b"\x90", True, lambda error: None)
    journal.retire(2)
    with pytest.raises(DataDirectoryError, match="ends at position 0 and the journal starts at 3"):
        recover(Machine(Random(0)), journal, MemoryStore())


def test_a_store_from_the_future_of_its_journal_is_refused(world: World) -> None:
    do(world, CreateTopic(Q, TopicConfig()))
    checkpoint(world)
    with pytest.raises(DataDirectoryError, match="the store is at position 1, the journal ends at 0"):
        recover(Machine(Random(0)), MemoryJournal(), world.store)


def test_a_job_that_came_back_behind_a_purge_stays_in_memory_until_the_purge_is_in_the_store(world: World) -> None:
    """A checkpoint under way saves it again, but the next one begins by removing everything below the purge."""
    do(world, CreateTopic(Q, TopicConfig(max_deliveries=1, dead_letter=b"grave")))
    (job_id,) = add(world, NewJob(b"precious"))
    world.begin_checkpoint()  # the job is to be written by it, and has not been yet
    do(world, Lease(Q))
    do(world, Nack([job_id], delay_ms=0))
    do(world, Lease(Q))
    add(world, NewJob(b"purged"))
    do(world, Purge(Q))
    do(world, ReplayDeadLetters(b"grave"))
    world.finish_checkpoint(Always())
    checkpoint(world)
    crash(world)
    assert payloads(world) == [b"precious"]
