"""The state machine of a shard: commands in, events and replies out.

    reply = machine.handle(command, now)      decides, and evolves at once
    machine.outbox                            the events of it, for the journal, in order
    machine.must_sync                         whether a reply has to wait until they are on disk

It is pure: no clock, no disk, no tasks. Time comes with each command; lease tokens and jitter come from the seeded
`dice`; payloads that have left memory come from `cold`, which answers with exactly the bytes that were enqueued.
The same events, folded in the same order, give the same state: `fold` is what recovery and standbys call.

A handler decides from the state, then calls `record` for each event; since evolving is immediate, the next decision of
the same command already sees it. All events of one command go into one journal batch: all or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from random import Random

from esker.engine import commands, events, limits, topics
from esker.engine.config import Pause, TopicConfig
from esker.engine.ids import PARTITION_MASK, PARTITION_SHIFT, TIME_SHIFT, TOPIC_MASK, TOPIC_SHIFT
from esker.engine.limits import SEQ_MAX
from esker.engine.queues import clockwork, consume, control, deadletters, inspect, produce
from esker.engine.queues.job import Job
from esker.engine.queues.partition import EVOLVE, QueuePartition, Totals
from esker.engine.replies import Reply
from esker.engine.topic import Topic
from esker.errors import InvariantBroken, Refusal

TopicEvent = events.TopicCreated | events.TopicConfigured | events.TopicDeleted | events.TopicPaused
ColdPayloads = Callable[[int, int, int], bytes]


def no_cold_payloads(topic: int, partition: int, seq: int) -> bytes:
    """For a machine without a store, where every payload stays in memory."""
    raise InvariantBroken(f"payload of job {topic}/{partition}/{seq} is neither in memory nor in a store")


class Machine:
    def __init__(
        self, dice: Random, cold: ColdPayloads = no_cold_payloads, watched: Container[bytes] = frozenset()
    ) -> None:
        self.dice = dice
        self.cold = cold
        self.watched = watched  # topics someone waits for: they do not leave when idle
        self.lazy_config = TopicConfig()  # of a queue that is made on first use
        self.memory_limit = 0  # bytes; 0: none
        self.refuse_new: Refusal | None = None  # why no new job is taken, when the disk is full

        self.outbox: list[events.Event] = []
        self.must_sync = False
        self.woken: set[bytes] = set()  # topics that got ready jobs since this was last emptied

        self.totals = Totals()
        self.wakes: list[tuple[int, int, int]] = []  # heap of (when, topic, partition)
        self.wakes_limit = limits.STALE_WAKES_MAX  # past this, the stale ones among them are looked for
        self.names: dict[bytes, Topic] = {}
        self.topics: dict[int, Topic] = {}  # by number, and so in order of creation
        self.next_number = 1
        self._expires_ms = 0  # the one computed last
        self.last_ms = 0  # no event is older than the one before
        # What the next checkpoint has to look at; each partition knows which of its jobs.
        self.deleted_topics: list[int] = []
        self.dirty_topics: set[Topic] = set()
        self.touched: set[QueuePartition] = set()
        self.graveyard: list[dict[int, Job]] = []  # memory to be freed in small steps
        self.sweep: list[int] = []  # topics to look at for idleness in this round

    def handle(self, command: commands.Command, now: int) -> Reply:
        """Answers a command. A `Refusal` means that nothing was changed (but for what memory pressure let go of)."""
        if now <= self.last_ms:
            now = self.last_ms  # the very object: jobs of one moment share it, which saves 32 bytes each
        else:
            self.last_ms = now
        return HANDLERS[type(command)](self, command, now)

    # -- recording

    def record(
        self, partition: QueuePartition, event: events.JobEvent | events.JobsEnqueued, sync: bool = True
    ) -> None:
        """Makes an event of a job happen. `sync`: its outcome was promised to someone."""
        EVOLVE[type(event)](partition, event)
        self.touched.add(partition)
        topic = partition.topic
        if topic.journaled:
            self.outbox.append(event)
            if sync and topic.synced:
                self.must_sync = True

    def record_enqueued(self, partition: QueuePartition, batch: Sequence[events.Enqueued]) -> None:
        """`record` for many new jobs of one partition at once."""
        partition.enqueued_all(batch)
        self.touched.add(partition)
        topic = partition.topic
        if topic.journaled:
            self.outbox += batch
            if topic.synced:
                self.must_sync = True

    def reserve(self, partition: QueuePartition, seqs: int) -> None:
        """Before a class that may lose its tail gives out seqs, a ceiling above them is promised on disk."""
        if not partition.topic.synced and partition.next_seq + seqs > partition.ceiling:
            ceiling = partition.next_seq + seqs + limits.SEQ_RESERVE
            self.record_shared(events.SeqReserved(partition.topic.number, partition.index, ceiling))

    def record_shared(self, event: events.Event) -> None:
        """Makes an event of a topic happen; always journalled and synced, whatever the topic's class."""
        self.fold(event)
        self.outbox.append(event)
        self.must_sync = True

    def fold(self, event: events.Event) -> None:
        """Applies an event, to state that may be ahead of it (events.py says why that is harmless)."""
        change = FOLD.get(type(event))
        if change is not None:
            change(self, event)
            return
        assert not isinstance(event, TopicEvent)
        topic = self.topics.get(event.topic)
        if topic is not None:  # else it was deleted later, and the checkpoint knows that already
            partition = topic.partitions[event.partition]
            EVOLVE[type(event)](partition, event)
            self.touched.add(partition)

    def settle(self) -> None:
        """After the last event of a recovery: nothing that may have been given out is given out again."""
        self.topics = dict(sorted(self.topics.items()))  # a checkpoint cut short may have known a younger one first
        for topic in self.topics.values():  # of every class: one that is fsync now may have been less before
            for partition in topic.partitions:
                if partition.ceiling > partition.next_seq:
                    partition.next_seq = partition.ceiling
                    self.touched.add(partition)

    def release_reserves(self) -> None:
        """Before an orderly end: nothing is lost, so the seqs reserved but not given out need not be skipped."""
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.ceiling > partition.next_seq:
                    partition.ceiling = partition.next_seq
                    self.touched.add(partition)

    def expires_ms(self, now: int, ttl_ms: int) -> int:
        """now + ttl, 0 for no TTL; jobs made together share the object."""
        if not ttl_ms:
            return 0
        expires_ms = now + ttl_ms
        if expires_ms != self._expires_ms:
            self._expires_ms = expires_ms
        return self._expires_ms

    # -- finding

    def topic(self, name: bytes) -> Topic | None:
        return self.names.get(name)

    def find(self, message_id: int) -> tuple[QueuePartition, Job] | None:
        """The job of an id, unless it is gone (or the id was never given)."""
        topic = self.topics.get(message_id >> TOPIC_SHIFT & TOPIC_MASK)
        index = message_id >> PARTITION_SHIFT & PARTITION_MASK
        if topic is None or index >= len(topic.partitions):
            return None
        partition = topic.partitions[index]
        job = partition.jobs.get(message_id & SEQ_MAX)
        if job is None or job.created_ms != message_id >> TIME_SHIFT:
            return None
        return partition, job

    def payload(self, partition: QueuePartition, job: Job) -> bytes:
        if job.payload is not None:
            return job.payload
        return self.cold(partition.topic.number, partition.index, job.seq)

    def memory_bytes(self) -> int:
        """What the jobs cost: an estimate that needs no walk."""
        return self.totals.jobs * limits.JOB_MEMORY_BYTES + self.totals.hot_bytes

    # -- evolving topics

    def topic_created(self, event: events.TopicCreated) -> None:
        self.next_number = max(self.next_number, event.topic + 1)
        known = self.topics.get(event.topic)
        if known is not None:  # the checkpoint was ahead; an elder of the same name may have come and gone since
            self.names[event.name] = known
            return
        topic = Topic(event.topic, event.name, event.config, event.ts, event.lazy, self.totals, self.wakes)
        self.dirty_topics.add(topic)
        self.add_topic(topic)

    def add_topic(self, topic: Topic) -> None:
        self.topics[topic.number] = topic
        self.names[topic.name] = topic

    def topic_configured(self, event: events.TopicConfigured) -> None:
        topic = self.topics.get(event.topic)
        if topic is not None:
            topic.configure(event.config)
            topic.lazy = False
            self.dirty_topics.add(topic)
            for partition in topic.partitions:
                partition.set_mode()

    def topic_paused(self, event: events.TopicPaused) -> None:
        topic = self.topics.get(event.topic)
        if topic is not None:
            topic.pause = Pause(event.pause)
            self.dirty_topics.add(topic)

    def topic_deleted(self, event: events.TopicDeleted) -> None:
        topic = self.topics.pop(event.topic, None)
        self.deleted_topics.append(event.topic)
        if topic is not None:
            if self.names.get(topic.name) is topic:
                del self.names[topic.name]
            for partition in topic.partitions:
                partition.forget_totals()
                self.graveyard.append(partition.jobs)
                partition.jobs = {}  # a checkpoint under way must not find them, and cool what no total counts

    def purged(self, event: events.Purged) -> None:
        topic = self.topics.get(event.topic)
        if topic is not None:
            partition = topic.partitions[event.partition]
            self.graveyard.append(partition.purged(event))
            self.touched.add(partition)


