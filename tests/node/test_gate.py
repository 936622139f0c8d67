"""What replies wait for opens in the order in which it was waited for."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from esker.engine.commands import CreateTopic, Enqueue, Lease, NewJob
from esker.engine.config import Durability, TopicConfig
from esker.engine.ids import TIME_SHIFT
from esker.engine.machine import Machine
from esker.engine.replies import Leased
from esker.errors import ShardStopped
from esker.journal.interface import Done
from esker.journal.memory import MemoryJournal
from esker.node import shard as shard_module
from esker.node.clock import Clock
from esker.node.shard import Batch, Shard
from esker.node.waiting import WaitingRoom
from tests.engine.rig import Q


class HeldJournal(MemoryJournal):
    """Answers appends when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Done] = []

    def append(self, batch: bytes, sync: bool, done: Done) -> int:
        self.held.append(done)
        return super().append(batch, sync, lambda error: None)

    def answer(self) -> None:
        self.held.pop(0)(None)


def _gate(shard: Shard) -> Batch | None:
    """Asked anew each time: it changes between two looks."""
    return shard.gate


def test_a_batch_that_somebody_waits_for_stays_the_gate_until_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of class disk nobody waits for the disk, until it falls behind; then later replies must not overtake."""
    monkeypatch.setattr(shard_module, "OUTBOX_EVENTS_MAX", 10)

    async def scene() -> None:
        journal = HeldJournal()
        shard = Shard(Machine(Random(1)), journal, Clock(), WaitingRoom())
        shard.handle(CreateTopic(Q, TopicConfig(durability=Durability.DISK)))
        shard.handle(Enqueue(Q, [NewJob(b"reserves seqs")]))
        shard.flush()
        journal.answer()
        await asyncio.sleep(0)
        assert _gate(shard) is None

        shard.handle(Enqueue(Q, [NewJob(b"job")] * 11))
        gate = _gate(shard)
        assert gate is not None, "the disk has fallen behind"
        opened: list[BaseException | None] = []
        gate.subscribe(opened.append)
        while not journal.held:  # noqa: ASYNC110 the commit lingers for some turns of the loop
            await asyncio.sleep(0)
        assert _gate(shard) is gate, "whoever comes now waits too"
        journal.answer()
        await asyncio.sleep(0)
        assert opened == [None]
        assert _gate(shard) is None
        shard.close()

    asyncio.run(scene())


def test_a_commit_tells_those_who_wait_at_once_when_the_journal_is_quick() -> None:
    async def scene() -> None:
        shard = Shard(Machine(Random(1)), MemoryJournal(), Clock(), WaitingRoom())
        shard.handle(Enqueue(Q, [NewJob(b"job")]))
        opened: list[BaseException | None] = []
        gate = _gate(shard)
        assert gate is not None
        gate.subscribe(opened.append)
        shard.commit()
        assert opened == [None]
        assert _gate(shard) is None
        shard.close()

    asyncio.run(scene())


def test_a_commit_behind_a_batch_on_its_way_is_made_by_its_arrival() -> None:
    async def scene() -> None:
        journal = HeldJournal()
        shard = Shard(Machine(Random(1)), journal, Clock(), WaitingRoom())
        shard.handle(Enqueue(Q, [NewJob(b"first")]))
        shard.commit()
        shard.handle(Enqueue(Q, [NewJob(b"second")]))
        shard.commit()
        assert len(journal.held) == 1
        journal.answer()
        while not journal.held:  # noqa: ASYNC110 the commit lingers for some turns of the loop
            await asyncio.sleep(0)
        shard.close()

    asyncio.run(scene())


class Scene:
    """A shard whose time passes, and whose journal answers, when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0
        self.journal = HeldJournal()
        clock = Clock(0, lambda: self.now_s, lambda: self.now_s)
        self.shard = Shard(Machine(Random(1)), self.journal, clock, WaitingRoom())

    def enqueue(self, queue: bytes, retry_ms: int = 60_000) -> None:
        self.now_s += 0.002
        self.shard.handle(Enqueue(queue, [NewJob(b"job", retry_ms=retry_ms)]))

    def sync(self) -> None:
        """All that was decided in a millisecond before this one is on disk."""
        self.enqueue(b"other")
        self.shard.commit()
        while self.journal.held:
            self.journal.answer()

    def lease(self, *queues: bytes) -> Leased:
        replies = [self.shard.handle(Lease(queue)) for queue in queues]
        return Leased([job for reply in replies if isinstance(reply, Leased) for job in reply.deliveries])


