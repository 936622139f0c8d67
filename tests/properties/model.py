"""The engine as a slow, obvious model: lists, linear scans, no index, no event.

It knows what commands.py promises and nothing of how it is done. Where the engine is free to choose (the partition of a
job without a key, a lease token) the model takes the choice from the reply and checks only that it was allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from esker.engine import limits
from esker.engine.commands import Details, NewJob, NewRecord
from esker.engine.config import Discard, Durability, Mode, Pause, TopicConfig
from esker.engine.ids import message_id, place, slot
from esker.engine.queues.job import JobState

READY, DELAYED, LEASED, WITHDRAWN, SPENT = JobState
IDLE_MS = 300_000
EXPIRY_STEP_MS = 1024  # an expired job leaves within this time, and is not delivered meanwhile


@dataclass
class ModelJob:
    number: int
    partition: int
    seq: int
    created_ms: int
    priority: int
    retry_ms: int
    expires_ms: int
    payload: bytes
    max_deliveries: int | None = None
    state: JobState = READY
    due_ms: int = 0
    token: int = 0
    attempts: int = 0
    nacks: int = 0
    requeues: int = 0
    holder: bytes = b""
    origin: tuple[int, bytes, int, int | None] | None = None  # of a dead letter: its id, topic, TTL, max_deliveries
    tag: bytes = b""
    node: bytes = b""

    @property
    def id(self) -> int:
        return message_id(self.created_ms, self.number, self.partition, self.seq)

    @property
    def slot(self) -> int:
        return slot(self.partition, self.seq)


@dataclass
class ModelTopic:
    number: int
    name: bytes
    config: TopicConfig
    lazy: bool
    active_ms: int
    pause: Pause = Pause.NONE
    jobs: list[ModelJob] = field(default_factory=list)
    next_seqs: list[int] = field(default_factory=list)
    remembered: dict[bytes, tuple[int, int, int]] = field(default_factory=dict)  # key: (when, id, how many)
    skips_seqs: bool = False  # a crash may have taken a tail with seqs in it, now or in an earlier class
    heads: list[int] = field(default_factory=list)
    cap_floors: list[int] = field(default_factory=list)
    ttl_floors: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.next_seqs = [1] * self.config.partitions
        self.heads = [0] * self.config.partitions
        self.cap_floors = [1] * self.config.partitions
        self.ttl_floors = [1] * self.config.partitions
        self.configure(self.config)

    def configure(self, config: TopicConfig) -> None:
        self.config = config
        self.skips_seqs = self.skips_seqs or config.durability != Durability.FSYNC

    def in_state(self, state: JobState) -> list[ModelJob]:
        return [job for job in self.jobs if job.state == state]

    def in_order(self) -> list[ModelJob]:
        """The ready jobs as they will be delivered."""
        sign = {Mode.MIN: 1, Mode.MAX: -1, Mode.FIFO: 0}[self.config.mode]
        wide = self.config.partitions > 1  # the seqs of two partitions count different things: time goes before them
        return sorted(
            self.in_state(READY),
            key=lambda job: (sign * job.priority, job.created_ms if wide else 0, job.seq, job.partition),
        )

    # -- as records

    def records(self, partition: int = 0) -> list[ModelJob]:
        """What readers see, in order."""
        mine = (job for job in self.jobs if job.partition == partition and job.state != SPENT)
        return sorted(mine, key=lambda job: job.seq)

    def earliest(self, partition: int = 0) -> int:
        return min((job.seq for job in self.records(partition)), default=self.heads[partition] + 1)

    def expire(self, job: ModelJob) -> None:
        self.jobs.remove(job)
        if job.state != SPENT:
            self.ttl_floors[job.partition] = max(self.ttl_floors[job.partition], job.seq + 1)

    def expire_front(self, now: int) -> None:
        """A bounded step, as all of the clock's are."""
        for partition in range(self.config.partitions):
            for job in self.records(partition)[: limits.TIMERS_PER_TURN]:
                if not 0 < job.expires_ms <= now:
                    break
                self.expire(job)

    def let_spent_go(self) -> None:
        self.jobs = [job for job in self.jobs if job.state != SPENT]

    def exceeds(self, more: int = 0, more_bytes: int = 0, *, alone: bool = False) -> bool:
        """Whether so much more, with what is here or alone, is beyond the caps."""
        count = 0 if alone else sum(job.state != SPENT for job in self.jobs)
        size = 0 if alone else sum(len(job.payload) for job in self.jobs)
        config = self.config
        return 0 < config.cap_records < count + more or 0 < config.cap_bytes < size + more_bytes

    def full(self, count: int, size: int, now: int) -> bool | None:
        """Whether a queue that refuses does; None: whatever it holds, it always will."""
        if self.config.discard == Discard.OLD or not (self.config.cap_records or self.config.cap_bytes) or not count:
            return False
        if self.exceeds(count, size, alone=True):
            return None
        self.let_spent_go()
        self.expire_front(now)
        return self.exceeds(count, size)

    def enforce_caps(self) -> None:
        if self.exceeds():
            self.let_spent_go()
        while self.exceeds() and self.jobs:
            oldest = min(
                self.jobs,
                key=lambda job: (job.seq if self.config.partitions == 1 else job.created_ms, job.partition, job.seq),
            )
            self.jobs.remove(oldest)
            self.cap_floors[oldest.partition] = max(self.cap_floors[oldest.partition], oldest.seq + 1)


