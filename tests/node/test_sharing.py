"""Claims within a window share; routers run in the turn of what they copy; watchers hear of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from esker.engine.commands import (
    AckHeld,
    Append,
    DropTopic,
    Lease,
    NewRecord,
    PutRouter,
    PutTopic,
    Read,
    RouterState,
)
from esker.engine.config import Discard, Durability, RouterOptions, TopicConfig, TopicType
from esker.engine.machine import Machine
from esker.engine.replies import Leased, Records, Reply, RouterView
from esker.errors import Refusal, ShardStopped
from esker.journal.memory import MemoryJournal
from esker.node.clock import Clock
from esker.node.shard import Shard
from esker.node.waiting import WaitingRoom

Q, LOG = b"q", b"log"
QUEUE = TopicConfig(type=TopicType.QUEUE, durability=Durability.DISK)
SHARING = TopicConfig(type=TopicType.QUEUE, durability=Durability.DISK, claim_jitter_ms=30)


class CountingJournal(MemoryJournal):
    def __init__(self) -> None:
        super().__init__()
        self.appends = 0

    def append(self, batch: bytes, sync: bool, done: Callable[[BaseException | None], None]) -> int:
        self.appends += 1
        return super().append(batch, sync, done)


def play(scene: Callable[[Shard, CountingJournal], Awaitable[None]]) -> None:
    async def run() -> None:
        journal = CountingJournal()
        shard = Shard(Machine(Random(1)), journal, Clock(), WaitingRoom())
        try:
            await scene(shard, journal)
            assert shard.stopped is None
        finally:
            shard.close()

    asyncio.run(run())


def records(count: int) -> list[NewRecord]:
    return [NewRecord(b"%d" % number) for number in range(count)]


async def turns(count: int = 12) -> None:
    """Lets everything happen that needs no time: more turns than a commit lingers for."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_claims_in_one_window_share_evenly() -> None:
    async def scene(shard: Shard, journal: CountingJournal) -> None:
        shard.handle(PutTopic(Q, SHARING))
        shard.handle(Append(Q, records(50)))
        got: dict[int, Reply] = {}
        claims = [
            shard.claim(Lease(Q, 10, None, b"w%d" % one), lambda reply, one=one: got.__setitem__(one, reply))  # type: ignore[misc]
            for one in range(11)
        ]
        claims[10].cancel()
        await asyncio.sleep(0.01)
        assert got == {}, "the window is open"
        await asyncio.sleep(0.05)
        sizes = [len(reply.deliveries) for reply in got.values() if isinstance(reply, Leased)]
        assert sizes == [5] * 10

    play(scene)


def test_without_a_window_a_claim_is_served_at_once() -> None:
    async def scene(shard: Shard, journal: CountingJournal) -> None:
        shard.handle(PutTopic(Q, QUEUE))
        shard.handle(Append(Q, records(3)))
        got: list[Reply] = []
        shard.claim(Lease(Q, 2, None, b"w"), got.append)
        assert isinstance(got[0], Leased)
        assert len(got[0].deliveries) == 2

    play(scene)


def test_those_who_wait_share_with_those_who_claim() -> None:
    async def scene(shard: Shard, journal: CountingJournal) -> None:
        shard.handle(PutTopic(Q, SHARING))
        waiting: list[Leased | None] = []
        shard.wait_for_jobs([Q], 0, waiting.append, Lease(Q, 10, None, b"waits"))
        claimed: list[Reply] = []
        shard.handle(Append(Q, records(6)))
        shard.claim(Lease(Q, 10, None, b"claims"), claimed.append)
        await asyncio.sleep(0.06)
        assert isinstance(claimed[0], Leased)
        assert waiting[0] is not None
        assert (len(claimed[0].deliveries), len(waiting[0].deliveries)) == (3, 3)

    play(scene)


def test_a_topic_that_goes_refuses_its_claims() -> None:
    async def scene(shard: Shard, journal: CountingJournal) -> None:
        shard.handle(PutTopic(Q, SHARING))
        got: list[Reply] = []
        shard.claim(Lease(Q, 1, None, b"w"), got.append)
        shard.handle(DropTopic(Q))
        await asyncio.sleep(0.06)
        assert isinstance(got[0], Refusal)

    play(scene)


def test_who_holds_leases_hears_of_every_ack_and_of_nothing_else() -> None:
    async def scene(shard: Shard, journal: CountingJournal) -> None:
        shard.handle(PutTopic(Q, QUEUE))
        shard.handle(Append(Q, records(4)))
        heard: list[str] = []
        for name in (b"one", b"two"):
            shard.watch_leases(Q, name, lambda name=name: heard.append(name.decode()))  # type: ignore[misc]
        reply = shard.handle(Lease(Q, 2, None, b"one"))
        assert isinstance(reply, Leased)
        held = {delivery.id & 0xFF: delivery.token for delivery in reply.deliveries}
        assert shard.still_held(Q, held) == held
        assert heard == []
        shard.handle(AckHeld(Q, [1], b"one"))
        assert heard == ["one"]
        assert list(shard.still_held(Q, held)) == [2]
        shard.handle(DropTopic(Q))
        assert heard == ["one", "one", "two"]
        assert shard.still_held(Q, held) == {}

    play(scene)


