"""Pushing jobs to a worker: `GET /v0/topics/q/work` leases jobs of queue `q` and sends each.

A connection never has more than `max` jobs outstanding. The worker acks and nacks with ordinary requests; the shard
tells this stream when leases of its holder ended, it counts which are left, and asks for as many as there is room for.
Where nothing is ready it waits in the queue's waiting room, first come first served; a topic with a claim window serves
it together with everybody who claims.

When the connection ends, whatever it still holds is given back at once, under the very tokens it was leased with: a job
that was leased again meanwhile, to the same worker on another connection, stays where it is.
"""

from __future__ import annotations

from typing import Final

import msgspec

from esker.engine import limits
from esker.engine.commands import Lease, NackHeld, TopicState
from esker.engine.config import TopicConfig
from esker.engine.ids import PARTITION_MASK, PARTITION_SHIFT, SLOT_MASK
from esker.engine.limits import SEQ_MAX
from esker.engine.replies import Delivery, Leased, Reply, TopicStatus
from esker.errors import ShardStopped
from esker.fronts.http.answers import encode
from esker.fronts.http.calls import Call
from esker.fronts.http.configs import LEASE_MS_MIN
from esker.fronts.http.endpoints.queues import queue_status
from esker.fronts.http.endpoints.topics import named_topic
from esker.fronts.http.leases import CLAIM_MAX, job_text, to_holder
from esker.fronts.http.payloads import text
from esker.fronts.http.queries import Clamped, Matched
from esker.fronts.http.streams.frames import frame, heartbeat, json_frame
from esker.fronts.http.streams.outlets import GOOD_BYE, SHUTTING_DOWN, Outlet, ReaderStalled, Streams
from esker.fronts.http.streams.watch import accepts_events
from esker.node.interface import Waiter

HEARTBEAT_MS = 15_000
NODE: Final = Matched("node", "who works", bytes_min=1, bytes_max=limits.NODE_BYTES_MAX, required=True)
MAX: Final = Clamped("max", "jobs outstanding at a time", least=1, most=CLAIM_MAX, default=1)
LEASE_MS: Final = Clamped(
    "lease_ms", "how long a job is leased; else as long as the topic says", least=LEASE_MS_MIN, most=limits.LEASE_MS_MAX
)


async def work(call: Call) -> None:
    """Streams jobs."""
    name = named_topic(call)
    accepts_events(call)
    holder = to_holder(NODE.read(call))
    most = MAX.read(call)
    status = queue_status(call.front.broker, name)
    lease_ms = status.config.lease_ms
    lease_ms = LEASE_MS.read(call, default=lease_ms)
    streams = call.front.streams
    with streams.admitted(call) as outlet:
        worker = WorkStream(streams, outlet, Lease(name, most, lease_ms, holder), status)
        try:
            await worker.run()
        except ReaderStalled:
            return  # what it holds goes to others
        finally:
            worker.release()


class WorkStream:
    """`wish` is the lease of all that the connection may have outstanding, `status` the queue as it was found."""

    def __init__(self, streams: Streams, outlet: Outlet, wish: Lease, status: TopicStatus) -> None:
        self._streams = streams
        self._broker = streams.broker
        self._outlet = outlet
        self._wish = wish
        self._epoch = status.number
        self._config = status.config  # of its number of partitions, which never changes
        self._held: dict[int, int] = {}  # slot and token of what is outstanding
        self._arrived: list[Delivery] = []  # leased, and not sent yet
        self._claim: Waiter | None = None  # a claim whose window is open
        self._waiter: Waiter | None = None  # a place in the waiting room
        self._asked = 0  # jobs asked for by either

    async def run(self) -> None:
        outlet = self._outlet
        await outlet.begin()
        outlet.beat(HEARTBEAT_MS)
        holding = self._broker.watch_leases(self._wish.topic, self._wish.holder, outlet.wake)
        try:
            await outlet.converse(self._deliver)
        finally:
            holding.cancel()

    async def _deliver(self) -> None:
        outlet, broker = self._outlet, self._broker
        while not outlet.left:
            if self._streams.stopping:
                await outlet.end(json_frame(b"error", {"code": SHUTTING_DOWN, "message": GOOD_BYE}))
                return
            if not self._there():
                gone = f"topic {text(self._wish.topic)!r} is no longer the queue it was"
                await outlet.end(json_frame(b"error", {"code": 409, "error": "not_a_queue", "message": gone}))
                return
            self._ask()
            if self._arrived:
                body = b"".join(job_frame(job, self._config) for job in self._arrived)
                self._arrived = []
                await outlet.depart()
                await outlet.push(body)
            elif outlet.beat_due:
                outlet.beat_due = False
                await outlet.push(heartbeat(broker.now_ms()))
            else:
                await outlet.wait()

    def _there(self) -> bool:
        """Whether the queue is still the one that was asked for."""
        status = self._broker.handle(TopicState(self._wish.topic, touch=False))
        return isinstance(status, TopicStatus) and status.number == self._epoch

    def _ask(self) -> None:
        """Asks for as many jobs as there is room for, unless that was done already."""
        self._held = self._broker.still_held(self._wish.topic, self._held)
        room = self._wish.count - len(self._held)
        if room <= 0 or self._claim is not None or (self._waiter is not None and self._asked == room):
            return
        self._stop_waiting()
        self._asked = room
        answered = False

        def answer(reply: Reply) -> None:
            nonlocal answered
            answered = True
            self._claim = None
            self._take(reply)

        claim = self._broker.claim(msgspec.structs.replace(self._wish, count=room), answer)
        if not answered:
            self._claim = claim

    def _take(self, reply: Reply) -> None:
        """What a claim, or the waiting room, gave. What is still missing is waited for."""
        taken = reply.deliveries if isinstance(reply, Leased) else ()
        for delivery in taken:
            self._held[delivery.id & SLOT_MASK] = delivery.token
        self._arrived += taken
        self._asked -= len(taken)
        if self._asked > 0 and isinstance(reply, Leased):
            lease = msgspec.structs.replace(self._wish, count=self._asked)
            self._waiter = self._broker.wait_for_jobs([lease.topic], 0, self._serve, lease)
        if taken:
            self._outlet.wake()

    def _serve(self, jobs: Leased | None) -> None:
        self._waiter = None
        self._take(jobs)

    def _stop_waiting(self) -> None:
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = None

    def release(self) -> None:
        """Gives back what was not acked. A shard that has stopped has no leases to end."""
        self._stop_waiting()
        if self._claim is not None:
            self._claim.cancel()
        wish = self._wish
        try:
            if self._held and self._there():
                self._broker.handle(NackHeld(wish.topic, list(self._held), wish.holder, list(self._held.values())))
        except ShardStopped:
            self._held.clear()


def job_frame(job: Delivery, config: TopicConfig) -> bytes:
    """The id of the frame is the seq; in a queue of several partitions, `partition-seq`."""
    seq = b"%d" % (job.id & SEQ_MAX)
    name = seq if config.partitions == 1 else b"%d-%b" % (job.id >> PARTITION_SHIFT & PARTITION_MASK, seq)
    return frame(b"job", b'{"topic":%b,%b' % (encode(text(job.topic)), job_text(job, config)[1:]), name)