class Model:
    def __init__(self) -> None:
        self.topics: dict[bytes, ModelTopic] = {}
        self.next_number = 1

    # -- finding

    def jobs(self) -> list[ModelJob]:
        return [job for topic in self.topics.values() for job in topic.jobs]

    def find(self, job_id: int) -> ModelJob | None:
        return next((job for job in self.jobs() if job.id == job_id), None)

    def topic_of(self, job: ModelJob) -> ModelTopic:
        return next(topic for topic in self.topics.values() if topic.number == job.number)

    # -- topics

    def make(self, name: bytes, config: TopicConfig, now: int, lazy: bool) -> ModelTopic:
        topic = self.topics[name] = ModelTopic(self.next_number, name, config, lazy, now)
        self.next_number += 1
        return topic

    def delete_topic(self, name: bytes) -> bool:
        return self.topics.pop(name, None) is not None

    def purge(self, name: bytes, now: int) -> int:
        topic = self.topics[name]
        count = len(topic.jobs)
        if count:
            topic.jobs = []
            topic.active_ms = now
        return count

    # -- jobs

    def enqueue(self, name: bytes, new: Sequence[NewJob], ids: Sequence[int], now: int) -> list[int]:
        """Adds what `ids`, the engine's answer, says was added. Returns which positions had to be duplicates."""
        topic = self.topics[name]
        duplicates = []
        for position, (job, job_id) in enumerate(zip(new, ids, strict=True)):
            details = job.details or Details()
            keys = [key for key in _keys(details) if self._is_fresh(topic, key, now)]
            if keys:
                assert topic.remembered[keys[0]][1] == job_id, "a duplicate answers with the first job's id"
                duplicates.append(position)
                continue
            created_ms, number, partition, seq = place(job_id)
            assert (created_ms, number) == (now, topic.number)
            added = self._add(topic, partition, job.payload, job.priority, now)
            assert added.seq == seq, "seqs are given in order"
            added.retry_ms = topic.config.lease_ms if job.retry_ms is None else job.retry_ms
            ttl_ms = topic.config.ttl_ms if job.ttl_ms is None else job.ttl_ms
            added.expires_ms = now + ttl_ms if ttl_ms else 0
            added.max_deliveries = details.max_deliveries
            added.tag = details.tag
            if details.delay_ms:
                added.state, added.due_ms = DELAYED, now + details.delay_ms
            for key in _keys(details):
                topic.remembered[key] = (now, job_id, 1)
        topic.enforce_caps()
        return duplicates

    def new_among(self, name: bytes, new: Sequence[NewJob], now: int) -> list[NewJob]:
        """Those that are not known already."""
        topic = self.topics[name]
        return [
            job
            for job in new
            if job.details is None or not any(self._is_fresh(topic, key, now) for key in _keys(job.details))
        ]

    def known_write(self, name: bytes, key: bytes, now: int) -> tuple[int, int, int] | None:
        """The first and last seq of an earlier write with this key, and their partition."""
        topic = self.topics[name]
        if not key or not self._is_fresh(topic, b"write " + key, now):
            return None
        _, first_id, count = topic.remembered[b"write " + key]
        _, _, partition, first = place(first_id)
        return first, first + count - 1, partition

    def append(
        self, name: bytes, records: Sequence[NewRecord], key: bytes, partition: int, now: int
    ) -> tuple[int, int]:
        """To the partition that the engine chose."""
        topic = self.topics[name]
        added = []
        for record in records:
            job = self._add(topic, partition, record.data, 0, now)
            job.tag, job.node = record.tag, record.node
            job.expires_ms = now + topic.config.ttl_ms if topic.config.ttl_ms else 0
            added.append(job)
        if key:
            topic.remembered[b"write " + key] = (now, added[0].id, len(added))
        topic.enforce_caps()
        return added[0].seq, added[-1].seq

    def _is_fresh(self, topic: ModelTopic, key: bytes, now: int) -> bool:
        known = topic.remembered.get(key)
        return known is not None and known[0] > now - topic.config.idempotency_window_ms

    def _add(self, topic: ModelTopic, partition: int, payload: bytes, priority: int, now: int) -> ModelJob:
        seq = topic.next_seqs[partition]
        topic.next_seqs[partition] += 1
        topic.heads[partition] = seq
        topic.active_ms = now
        job = ModelJob(topic.number, partition, seq, now, priority, topic.config.lease_ms, 0, payload)
        topic.jobs.append(job)
        return job

    def lease(self, name: bytes, count: int, lease_ms: int | None, holder: bytes, now: int) -> list[ModelJob]:
        """What is delivered, in order; the caller fills in the tokens."""
        topic = self.topics.get(name)
        if topic is None or topic.pause & Pause.OUT:
            return []
        if topic.config.max_in_flight:
            count = min(count, topic.config.max_in_flight - len(topic.in_state(LEASED)))
        delivered: list[ModelJob] = []
        while len(delivered) < count and (waiting := topic.in_order()):
            job = waiting[0]
            if job.expires_ms and job.expires_ms <= now:
                topic.expire(job)
            elif self._is_dead(topic, job):
                self._bury(topic, job, now)
            else:
                self._deliver(topic, job, lease_ms, holder, now)
                delivered.append(job)
        return delivered

    def _deliver(self, topic: ModelTopic, job: ModelJob, lease_ms: int | None, holder: bytes, now: int) -> None:
        job.attempts += 1
        topic.active_ms = now
        if job.retry_ms == 0:
            job.state, job.due_ms = SPENT, 0
            return
        wanted = job.retry_ms if lease_ms is None else lease_ms
        job.state, job.due_ms, job.holder = LEASED, now + min(wanted, topic.config.max_lease_ms), holder

    def _is_dead(self, topic: ModelTopic, job: ModelJob) -> bool:
        most = topic.config.max_deliveries if job.max_deliveries is None else job.max_deliveries
        return topic.config.dead_letter is not None and 0 < most <= job.attempts

    def _bury(self, topic: ModelTopic, job: ModelJob, now: int) -> None:
        name = topic.config.dead_letter
        assert name is not None
        if name not in self.topics:
            config = TopicConfig(durability=topic.config.durability, mode=topic.config.mode)
            self.make(name, config, now, lazy=False)
        grave = self.topics[name]
        letter = self._add(grave, job.partition % grave.config.partitions, job.payload, job.priority, now)
        letter.retry_ms = job.retry_ms or topic.config.lease_ms
        letter.expires_ms = now + grave.config.ttl_ms if grave.config.ttl_ms else 0
        ttl_ms = job.expires_ms - job.created_ms if job.expires_ms else 0
        letter.origin = (job.id, topic.name, ttl_ms, job.max_deliveries)
        letter.tag, letter.node = job.tag, job.node
        topic.jobs.remove(job)

    def replay(self, name: bytes, ids: Sequence[int], now: int) -> list[int]:
        """Returns the ids that could not be replayed."""
        missed = []
        for job_id in ids:
            letter = next((job for job in self.topics[name].jobs if job.id == job_id), None)
            if letter is None or letter.origin is None or not self._raise(letter, now):
                missed.append(job_id)
        return missed

    def _raise(self, letter: ModelJob, now: int) -> bool:
        assert letter.origin is not None
        origin, name, ttl_ms, most = letter.origin
        created_ms, number, partition, seq = place(origin)
        home = next((topic for topic in self.topics.values() if topic.number == number), self.topics.get(name))
        if home is None or home.exceeds(1, len(letter.payload)):
            return False
        if home.number == number:
            job = ModelJob(number, partition, seq, created_ms, letter.priority, letter.retry_ms, 0, letter.payload)
            home.jobs.append(job)
        else:
            job = self._add(home, partition % home.config.partitions, letter.payload, letter.priority, now)
            job.retry_ms = letter.retry_ms
        job.expires_ms = now + ttl_ms if ttl_ms else 0
        job.max_deliveries = most
        job.tag, job.node = letter.tag, letter.node
        home.active_ms = now
        self.topic_of(letter).jobs.remove(letter)
        return True

    # -- settling

    def is_live(self, job: ModelJob, token: int, now: int) -> bool:
        return job.state == LEASED and job.token == token and job.due_ms > now

    def holds(self, job: ModelJob, holder: bytes, token: int | None, now: int) -> bool:
        live = job.state == LEASED and now <= job.due_ms
        return live and job.holder == holder and token in (None, job.token)

    def give_back(self, job: ModelJob, delay_ms: int, now: int) -> None:
        job.token, job.holder = 0, b""
        job.state, job.due_ms = (DELAYED, now + delay_ms) if delay_ms > 0 else (READY, 0)

    def backoff_ms(self, job: ModelJob) -> int:
        policy = self.topic_of(job).config.backoff
        delay = float(policy.base_ms)
        for _ in range(max(1, job.attempts) - 1):
            delay = min(delay * policy.factor, policy.cap_ms)
        return round(delay)

    # -- time

    def tick(self, now: int) -> None:
        for topic in self.topics.values():
            for job in topic.jobs:
                if job.due_ms and job.due_ms <= now:
                    self._come_due(topic, job, now)
            for job in [job for job in topic.jobs if job.expires_ms and _leaves_ms(job.expires_ms) <= now]:
                topic.expire(job)
            since = now - topic.config.idempotency_window_ms
            topic.remembered = {key: known for key, known in topic.remembered.items() if known[0] > since}
        self.topics = {name: topic for name, topic in self.topics.items() if not self._is_idle(topic, now)}

    def _come_due(self, topic: ModelTopic, job: ModelJob, now: int) -> None:
        if job.state == DELAYED:
            job.state, job.due_ms = READY, 0
        elif topic.pause & Pause.IN and job.retry_ms:
            job.state, job.due_ms, job.token, job.holder = WITHDRAWN, now + job.retry_ms, 0, b""
        else:
            delay_ms = self.backoff_ms(job) if job.state == LEASED else 0
            job.requeues += 1
            self.give_back(job, delay_ms, now)

    def _is_idle(self, topic: ModelTopic, now: int) -> bool:
        standing_by = topic.jobs or topic.remembered or topic.pause
        return topic.lazy and now - topic.active_ms > IDLE_MS and not standing_by

    # -- loss

    def forget_ephemeral(self) -> None:
        """What a crash or a restart does to queues that live in memory only."""
        for topic in self.topics.values():
            if topic.config.durability == Durability.EPHEMERAL:
                topic.jobs, topic.remembered = [], {}

    def forget_leases(self) -> None:
        """What a crash or a restart does to leases that were not promised to last."""
        for topic in self.topics.values():
            if not topic.lazy and not topic.config.leases_durable:
                for job in topic.in_state(LEASED):
                    job.state, job.due_ms, job.token, job.holder = READY, 0, 0, b""


def _keys(details: Details) -> list[bytes]:
    keys = [b"key " + details.key] if details.key else []
    if details.producer:
        keys.append(b"producer %b %d %d" % (details.producer, details.epoch, details.sequence))
    return keys


def _leaves_ms(expires_ms: int) -> int:
    return -(-expires_ms // EXPIRY_STEP_MS) * EXPIRY_STEP_MS
