"""An engine with journal, checkpoints and restarts, and short ways to write to a log and to read it."""

from __future__ import annotations

from random import Random

import msgspec

from esker.engine.commands import Append, Command, DeleteRecords, NewRecord, PutTopic, Read, Tick, TopicState
from esker.engine.config import TopicConfig, TopicType
from esker.engine.logs.partition import LogPartition
from esker.engine.queues.clockwork import next_wake_ms
from esker.engine.replies import Deleted, Records, Reply, TopicPut, TopicStatus, Written
from esker.errors import Code, Refusal
from tests.engine.logs.audit import audit_logs
from tests.engine.rig import START_MS, expect
from tests.properties.world import World

T = b"t"


PLAIN = TopicConfig(type=TopicType.LOG, idempotency_window_ms=120_000)


def log_config(**options: object) -> TopicConfig:
    return msgspec.structs.replace(PLAIN, **options)


class LogRig:
    """`options` are those of topic `t`, made at once."""

    def __init__(self, **options: object) -> None:
        self.world = World(None)
        self.now = START_MS
        expect(TopicPut, self.do(PutTopic(T, log_config(**options))))

    def do(self, command: Command) -> Reply:
        reply = self.world.do(command, self.now)
        audit_logs(self.world.machine)
        return reply

    def code(self, command: Command) -> Code:
        return self.refused(command).code

    def refused(self, command: Command) -> Refusal:
        return expect(Refusal, self.do(command))

    def write(self, *datas: bytes, tag: bytes = b"", node: bytes = b"", key: bytes = b"", topic: bytes = T) -> Written:
        return expect(Written, self.do(Append(topic, [NewRecord(data, tag, node) for data in datas], key)))

    def write_many(self, count: int, tag: bytes = b"", size: int = 1) -> Written:
        return self.write(*[b"1" * size] * count, tag=tag)

    def read(self, after: int = 0, limit: int = 1000, nodes: tuple[bytes, ...] = (), topic: bytes = T) -> Records:
        return expect(Records, self.do(Read(topic, after, limit, nodes=frozenset(nodes))))

    def seqs(self, after: int = 0) -> list[int]:
        return [record.seq for record in self.read(after).records]

    def delete(self, before: int | None = None, tag: bytes | None = None, prefix: bool = False) -> Deleted:
        return expect(Deleted, self.do(DeleteRecords(T, before, tag, prefix)))

    def state(self, touch: bool = False, topic: bytes = T) -> TopicStatus:
        return expect(TopicStatus, self.do(TopicState(topic, touch)))

    def put(self, topic: bytes = T, **options: object) -> TopicStatus:
        return expect(TopicPut, self.do(PutTopic(topic, log_config(**options)))).status

    def pass_ms(self, ms: int) -> None:
        """Lets time pass, and the machine notice all of it."""
        self.now += ms
        self.do(Tick())
        while (due := next_wake_ms(self.world.machine)) is not None and due <= self.now:
            self.do(Tick())

    @property
    def log(self) -> LogPartition:
        log = self.world.machine.names[T].log
        assert log is not None
        return log

    def checkpoint(self, cool: bool = False) -> None:
        self.world.begin_checkpoint()
        self.world.finish_checkpoint(_Always(cool))

    def crash(self) -> None:
        """Nothing that reached the journal is lost; nobody knows that."""
        self.world.sync()
        self.world.crash(self.world.journal.last_position, 0)
        audit_logs(self.world.machine)

    def crash_losing(self, batches: int) -> None:
        self.world.crash(self.world.journal.last_position - batches, 0)
        audit_logs(self.world.machine)

    def restart(self) -> None:
        self.world.restart()
        audit_logs(self.world.machine)


class _Always(Random):
    """Cools everything that can be, or nothing."""

    def __init__(self, cool: bool) -> None:
        super().__init__(0)
        self._cool = cool

    def random(self) -> float:
        return 0.0 if self._cool else 1.0
