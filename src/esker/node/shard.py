"""The shard loop: one machine, one journal, one writer.

    handle(command)   decide and evolve at once, on the event loop
    gate              what a reply has to wait for: the batch that carries everything decided so far
    commit            while one batch is on its way to disk, the next one fills; all connections share it
    watch, claim      who is told, at the end of a turn, of records that came; who shares jobs that are there

The order of effects: events are recorded, the batch is appended, the disk has it, then replies leave. State in memory
runs ahead of the disk, so a failed append leaves memory and disk apart; the shard then stops for good, answers
everything with `ShardStopped`, and a restart recovers what the disk has. A sync is never tried twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident

from esker.engine import commands
from esker.engine.events import encode_batch
from esker.engine.ids import PARTITION_SHIFT, TIME_SHIFT
from esker.engine.limits import SEQ_MAX
from esker.engine.machine import Machine
from esker.engine.priority import delivery_priority
from esker.engine.queues.clockwork import next_wake_ms
from esker.engine.queues.job import JobState
from esker.engine.replies import CohortLeased, Leased, Reply
from esker.errors import Code, Refusal, ShardStopped
from esker.journal.interface import Journal
from esker.node.clock import Clock
from esker.node.cohorts import Answer, Claim, Cohorts
from esker.node.forwarding import SEES_COPIES, Forwarding
from esker.node.holding import Holding, HoldingRoom
from esker.node.waiting import Deliver, Waiter, WaitingRoom
from esker.node.watching import Watcher, WatchRoom

# Events that may wait for the disk before replies of the lesser classes wait too: bounds memory when the disk is slow.
OUTBOX_EVENTS_MAX = 20_000

# Turns of the loop a commit waits for while each brings more events: clients that were answered together ask together,
# and one sync for all of them costs what one for half of them does.
LINGER_TURNS = 8

_TICK = commands.Tick()
_FORWARD = commands.Forward()
_FAR = 1 << 62
_HOUSEKEEPING_S = 1.0
_STOPPING = Refusal(Code.PAUSED, "the node is stopping: no more jobs are given out")
_DISK_FULL = Refusal(
    Code.DISK_FULL,
    "the disk is nearly full, or there is no file descriptor for the journal: no new jobs are taken until that ends; "
    "leases and acks go on",
)


class Batch:
    """Events on their way to disk, and who wants to know when they are there."""

    __slots__ = ("_subscribers", "sync", "upto_ms")

    def __init__(self) -> None:
        self._subscribers: list[Callable[[BaseException | None], None]] = []
        self.sync = False
        self.upto_ms = 0  # it and those before it hold every event up to this time

    @property
    def awaited(self) -> bool:
        return len(self._subscribers) > 0

    def subscribe(self, done: Callable[[BaseException | None], None]) -> None:
        """`done` is called once, on the loop: with None when the batch is as durable as its events need."""
        self._subscribers.append(done)

    def finish(self, error: BaseException | None) -> None:
        subscribers, self._subscribers = self._subscribers, []  # those who wait know the batch: no cycle may stay
        for done in subscribers:
            done(error)


_Landed = tuple[Batch, BaseException | None]


class Shard:
    def __init__(self, machine: Machine, journal: Journal, clock: Clock, waiting: WaitingRoom) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._machine = machine
        self._journal = journal
        self._clock = clock
        self._waiting = waiting
        self._open = Batch()
        self._flying: list[Batch] = []  # given to the journal, oldest first
        self._tail_synced = True  # whether the last batch given to the journal asked for a sync
        self._durable_ms = machine.last_ms - 1  # every event up to this time is on disk
        self._looked = self._lingered = 0  # events seen by, and turns waited for, the commit that is due
        self._due = False  # a commit is scheduled for the end of this turn
        self._wake_at = _FAR
        self._timer: asyncio.TimerHandle | None = None
        watched: set[bytes] = set()
        machine.watched_topics = watched
        self._watching = WatchRoom(watched)
        self._holding = HoldingRoom()
        self._cohorts = Cohorts(self._loop, self._share)
        self._telling = False  # watchers are woken at the end of this turn
        self._forwarding = Forwarding(self._loop, clock, machine.routers, lambda: self.run(_FORWARD))
        self._house = self._loop.call_later(_HOUSEKEEPING_S, self._keep_house)
        self.stopped: ShardStopped | None = None
        self._lost: Batch | None = None  # in the turn of the stop: for what was decided in it and not told yet
        self.on_stop: Callable[[ShardStopped], None] | None = None
        self.batches = 0
        self.events = 0
        self.pending_peak = 0  # the most batches that were on their way to disk at once
        self._handled = self._own = 0  # commands, and how many of them are the node's own
        self._arm()
        if machine.routers.behind:
            self._forwarding.soon()

    def handle(self, command: commands.Command) -> Reply:
        """Raises ShardStopped when the shard no longer serves."""
        if self.stopped is not None:
            raise self._refusal()
        self._handled += 1
        machine = self._machine
        if self._forwarding.due and type(command) in SEES_COPIES:
            self._forwarding.catch_up()
        try:
            reply = machine.handle(command, self._clock.now_ms())
            if self._holding.topics:
                self._holding.tell(command, machine)
            if machine.woken:
                self._serve()
        except Exception as error:  # our bug: whatever state this left behind, it must not reach the disk
            self.stop(error)
            raise self._refusal() from error
        if machine.outbox and not self._due:
            self._due = True
            self._loop.call_soon(self._commit)
        if machine.wakes and machine.wakes[0][0] < self._wake_at:
            self._arm()
        if machine.changed:
            self._note_changes()
        if machine.routers.behind and not self._forwarding.due:
            self._forwarding.soon()
        return reply

    def run(self, command: commands.Command) -> Reply:
        """The same, for what the node does of its own accord: it is no use by a client."""
        self._own += 1
        return self.handle(command)

    @property
    def used(self) -> int:
        """How many commands came from clients. While it stands still, nobody else needs the node."""
        return self._handled - self._own

    @property
    def gate(self) -> Batch | None:
        """None when everything decided so far is durable enough to talk about.

        A batch that somebody waits for is a gate for all who come later, whatever its class: gates open in order, so
        that replies leave in order. Once the shard has stopped there is nothing to wait for: what waited has been told,
        and what comes is refused. But what was decided in the very turn that ended with the stop is lost with it.
        """
        if self.stopped is not None:
            return self._lost
        machine = self._machine
        if machine.must_sync or len(machine.outbox) > OUTBOX_EVENTS_MAX or self._open.awaited:
            return self._open
        for batch in reversed(self._flying):
            if batch.sync or batch.awaited:
                return batch
        return None

    def lasts(self, leased: Leased) -> bool:
        """Whether a lease may be told before what was decided with it, or before it, is on disk.

        It may when all that a crash could take is the lease itself, which nobody was promised to keep: then the jobs
        are given out again. So the jobs have to be on disk, and none of them is to be delivered at most once.
        """
        jobs = leased.deliveries
        if not jobs or max([job.id for job in jobs]) >> TIME_SHIFT > self._durable_ms:
            return False
        if not all([job.deadline_ms for job in jobs]):  # noqa: C419 a list is quicker than a generator
            return False
        configs = [self._machine.names[name].config for name in {job.topic for job in jobs}]
        return not any(config.leases_durable for config in configs)

    @property
    def pending(self) -> int:
        """Batches on their way to disk."""
        return len(self._flying)

    def flush(self) -> int:
        """Gives all recorded events to the journal and returns the position of the last one.

        It and all before it will be synced: where the last batch was not, an empty one follows that is.
        """
        if self._machine.outbox or not self._tail_synced:
            self._machine.must_sync = True
            landed = self._append()
            if landed is not None:  # the caller is not ready for what those who wait may do
                self._loop.call_soon(self._arrived, *landed)
        return self._journal.last_position

    async def settled(self) -> None:
        """Waits until everything decided so far is on disk. Raises ShardStopped when some of it never will be."""
        if self.stopped is not None:
            raise self._refusal()
        self.flush()
        if self._flying:
            arrival: asyncio.Future[BaseException | None] = self._loop.create_future()

            def arrived(error: BaseException | None) -> None:
                if not arrival.done():  # it is, when whoever waited was cancelled
                    arrival.set_result(error)

            self._flying[-1].subscribe(arrived)
            error = await arrival
            if error is not None:
                raise error

    # -- waiting for jobs

    def wait_for_jobs(
        self,
        topics: Sequence[bytes],
        timeout_ms: int,
        deliver: Deliver,
        lease: commands.Lease | None = None,
        taker: int = 0,
    ) -> Waiter:
        """Serves one job (or what `lease` asks for) of the first of `topics` that gets one; None after `timeout_ms`."""
        waiter = Waiter(topics, deliver, lease, taker)
        self._waiting.enter(waiter)
        if timeout_ms:
            timer = self._loop.call_later(timeout_ms / 1000, waiter.serve, None)
            leave = waiter.on_end

            def end() -> None:
                timer.cancel()
                if leave is not None:
                    leave()

            waiter.on_end = end
        return waiter

    def claim(self, command: commands.Lease, deliver: Answer) -> Claim:
        """Leases at once, or where the topic has a `claim_jitter_ms`, together with all who claim within it.

        Raises ShardStopped when the shard no longer serves.
        """
        if self.stopped is not None:
            raise self._refusal()
        claim = Claim(command, deliver)
        jitter_ms = self._jitter_ms(command.topic)
        if jitter_ms:
            self._cohorts.join(claim, jitter_ms)
        else:
            claim.answer(self.handle(command))
        return claim

    def watch_leases(self, topic: bytes, holder: bytes, wake: Callable[[], None]) -> Holding:
        """Calls `wake`, until cancelled, after leases of `holder` in `topic` may have ended."""
        return self._holding.enter(topic, holder, wake)

    def still_held(self, topic: bytes, leases: Mapping[int, int]) -> dict[int, int]:
        """Which of these leases (tokens by slot) have not ended."""
        found = self._machine.names.get(topic)
        if found is None or not found.is_queue:
            return {}
        jobs = [partition.jobs for partition in found.partitions]
        return {
            slot: token
            for slot, token in leases.items()
            if (job := jobs[slot >> PARTITION_SHIFT].get(slot & SEQ_MAX)) is not None
            and job.token == token
            and job.state == JobState.LEASED
        }

    def _serve(self) -> None:
        """Jobs that became ready go to whoever waits longest. Serving may itself wake a queue (a dead letter's)."""
        machine = self._machine
        while machine.woken:
            name = machine.woken.pop()
            if name in self._waiting and (jitter_ms := self._jitter_ms(name)):
                self._cohorts.open(name, jitter_ms)
                continue
            while (waiter := self._waiting.first(name)) is not None:
                reply = machine.handle(waiter.lease_of(name), self._clock.now_ms())
                if not isinstance(reply, Leased) or not reply.deliveries:
                    break
                waiter.serve(reply)

    def _jitter_ms(self, name: bytes) -> int:
        topic = self._machine.names.get(name)
        return topic.config.claim_jitter_ms if topic is not None and topic.is_queue else 0

    def _share(self, topic: bytes, claims: list[Claim]) -> None:
        """A window of claims has ended: one pass for all of them, and for everybody who waits."""
        waiters = self._waiting.of(topic)
        wanted = [claim.command for claim in claims] + [waiter.lease_of(topic) for waiter in waiters]
        if not wanted:
            return
        reply = self.handle(commands.LeaseCohort(topic, wanted))
        if not isinstance(reply, CohortLeased):  # the topic went, or is no queue: those who wait may wait on
            for claim in claims:
                claim.answer(reply)
            return
        for claim, share in zip(claims, reply.shares, strict=False):
            claim.answer(share)
        for waiter, share in zip(waiters, reply.shares[len(claims) :], strict=True):
            if share.deliveries:
                waiter.serve(share)

    # -- those who watch

    def watch(self, topics: Sequence[bytes], wake: Callable[[], None]) -> Watcher:
        """Calls `wake`, until cancelled, at the end of a turn in which one of `topics` changed."""
        return self._watching.enter(topics, wake)

    def revision(self, topic: bytes) -> int:
        return self._watching.revision(topic)

    def _note_changes(self) -> None:
        """Who is concerned learns it at the end of the turn, so that a burst of commands wakes each but once."""
        machine = self._machine
        if self._watching.changed(machine.changed, machine.last_ms) and not self._telling:
            self._telling = True
            self._loop.call_soon(self._tell)
        machine.changed.clear()

    def _tell(self) -> None:
        self._telling = False
        if self.stopped is None and self._watching.serve(self._clock.now_ms(), self._rank) and not self._telling:
            self._telling = True
            self._loop.call_soon(self._tell)

    def _rank(self, name: bytes, since_ms: int) -> int:
        """A topic that went is told first: there is nothing to read."""
        topic = self._machine.names.get(name)
        if topic is None:
            return _FAR
        return delivery_priority(topic.config, topic.last_read_ms, since_ms, self._machine.last_ms)

    # -- time

    def _arm(self) -> None:
        due = next_wake_ms(self._machine)
        if self._timer is not None:
            self._timer.cancel()
        self._wake_at = _FAR if due is None else due
        self._timer = None
        if due is not None:
            delay = min(max(0.0, (due - self._clock.now_ms()) / 1000), 3600.0)
            self._timer = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        if self.stopped is None:
            self._wake_at = _FAR
            self.run(_TICK)
            self._arm()

    def _keep_house(self) -> None:
        if self.stopped is None:
            self._machine.refuse_new = None if self._journal.has_room() else _DISK_FULL
            self.run(_TICK)
            self._holding.tell_everybody()
            self._house = self._loop.call_later(_HOUSEKEEPING_S, self._keep_house)

    # -- the way to disk

    def _commit(self) -> None:
        """At the end of a turn, or a few turns later while events keep coming.

        While a batch is on its way nothing is done: its arrival commits the next.
        """
        if self._flying or self.stopped is not None:
            self._due = False
            return
        grown = len(self._machine.outbox)
        if grown > self._looked and self._lingered < LINGER_TURNS:
            self._looked = grown
            self._lingered += 1
            self._loop.call_soon(self._commit)
            return
        self._due = False
        self.commit()

    def commit(self) -> None:
        """Gives to the journal what was decided, unless a batch is on its way: then its arrival does.

        Those who wait are told before this returns, where the journal is as quick as that; so it must be the last thing
        its caller does.
        """
        self._looked = self._lingered = 0
        if self._machine.outbox and not self._flying and self.stopped is None:
            landed = self._append()
            if landed is not None:
                self._arrived(*landed)

    def _append(self) -> _Landed | None:
        """What has arrived already; else it will be told when it has."""
        machine = self._machine
        batch, events = self._open, machine.outbox
        batch.sync = self._tail_synced = machine.must_sync
        batch.upto_ms = machine.last_ms - 1  # in this millisecond more may happen
        machine.outbox = []
        machine.must_sync = False
        self._open = Batch()
        self._flying.append(batch)
        if len(self._flying) > self.pending_peak:
            self.pending_peak = len(self._flying)
        self.batches += 1
        self.events += len(events)

        landed: _Landed | None = None
        appending = True

        def done(error: BaseException | None) -> None:
            nonlocal landed
            if get_ident() != self._thread:
                self._loop.call_soon_threadsafe(self._arrived, batch, error)
            elif appending:
                landed = (batch, error)
            else:
                self._loop.call_soon(self._arrived, batch, error)

        self._journal.append(encode_batch(events), batch.sync, done)
        appending = False
        return landed

    def _arrived(self, batch: Batch, error: BaseException | None) -> None:
        if error is not None:
            self.stop(error)
            return
        if self.stopped is None:
            self._flying.remove(batch)
            if batch.sync:
                self._durable_ms = batch.upto_ms
            batch.finish(None)
            if self._machine.outbox and not self._flying and not self._due:
                self._due = True
                self._loop.call_soon(self._commit)

    def stop(self, cause: BaseException) -> None:
        """Serves no more: what memory holds and what the disk holds may no longer agree."""
        if self.stopped is not None:
            return
        self.stopped = ShardStopped(f"this shard has stopped: {cause}; restart the node to recover what the disk has")
        self.stopped.__cause__ = cause
        self._lost = Batch()
        self._loop.call_soon(self._tell_lost)
        for batch in [*self._flying, self._open]:
            batch.finish(self.stopped)
        self._flying = []
        self.close()
        self._watching.wake_everybody()  # whoever asks next hears why
        self._holding.tell_everybody()
        if self.on_stop is not None:
            self.on_stop(self.stopped)

    def _tell_lost(self) -> None:
        lost, self._lost = self._lost, None
        if lost is not None:
            lost.finish(self.stopped)

    def _refusal(self) -> ShardStopped:
        """A fresh copy each time, since an exception collects the traceback of everyone who raises it."""
        return ShardStopped(str(self.stopped))

    def close(self) -> None:
        """No more time passes."""
        self._house.cancel()
        self._cohorts.close(_STOPPING)
        self._forwarding.close()
        if self._timer is not None:
            self._timer.cancel()
