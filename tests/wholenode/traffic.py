"""What clients do to a simulated node: commands of all kinds over some twenty topics, each told to the dictionary."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence

from esker.engine.commands import (
    Ack,
    Append,
    Command,
    Delete,
    DeleteRecords,
    Details,
    DropRouter,
    DropTopic,
    Enqueue,
    EnqueueAlike,
    Extend,
    Lease,
    Nack,
    NewJob,
    NewRecord,
    PauseTopic,
    Publish,
    Purge,
    PutRouter,
    PutTopic,
    Read,
    ReplayDeadLetters,
    Reprioritise,
    Requeue,
    Show,
    TopicState,
    Withdraw,
)
from esker.engine.config import (
    Pause,
    TopicConfig,
    TopicType,
)
from esker.engine.ids import place
from esker.engine.replies import (
    Added,
    Deleted,
    Delivery,
    Done,
    Jobs,
    Leased,
    Published,
    Records,
    Reply,
    TopicDropped,
    TopicPut,
    Written,
)
from esker.errors import Code, Refusal
from tests.wholenode.dictionary import Job, Log, Queue, State, Step
from tests.wholenode.simulation import Simulation
from tests.wholenode.topics import (
    DISK,
    EPHEMERAL,
    FSYNC,
    LETTERS_LOG,
    LOGS,
    MEMORY,
    NODES,
    QUEUES,
    ROUTERS,
    SIZES,
    TAGS,
    log_config,
)


class Traffic:
    def __init__(self, simulation: Simulation) -> None:
        self.sim = simulation
        self.dice = simulation.dice
        self._number = 0
        self._held: list[Delivery] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.acts: list[tuple[int, Callable[[], object]]] = [
            (30, self.append), (14, self.enqueue), (6, self.enqueue_alike), (10, self.lease), (10, self.finish),
            (2, self.handle_jobs), (5, self.delete_records), (2, self.configure), (1, self.drop_topic), (2, self.route),
            (3, self.publish), (10, self.read_some), (2, self.show), (1, self.purge), (3, self.snapshot),
            (2, self.wait), (1, self.replay), (2, self.read_beside),
        ]  # fmt: skip
        self._weights = [weight for weight, _ in self.acts]

    # -- small things

    @property
    def state(self) -> State:
        return self.sim.dictionary.now

    @property
    def now(self) -> int:
        return self.sim.node.machine.last_ms

    def _text(self, kind: bytes) -> bytes:
        """No two are the same; records begin with `"r`, jobs with `j`."""
        self._number += 1
        return b"%s%d%s" % (kind, self._number, b"." * self.dice.choice(SIZES))

    def _records(self) -> list[NewRecord]:
        count = self.dice.choice((1, 1, 1, 2, 5, 12))
        return [
            NewRecord(
                b'"' + self._text(b"r") + b'"', self.dice.choice(TAGS), self.dice.choice(NODES),
                self.dice.choice((b"", b'{"k":1}')),
            )
            for _ in range(count)
        ]  # fmt: skip

    def act(self) -> None:
        (chosen,) = self.dice.choices(self.acts, self._weights)
        chosen[1]()

    def forget(self) -> None:
        """The node has died: so have those who were connected to it."""
        self._held = []
        for task in self._tasks:
            task.cancel()

    def _beside(self, run: Callable[[bytes], Coroutine[object, object, None]], name: bytes) -> None:
        task = self.sim.loop.create_task(run(name))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.sim.faulted:
            self.sim.failure = self.sim.failure or error

    # -- topics

    def _need(self, name: bytes, config: TopicConfig) -> bool:
        """Makes a topic that is missing. False: there was nothing to make."""
        state = self.state
        if name in state.logs or name in state.queues:
            return False

        def made(reply: Reply) -> Step | None:
            assert isinstance(reply, TopicPut), reply
            number = reply.status.number
            assert reply.created

            def step(state: State) -> None:
                if config.durability == EPHEMERAL:
                    state.ephemeral.add(number)
                if config.type == TopicType.LOG:
                    state.logs[name] = Log(number, config, skips=config.durability != FSYNC)
                else:
                    state.queues[name] = Queue(number, config)

            return step

        self.sim.ask(PutTopic(name, config), True, made)
        return True

    def configure(self) -> None:
        if self.dice.random() < 0.5:
            self._change_class(b"changing", LOGS)
            return
        name = self.dice.choice((b"capped", b"narrow", b"aging", b"strict"))
        log = self.state.logs.get(name)
        if log is None:
            return
        config = log_config(
            log.config.durability,
            cap_records=self.dice.choice((0, 5, 25)),
            cap_bytes=self.dice.choice((0, 800, 3000)),
            ttl_ms=self.dice.choice((0, 0, 1500, 6000)),
            discard=log.config.discard,
        )

        def changed(reply: Reply) -> Step | None:
            assert isinstance(reply, TopicPut), reply
            now = self.now

            def step(state: State) -> None:
                mine = state.logs[name]
                mine.pass_time(now)
                mine.config = config
                mine.pass_time(now)
                mine.enforce()

            return step

        self.sim.ask(PutTopic(name, config), True, changed)

    def _change_class(self, name: bytes, configs: dict[bytes, TopicConfig]) -> None:
        if self._need(name, configs[name]):
            return
        config = log_config(self.dice.choice((FSYNC, FSYNC, DISK, MEMORY, EPHEMERAL)))
        number = self.state.logs[name].number

        def changed(reply: Reply) -> Step | None:
            def step(state: State) -> None:
                mine = state.logs[name]
                if EPHEMERAL in (config.durability, mine.config.durability):
                    mine.loose = True
                    state.ephemeral.add(number)
                mine.skips = mine.skips or config.durability != FSYNC
                mine.config = config

            return step

        self.sim.ask(PutTopic(name, config), True, changed)

    def drop_topic(self) -> None:
        names = [*self.state.logs, *self.state.queues]
        if not names or self.dice.random() < 0.5:
            return
        name = self.dice.choice(names)
        if name == b"letters.q":
            return  # the dictionary does not know which jobs are in it

        def dropped(reply: Reply) -> Step | None:
            assert isinstance(reply, TopicDropped), reply
            assert reply.deleted
            return lambda state: state.drop(name)

        self.sim.ask(DropTopic(name), True, dropped)

    # -- records

    def append(self) -> None:
        name = self.dice.choice(list(LOGS))
        self._need(name, LOGS[name])
        log = self.state.logs.get(name)
        if log is None:
            return
        records = self._records()
        key = b"k%d" % self.dice.randrange(30) if self.dice.random() < 0.15 else b""
        known = log.keys.get(key)
        if known is not None and known[2] > self.sim.node.now_ms() - log.config.idempotency_window_ms:
            reply = self.sim.ask(Append(name, records, key, create=False), False)
            if not log.loose:
                assert reply == Written(known[0], known[1], known[1], created=False, deduped=True), (name, known, reply)
            self.sim.counts["writes that were known"] += 1
            return
        self._append(name, Append(name, records, key, create=False), lambda command: command)

    def _append(self, name: bytes, append: Append, dress: Callable[[Append], Command]) -> Reply:
        """`dress` puts it into the command that is sent."""
        log = self.state.logs[name]
        records, key = list(append.records), append.key

        def written(reply: Reply) -> Step | None:
            if isinstance(reply, Written):
                if reply.deduped:
                    assert log.loose, (name, reply)
                    return None
                first: int | None = reply.first_seq
            else:
                assert isinstance(reply, Published), reply
                if reply.duplicate:
                    return None
                first = None
            now = self.now

            def step(state: State) -> None:
                mine = state.logs[name]
                mine.pass_time(now)
                assert not mine.refuses(records), "taken by a log that is full"
                if mine.loose and first is not None:
                    mine.next_seq = first
                begins, last = mine.append(records, now)
                assert first in (None, begins), f"{name!r} gave seq {first}; {begins} was next"
                if key:
                    mine.keys[key] = begins, last, now

            return step

        return self.sim.ask(dress(append), log.config.durability == FSYNC, written)

    def delete_records(self) -> None:
        if not self.state.logs:
            return
        name = self.dice.choice(list(self.state.logs))
        log = self.state.logs[name]
        below = self.dice.choice((None, log.head // 2, log.head - 5, log.head + 1, log.evict_floor + 3))
        tag = self.dice.choice((None, b"x", b"z", b"xy"))
        if below is None and tag is None:
            return
        before, prefix = None if below is None else max(0, below), self.dice.random() < 0.5

        def deleted(reply: Reply) -> Step | None:
            assert isinstance(reply, Deleted), reply
            if not reply.deleted:
                return None
            now = self.now

            def step(state: State) -> None:
                mine = state.logs[name]
                mine.pass_time(now)
                gone = mine.delete(before, tag, prefix)
                assert mine.loose or gone == reply.deleted, f"{reply.deleted} deleted; {gone} were there"

            return step

        self.sim.ask(DeleteRecords(name, before, tag, prefix), log.config.durability == FSYNC, deleted)

    def publish(self) -> None:
        """The next chunk of a load, or the last one once more, as its client does that does not know what came in."""
        load = self.dice.choice((b"load.1", b"load.2"))
        batch, chunk, done = self.state.loads.get(load, (0, -1, True))
        again = self.dice.random() < 0.3 and chunk >= 0
        if not again:
            batch, chunk = (batch + 1, 0) if done else (batch, chunk + 1)
        last = self.dice.random() < 0.3
        name = self.dice.choice((b"log.c", b"log.d", b"strict"))
        if self._need(name, LOGS[name]) or name not in self.state.logs:
            return
        ours, no = self.sim.dictionary, chunk

        def dress(append: Append) -> Command:
            return Publish(load, batch, no, len(append.records), last, append)

        known = ours.now.loads.get(load)
        reply = self._append(name, Append(name, self._records(), create=False), dress)
        if isinstance(reply, Published):
            assert reply.duplicate == again, f"{load!r} {batch}/{chunk} after {known}: {reply}"
            if not again:
                position = self.sim.node.journal.last_position + (1 if self.sim.node.machine.outbox else 0)
                ours.do(position, lambda state: state.loads.__setitem__(load, (batch, no, last)))

    def read_some(self) -> None:
        """One page from anywhere: what is shown is what was written."""
        if not self.state.logs:
            return
        name = self.dice.choice(list(self.state.logs))
        log = self.state.logs[name]
        after = self.dice.choice((self.dice.randint(0, max(0, log.head)), max(0, log.head - 2)))
        reply = self.sim.ask(Read(name, after, self.dice.choice((1, 5, 50)), spans=False), False)
        assert isinstance(reply, Records), reply
        log.pass_time(self.now)
        for record in reply.records:
            entry = next((each for each in reversed(log.entries) if each.seq == record.seq), None)
            assert log.loose or (entry is not None and entry.alive and entry.told() == record), (name, record, entry)

    def read_beside(self) -> None:
        """A reader that goes through a whole log while others write to it."""
        names = [name for name, topic in self.sim.node.machine.names.items() if topic.log is not None]
        if names and len(self._tasks) < 5:
            self._beside(self._read_log, self.dice.choice(names))

    async def _read_log(self, name: bytes) -> None:
        if name in self.sim.node.machine.names:  # it may be gone by the time this begins
            await self.sim.read_log(name)

    # -- jobs

    def _queue(self) -> bytes | None:
        name = self.dice.choice(list(QUEUES))
        self._need(name, QUEUES[name])
        if b"letters.q" not in self.state.queues:
            self._need(b"letters.q", QUEUES[b"letters.q"])
        return name if name in self.state.queues and name != b"letters.q" else None

    def enqueue(self) -> None:
        name = self._queue()
        if name is None:
            return
        queue = self.state.queues[name]
        jobs = [
            NewJob(
                self._text(b"j"), self.dice.choice((0, 0, 1, -3, 9)), self.dice.choice((None, None, None, 0, 400)),
                self.dice.choice((None, None, None, 800, 4000)),
                self.dice.choice(
                    (
                        None,
                        None,
                        Details(delay_ms=self.dice.choice((10, 900))),
                        Details(tag=b"x", meta=b'{"a":"b"}'),
                        Details(key=b"i%d" % self.dice.randrange(20)) if len(QUEUES[name].dead_letter or b"") == 0
                        and queue.config.partitions == 1 else None,
                    )
                ),
            )
            for _ in range(self.dice.choice((1, 1, 2, 6)))
        ]  # fmt: skip
        self._enqueue(name, Enqueue(name, jobs, create=False), jobs)

    def enqueue_alike(self) -> None:
        name = self._queue()
        if name is None:
            return
        large = b"." * self.dice.choice((0, 0, 0, 3000))  # bursts push others out of memory
        payloads = [self._text(b"j") + large for _ in range(self.dice.choice((1, 4, 10)))]
        jobs = [NewJob(payload, 0, 1000, 0) for payload in payloads]
        self._enqueue(name, EnqueueAlike(name, payloads, 1000, 0), jobs)

    def _enqueue(self, name: bytes, command: Enqueue | EnqueueAlike, jobs: Sequence[NewJob]) -> None:
        queue = self.state.queues[name]
        config = queue.config

        def added(reply: Reply) -> Step | None:
            assert isinstance(reply, Added), reply
            now, ids, duplicates = self.now, list(reply.ids), set(reply.duplicates)
            assert len(ids) == len(jobs)

            def step(state: State) -> None:
                mine = state.queues[name]
                for at, (job, job_id) in enumerate(zip(jobs, ids, strict=True)):
                    key = job.details.key if job.details is not None else b""
                    known = mine.keys.get(key) if key else None
                    if known is not None and known[0] > now - config.idempotency_window_ms:
                        assert at in duplicates, f"{name!r} took {key!r} twice"
                        assert known[1] == job_id
                        continue
                    assert at not in duplicates, f"{name!r} says that it knew {key!r}"
                    if key:
                        mine.keys[key] = now, job_id
                    ttl_ms = config.ttl_ms if job.ttl_ms is None else job.ttl_ms
                    loose = bool(config.cap_records) or job.retry_ms == 0
                    state.add(Job(job.payload, job_id, mine.number, now + ttl_ms if ttl_ms else 0, loose))

            return step

        self.sim.ask(command, config.durability == FSYNC, added)

    def lease(self) -> None:
        if not self.state.queues:
            return
        name = self.dice.choice([*self.state.queues, b"q.parts", b"q.failing"])
        if name not in self.state.queues:
            return
        lease_ms = self.dice.choice((None, None, 200, 5000))
        reply = self.sim.ask(Lease(name, self.dice.choice((1, 3, 8)), lease_ms, b"w"), False)
        if isinstance(reply, Leased):
            self._leased(reply)

    def _leased(self, reply: Leased) -> None:
        for delivery in reply.deliveries:
            if delivery.payload.startswith(b"j"):
                job = self.state.jobs.get(delivery.payload)
                assert job is not None, f"nobody added {delivery.payload[:40]!r}"
                assert not job.over or job.loose, f"job {delivery.payload[:40]!r} was over, and is delivered"
                self._held.append(delivery)
        del self._held[:-60]

    def wait(self) -> None:
        """Waits for a job, as blocking clients do."""
        name = self.dice.choice((b"q.plain", b"q.parts", b"q.disk", b"q.max"))

        def deliver(leased: Leased | None) -> None:
            if leased is not None:
                self.sim.counts["jobs given to those who waited"] += len(leased.deliveries)
                self._held += [each for each in leased.deliveries if each.payload.startswith(b"j")]

        self.sim.node.shard.wait_for_jobs([name], self.dice.choice((10, 500, 3000)), deliver)

    def _take_held(self) -> list[Delivery]:
        count = self.dice.choice((1, 1, 3, 8))
        latest = list({each.id: each for each in self._held}.values())
        self.dice.shuffle(latest)
        self._held = latest[count:]
        return latest[:count]

    def finish(self) -> None:
        taken = self._take_held()
        if not taken:
            return
        ids, tokens = [each.id for each in taken], [each.token for each in taken]
        fenced = tokens if self.dice.random() < 0.7 else None
        if self.dice.random() < 0.25:
            self.sim.ask(Nack(ids, fenced, self.dice.choice((None, 0, 50))), False)
        else:
            self._end(Ack(ids, fenced), ids, {each.id: each.payload for each in taken})

    def _end(self, command: Ack | Delete, ids: list[int], payloads: dict[int, bytes]) -> None:
        numbers = {queue.number: queue for queue in self.state.queues.values()}
        topics = {job_id: numbers.get(place(job_id).topic) for job_id in ids}

        def promise(reply: Reply) -> bool:
            assert isinstance(reply, Done), reply
            ended = [topics[job_id] for job_id in ids if job_id not in reply.missed]
            return any(topic is not None and topic.config.durability == FSYNC for topic in ended)

        def ended(reply: Reply) -> Step | None:
            assert isinstance(reply, Done), reply
            missed = set(reply.missed)
            over = [payloads[job_id] for job_id in ids if job_id not in missed]
            if not over:
                return None

            def step(state: State) -> None:
                for payload in over:
                    state.jobs[payload].over = True

            return step

        self.sim.ask(command, promise, ended)

    def handle_jobs(self) -> None:
        """The less common things that are done to jobs."""
        ids = list(self.state.by_id)[-60:]
        if not ids:
            return
        some = self.dice.sample(ids, min(len(ids), self.dice.choice((1, 2, 5))))
        kind = self.dice.randrange(6)
        if kind == 0:
            alive = [each for each in some if not self.state.jobs[self.state.by_id[each]].over]
            self._end(Delete(alive), alive, {each: self.state.by_id[each] for each in alive})
        elif kind == 1:
            self.sim.ask(Reprioritise(some, self.dice.choice((-5, 0, 7))), False)
        elif kind == 2:
            self.sim.ask(Withdraw(some), False)
        elif kind == 3:
            self.sim.ask(Requeue(some), False)
        elif kind == 4:
            held = self._held[:3]
            self.sim.ask(Extend([each.id for each in held], 2000, [each.token for each in held]), False)
        elif self.state.queues:
            name = self.dice.choice(list(self.state.queues))
            self.sim.ask(PauseTopic(name, self.dice.choice((Pause.NONE, Pause.NONE, Pause.NONE, Pause.OUT))), False)

    def purge(self) -> None:
        if not self.state.queues or self.dice.random() < 0.6:
            return
        name = self.dice.choice(list(self.state.queues))
        if name == b"letters.q":
            return
        queue = self.state.queues[name]
        number = queue.number

        def purged(reply: Reply) -> Step | None:
            assert isinstance(reply, Done), reply
            if not reply.count:
                return None

            def step(state: State) -> None:
                for job in state.jobs.values():
                    if job.topic == number:
                        job.over = True
                        job.loose = job.loose or bool(queue.config.dead_letter)  # its letter lives on

            return step

        self.sim.ask(Purge(name), queue.config.durability == FSYNC, purged)

    def replay(self) -> None:
        if b"letters.q" in self.state.queues:
            self.sim.ask(ReplayDeadLetters(b"letters.q", None, self.dice.choice((1, 5))), False)
        if LETTERS_LOG in self.sim.node.machine.names:
            reply = self.sim.ask(ReplayDeadLetters(LETTERS_LOG, None, self.dice.choice((1, 5))), False)
            assert not isinstance(reply, Refusal) or reply.code != Code.TOPIC_NOT_FOUND

    def show(self) -> None:
        ids = list(self.state.by_id)
        if not ids:
            return
        for job_id in self.dice.sample(ids[-100:], min(len(ids), 5)):
            reply = self.sim.ask(Show(job_id), False)
            job = self.state.jobs[self.state.by_id[job_id]]
            if isinstance(reply, Jobs) and reply.jobs:
                assert reply.jobs[0].payload == job.payload, f"{reply.jobs[0]} has another payload than {job}"

    def snapshot(self) -> None:
        names = [name for name in self.state.queues if name in self.sim.node.machine.names]
        if names and len(self._tasks) < 5:
            self._beside(self.sim.check_snapshot, self.dice.choice(names))

    # -- routers

    def route(self) -> None:
        name = self.dice.choice(list(ROUTERS))
        source, dest, options = ROUTERS[name]
        if self.dice.random() < 0.15:
            self.sim.ask(DropRouter(name), True)
            return
        configs = {**LOGS, **QUEUES}
        if source in configs:
            self._need(source, configs[source])
        if dest.startswith(b"q.") and dest not in self.sim.node.machine.names:
            self.sim.ask(PutTopic(dest, TopicConfig()), True)
        self.sim.ask(PutRouter(name, source, dest, options), True)
        if self.dice.random() < 0.3:
            self.sim.ask(TopicState(dest), False)
