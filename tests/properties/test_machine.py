"""The engine, its checkpoints and its recovery against the slow model, in any order of anything.

After every step: no job is lost or invented, each is in the state the model says, the next deliveries are the model's,
every sum and index follows from the jobs. A crash takes memory away at any point, a checkpoint half written included;
what was promised is still there, and what was rolled back was never promised.
"""

from __future__ import annotations

from copy import deepcopy
from random import Random

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from esker.engine import limits
from esker.engine.commands import (
    Ack,
    Command,
    ConfigureTopic,
    Delete,
    DeleteTopic,
    Enqueue,
    EnqueueAlike,
    Extend,
    Lease,
    Length,
    Nack,
    NewJob,
    PauseTopic,
    Peek,
    Purge,
    Release,
    ReplayDeadLetters,
    Reprioritise,
    Requeue,
    Tick,
    Withdraw,
    Working,
)  # fmt: skip
from esker.engine.config import Durability, Mode, Pause, TopicConfig
from esker.engine.ids import place
from esker.engine.queues.clockwork import next_wake_ms
from esker.engine.queues.job import JobState
from esker.engine.replies import Added, Count, Done, Extended, Jobs, Leased, Paused, StillWorking, TopicView
from esker.errors import Code, Refusal
from tests.engine.audit import audit
from tests.engine.dump import dump_job
from tests.engine.rig import expect
from tests.properties.model import DELAYED, LEASED, READY, SPENT, WITHDRAWN, Model, ModelJob
from tests.properties.record_rules import RecordRules
from tests.properties.stage import GRAVE, PASSING_MS, QUEUES, new_jobs, picks, places, token_kinds


