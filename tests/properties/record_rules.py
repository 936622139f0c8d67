"""Queues as topics of records, and leases settled by seq and holder: the rules of it for the state machine."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import rule

from esker.engine.commands import (
    AckHeld,
    Append,
    DeleteRecords,
    ExtendHeld,
    Lease,
    LeaseCohort,
    NackHeld,
    NewJob,
    NewRecord,
    Read,
    TopicState,
)  # fmt: skip
from esker.engine.config import Durability, Pause, TopicConfig
from esker.engine.ids import message_id, place
from esker.engine.replies import CohortLeased, Deleted, Records, Reply, SlotsDone, Tombstone, TopicStatus, Written
from esker.errors import Code, Refusal
from tests.engine.rig import expect
from tests.properties.model import LEASED, READY, ModelJob, ModelTopic
from tests.properties.stage import QUEUES, Stage, places

holders = st.sampled_from([b"w1", b"w1", b"w2", b""])
tags = st.sampled_from([b"", b"t", b"tt", b"u"])
nodes = st.sampled_from([b"", b"a", b"b"])
new_records = st.builds(NewRecord, data=st.binary(min_size=1, max_size=9), tag=tags, node=nodes)
named = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["none", "live", "stale"])), max_size=4)


class RecordRules(Stage):
    def any_queue(self, name: bytes, reply: Reply) -> ModelTopic | None:
        """The model of a topic that can be asked by slot; None when there is none, and the reply says so."""
        if name not in self.model.topics:
            assert expect(Refusal, reply).code == Code.TOPIC_NOT_FOUND
        return self.model.topics.get(name)

    def one_partition(self, name: bytes, reply: Reply) -> ModelTopic | None:
        """The model of a topic that can be asked by seq; None when it cannot, and the reply says so."""
        topic = self.model.topics.get(name)
        if topic is None:
            assert expect(Refusal, reply).code == Code.TOPIC_NOT_FOUND
            return None
        if topic.config.partitions != 1:
            assert expect(Refusal, reply).code == Code.BAD_REQUEST
            return None
        return topic

    def is_refused(self, topic: ModelTopic, new: Sequence[NewJob] | Sequence[NewRecord], reply: Reply) -> bool:
        """Whether the topic has no room for these; the reply must say so."""
        size = sum(len(each.payload if isinstance(each, NewJob) else each.data) for each in new)
        full = topic.full(len(new), size, self.now)
        if full is False:
            assert not isinstance(reply, Refusal), reply
            return False
        assert expect(Refusal, reply).code == (Code.RECORD_TOO_LARGE if full is None else Code.TOPIC_FULL)
        return True

    # -- records

    @rule(
        at=places,
        records=st.lists(new_records, min_size=1, max_size=4),
        key=st.sampled_from([b"", b"", b"k1", b"k2"]),
    )
    def append(self, at: int, records: list[NewRecord], key: bytes) -> None:
        name = self.queue(at)
        topic = self.model.topics.get(name)
        config = QUEUES.get(name) or TopicConfig()
        reply = self.do(Append(name, records, key, config))
        if topic is not None and topic.pause & Pause.IN:
            assert expect(Refusal, reply).code == Code.PAUSED
            return
        if topic is not None and (known := self.model.known_write(name, key, self.now)) is not None:
            first, last, home = known
            partition = home if topic.config.partitions > 1 else None
            assert reply == Written(first, last, last, created=False, deduped=True, partition=partition)
            return
        if topic is None:
            topic = self.model.make(name, config, self.now, lazy=False)
        if self.is_refused(topic, records, reply):
            return
        written = expect(Written, reply)
        assert (written.partition is None) == (topic.config.partitions == 1)
        home = written.partition or 0
        first, last = self.model.append(name, records, key, home, self.now)
        assert (written.first_seq, written.last_seq, written.head_seq, written.deduped) == (first, last, last, False)
        ids = [message_id(self.now, topic.number, home, seq) for seq in range(first, last + 1)]
        assert first > self.given.get((topic.number, home), 0), "a seq that was given out is given out again"
        self.seen += ids
        self.untold += ids

    @rule(
        at=places,
        behind=st.integers(-3, 8),
        limit=st.integers(1, 5),
        unwanted=st.sampled_from([frozenset[bytes](), frozenset({b"a"}), frozenset({b"a", b"b"})]),
    )
    def read(self, at: int, behind: int, limit: int, unwanted: frozenset[bytes]) -> None:
        name = self.queue(at)
        known = self.model.topics.get(name)
        after = 0 if known is None else max(0, known.heads[0] - behind)
        reply = self.do(Read(name, after, limit, nodes=unwanted))
        topic = self.one_partition(name, reply)
        if topic is None:
            return
        topic.expire_front(self.now)
        head = topic.heads[0]
        found: list[ModelJob] = []
        reached = head
        for job in topic.records():
            if job.seq <= after <= head:
                continue
            if len(found) == limit:
                reached = job.seq - 1
                break
            if 0 < job.expires_ms <= self.now:
                topic.expire(job)
            elif not job.node or job.node not in unwanted:
                found.append(job)
        records = expect(Records, reply)
        assert [(record.seq, record.ts, record.data, record.tag, record.node) for record in records.records] == [
            (job.seq, job.created_ms, job.payload, job.tag, job.node) for job in found
        ]
        assert (records.head_seq, records.earliest_seq) == (head, topic.earliest())
        last_seen = found[-1].seq if found else 0
        assert last_seen <= records.next_from_seq <= reached
        assert len(found) == limit or records.next_from_seq == head
        self.check_tombstone(topic, after, records.tombstone)

    def check_tombstone(self, topic: ModelTopic, after: int, stone: Tombstone | None) -> None:
        head, cap, ttl = topic.heads[0], topic.cap_floors[0], topic.ttl_floors[0]
        if after > head:
            assert stone is not None
            assert (stone.reason, stone.gap_from, stone.gap_to) == ("recreated", 1, head)
        elif after + 1 < max(cap, ttl):
            assert stone is not None
            both = after + 1 < cap and after + 1 < ttl
            assert stone.reason == ("mixed" if both else "cap" if after + 1 < cap else "ttl")
            assert (stone.gap_from, stone.gap_to) == (after + 1, max(cap, ttl, topic.earliest()) - 1)
        else:
            assert stone is None

    @rule(
        at=places,
        below=st.sampled_from([None, -1, 1, 3, 99]),
        tag=st.sampled_from([None, b"t", b"u"]),
        prefix=st.booleans(),
    )
    def delete_records(self, at: int, below: int | None, tag: bytes | None, prefix: bool) -> None:
        name = self.queue(at)
        known = self.model.topics.get(name)
        before_seq = None if below is None or known is None else max(0, known.earliest() + below)
        reply = self.do(DeleteRecords(name, before_seq, tag, prefix))
        topic = self.any_queue(name, reply) if before_seq is None else self.one_partition(name, reply)
        if topic is None:
            return
        if before_seq is None and tag is None:
            assert expect(Refusal, reply).code == Code.BAD_REQUEST
            return
        topic.expire_front(self.now)
        partitions = range(topic.config.partitions)
        gone = [
            job
            for each in partitions
            for job in topic.records(each)
            if (before_seq is None or job.seq < before_seq)
            and (tag is None or (job.tag.startswith(tag) if prefix else job.tag == tag))
        ]
        for job in gone:
            topic.jobs.remove(job)
        left = [job for each in partitions for job in topic.records(each)]
        head = max(topic.heads)
        earliest = min((topic.earliest(each) for each in partitions if topic.records(each)), default=head + 1)
        assert expect(Deleted, reply) == Deleted(
            len(gone), earliest, head, len(left), sum(len(job.payload) for job in topic.jobs)
        )

    @rule(at=places)
    def status(self, at: int) -> None:
        name = self.queue(at)
        reply = self.do(TopicState(name))
        topic = self.model.topics.get(name)
        if topic is None:
            assert expect(Refusal, reply).code == Code.TOPIC_NOT_FOUND
            return
        topic.expire_front(self.now)
        shown = expect(TopicStatus, reply)
        partitions = range(topic.config.partitions)
        records = [job for each in partitions for job in topic.records(each)]
        assert (shown.head_seq, shown.count, shown.bytes, shown.ready, shown.in_flight) == (
            max(topic.heads), len(records), sum(len(job.payload) for job in topic.jobs),
            len(topic.in_state(READY)), len(topic.in_state(LEASED)),
        )  # fmt: skip
        assert shown.earliest_seq == min((job.seq for job in records), default=max(topic.heads) + 1)

    # -- leases by seq and holder

    def name_slots(self, name: bytes, wanted: list[tuple[int, str]]) -> tuple[list[int], list[int | None]]:
        """Seqs and tokens: mostly of jobs that were leased."""
        topic = self.model.topics.get(name)
        jobs = [] if topic is None else sorted(topic.jobs, key=lambda job: (job.state != LEASED, job.seq))[:8]
        slots: list[int] = []
        tokens: list[int | None] = []
        for number, kind in wanted:
            if number >= len(jobs):
                slots.append(number)
                tokens.append(None)
                continue
            job = jobs[number]
            known = self.tokens.get(job.id, [99])
            slots.append(job.slot)
            tokens.append(None if kind == "none" else known[-1 if kind == "live" else 0])
        return slots, tokens

    def settled(
        self, topic: ModelTopic, slots: list[int], tokens: list[int | None], holder: bytes
    ) -> tuple[list[ModelJob], list[int]]:
        """The jobs that a command of these may settle, each once; and the slots it skips."""
        good: list[ModelJob] = []
        skipped: list[int] = []
        for slot, token in zip(slots, tokens, strict=True):
            job = next((job for job in topic.jobs if job.slot == slot), None)
            if job is None or job in good or not self.model.holds(job, holder, token, self.now):
                skipped.append(slot)
            else:
                good.append(job)
        return good, skipped

    def check_done(self, topic: ModelTopic, reply: Reply, good: list[ModelJob], skipped: list[int]) -> SlotsDone:
        done = expect(SlotsDone, reply)
        assert (done.count, list(done.skipped)) == (len(good), skipped)
        assert (done.ready, done.in_flight) == (len(topic.in_state(READY)), len(topic.in_state(LEASED)))
        return done

    @rule(at=places, wanted=named, holder=holders)
    def ack_held(self, at: int, wanted: list[tuple[int, str]], holder: bytes) -> None:
        name = self.queue(at)
        slots, tokens = self.name_slots(name, wanted)
        reply = self.do(AckHeld(name, slots, holder, tokens))
        topic = self.any_queue(name, reply)
        if topic is None:
            return
        good, skipped = self.settled(topic, slots, tokens, holder)
        for job in good:
            topic.jobs.remove(job)
            topic.active_ms = self.now
            if topic.config.durability == Durability.FSYNC:
                self.untold_over.append(job.id)
        self.check_done(topic, reply, good, skipped)

    @rule(at=places, wanted=named, holder=holders, delay_ms=st.sampled_from([0, 0, 70]))
    def nack_held(self, at: int, wanted: list[tuple[int, str]], holder: bytes, delay_ms: int) -> None:
        name = self.queue(at)
        slots, tokens = self.name_slots(name, wanted)
        reply = self.do(NackHeld(name, slots, holder, tokens, delay_ms))
        topic = self.any_queue(name, reply)
        if topic is None:
            return
        good, skipped = self.settled(topic, slots, tokens, holder)
        for job in good:
            job.nacks += 1
            self.model.give_back(job, delay_ms, self.now)
        self.check_done(topic, reply, good, skipped)

    @rule(at=places, wanted=named, holder=holders, lease_ms=st.sampled_from([1, 200, 10**9]))
    def extend_held(self, at: int, wanted: list[tuple[int, str]], holder: bytes, lease_ms: int) -> None:
        name = self.queue(at)
        slots, tokens = self.name_slots(name, wanted)
        reply = self.do(ExtendHeld(name, slots, holder, lease_ms, tokens))
        topic = self.any_queue(name, reply)
        if topic is None:
            return
        good, skipped = self.settled(topic, slots, tokens, holder)
        for job in good:
            job.due_ms = self.now + min(lease_ms, topic.config.max_lease_ms)
        done = self.check_done(topic, reply, good, skipped)
        assert done.deadlines_ms == {job.slot: job.due_ms for job in good}

    @rule(at=places, wanted=st.lists(st.integers(0, 3), min_size=1, max_size=3))
    def lease_cohort(self, at: int, wanted: list[int]) -> None:
        name = self.queue(at)
        claims = [Lease(name, count, None, b"w%d" % (seat + 1)) for seat, count in enumerate(wanted)]
        reply = self.do(LeaseCohort(name, claims))
        if name not in self.model.topics:
            assert expect(Refusal, reply).code == Code.TOPIC_NOT_FOUND
            return
        topic = self.model.topics[name]
        left = topic.config.max_in_flight - len(topic.in_state(LEASED)) if topic.config.max_in_flight else sum(wanted)
        shares: list[list[ModelJob]] = [[] for _ in claims]
        for turn in range(max(wanted)):
            for seat, claim in enumerate(claims):
                if turn < claim.count and left > 0:
                    dealt = self.model.lease(name, 1, None, claim.holder, self.now)
                    shares[seat] += dealt
                    left -= len(dealt)
        for share, leased in zip(shares, expect(CohortLeased, reply).shares, strict=True):
            assert [delivery.id for delivery in leased.deliveries] == [job.id for job in share]
            for job, delivery in zip(share, leased.deliveries, strict=True):
                assert place(delivery.id).seq == job.seq
                self.take(job, delivery.id, delivery.token)
