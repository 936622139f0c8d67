"""Checkpoints on a store that fails: the shard serves, nothing is lost, and the checkpoint is completed later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from esker.engine.commands import Ack, Append, Command, CreateTopic, Enqueue, Lease, NewJob, NewRecord, Peek, Read
from esker.engine.config import TopicConfig, TopicType
from esker.engine.machine import Machine
from esker.engine.replies import Added, Done, Jobs, Leased, Records, Reply, Written
from esker.journal.memory import MemoryJournal
from esker.node.checkpointer import Checkpointer
from esker.node.clock import Clock
from esker.node.loopwatch import LoopWatch
from esker.node.recovery import recover
from esker.node.settings import Settings
from esker.node.shard import Shard
from esker.node.waiting import WaitingRoom
from esker.store.cold import ColdStore
from esker.testing.faulty_store import FaultyStore, Step
from tests.engine.rig import Q, expect

T = b"log"
PAYLOAD = b"x" * 100


class Life:
    """One life of a shard with its checkpointer, on a journal and a store that outlive it. Nothing stays in memory."""

    def __init__(self, journal: MemoryJournal, store: FaultyStore, retry_s: float = 0.0) -> None:
        self.journal = journal
        self.store = store
        waiting = WaitingRoom()
        self.machine = Machine(Random(1), ColdStore(store), waiting)
        recover(self.machine, journal, store)
        self.shard = Shard(self.machine, journal, Clock(self.machine.last_ms), waiting)
        self.watch = LoopWatch()
        self.checkpointer = Checkpointer(
            self.machine, self.shard, journal, store, Settings(hot_payloads=0), self.watch, flush_bytes=2000,
            retry_s=(retry_s, retry_s),
        )  # fmt: skip
        self.checkpoints = asyncio.create_task(self.checkpointer.run())

    def do(self, command: Command) -> Reply:
        return self.shard.handle(command)

    async def checkpoint(self, calls: int = 1 << 60) -> None:
        """Until one is done, or the store was called so many times for it."""
        done, upto = self.checkpointer.done, self.store.calls + calls
        await self.until(lambda: self.checkpointer.done > done or self.store.calls >= upto)

    async def until(self, reached: Callable[[], bool]) -> None:
        """Asks for checkpoints all the while, so that a pause between two tries ends at once."""
        while not reached():
            assert not self.checkpoints.done(), "checkpoints have ended"
            self.checkpointer.ask()
            await asyncio.sleep(0)

    async def crash(self) -> Life:
        self.checkpoints.cancel()
        await asyncio.gather(self.checkpoints, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(None, int)  # its one thread has done what it was asked to
        self.shard.flush()
        self.shard.close()
        self.watch.close()
        self.store.crash()
        return Life(self.journal.reopen(), self.store)

    async def end(self) -> None:
        self.shard.close()
        self.checkpointer.end()
        await self.checkpoints
        self.watch.close()

    def failing(self) -> bool:
        return self.checkpointer.failure is not None

    def jobs(self) -> dict[int, bytes]:
        ready = expect(Jobs, self.do(Peek(Q, 1_000_000))).jobs
        return {job.id: job.payload for job in ready}

    def records(self) -> list[bytes]:
        found: list[bytes] = []
        page = expect(Records, self.do(Read(T)))
        while page.records:
            found += [record.data for record in page.records]
            page = expect(Records, self.do(Read(T, after=page.next_from_seq)))
        return found


def played(scene: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        await scene()

    asyncio.run(whole())


@pytest.mark.parametrize(
    "steps", [("write",), ("persist",), ("persist", "reopen", "write", "persist")], ids=lambda steps: " ".join(steps)
)
def test_a_checkpoint_that_failed_is_completed_and_nothing_is_missing_from_it(steps: tuple[Step, ...]) -> None:
    async def scene() -> None:
        store = FaultyStore()
        life = Life(MemoryJournal(), store)
        ids = expect(Added, life.do(Enqueue(Q, [NewJob(PAYLOAD + b"%d" % n) for n in range(100)]))).ids
        life.do(CreateTopic(T, TopicConfig(type=TopicType.LOG)))
        for n in range(1000):
            expect(Written, life.do(Append(T, [NewRecord(b"%d" % n)])))
        store.fail_next(*steps)
        await life.checkpoint()
        assert store.failures == len(steps)
        assert life.journal.first_position == life.journal.last_position, "a checkpoint lets the journal go"
        life = await life.crash()
        assert life.jobs() == {job: PAYLOAD + b"%d" % n for n, job in enumerate(ids)}
        assert life.records() == [b"%d" % n for n in range(1000)]
        await life.end()

    played(scene)


def test_jobs_and_records_are_taken_leased_acked_and_read_while_no_checkpoint_succeeds() -> None:
    async def scene() -> None:
        store = FaultyStore()
        life = Life(MemoryJournal(), store)
        life.do(CreateTopic(T, TopicConfig(type=TopicType.LOG)))
        old = expect(Added, life.do(Enqueue(Q, [NewJob(b"old %d" % n) for n in range(10)]))).ids
        await life.checkpoint()
        assert life.machine.totals.hot_bytes == 0, "the old ones are in the store only"
        store.fail_always("persist", "reopen")
        new = expect(Added, life.do(Enqueue(Q, [NewJob(b"new %d" % n) for n in range(10)]))).ids
        await life.until(lambda: life.checkpointer.failures >= 5)
        assert life.failing()
        assert life.shard.stopped is None
        expect(Written, life.do(Append(T, [NewRecord(b"1")])))
        assert life.records() == [b"1"]
        leased = expect(Leased, life.do(Lease(Q, 20))).deliveries
        told = [b"old %d" % n for n in range(10)] + [b"new %d" % n for n in range(10)]
        assert [each.payload for each in leased] == told
        assert expect(Done, life.do(Ack([*old, *new]))).count == 20
        position = life.checkpointer.last_position
        store.fail_always()
        await life.until(lambda: life.checkpointer.last_position > position)
        assert not life.failing()
        life = await life.crash()
        assert (life.jobs(), life.records()) == ({}, [b"1"])
        await life.end()

    played(scene)


def test_a_node_whose_last_checkpoint_fails_ends_and_the_journal_has_what_it_lacks() -> None:
    async def scene() -> None:
        store = FaultyStore()
        life = Life(MemoryJournal(), store, retry_s=3600)
        expect(Added, life.do(Enqueue(Q, [NewJob(PAYLOAD)])))
        store.fail_always("persist")
        life.checkpointer.ask()
        while not life.checkpointer.failures:  # noqa: ASYNC110 its count is the only sign
            await asyncio.sleep(0)
        await life.end()  # while the checkpoint waits for its next try
        store.fail_always()
        store.crash()
        life = Life(life.journal.reopen(), store)
        assert list(life.jobs().values()) == [PAYLOAD]
        store.fail_always("write")
        await life.end()  # in its own last checkpoint
        assert life.checkpointer.failure is not None
        store.fail_always()
        store.crash()
        life = Life(life.journal.reopen(), store)
        assert list(life.jobs().values()) == [PAYLOAD]
        await life.end()

    played(scene)


def test_checkpoints_end_when_the_shard_stops_while_one_waits_for_the_store() -> None:
    async def scene() -> None:
        store = FaultyStore()
        life = Life(MemoryJournal(), store)
        life.do(Enqueue(Q, [NewJob(PAYLOAD)]))
        store.fail_always("persist")
        await life.until(lambda: life.checkpointer.failures >= 1)
        life.shard.stop(OSError("the journal's disk"))
        life.checkpointer.ask()
        await asyncio.gather(life.checkpoints, return_exceptions=True)
        life.watch.close()

    played(scene)


@pytest.mark.parametrize("seed", range(20))
def test_what_was_acknowledged_is_there_whichever_writes_of_the_store_fail_and_wherever_it_crashes(seed: int) -> None:
    """Every job and record costs more than the memory budget, so all of it is read back from the store."""

    async def scene() -> None:
        random = Random(seed)
        store = FaultyStore(seed, chance=0.15, stalls=0.1)
        life = Life(MemoryJournal(), store)
        life.do(CreateTopic(T, TopicConfig(type=TopicType.LOG)))
        jobs: dict[int, bytes] = {}
        records: list[bytes] = []
        crashes = 0
        for step in range(200):
            chance = random.random()
            if chance < 0.3:
                payloads = [PAYLOAD + b"%d" % random.randrange(1 << 30) for _ in range(random.randint(1, 30))]
                ids = expect(Added, life.do(Enqueue(Q, [NewJob(each) for each in payloads]))).ids
                jobs |= dict(zip(ids, payloads, strict=True))
            elif chance < 0.6:
                some = [PAYLOAD + b"%d" % random.randrange(1 << 30) for _ in range(random.randint(1, 30))]
                expect(Written, life.do(Append(T, [NewRecord(each) for each in some])))
                records += some
            elif chance < 0.75 and jobs:
                gone = random.sample(sorted(jobs), min(len(jobs), 10))
                assert expect(Done, life.do(Ack(gone))).count == len(gone)
                for job in gone:
                    del jobs[job]
            elif chance < 0.8:
                life = await life.crash()
                crashes += 1
            else:
                expect(Written, life.do(Append(T, [NewRecord(b"so that there is something to save")])))
                records.append(b"so that there is something to save")
                await life.checkpoint(calls=random.randint(1, 40))
            if step % 10 == 0:
                assert life.jobs() == jobs
                assert life.records() == records
        assert life.shard.stopped is None
        life = await life.crash()
        assert life.jobs() == jobs
        assert life.records() == records
        assert store.failures
        assert crashes
        store.chance = 0.0
        await life.end()

    played(scene)