async def _lasts(queues: dict[bytes, TopicConfig], *, synced: bool = True, retry_ms: int = 60_000) -> bool:
    """Whether a lease of a job from each may be told while something else is on its way to disk."""
    scene = Scene()
    for queue, config in queues.items():
        scene.shard.handle(CreateTopic(queue, config))
        scene.enqueue(queue, retry_ms)
    if synced:
        scene.sync()
        await asyncio.sleep(0)
    scene.enqueue(b"other")
    leased = scene.lease(*queues)
    assert len(leased.deliveries) == len(queues)
    assert _gate(scene.shard) is not None
    scene.shard.close()
    return scene.shard.lasts(leased)


def test_a_lease_of_jobs_on_disk_waits_for_nobody_elses_sync() -> None:
    assert asyncio.run(_lasts({Q: TopicConfig()}))
    assert asyncio.run(_lasts({Q: TopicConfig(), b"r": TopicConfig()}))


def test_a_lease_of_a_job_that_is_not_on_disk_waits_for_it() -> None:
    assert not asyncio.run(_lasts({Q: TopicConfig()}, synced=False))


def test_a_lease_that_was_promised_to_survive_waits_for_the_disk() -> None:
    assert not asyncio.run(_lasts({Q: TopicConfig(leases_durable=True)}))
    assert not asyncio.run(_lasts({Q: TopicConfig(), b"r": TopicConfig(leases_durable=True)}))


def test_a_job_that_is_delivered_at_most_once_waits_for_the_disk() -> None:
    assert not asyncio.run(_lasts({Q: TopicConfig()}, retry_ms=0))


def test_a_claim_that_found_nothing_waits_like_any_reply() -> None:
    assert not asyncio.run(_lasts({}))


def test_a_job_of_the_millisecond_in_which_a_batch_left_counts_as_not_on_disk() -> None:
    """More may have come in that millisecond, behind the batch."""

    async def scene() -> None:
        here = Scene()
        here.enqueue(Q)
        here.shard.commit()
        here.shard.handle(Enqueue(Q, [NewJob(b"the same millisecond")]))
        here.journal.answer()
        await asyncio.sleep(0)
        assert not here.shard.lasts(here.lease(Q))
        here.shard.close()

    asyncio.run(scene())


def test_a_job_of_the_millisecond_in_which_a_shard_begins_counts_as_not_on_disk() -> None:
    """A clock that was set back starts where the last life ended."""

    async def scene() -> None:
        machine = Machine(Random(1))
        machine.last_ms = 1_800_000_000_000
        shard = Shard(machine, HeldJournal(), Clock(machine.last_ms, lambda: 1.0, lambda: 1.0), WaitingRoom())
        shard.handle(Enqueue(Q, [NewJob(b"job")]))
        leased = shard.handle(Lease(Q))
        assert isinstance(leased, Leased)
        assert leased.deliveries[0].id >> TIME_SHIFT == 1_800_000_000_000
        assert not shard.lasts(leased)
        shard.close()

    asyncio.run(scene())


def test_what_was_decided_in_the_turn_of_a_stop_is_told_to_be_lost() -> None:
    async def scene() -> None:
        here = Scene()
        here.enqueue(Q)
        here.shard.stop(RuntimeError("a bug"))
        gate = _gate(here.shard)
        assert gate is not None
        told: list[BaseException | None] = []
        gate.subscribe(told.append)
        await asyncio.sleep(0)
        assert [type(error) for error in told] == [ShardStopped]

    asyncio.run(scene())


def test_once_it_has_stopped_nobody_waits() -> None:
    async def scene() -> None:
        here = Scene()
        here.enqueue(Q)
        here.shard.commit()
        here.enqueue(Q)
        here.journal.held.pop()(OSError("the disk is gone"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert here.shard.stopped is not None
        assert _gate(here.shard) is None
        with pytest.raises(ShardStopped):
            here.shard.claim(Lease(Q), lambda reply: None)

    asyncio.run(scene())