FOLD: dict[type, Callable[..., None]] = {
    events.TopicCreated: Machine.topic_created,
    events.TopicConfigured: Machine.topic_configured,
    events.TopicDeleted: Machine.topic_deleted,
    events.TopicPaused: Machine.topic_paused,
    events.Purged: Machine.purged,
}

HANDLERS: dict[type, Callable[..., Reply]] = {
    commands.Enqueue: produce.enqueue,
    commands.EnqueueAlike: produce.enqueue_alike,
    commands.Lease: consume.lease,
    commands.Ack: consume.ack,
    commands.Nack: consume.nack,
    commands.Extend: consume.extend,
    commands.Release: consume.release,
    commands.Working: consume.working,
    commands.Requeue: control.requeue,
    commands.Withdraw: control.withdraw,
    commands.Delete: control.delete,
    commands.Reprioritise: control.reprioritise,
    commands.Purge: control.purge,
    commands.PauseTopic: control.pause,
    commands.CreateTopic: topics.create,
    commands.ConfigureTopic: topics.configure,
    commands.DeleteTopic: topics.delete,
    commands.DeleteAllTopics: topics.delete_all,
    commands.ReplayDeadLetters: deadletters.replay,
    commands.Show: inspect.show,
    commands.Peek: inspect.peek,
    commands.Length: inspect.length,
    commands.Stats: inspect.stats,
    commands.ScanTopics: inspect.scan_topics,
    commands.ScanJobs: inspect.scan_jobs,
    commands.Tick: clockwork.tick,
}
