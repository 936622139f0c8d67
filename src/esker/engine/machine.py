"""The state machine of a shard: commands in, events and replies out.

    reply = machine.handle(command, now)      decides, and evolves at once
    machine.outbox                            the events of it, for the journal, in order
    machine.must_sync                         whether a reply has to wait until they are on disk

It is pure: no clock, no disk, no tasks. Time comes with each command; lease tokens and jitter come from the seeded
`dice`; what has left memory comes back through `cold`, which answers with exactly what was saved.
The same events, folded in the same order, give the same state: `fold` is what recovery and standbys call.

A handler decides from the state, then calls `record` with each event; since evolving is immediate, the next decision of
the same command already sees it. All events of one command go into one journal batch: all or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from random import Random

from esker.engine import catalogue, commands, events, limits, loads, records
from esker.engine.config import Durability, Pause, TopicConfig, TopicType
from esker.engine.ids import PARTITION_MASK, PARTITION_SHIFT, TIME_SHIFT, TOPIC_MASK, TOPIC_SHIFT
from esker.engine.limits import SEQ_MAX
from esker.engine.logs import archived, forwarding, routing
from esker.engine.logs.block import Block
from esker.engine.logs.cold import Cold, ColdBlocks, NothingCold
from esker.engine.logs.partition import EVOLVE_LOG
from esker.engine.logs.routers import Routers
from esker.engine.logs.warmth import Warmth
from esker.engine.queues import (
    clockwork,
    cohort,
    consume,
    control,
    durability,
    held,
    inspect,
    produce,
    replays,
    retention,
)
from esker.engine.queues.evolve import EVOLVE as EVOLVE_QUEUE
from esker.engine.queues.job import Job, wrong_size
from esker.engine.queues.partition import QueuePartition
from esker.engine.queues.sums import Totals
from esker.engine.replies import Reply
from esker.engine.topic import Partition, Topic
from esker.errors import InvariantBroken, Refusal

PartitionEvent = (
    events.JobEvent | events.JobsEnqueued | events.JobsLeased | events.JobsAcked | events.LogEvent | events.SeqReserved
)


class Machine:
    def __init__(self, dice: Random, cold: Cold | None = None, watched: Container[bytes] = frozenset()) -> None:
        """`cold` None: there is no store, and everything stays in memory."""
        self.dice = dice
        self.cold = cold or NothingCold()
        self.cold_blocks = ColdBlocks(self.cold)
        self.watched = watched  # topics someone waits for: they do not leave when idle
        self.lazy_config = TopicConfig()  # of a queue that is made on first use
        self.log_config = TopicConfig(  # of a log that is
            type=TopicType.LOG, durability=Durability.DISK, idempotency_window_ms=2 * limits.MINUTE_MS
        )
        self.memory_limit = 0  # bytes; 0: none
        self.topics_max = 0  # 0: no cap
        self.refuse_new: Refusal | None = None  # why no new job is taken, when the disk is full

        self.outbox: list[events.Event] = []
        self.must_sync = False
        self.woken: set[bytes] = set()  # topics that got ready jobs since this was last emptied
        self.watched_topics: Container[bytes] = frozenset()  # topics whose readers want to hear of changes
        self.changed: set[bytes] = set()  # those of them that got records, were made or went, since it was last emptied

        self.totals = Totals()
        self.wakes: list[tuple[int, int, int]] = []  # heap of (when, topic, partition)
        self.wakes_limit = limits.STALE_WAKES_MAX  # past this, the stale ones among them are looked for
        self.names: dict[bytes, Topic] = {}
        self.sorted_names = catalogue.Names()
        self.topics: dict[int, Topic] = {}  # by number, and so in order of creation
        self.next_number = 1
        self._expires_ms = 0  # the one computed last
        self.last_ms = 0  # no event is older than the one before
        # What the next checkpoint has to look at; each partition knows which of its jobs.
        self.deleted_topics: list[int] = []
        self.dirty_topics: set[Topic] = set()
        self.touched: set[Partition] = set()
        self.graveyard: list[dict[int, Job] | dict[int, Block]] = []  # memory to be freed in small steps
        self.sweep: list[int] = []  # topics to look at for idleness in this round
        # Partitions with a reserve of seqs: their next seq when last looked at, and when that was; oldest first.
        self.reserves: dict[Partition, tuple[int, int]] = {}
        self.routers = Routers()
        self.loads = loads.Loads()
        self.warmth = Warmth()

    def handle(self, command: commands.Command, now: int) -> Reply:
        """Answers a command. A `Refusal` means that nothing was changed (but for what memory pressure let go of)."""
        if now <= self.last_ms:
            now = self.last_ms  # the very object: jobs of one moment share it, which saves 32 bytes each
        else:
            self.last_ms = now
        reply = HANDLERS[type(command)](self, command, now)
        if self.routers.eager:
            forwarding.forward_eager(self, now)
        return reply

    # -- recording

    def record(
        self,
        owner: Partition | None,
        event: events.Event | list[events.Enqueued],
        sync: bool = True,
        evolve: Callable[[], object] | None = None,
    ) -> None:
        """Applies an event and puts it into the outbox: the only way to change state while deciding.

        `owner` is the partition it belongs to, whose topic's durability class decides whether it is journalled and
        synced. None: it belongs to the shard, and is journalled whatever the class.
        New jobs of one partition come as a list, because applying them together is several times as fast.
        `sync`: someone relies on the outcome, so the reply waits for the disk (if the class says so).
        `evolve` does what folding the event does, where the caller has at hand what folding would have to look up.
        """
        if evolve is not None:
            evolve()
        elif isinstance(event, list):
            EVOLVE_NEW_JOBS(owner, event)
        elif owner is not None:
            EVOLVE[type(event)](owner, event)
        else:
            self.fold(event)
        if owner is not None:
            self.touched.add(owner)
            topic = owner.topic
            if not topic.journaled:
                return
            sync = sync and topic.synced
        if isinstance(event, list):
            self.outbox += event
        else:
            self.outbox.append(event)
        if sync:
            self.must_sync = True

    def queue_grew(self, topic: Topic) -> None:
        """Notifies those who follow a queue as a log."""
        if topic.name in self.watched_topics:
            self.changed.add(topic.name)
        if self.routers.by_source:
            self.routers.source_moved(topic)

    def reserve(self, partition: Partition, seqs: int) -> None:
        """Before a class that may lose its tail gives out seqs, a ceiling above them is promised on disk."""
        if not partition.topic.synced and partition.next_seq + seqs > partition.ceiling:
            ceiling = partition.next_seq + seqs + limits.SEQ_RESERVE
            self.record(None, events.SeqReserved(partition.topic.number, partition.index, ceiling))
            self.reserves[partition] = partition.next_seq, self.last_ms

    def return_idle_reserves(self, now: int, limit: int) -> None:
        """Takes the promised ceilings of partitions down that have given out no seq for a while.

        A crash before this event is on disk marks the reserve as a gap, as it should: the records that were given seqs
        may be lost as well. Once it is on disk, so is everything before it.
        """
        reserves = self.reserves
        for _ in range(min(limit, len(reserves))):
            partition, (seen, since_ms) = next(iter(reserves.items()))
            if now - since_ms < limits.SEQ_RESERVE_IDLE_MS:
                return
            del reserves[partition]
            topic = partition.topic
            if self.topics.get(topic.number) is not topic or partition.ceiling <= partition.next_seq:
                continue
            if partition.next_seq == seen:
                self._return_reserve(partition)
            else:
                reserves[partition] = partition.next_seq, now

    def drop_routers(self, topic: Topic, now: int) -> list[bytes]:
        """Before a topic goes: the routers at its ends go first. Returns their names."""
        return routing.drop_all_of(self, topic, now)

    def fold(self, event: events.Event) -> None:
        """Applies an event, to state that may be ahead of it (events.py says why that is harmless)."""
        change = FOLD.get(type(event))
        if change is not None:
            change(self, event)
            return
        assert isinstance(event, PartitionEvent)
        topic = self.topics.get(event.topic)
        if topic is not None:  # else it was deleted later, and the checkpoint knows that already
            partition = topic.partition(event.partition)
            EVOLVE[type(event)](partition, event)
            self.touched.add(partition)

    def settle(self) -> None:
        """After the last event of a recovery: nothing that may have been given out is given out again."""
        self.topics = dict(sorted(self.topics.items()))  # a checkpoint cut short may have known a younger one first
        for topic in self.topics.values():  # of every class: one that is fsync now may have been less before
            for partition in topic.all_partitions():
                if partition.ceiling > partition.next_seq:
                    partition.next_seq = partition.ceiling
                    self.touched.add(partition)
            if topic.log is not None:
                topic.log.settle()
                if topic.log.unsaved.dropped:
                    self.touched.add(topic.log)
            elif topic.journaled and retention.is_capped(topic.config):
                topic.partitions[0].wake(self.last_ms + 1)  # a tightened cap may have been at work
        self._forget_ephemeral()
        consume.forget_leases(self)
        self.routers.settle(self)

    def release_reserves(self) -> None:
        """Before an orderly end: nothing is lost, so the seqs reserved but not given out need not be skipped."""
        for topic in self.topics.values():
            self.release_reserves_of(topic)

    def release_reserves_of(self, topic: Topic) -> None:
        """Also when its class becomes one that reserves nothing: no later crash can take a seq that was given out."""
        for partition in topic.all_partitions():
            if partition.ceiling > partition.next_seq:
                self._return_reserve(partition)

    def _return_reserve(self, partition: Partition) -> None:
        """No seq from the next one on was given out."""
        event = events.SeqReserved(partition.topic.number, partition.index, partition.next_seq)
        self.record(None, event, sync=False)

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
        partition = self.partition_of(message_id)
        if partition is None:
            return None
        job = partition.jobs.get(message_id & SEQ_MAX)
        if job is None or job.created_ms != message_id >> TIME_SHIFT:
            return None
        return partition, job

    def partition_of(self, message_id: int) -> QueuePartition | None:
        """Where the job of an id would be."""
        topic = self.topics.get(message_id >> TOPIC_SHIFT & TOPIC_MASK)
        index = message_id >> PARTITION_SHIFT & PARTITION_MASK
        return None if topic is None or index >= len(topic.partitions) else topic.partitions[index]

    def payload(self, partition: QueuePartition, job: Job) -> bytes:
        if job.payload is not None:
            return job.payload
        payload = self.cold.payload(partition.topic.number, partition.index, job.seq)
        if len(payload) != job.size:
            raise InvariantBroken(wrong_size(partition.topic.number, partition.index, job, len(payload)))
        return payload

    def consumed(self, name: bytes, now: int) -> None:
        """Someone attached to a topic, or was sent of its records: that raises its automatic priority for a while."""
        topic = self.names.get(name)
        if topic is not None:
            topic.last_read_ms = max(topic.last_read_ms, now)

    def memory_bytes(self) -> int:
        """What topics, jobs and records cost: an estimate that needs no walk."""
        totals = self.totals
        return totals.jobs * limits.JOB_MEMORY_BYTES + totals.hot_bytes + totals.kept_bytes

    # -- evolving topics

    def topic_created(self, event: events.TopicCreated) -> None:
        self.next_number = max(self.next_number, event.topic + 1)
        known = self.topics.get(event.topic)
        if known is not None:  # the checkpoint was ahead; an elder of the same name may have come and gone since
            self._name(known)
            return
        topic = self.new_topic(event.topic, event.name, event.config, event.ts, event.lazy)
        self.dirty_topics.add(topic)
        if event.name in self.watched_topics:
            self.changed.add(event.name)

    def new_topic(self, number: int, name: bytes, config: TopicConfig, created_ms: int, lazy: bool) -> Topic:
        topic = Topic(number, name, config, created_ms, lazy, self.totals, self.wakes, self.cold_blocks)
        self.topics[number] = topic
        self._name(topic)
        return topic

    def _name(self, topic: Topic) -> None:
        if topic.name not in self.names:
            self.sorted_names.add(topic.name)
        self.names[topic.name] = topic

    def topic_configured(self, event: events.TopicConfigured) -> None:
        topic = self.topics.get(event.topic)
        if topic is not None:
            was_journaled = topic.journaled
            topic.configure(event.config)
            topic.lazy = False
            self.dirty_topics.add(topic)
            if topic.log is not None:
                topic.log.configured(was_journaled)
            for partition in topic.partitions:
                durability.configured(partition, was_journaled)
            self.touched.update(topic.all_partitions())

    def topic_paused(self, event: events.TopicPaused) -> None:
        topic = self.topics.get(event.topic)
        if topic is not None:
            topic.pause = Pause(event.pause)
            self.dirty_topics.add(topic)

    def topic_deleted(self, event: events.TopicDeleted) -> None:
        topic = self.topics.pop(event.topic, None)
        self.deleted_topics.append(event.topic)
        if topic is not None:
            self.totals.kept_bytes -= topic.memory_bytes
            for partition in topic.all_partitions():
                partition.dedup.forget_totals()
                partition.tags.forget_totals()
            if self.names.get(topic.name) is topic:
                del self.names[topic.name]
                self.sorted_names.remove(topic.name)
                if topic.name in self.watched_topics:
                    self.changed.add(topic.name)
            if topic.log is not None:
                self.graveyard.append(topic.log.leave())
            for partition in topic.partitions:
                looked_at = partition.let_go_of_views(partition.next_seq)
                partition.forget_totals()
                if not looked_at:
                    self.graveyard.append(partition.jobs)
                partition.jobs = {}  # a checkpoint under way must not find them, and cool what no total counts

    def purged(self, event: events.Purged) -> None:
        topic = self.topics.get(event.topic)
        if topic is not None:
            partition = topic.partitions[event.partition]
            self.graveyard.append(partition.purged(event))
            self.touched.add(partition)

    def node_started(self, event: events.NodeStarted) -> None:
        """A restart. What ephemeral topics held was lost with it, whatever their class became later.

        All else that a restart ends, `settle` ends at every recovery.
        """
        self._forget_ephemeral()

    def _forget_ephemeral(self) -> None:
        for topic in self.topics.values():
            if topic.journaled:
                continue
            if topic.log is not None:
                topic.log.forget()
            else:
                self.graveyard += [durability.forget(partition) for partition in topic.partitions]
            self.touched.update(topic.all_partitions())

    def router_put(self, event: events.RouterPut) -> None:
        self.routers.put(event)

    def router_dropped(self, event: events.RouterDropped) -> None:
        self.routers.drop(event)


def _reserved(partition: Partition, event: events.SeqReserved) -> None:
    partition.reserved(event)


def _key_remembered(partition: Partition, event: events.KeyRemembered) -> None:
    partition.key_remembered(event)


EVOLVE: dict[type, Callable[..., object]] = {
    **EVOLVE_QUEUE,
    **EVOLVE_LOG,
    events.SeqReserved: _reserved,
    events.KeyRemembered: _key_remembered,
}
"""How a partition of any kind takes an event of its own."""
EVOLVE_NEW_JOBS: Callable[..., object] = QueuePartition.enqueued_all
"""How a partition of a queue takes a list of `Enqueued`."""

FOLD: dict[type, Callable[..., None]] = {
    events.TopicCreated: Machine.topic_created,
    events.TopicConfigured: Machine.topic_configured,
    events.TopicDeleted: Machine.topic_deleted,
    events.TopicPaused: Machine.topic_paused,
    events.Purged: Machine.purged,
    events.NodeStarted: Machine.node_started,
    events.RouterPut: Machine.router_put,
    events.RouterDropped: Machine.router_dropped,
    events.RecordsForwarded: forwarding.forwarded,
    events.LoadAdvanced: loads.advanced,
}

HANDLERS: dict[type, Callable[..., Reply]] = {
    commands.Enqueue: produce.enqueue,
    commands.EnqueueAlike: produce.enqueue_alike,
    commands.Lease: consume.lease,
    commands.LeaseCohort: cohort.lease_cohort,
    commands.AckHeld: held.ack,
    commands.NackHeld: held.nack,
    commands.ExtendHeld: held.extend,
    commands.Append: records.append,
    commands.Publish: loads.publish,
    commands.Read: records.read,
    commands.DeleteRecords: records.delete,
    commands.DeleteMore: records.delete_more,
    commands.ArchiveRecords: archived.archive,
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
    commands.CreateTopic: catalogue.create,
    commands.ConfigureTopic: catalogue.configure,
    commands.DeleteTopic: catalogue.delete,
    commands.DeleteAllTopics: catalogue.delete_all,
    commands.PutTopic: catalogue.put,
    commands.DropTopic: catalogue.drop,
    commands.TopicState: catalogue.state,
    commands.ListTopics: catalogue.listing,
    commands.PutRouter: routing.put,
    commands.DropRouter: routing.drop,
    commands.RouterState: routing.state,
    commands.ListRouters: routing.listing,
    commands.Forward: forwarding.forward,
    commands.ReplayDeadLetters: replays.replay,
    commands.Show: inspect.show,
    commands.Peek: inspect.peek,
    commands.Length: inspect.length,
    commands.Stats: inspect.stats,
    commands.ScanTopics: inspect.scan_topics,
    commands.ScanJobs: inspect.scan_jobs,
    commands.Tick: clockwork.tick,
}