def test_copies_ride_in_the_batch_of_their_original() -> None:
    async def scene(shard: Shard, journal: CountingJournal) -> None:
        shard.handle(Append(LOG, records(1)))
        for number in range(100):
            shard.handle(PutRouter(b"r%d" % number, LOG, b"copy%d" % number, RouterOptions()))
        await turns()
        shard.handle(Append(LOG, records(1)))  # reserves seqs of all copies
        await turns()
        before = journal.appends
        shard.handle(Append(LOG, records(10)))
        await turns()
        assert journal.appends == before + 1
        for number in (0, 99):
            reply = shard.handle(Read(b"copy%d" % number))
            assert isinstance(reply, Records)
            assert len(reply.records) == 11

    play(scene)


def test_a_look_at_copies_sees_what_was_written_before_it() -> None:
    async def scene(shard: Shard, journal: CountingJournal) -> None:
        shard.handle(Append(LOG, records(1)))
        shard.handle(PutRouter(b"r", LOG, b"copy", RouterOptions()))
        shard.handle(PutRouter(b"again", b"copy", b"second", RouterOptions()))
        shard.handle(Append(LOG, records(5000)))
        reply = shard.handle(Read(b"second", limit=1000))
        assert isinstance(reply, Records)
        assert reply.head_seq == 5000
        router = shard.handle(RouterState(b"r"))
        assert isinstance(router, RouterView)
        assert router.forwarded == 5000

    play(scene)


def test_a_router_whose_destination_was_full_goes_on_when_there_is_room() -> None:
    async def scene(shard: Shard, journal: CountingJournal) -> None:
        full = TopicConfig(type=TopicType.LOG, durability=Durability.DISK, cap_records=2, discard=Discard.REJECT)
        shard.handle(Append(LOG, records(1)))
        shard.handle(PutTopic(b"small", full))
        shard.handle(PutRouter(b"r", LOG, b"small", RouterOptions()))
        shard.handle(Append(LOG, records(5)))
        await turns()
        shard.handle(PutTopic(b"small", TopicConfig(type=TopicType.LOG, durability=Durability.DISK)))
        async with asyncio.timeout(10):
            while shard._machine.names[b"small"].first.next_seq < 6:  # noqa: ASYNC110 time must pass
                await asyncio.sleep(0.01)
        copies = shard.handle(Read(b"small"))
        assert isinstance(copies, Records)
        assert [record.seq for record in copies.records] == [1, 2, 3, 4, 5]

    play(scene)


def test_watchers_hear_of_records_copies_and_the_end_once_a_turn() -> None:
    async def scene(shard: Shard, journal: CountingJournal) -> None:
        shard.handle(Append(LOG, records(1)))
        shard.handle(PutRouter(b"r", LOG, b"copy", RouterOptions()))
        await turns()
        heard: list[bytes] = []
        for name in (LOG, b"copy"):
            shard.watch([name], lambda name=name: heard.append(name))  # type: ignore[misc]
        revisions = shard.revision(LOG)
        for _ in range(5):
            shard.handle(Append(LOG, records(1)))
        assert heard == []
        assert shard.revision(LOG) != revisions
        await turns()
        assert sorted(heard) == [b"copy", LOG]
        shard.handle(DropTopic(b"copy"))
        await turns()
        assert sorted(heard) == [b"copy", b"copy", LOG]

    play(scene)


def test_routers_that_are_behind_after_a_recovery_catch_up() -> None:
    async def run() -> None:
        machine = Machine(Random(1))
        for command in (
            Append(LOG, records(1)),
            PutRouter(b"r", LOG, b"copy", RouterOptions()),
            Append(LOG, records(3)),
        ):
            machine.handle(command, 1)
        assert machine.routers.behind
        shard = Shard(machine, CountingJournal(), Clock(), WaitingRoom())
        await turns()
        reply = shard.handle(Read(b"copy"))
        assert isinstance(reply, Records)
        assert len(reply.records) == 3
        shard.close()

    asyncio.run(run())


def test_whoever_watches_learns_that_the_shard_has_stopped() -> None:
    async def run() -> None:
        shard = Shard(Machine(Random(1)), CountingJournal(), Clock(), WaitingRoom())
        shard.handle(PutTopic(Q, SHARING))
        heard: list[str] = []
        shard.watch([Q, LOG], lambda: heard.append("watcher"))
        shard.watch_leases(Q, b"w", lambda: heard.append("worker"))
        claimed: list[Reply] = []
        shard.claim(Lease(Q, 1, None, b"w"), claimed.append)
        shard.stop(OSError("the disk is gone"))
        assert heard == ["watcher", "worker"]
        assert isinstance(claimed[0], Refusal)
        with pytest.raises(ShardStopped):
            shard.handle(Read(Q))

    asyncio.run(run())