class EngineMachine(RecordRules):
    def settle(self, ids: list[int], tokens: list[int] | None) -> list[tuple[int, ModelJob | None]]:
        """The jobs a settling command may touch; None where the id or the token is no good."""
        found: list[tuple[int, ModelJob | None]] = []
        for position, job_id in enumerate(ids):
            job = self.model.find(job_id)
            if job is not None and tokens is not None and not self.model.is_live(job, tokens[position], self.now):
                job = None
            found.append((job_id, job))
        return found

    # -- jobs

    @initialize(stage=st.lists(st.sampled_from(sorted(QUEUES)), min_size=1, max_size=3, unique=True))
    def begin(self, stage: list[bytes]) -> None:
        self.stage = stage
        for name in stage:
            config = QUEUES[name]
            if config is not None:
                self.create(name, config)
                if config.dead_letter is not None and b"grave" not in self.stage:
                    self.stage = [*self.stage, b"grave"]
                    self.create(b"grave", GRAVE)
        self.world.sync()

    @rule(at=places, jobs=st.lists(new_jobs, max_size=4))
    def enqueue(self, at: int, jobs: list[NewJob]) -> None:
        self.added(self.queue(at), jobs, Enqueue(self.queue(at), jobs))

    @rule(
        at=places, payloads=st.lists(st.binary(max_size=8), min_size=1, max_size=4), retry_ms=st.sampled_from([0, 500])
    )
    def enqueue_alike(self, at: int, payloads: list[bytes], retry_ms: int) -> None:
        jobs = [NewJob(payload, 0, retry_ms, 60_000) for payload in payloads]
        self.added(self.queue(at), jobs, EnqueueAlike(self.queue(at), payloads, retry_ms, 60_000))

    def added(self, name: bytes, jobs: list[NewJob], command: Command) -> None:
        topic = self.model.topics.get(name)
        reply = self.do(command)
        if topic is not None and topic.pause & Pause.IN:
            assert expect(Refusal, reply).code == Code.PAUSED
            return
        if topic is not None and self.is_refused(topic, self.model.new_among(name, jobs, self.now), reply):
            return
        added = expect(Added, reply)
        if topic is None:
            self.model.make(name, TopicConfig(), self.now, lazy=True)
        assert self.model.enqueue(name, jobs, added.ids, self.now) == list(added.duplicates)
        fresh = [job_id for at, job_id in enumerate(added.ids) if at not in added.duplicates]
        for job_id in fresh:
            _, number, partition, seq = place(job_id)
            assert seq > self.given.get((number, partition), 0), "a seq that was given out is given out again"
        self.seen += fresh
        self.untold += fresh

    @rule(
        at=places,
        count=st.integers(1, 4),
        lease_ms=st.sampled_from([None, None, 1, 100, 60_000]),
        holder=st.sampled_from([b"", b"w1", b"w2"]),
    )
    def lease(self, at: int, count: int, lease_ms: int | None, holder: bytes) -> None:
        name = self.queue(at)
        deliveries = expect(Leased, self.do(Lease(name, count, lease_ms, holder))).deliveries
        chosen = self.model.lease(name, count, lease_ms, holder, self.now)
        assert [each.id for each in deliveries] == [job.id for job in chosen]
        for delivery, job in zip(deliveries, chosen, strict=True):
            assert delivery.id not in self.over, "a job came back that was over for good"
            assert (delivery.payload, delivery.attempts, delivery.deadline_ms, delivery.priority) == (
                job.payload, job.attempts, job.due_ms, job.priority,
            )  # fmt: skip
            self.take(job, delivery.id, delivery.token)

    @rule(numbers=picks, kind=token_kinds)
    def ack(self, numbers: list[int], kind: str) -> None:
        ids = self.pick(numbers)
        tokens = self.with_tokens(ids, kind)
        done = expect(Done, self.do(Ack(ids, tokens)))
        missed = []
        for position, job_id in enumerate(ids):
            ((_, job),) = self.settle([job_id], None if tokens is None else [tokens[position]])
            if job is None:
                missed.append(job_id)
                continue
            topic = self.model.topic_of(job)
            topic.active_ms = self.now
            topic.jobs.remove(job)
            if topic.config.durability == Durability.FSYNC:
                self.untold_over.append(job_id)
        assert (done.count, list(done.missed)) == (len(ids) - len(missed), missed)

    @rule(numbers=picks, kind=token_kinds, delay_ms=st.sampled_from([None, None, 0, 70]))
    def nack(self, numbers: list[int], kind: str, delay_ms: int | None) -> None:
        ids = self.pick(numbers)
        self.nack_ids(ids, self.with_tokens(ids, kind), delay_ms)

    def nack_ids(self, ids: list[int], tokens: list[int] | None, delay_ms: int | None) -> None:
        done = expect(Done, self.do(Nack(ids, tokens, delay_ms)))
        missed = []
        for position, job_id in enumerate(ids):
            ((_, job),) = self.settle([job_id], None if tokens is None else [tokens[position]])
            if job is None or job.state in (READY, SPENT) or job.retry_ms == 0:
                missed.append(job_id)
                continue
            wait_ms = self.model.backoff_ms(job) if delay_ms is None else delay_ms
            job.nacks += 1
            self.model.give_back(job, wait_ms, self.now)
        assert (done.count, list(done.missed)) == (len(ids) - len(missed), missed)

    @rule(numbers=picks, kind=token_kinds, lease_ms=st.sampled_from([1, 200, 10**9]))
    def extend(self, numbers: list[int], kind: str, lease_ms: int) -> None:
        ids = self.pick(numbers)
        tokens = self.with_tokens(ids, kind)
        extended = expect(Extended, self.do(Extend(ids, lease_ms, tokens)))
        missed = []
        for job_id, job in self.settle(ids, tokens):
            if job is None or job.state != LEASED:
                missed.append(job_id)
                continue
            job.due_ms = self.now + min(lease_ms, self.model.topic_of(job).config.max_lease_ms)
            assert extended.deadlines_ms[job_id] == job.due_ms
        assert list(extended.missed) == missed

    @rule(holder=st.sampled_from([b"w1", b"w2"]))
    def release(self, holder: bytes) -> None:
        held = [job for job in self.model.jobs() if job.state == LEASED and job.holder == holder]
        assert expect(Done, self.do(Release(holder))).count == len(held)
        for job in held:
            self.model.give_back(job, 0, self.now)

    @rule(numbers=picks)
    def working(self, numbers: list[int]) -> None:
        (job_id,) = self.pick(numbers[:1])
        reply = self.do(Working(job_id))
        job = self.model.find(job_id)
        if job is None:
            assert expect(Refusal, reply).code == Code.JOB_NOT_FOUND
        elif job.expires_ms and self.now > job.created_ms + (job.expires_ms - job.created_ms) // 2:
            assert expect(Refusal, reply).code == Code.TOO_LATE
        else:
            assert expect(StillWorking, reply).retry_ms == job.retry_ms
            if job.state == LEASED:
                job.due_ms = self.now + job.retry_ms
            elif job.state != SPENT:
                job.state = WITHDRAWN
                job.due_ms = self.now + job.retry_ms if job.retry_ms else 0

    @rule(numbers=picks)
    def requeue(self, numbers: list[int]) -> None:
        ids = self.pick(numbers)
        done = expect(Done, self.do(Requeue(ids)))
        missed = []
        for job_id, job in self.settle(ids, None):
            if job is None or job.state in (READY, SPENT) or (job.retry_ms == 0 and job.state != DELAYED):
                missed.append(job_id)
                continue
            first = job.state == DELAYED and not (job.attempts or job.nacks or job.requeues)
            job.requeues += not first
            self.model.give_back(job, 0, self.now)
        assert (done.count, list(done.missed)) == (len(ids) - len(missed), missed)

    @rule(numbers=picks)
    def withdraw(self, numbers: list[int]) -> None:
        ids = self.pick(numbers)
        done = expect(Done, self.do(Withdraw(ids)))
        missed = []
        for job_id, job in self.settle(ids, None):
            if job is None or job.state != READY:
                missed.append(job_id)
                continue
            job.state = WITHDRAWN
            job.due_ms = self.now + job.retry_ms if job.retry_ms else 0
        assert (done.count, list(done.missed)) == (len(ids) - len(missed), missed)

    @rule(numbers=picks)
    def delete(self, numbers: list[int]) -> None:
        ids = list(dict.fromkeys(self.pick(numbers)))
        alive = [job for _, job in self.settle(ids, None) if job is not None]
        assert expect(Done, self.do(Delete(ids))).count == len(alive)
        for job in alive:
            self.model.topic_of(job).jobs.remove(job)

    @rule(numbers=picks, priority=st.sampled_from([0, 5, -5]))
    def reprioritise(self, numbers: list[int], priority: int) -> None:
        ids = self.pick(numbers)
        self.do(Reprioritise(ids, priority))
        for _, job in self.settle(ids, None):
            if job is not None:
                job.priority = priority

    # -- what takes long to come about by chance

    @rule(at=places, count=st.integers(1, 2), numbers=picks)
    def lease_twice(self, at: int, count: int, numbers: list[int]) -> None:
        """A lease runs out, the job is leased again, and the first holder wants to settle it."""
        self.lease(at, count, 1, b"w1")
        self.now += 1
        self.catch_up()
        self.lease(at, count, None, b"w2")
        self.ack(numbers, "stale")

    @rule(at=places, replay=st.booleans())
    def fail_until_buried(self, at: int, replay: bool) -> None:
        for _ in range(4):
            before = {job.id for job in self.model.jobs() if job.state == LEASED}
            self.lease(at, 2, None, b"")
            self.nack_ids(
                [job.id for job in self.model.jobs() if job.state == LEASED and job.id not in before], None, 0
            )
        if replay:
            self.replay(2)

    @rule(slices=st.integers(0, 9), lost=st.integers(0, 3), kept_writes=st.sampled_from([1, 2, 3, 5, 99]))
    def crash_in_a_checkpoint(self, slices: int, lost: int, kept_writes: int) -> None:
        self.make_slices(slices)
        self.write_slices(0, finish=False)
        self.remember()
        self.crash(lost, kept_writes)

    # -- topics

    @rule(at=places)
    def purge(self, at: int) -> None:
        name = self.queue(at)
        reply = self.do(Purge(name))
        if name in self.model.topics:
            assert expect(Done, reply).count == self.model.purge(name, self.now)
        else:
            assert expect(Refusal, reply).code == Code.TOPIC_NOT_FOUND

    @rule(at=places, pause=st.sampled_from(Pause))
    def pause(self, at: int, pause: Pause) -> None:
        name = self.queue(at)
        assert expect(Paused, self.do(PauseTopic(name, pause))).pause == pause
        if name not in self.model.topics and pause:
            self.model.make(name, TopicConfig(), self.now, lazy=True)
        if name in self.model.topics:
            self.model.topics[name].pause = pause

    @rule(at=places, again=st.booleans())
    def delete_topic(self, at: int, again: bool) -> None:
        name = self.queue(at)
        reply = self.do(DeleteTopic(name))
        assert isinstance(reply, Done if self.model.delete_topic(name) else Refusal)
        if name == b"grave":  # is never missing, not even after a crash: a burial would make it anew as a log
            self.create(name, GRAVE)
        elif again:
            self.remember()
            self.create(name, QUEUES.get(name) or TopicConfig())

    @rule(
        at=places,
        mode=st.sampled_from(Mode),
        durability=st.sampled_from([Durability.MEMORY, Durability.DISK, Durability.FSYNC]),
        cap=st.sampled_from([1, 2, 6]),
    )
    def configure(self, at: int, mode: Mode, durability: Durability, cap: int) -> None:
        name = self.queue(at)
        topic = self.model.topics.get(name)
        if topic is None or topic.config.durability == Durability.EPHEMERAL:
            return
        config = msgspec.structs.replace(
            topic.config, mode=mode, durability=durability, cap_records=cap if topic.config.cap_records else 0
        )
        expect(TopicView, self.do(ConfigureTopic(name, config)))
        topic.configure(config)
        topic.enforce_caps()
        topic.lazy = False

    @rule(count=st.integers(1, 3))
    def replay(self, count: int) -> None:
        grave = self.model.topics.get(b"grave")
        ids = [] if grave is None else [job.id for job in grave.jobs[:count]]
        reply = self.do(ReplayDeadLetters(b"grave", ids))
        if grave is None:
            assert expect(Refusal, reply).code == Code.TOPIC_NOT_FOUND
        else:
            assert list(expect(Done, reply).missed) == self.model.replay(b"grave", ids, self.now)

    # -- time

    @rule(ms=st.sampled_from(PASSING_MS))
    def time_passes(self, ms: int) -> None:
        self.now += ms
        self.catch_up()

    @rule(number=st.integers(0, 20), off_ms=st.sampled_from([-1, 0, 0, 1]), at=places, count=st.integers(0, 2))
    def a_deadline_comes(self, number: int, off_ms: int, at: int, count: int) -> None:
        """To the millisecond; tokens are tried before the machine was told of it, and perhaps jobs are leased after."""
        moments = {moment for job in self.model.jobs() for moment in (job.due_ms, job.expires_ms)}
        ahead = sorted(moment for moment in moments if moment > self.now)
        if not ahead:
            return
        self.now = max(self.now, ahead[number % len(ahead)] + off_ms)
        late = [job for job in self.model.jobs() if job.state == LEASED and job.due_ms <= self.now]
        ids, tokens = [job.id for job in late], [job.token for job in late]
        assert expect(Done, self.do(Ack(ids, tokens))).count == 0
        assert expect(Extended, self.do(Extend(ids, 1000, tokens))).deadlines_ms == {}
        self.catch_up()
        if count:
            self.lease(at, count, None, b"")

    def catch_up(self) -> None:
        machine = self.world.machine
        remembered = sum(len(each.dedup.entries) for topic in machine.topics.values() for each in topic.partitions)
        for _ in range(2 + remembered // limits.TIMERS_PER_TURN):
            self.do(Tick())
        while (due := next_wake_ms(machine)) is not None and due <= self.now:
            self.do(Tick())
        self.do(Tick())
        self.model.tick(self.now)

    # -- disk

    @rule()
    def sync(self) -> None:
        self.world.sync()

    @rule(count=st.integers(0, 6))
    def make_slices(self, count: int) -> None:
        if self.world.checkpoint is None:
            self.world.begin_checkpoint()
        for _ in range(count):
            self.world.make_slice()

    @rule(seed=st.integers(0, 3), finish=st.booleans())
    def write_slices(self, seed: int, finish: bool) -> None:
        if finish and self.world.checkpoint is not None:
            self.world.finish_checkpoint(Random(seed))
        else:
            self.world.write_slices(Random(seed))

    @rule(lost=st.integers(0, 5), kept_writes=st.sampled_from([0, 1, 2, 3, 5, 99]))
    def crash(self, lost: int, kept_writes: int) -> None:
        cuts = sorted((at for at in self.history if self.world.promised <= at), reverse=True)
        cut = cuts[min(lost, len(cuts) - 1)]
        self.world.crash(cut, kept_writes)
        self.come_back(self.history[cut])

    @rule()
    def restart(self) -> None:
        self.world.restart()
        self.come_back(self.model)

    def come_back(self, model: Model) -> None:
        self.model = deepcopy(model)
        self.model.forget_ephemeral()
        self.model.forget_leases()
        self.history = {}
        self.untold, self.untold_over = [], []
        machine = self.world.machine
        for topic in self.model.topics.values():
            partitions = machine.topics[topic.number].partitions
            # A class that may lose its tail skips seqs; what a checkpoint knew ahead of its position may look older.
            if topic.skips_seqs:
                assert all(mine <= its.next_seq for mine, its in zip(topic.next_seqs, partitions, strict=True))
                topic.next_seqs = [partition.next_seq for partition in partitions]
            topic.active_ms = min(topic.active_ms, machine.topics[topic.number].active_ms)
            if topic.config.durability == Durability.EPHEMERAL:  # as old as the last checkpoint
                assert all(its.head_seq <= mine for mine, its in zip(topic.heads, partitions, strict=True))
                topic.heads = [partition.head_seq for partition in partitions]
                topic.cap_floors = [partition.cap_floor for partition in partitions]
                topic.ttl_floors = [partition.ttl_floor for partition in partitions]
        self.catch_up()

    # -- after every step

    def remember(self) -> None:
        """Keeps the model of this journal position, and tells clients what the disk allows."""
        self.history[self.world.journal.last_position] = deepcopy(self.model)
        if self.world.replies_left:
            for job_id in self.untold:
                _, number, partition, seq = place(job_id)
                self.given[number, partition] = max(seq, self.given.get((number, partition), 0))
            self.over.update(self.untold_over)
            self.untold, self.untold_over = [], []

    @invariant()
    def everything_agrees(self) -> None:
        machine = self.world.machine
        audit(machine)
        assert {name: topic.number for name, topic in machine.names.items()} == {
            name: topic.number for name, topic in self.model.topics.items()
        }
        assert machine.next_number == self.model.next_number
        for name, topic in self.model.topics.items():
            its = machine.names[name]
            assert (its.pause, its.config, its.lazy) == (topic.pause, topic.config, topic.lazy)
            assert [partition.next_seq for partition in its.partitions] == topic.next_seqs
            assert [partition.head_seq for partition in its.partitions] == topic.heads
            assert [partition.cap_floor for partition in its.partitions] == topic.cap_floors
            assert [partition.ttl_floor for partition in its.partitions] == topic.ttl_floors
            found = {
                (partition.index, seq): dump_job(machine, partition, job)
                for partition in its.partitions
                for seq, job in partition.jobs.items()
            }
            assert found.keys() == {(job.partition, job.seq) for job in topic.jobs}
            for job in topic.jobs:
                other = found[job.partition, job.seq]
                assert _facts(job) == (
                    other.created_ms, other.priority, other.retry_ms, other.expires_ms, other.payload, other.state,
                    other.due_ms, other.token if other.state == JobState.LEASED else 0, other.attempts, other.nacks,
                    other.requeues, other.holder,
                )  # fmt: skip
            assert expect(Count, self.do(Length(name))).count == len(topic.in_state(READY))
            assert [job.id for job in expect(Jobs, self.do(Peek(name, 3))).jobs] == [
                job.id for job in topic.in_order()[:3]
            ]
        self.remember()


def _facts(job: ModelJob) -> tuple[object, ...]:
    return (
        job.created_ms, job.priority, job.retry_ms, job.expires_ms, job.payload, job.state, job.due_ms,
        job.token if job.state == LEASED else 0, job.attempts, job.nacks, job.requeues,
        job.holder if job.state == LEASED else b"",
    )  # fmt: skip


class EngineMachineOnDisk(EngineMachine):
    on_disk = True


class EngineMachineSoak(EngineMachine):
    pass


TestEngine = pytest.mark.timeout(600)(EngineMachine.TestCase)  # half a minute, on a machine that has nothing else to do
EngineMachine.TestCase.settings = settings(max_examples=500, stateful_step_count=50)

TestEngineOnDisk = EngineMachineOnDisk.TestCase
TestEngineOnDisk.settings = settings(max_examples=20, stateful_step_count=40)

TestEngineSoak = pytest.mark.soak(pytest.mark.timeout(3600)(EngineMachineSoak.TestCase))
EngineMachineSoak.TestCase.settings = settings(max_examples=5000, stateful_step_count=80, derandomize=False)
