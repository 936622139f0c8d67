"""Logs against the slow obvious model: any commands, with checkpoints, crashes and restarts in between.

Blocks and reserves are made tiny, so that every step crosses the bounds that real traffic meets once in a while.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from esker.engine import limits
from esker.engine.commands import (
    Append,
    Command,
    DeleteRecords,
    DropTopic,
    NewRecord,
    PutTopic,
    Read,
    Tick,
    TopicState,
)  # fmt: skip
from esker.engine.config import Discard, Durability, TopicConfig, TopicType
from esker.engine.replies import Deleted, Records, Reply, TopicDropped, TopicPut, TopicStatus, Written
from esker.errors import Refusal
from tests.engine.logs.audit import audit_logs
from tests.engine.rig import START_MS, expect
from tests.properties.logmodel import ModelLog
from tests.properties.world import World

NAMES = [b"a", b"b"]
TAGS = [b"", b"", b"x", b"xy", b"z"]
NODES = [b"", b"n1", b"n2"]
TINY = {"BLOCK_RECORDS_MAX": 4, "BLOCK_BYTES_MAX": 60, "SEQ_RESERVE": 5}

names = st.sampled_from(NAMES)
records = st.lists(
    st.builds(
        NewRecord,
        st.integers(1, 25).map(lambda size: b"7" * size),
        st.sampled_from(TAGS),
        st.sampled_from(NODES),
        st.sampled_from([b"", b'{"k":1}']),
    ),
    min_size=1,
    max_size=9,
)
configs = st.builds(
    TopicConfig,
    type=st.just(TopicType.LOG),
    durability=st.sampled_from([Durability.FSYNC, Durability.DISK, Durability.DISK, Durability.EPHEMERAL]),
    cap_records=st.sampled_from([0, 0, 3, 10]),
    cap_bytes=st.sampled_from([0, 0, 20, 100]),
    ttl_ms=st.sampled_from([0, 0, 50, 300]),
    discard=st.sampled_from([Discard.OLD, Discard.OLD, Discard.REJECT]),
    dedupe_node=st.booleans(),
    idempotency_window_ms=st.just(200),
)


class _Keep(Random):
    """Lets nothing leave memory."""

    def random(self) -> float:
        return 1.0


KEEP = _Keep()


class LogMachine(RuleBasedStateMachine):
    on_disk = False

    def __init__(self) -> None:
        super().__init__()
        self._kept = {name: getattr(limits, name) for name in TINY}
        for name, value in TINY.items():
            setattr(limits, name, value)
        self.directory = Path(tempfile.mkdtemp()) if self.on_disk else None
        self.world = World(self.directory)
        self.now = START_MS
        self.model: dict[bytes, ModelLog] = {}
        self.history: dict[int, dict[bytes, ModelLog]] = {}

    def teardown(self) -> None:
        self.world.close()
        if self.directory is not None:
            shutil.rmtree(self.directory)
        for name, value in self._kept.items():
            setattr(limits, name, value)

    def do(self, command: Command) -> Reply:
        return self.world.do(command, self.now)

    @initialize(config=configs)
    def begin(self, config: TopicConfig) -> None:
        self.make(b"a", config)

    def make(self, name: bytes, config: TopicConfig) -> None:
        reply = expect(TopicPut, self.do(PutTopic(name, config)))
        assert reply.created
        self.model[name] = ModelLog(reply.status.number, config)

    # -- commands

    @rule(name=names, config=configs)
    def put(self, name: bytes, config: TopicConfig) -> None:
        log = self.model.get(name)
        if log is None:
            self.make(name, config)
            return
        # The class stays: what a change of it means has scenes of its own.
        log.config = msgspec.structs.replace(config, durability=log.config.durability)
        assert not expect(TopicPut, self.do(PutTopic(name, log.config))).created
        log.pass_time(self.now)
        log.enforce()

    @rule(name=names, written=records, key=st.sampled_from([b"", b"", b"k1", b"k2"]))
    def append(self, name: bytes, written: list[NewRecord], key: bytes) -> None:
        log = self.model.get(name)
        reply = self.do(Append(name, written, key, create=False))
        if log is None:
            assert expect(Refusal, reply).code == "topic_not_found"
            return
        known = log.keys.get(key)
        if known is not None and known[2] > self.now - log.config.idempotency_window_ms:
            assert reply == Written(known[0], known[1], known[1], created=False, deduped=True)
        elif code := log.refuses(written):
            refusal = expect(Refusal, reply)
            assert refusal.code == code
            assert (refusal.detail["head_seq"], refusal.detail["earliest_seq"]) == (log.head, log.earliest)
        else:
            first, last = log.append(written, self.now)
            assert reply == Written(first, last, last, created=False, deduped=False)
            if key:
                log.keys[key] = first, last, self.now

    @rule(
        name=names,
        where=st.floats(0, 1.2),
        limit=st.sampled_from([1, 2, 5, 1000]),
        max_bytes=st.sampled_from([1, 40, 1 << 20]),
        nodes=st.frozensets(st.sampled_from([b"n1", b"n2"])),
    )
    def read(self, name: bytes, where: float, limit: int, max_bytes: int, nodes: frozenset[bytes]) -> None:
        log = self.model.get(name)
        if log is not None:
            after = round(where * log.head)
            reply = expect(Records, self.do(Read(name, after, limit, max_bytes, nodes)))
            expected = log.read(after, limit, max_bytes, nodes)
            assert list(reply.records) == expected.records
            assert reply.tombstone == expected.tombstone
            assert expected.next_from_seq <= reply.next_from_seq <= expected.latest
            assert (reply.head_seq, reply.earliest_seq) == (log.head, log.earliest)
            if not log.gaps and after <= log.head:
                assert (reply.tombstone is not None) == (after + 1 < log.evict_floor)

    @rule(name=names, limit=st.sampled_from([1, 3, 7]))
    def read_all(self, name: bytes, limit: int) -> None:
        """Whoever reads on and on gets every living record once, in order, and arrives at the head."""
        log = self.model.get(name)
        if log is not None:
            seen: list[int] = []
            position = 0
            for _ in range(3 * log.head + 3):
                reply = expect(Records, self.do(Read(name, position, limit)))
                seen += [record.seq for record in reply.records]
                if position == reply.next_from_seq:
                    break
                position = reply.next_from_seq
            assert position == log.head
            assert seen == [entry.seq for entry in log.living()]

    @rule(
        name=names,
        where=st.none() | st.floats(0, 1.2),
        tag=st.none() | st.sampled_from([b"x", b"xy", b"z", b""]),
        prefix=st.booleans(),
    )
    def delete(self, name: bytes, where: float | None, tag: bytes | None, prefix: bool) -> None:
        log = self.model.get(name)
        if log is None or (where is None and tag is None):
            return
        before = None if where is None else round(where * log.head)
        reply = expect(Deleted, self.do(DeleteRecords(name, before, tag, prefix)))
        gone = log.delete(before, tag, prefix)
        assert reply == Deleted(gone, log.earliest, log.head, len(log.living()), log.size)

    @rule(name=names)
    def drop(self, name: bytes) -> None:
        log = self.model.pop(name, None)
        reply = expect(TopicDropped, self.do(DropTopic(name)))
        assert (reply.deleted, reply.head_seq) == (log is not None, 0 if log is None else log.head)

    @rule(ms=st.sampled_from([1, 50, 51, 120, 1500]), tick=st.booleans())
    def pass_time(self, ms: int, tick: bool) -> None:
        self.now += ms
        for log in self.model.values():
            log.pass_time(self.now)
        if tick:
            self.do(Tick())

    # -- the disk

    @rule()
    def sync(self) -> None:
        self.world.sync()

    @precondition(lambda self: self.world.checkpoint is None)
    @rule()
    def begin_checkpoint(self) -> None:
        self.world.begin_checkpoint()

    @precondition(lambda self: self.world.checkpoint is not None)
    @rule(count=st.integers(1, 4), seed=st.integers(0, 9))
    def write_some(self, count: int, seed: int) -> None:
        for _ in range(count):
            self.world.make_slice()
        self.world.write_slices(Random(seed))

    @precondition(lambda self: self.world.checkpoint is not None)
    @rule(seed=st.integers(0, 9))
    def finish_checkpoint(self, seed: int) -> None:
        self.world.finish_checkpoint(Random(seed))

    @precondition(lambda self: self.world.checkpoint is None)
    @rule()
    def checkpoint(self) -> None:
        """A whole one, after which everything is in the store and in memory."""
        self.world.begin_checkpoint()
        self.world.finish_checkpoint(KEEP)

    @rule()
    def cool(self) -> None:
        """Memory may become short at any time, also between the slices of a checkpoint."""
        self.world.machine.warmth.cool(0)

    @rule(lost=st.integers(0, 5), kept_writes=st.integers(0, 6))
    def crash(self, lost: int, kept_writes: int) -> None:
        cuts = sorted((at for at in self.history if self.world.promised <= at), reverse=True)
        cut = cuts[min(lost, len(cuts) - 1)]
        self.world.crash(cut, kept_writes)
        self.come_back(self.history[cut])

    @rule()
    def restart(self) -> None:
        self.world.restart()
        self.come_back(self.model, orderly=True)

    def come_back(self, model: dict[bytes, ModelLog], orderly: bool = False) -> None:
        self.model = copied(model)
        self.history = {}
        for name, mine in self.model.items():
            its = self.world.machine.names[name].log
            assert its is not None
            if mine.config.durability == Durability.EPHEMERAL:
                assert its.head_seq <= mine.head
                assert its.next_seq > mine.head or not orderly
                mine.head, mine.cap_floor, mine.ttl_floor = its.head_seq, its.cap_floor, its.ttl_floor
                mine.forget()
            assert mine.next_seq <= its.next_seq, "a seq may be given out twice"
            if orderly or mine.config.durability == Durability.FSYNC:
                assert mine.next_seq == its.next_seq
            mine.next_seq = its.next_seq
            mine.pass_time(self.now)

    # -- after every step

    @invariant()
    def everything_agrees(self) -> None:
        machine = self.world.machine
        audit_logs(machine)
        assert {name: topic.number for name, topic in machine.names.items()} == {
            name: log.number for name, log in self.model.items()
        }
        for name, log in self.model.items():
            status = expect(TopicStatus, self.do(TopicState(name)))
            assert (status.head_seq, status.earliest_seq, status.count, status.bytes) == (
                log.head, log.earliest, len(log.living()), log.size,
            )  # fmt: skip
            its = machine.names[name].log
            assert its is not None
            assert (its.evict_floor(self.now), its.next_seq) == (log.evict_floor, log.next_seq)
        self.history[self.world.journal.last_position] = copied(self.model)


def copied(model: dict[bytes, ModelLog]) -> dict[bytes, ModelLog]:
    return {name: log.copy() for name, log in model.items()}


class LogMachineOnDisk(LogMachine):
    on_disk = True


class LogMachineSoak(LogMachine):
    pass


TestLogs = LogMachine.TestCase
TestLogs.settings = settings(max_examples=400, stateful_step_count=50)

TestLogsOnDisk = LogMachineOnDisk.TestCase
TestLogsOnDisk.settings = settings(max_examples=10, stateful_step_count=40)

TestLogsSoak = pytest.mark.soak(pytest.mark.timeout(3600)(LogMachineSoak.TestCase))
LogMachineSoak.TestCase.settings = settings(max_examples=5000, stateful_step_count=80, derandomize=False)
