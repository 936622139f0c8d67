"""A machine with a clock that stands still until told, and a journal of what it recorded."""

from __future__ import annotations

from random import Random
from typing import TypeVar

from esker.engine.commands import (
    Ack,
    Command,
    CreateTopic,
    Details,
    Enqueue,
    Extend,
    Lease,
    Nack,
    NewJob,
    Show,
    Stats,
    Tick,
)  # fmt: skip
from esker.engine.config import TopicConfig
from esker.engine.events import Event, decode_batch, encode_batch
from esker.engine.machine import Machine
from esker.engine.queues.clockwork import next_wake_ms
from esker.engine.replies import Added, Delivery, Done, Extended, Jobs, JobView, Leased, Reply, TopicView
from esker.errors import Code, Refusal

Q = b"q"
START_MS = 1_700_000_000_000

_Reply = TypeVar("_Reply")


def expect(kind: type[_Reply], reply: Reply) -> _Reply:
    assert isinstance(reply, kind), reply
    return reply


class Rig:
    """`topic` (if given) is the config of queue `q`, made at once."""

    def __init__(
        self, topic: TopicConfig | None = None, seed: int = 7, watched: frozenset[bytes] = frozenset()
    ) -> None:
        self.machine = Machine(Random(seed), watched=watched)
        self.now = START_MS
        self.batches: list[bytes] = []
        self.last: list[Event] = []  # of the last command
        self.synced = False  # whether the last command's reply must wait for the disk
        if topic is not None:
            expect(TopicView, self.do(CreateTopic(Q, topic)))

    def do(self, command: Command) -> Reply:
        machine = self.machine
        reply = machine.handle(command, self.now)
        self.last, self.synced = machine.outbox, machine.must_sync
        if machine.outbox:
            self.batches.append(encode_batch(machine.outbox))
        machine.outbox, machine.must_sync = [], False
        return reply

    def refused(self, command: Command) -> Refusal:
        return expect(Refusal, self.do(command))

    def code(self, command: Command) -> Code:
        return self.refused(command).code

    def pass_ms(self, ms: int) -> None:
        """Lets time pass, and the machine notice all of it."""
        self.now += ms
        self.do(Tick())
        while (due := next_wake_ms(self.machine)) is not None and due <= self.now:
            self.do(Tick())

    def add(
        self,
        payload: bytes = b"work",
        priority: int = 0,
        topic: bytes = Q,
        retry_ms: int | None = None,
        ttl_ms: int | None = None,
        details: Details | None = None,
        partition_key: bytes | None = None,
    ) -> int:
        job = NewJob(payload, priority, retry_ms, ttl_ms, details, partition_key)
        (job_id,) = expect(Added, self.do(Enqueue(topic, [job]))).ids
        return job_id

    def add_many(self, *payloads: bytes, topic: bytes = Q) -> list[int]:
        return list(expect(Added, self.do(Enqueue(topic, [NewJob(payload) for payload in payloads]))).ids)

    def lease(
        self, count: int = 1, topic: bytes = Q, lease_ms: int | None = None, holder: bytes = b""
    ) -> list[Delivery]:
        return list(expect(Leased, self.do(Lease(topic, count, lease_ms, holder))).deliveries)

    def lease_one(self, topic: bytes = Q, lease_ms: int | None = None, holder: bytes = b"") -> Delivery:
        (delivery,) = self.lease(1, topic, lease_ms, holder)
        return delivery

    def ack(self, *deliveries: Delivery) -> Done:
        return expect(Done, self.do(Ack([each.id for each in deliveries], [each.token for each in deliveries])))

    def nack(self, *deliveries: Delivery, delay_ms: int | None = None) -> Done:
        ids, tokens = [each.id for each in deliveries], [each.token for each in deliveries]
        return expect(Done, self.do(Nack(ids, tokens, delay_ms)))

    def extend(self, delivery: Delivery, lease_ms: int) -> Extended:
        return expect(Extended, self.do(Extend([delivery.id], lease_ms, [delivery.token])))

    def drain(self, topic: bytes = Q) -> list[bytes]:
        """The payloads of all ready jobs in the order of their delivery, one lease at a time."""
        payloads: list[bytes] = []
        while found := self.lease(1, topic):
            payloads.append(found[0].payload)
        return payloads

    def show(self, job_id: int) -> JobView:
        (job,) = expect(Jobs, self.do(Show(job_id))).jobs
        return job

    def knows(self, job_id: int) -> bool:
        return isinstance(self.do(Show(job_id)), Jobs)

    def stats(self, topic: bytes = Q) -> TopicView:
        return expect(TopicView, self.do(Stats(topic)))

    def replayed(self) -> Machine:
        """Another machine, folded from the journal alone."""
        return fold(self.batches)


def fold(batches: list[bytes], machine: Machine | None = None) -> Machine:
    machine = Machine(Random(0)) if machine is None else machine
    for batch in batches:
        for event in decode_batch(batch):
            machine.fold(event)
    return machine
