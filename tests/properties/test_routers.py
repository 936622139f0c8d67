"""Routers under crashes at any point: every copy comes back where it was, once, and nothing that was seen changes.

The judge is a second machine that folds the very same journal from its first event on and never meets a store. What a
recovery makes of a checkpoint (whole, or cut short anywhere) and the journal behind it must be the same: same records
under the same seqs, same gaps and floors, same cursors. Beside that, from the outside: whoever has read a seq never
reads anything else there, no copy is there twice, and copies keep the order of their source.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from esker.engine import limits
from esker.engine.commands import (
    Ack,
    Append,
    Command,
    DeleteRecords,
    DropRouter,
    DropTopic,
    Forward,
    Lease,
    NewRecord,
    PutRouter,
    PutTopic,
    Read,
    RouterState,
    Tick,
)  # fmt: skip
from esker.engine.config import Discard, Durability, Guarantee, RouterOptions, TopicConfig, TopicType
from esker.engine.events import decode_batch
from esker.engine.logs.block import offsets
from esker.engine.logs.partition import LogPartition
from esker.engine.machine import Machine
from esker.engine.replies import Leased, Records, Reply, RouterView
from esker.store import checkpoint, jobs, logs
from tests.engine.rig import START_MS, expect
from tests.properties.world import World

LOG = TopicConfig(type=TopicType.LOG, durability=Durability.DISK)
STAGE = (b"a", b"b", b"c", b"d", b"q")
WAYS = ((b"a", b"b"), (b"a", b"c"), (b"b", b"d"), (b"c", b"q"), (b"q", b"d"), (b"d", b"a"), (b"a", b"b"))
CONFIGS = (
    LOG,
    LOG,
    msgspec.structs.replace(LOG, durability=Durability.FSYNC),
    msgspec.structs.replace(LOG, durability=Durability.FSYNC),
    msgspec.structs.replace(LOG, durability=Durability.MEMORY),
    msgspec.structs.replace(LOG, cap_records=4),
    msgspec.structs.replace(LOG, cap_records=6, discard=Discard.REJECT),
    msgspec.structs.replace(LOG, ttl_ms=300),
)
OPTIONS = (
    RouterOptions(),
    RouterOptions(),
    RouterOptions(filter_tag=b"t", filter_prefix=True),
    RouterOptions(preserve_node=False, preserve_tag=False),
    RouterOptions(guarantee=Guarantee.EXACTLY_ONCE),
)

# What makes copies underivable from what is left: of a source, and of a router from there to a destination.
Loss = Callable[[bytes, bytes], list[Command]]
LOSSES: tuple[Loss, ...] = (
    lambda source, dest: [DropTopic(source)],
    lambda source, dest: [DeleteRecords(source, before_seq=100)],
    lambda source, dest: [DeleteRecords(source, tag=b"t1")],
    lambda source, dest: [DropRouter(source + b">" + dest)],
    lambda source, dest: [PutRouter(source + b">" + dest, source, dest, RouterOptions(preserve_tag=False))],
    lambda source, dest: [PutTopic(source, msgspec.structs.replace(LOG, cap_records=1))],
    lambda source, dest: [DeleteRecords(source, before_seq=100), DropTopic(dest)],
)

topics = st.sampled_from(STAGE)
logs_only = st.sampled_from(STAGE[:-1])
tags = st.sampled_from([b"", b"t1", b"t2", b"u"])


class RouterMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        self._shrink_limits()
        self.world = World(None)
        self.judge = Machine(Random(0))
        self.batches: dict[int, bytes] = {}  # that the judge has yet to fold
        self.heard = 0  # the last position of them
        self.now = START_MS
        self.written = 0
        self.copied_twice: set[int] = set()  # topics that two routers ever led to, and those behind
        self.ringed = False  # there ever was a router that allows rings
        self.seen: dict[tuple[int, int], bytes] = {}  # data by topic number and seq

    def _shrink_limits(self) -> None:
        """Small bounds, so that small examples meet them."""
        for name, bound in (
            ("SEQ_RESERVE", 5), ("BLOCK_RECORDS_MAX", 3), ("FORWARD_COPIES_PER_STEP", 4), ("TIMERS_PER_TURN", 3),
        ):  # fmt: skip
            self.patches.setattr(limits, name, bound)
        for module in (checkpoint, jobs, logs):
            self.patches.setattr(module, "WRITE_KEYS", 4)

    def teardown(self) -> None:
        self.world.close()
        self.patches.undo()

    def do(self, command: Command) -> Reply:
        reply = self.world.do(command, self.now)
        for position, batch in self.world.journal.read(self.heard):
            self.batches[position] = batch
            self.heard = position
        return reply

    # -- what happens

    @initialize(
        configs=st.lists(st.sampled_from(CONFIGS), min_size=4, max_size=4),
        ways=st.sets(st.sampled_from(WAYS), min_size=2),
    )
    def begin(self, configs: list[TopicConfig], ways: set[tuple[bytes, bytes]]) -> None:
        for name, config in zip(STAGE, configs, strict=False):
            self.do(PutTopic(name, config))
        self.do(PutTopic(b"q", TopicConfig(durability=Durability.DISK)))
        for source, dest in sorted(ways):
            self.do(PutRouter(source + b">" + dest, source, dest, RouterOptions()))

    @rule(topic=topics, tag=tags, count=st.integers(1, 5))
    def write(self, topic: bytes, tag: bytes, count: int) -> None:
        records = [NewRecord(b"%d" % (self.written + each), tag, b"n") for each in range(count)]
        self.written += count
        self.do(Append(topic, records))

    @rule()
    def forward(self) -> None:
        self.do(Forward())

    @rule(topic=topics, after=st.integers(0, 6))
    def read(self, topic: bytes, after: int) -> None:
        reply = self.do(Read(topic, after))
        if not isinstance(reply, Records):
            return
        if not self.world.replies_left:
            self.world.sync()  # a reply waits for what it tells
        number = self.world.machine.names[topic].number
        for record in reply.records:
            assert self.seen.setdefault((number, record.seq), record.data) == record.data

    @rule(topic=topics, below=st.integers(1, 20), tag=st.sampled_from([None, b"t1", b"t"]))
    def delete(self, topic: bytes, below: int, tag: bytes | None) -> None:
        self.do(DeleteRecords(topic, below if tag is None else None, tag, prefix=True))

    @rule(count=st.integers(1, 3))
    def work(self, count: int) -> None:
        leased = self.do(Lease(b"q", count))
        if isinstance(leased, Leased):
            self.do(Ack([each.id for each in leased.deliveries]))

    @rule(way=st.sampled_from(WAYS), options=st.sampled_from(OPTIONS), ring=st.booleans(), second=st.booleans())
    def put_router(self, way: tuple[bytes, bytes], options: RouterOptions, ring: bool, second: bool) -> None:
        name = b">".join(way) + (b"2" if second else b"")
        self.do(PutRouter(name, *way, msgspec.structs.replace(options, allow_cycle=ring)))

    @rule(way=st.sampled_from(WAYS))
    def drop_router(self, way: tuple[bytes, bytes]) -> None:
        self.do(DropRouter(b">".join(way)))

    @rule(way=st.sampled_from(WAYS))
    def ask_router(self, way: tuple[bytes, bytes]) -> None:
        self.do(RouterState(b">".join(way)))

    @rule(topic=logs_only)
    def drop_topic(self, topic: bytes) -> None:
        self.do(DropTopic(topic))

    @rule(topic=logs_only, config=st.sampled_from(CONFIGS))
    def put_topic(self, topic: bytes, config: TopicConfig) -> None:
        self.do(PutTopic(topic, config))

    @rule(ms=st.sampled_from([1, 50, 200, 1100]))
    def wait(self, ms: int) -> None:
        self.now += ms
        self.do(Tick())

    # -- stories that single steps rarely tell

    @rule(
        way=st.sampled_from(WAYS), loss=st.sampled_from(LOSSES), before=st.booleans(), slices=st.integers(0, 9),
        lost=st.integers(0, 2), kept_writes=st.integers(0, 12),
    )  # fmt: skip
    def lose_the_source_of_copies_in_a_checkpoint_that_is_cut_short(
        self, way: tuple[bytes, bytes], loss: Loss, before: bool, slices: int, lost: int, kept_writes: int
    ) -> None:
        source, dest = way
        self.write(source, b"t1", 2)
        if before:
            self.save(0, 0, finish=True)  # so that the records are in the store, and no longer in the journal
        self.write(source, b"t1", 2)
        self.do(Forward())
        for command in loss(source, dest):
            self.do(command)
        self.save(slices, 0, finish=False)
        self.crash(lost, kept_writes)

    @rule(way=st.sampled_from(WAYS), lost=st.integers(0, 4))
    def see_copies_that_a_crash_may_take(self, way: tuple[bytes, bytes], lost: int) -> None:
        source, dest = way
        self.write(source, b"", 1)
        self.world.sync()  # so that nothing but the copies is left to wait for
        self.read(dest, 0)
        self.crash(lost, 0)
        self.write(dest, b"", 1)
        self.read(dest, 0)

    # -- checkpoints and ends

    @rule()
    def sync(self) -> None:
        self.world.sync()

    @rule(slices=st.integers(0, 8), seed=st.integers(0, 3), finish=st.booleans())
    def save(self, slices: int, seed: int, finish: bool) -> None:
        if self.world.checkpoint is None:
            self.world.begin_checkpoint()
        for _ in range(slices):
            self.world.make_slice()
        if finish:
            self.world.finish_checkpoint(Random(seed))
        else:
            self.world.write_slices(Random(seed))

    @rule(lost=st.integers(0, 5), kept_writes=st.sampled_from([0, 1, 2, 3, 5, 8, 99]))
    def crash(self, lost: int, kept_writes: int) -> None:
        cut = max(self.world.promised, self.world.journal.last_position - lost)
        self.world.crash(cut, kept_writes)
        self.come_back(cut)

    @rule()
    def restart(self) -> None:
        self.world.restart()
        for position in sorted(self.batches):
            self.judge_hears(position)
        self.judge.release_reserves()
        self.come_back(self.world.journal.last_position)

    def judge_hears(self, position: int) -> None:
        for event in decode_batch(self.batches.pop(position)):
            self.judge.fold(event)
            self.judge.last_ms = max(self.judge.last_ms, getattr(event, "ts", 0))

    def come_back(self, cut: int) -> None:
        for position in sorted(self.batches):
            if position <= cut:
                self.judge_hears(position)
        self.judge.settle()
        self.batches, self.heard = {}, cut
        self.now = max(self.now, self.judge.last_ms)
        assert facts(self.world.machine) == facts(self.judge)

    # -- after every step

    @invariant()
    def no_copy_is_there_twice_and_copies_keep_their_order(self) -> None:
        machine = self.world.machine
        everyone = list(machine.routers.numbers.values())
        for router in everyone * len(everyone):  # as often as the longest chain needs
            if router.source in self.copied_twice or len(machine.routers.by_dest[router.dest]) > 1:
                self.copied_twice.add(router.dest)
            self.ringed = self.ringed or router.options.allow_cycle
        for topic in machine.topics.values():
            feeders = machine.routers.by_dest.get(topic.number, {})
            if topic.log is None or not feeders or self.ringed or topic.number in self.copied_twice:
                continue
            (router,) = feeders.values()
            source = machine.topics[router.source].log
            if source is None:
                continue
            originals = source.bodies(source.live_runs(0, source.head_seq))
            place = {body.data: at for at, body in enumerate(originals)}
            there = topic.log.bodies(topic.log.live_runs(0, topic.log.head_seq))
            copies = [place[body.data] for body in there if body.data in place]
            assert copies == sorted(set(copies))

    @invariant()
    def nobody_is_forgotten(self) -> None:
        machine = self.world.machine
        for router in machine.routers.numbers.values():
            if router.cursor < machine.topics[router.source].first.next_seq - 1:
                known = router.number in machine.routers.behind or router.number in machine.routers.stalled
                log = machine.topics[router.source].log
                assert known or (log is not None and router.cursor >= log.head_seq)


def facts(machine: Machine) -> tuple[object, ...]:
    """All that a recovery must bring back of logs and routers."""
    found = {topic.number: log_facts(topic.log) for topic in machine.topics.values() if topic.log is not None}
    jobs_there = {
        topic.number: {seq: machine.payload(partition, job) for seq, job in sorted(partition.jobs.items())}
        for topic in machine.topics.values()
        for partition in topic.partitions
    }
    routers = {
        router.number: (router.name, router.source, router.dest, router.options, router.cursor, router.forwarded)
        for router in machine.routers.numbers.values()
    }
    return found, jobs_there, routers, {name: topic.number for name, topic in machine.names.items()}


def log_facts(log: LogPartition) -> tuple[object, ...]:
    records = {
        block.first_seq + offset: (log.content(block).ts(offset), log.content(block).bodies[offset])
        for block in log.blocks
        for offset in offsets(block.live)
    }
    floors = log.cap_floor, log.ttl_floor, log.head_seq, log.next_seq
    return records, floors, log.count, log.bytes, list(log.gaps.all)


TestRouters = RouterMachine.TestCase
TestRouters.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_router_is_not_behind_after_it_was_asked() -> None:
    world = World(None)
    world.do(PutRouter(b"r", b"a", b"b", RouterOptions()), START_MS)
    world.do(Append(b"a", [NewRecord(b"1")]), START_MS)
    world.sync()
    world.crash(world.journal.last_position, 0)
    assert expect(RouterView, world.do(RouterState(b"r"), START_MS)).forwarded == 1
    world.close()
