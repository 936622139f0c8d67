"""What replies wait for opens in the order in which it was waited for."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from esker.engine.commands import CreateTopic, Enqueue, NewJob
from esker.engine.config import Durability, TopicConfig
from esker.engine.machine import Machine
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
