"""Queues: claim jobs, ack them, give them back, hold them longer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from esker.engine import limits
from esker.engine.commands import AckHeld, ExtendHeld, Lease, NackHeld, TopicState
from esker.engine.config import TopicConfig, TopicType
from esker.engine.ids import SLOT_MASK
from esker.engine.limits import SEQ_MAX
from esker.engine.replies import Leased, Reply, SlotsDone, TopicStatus
from esker.engine.topics import not_found
from esker.fronts.http.answers import AckedAnswer, ExtendedAnswer, NackedAnswer, encode
from esker.fronts.http.bodies import AckBody, ClaimBody, ExtendBody, NackBody
from esker.fronts.http.calls import Answer, Call, ClientLeft
from esker.fronts.http.configs import clamped_lease
from esker.fronts.http.endpoints.topics import named_topic
from esker.fronts.http.errors import HttpError, expect, refused
from esker.fronts.http.leases import CLAIM_MAX, NamedLeases, jobs_text, to_holder, to_leases
from esker.node.interface import Broker

_claim_decoder = msgspec.json.Decoder(ClaimBody)
_ack_decoder = msgspec.json.Decoder(AckBody)
_nack_decoder = msgspec.json.Decoder(NackBody)
_extend_decoder = msgspec.json.Decoder(ExtendBody)


def queue_config(broker: Broker, name: bytes) -> TopicConfig:
    """Raises 404 when there is no such topic, 409 when it is no queue."""
    config = broker.config_of(name)
    if config is None:
        raise refused(not_found(name), name)
    if config.type != TopicType.QUEUE:
        raise HttpError(409, "not_a_queue", f"topic {name.decode()!r} is a {config.type.value}", {"topic": name})
    return config


def queue_status(broker: Broker, name: bytes) -> TopicStatus:
    """The same, and how it stands."""
    queue_config(broker, name)
    return expect(TopicStatus, broker.handle(TopicState(name, touch=False)), name)


async def claim_jobs(call: Call) -> Answer:
    name = named_topic(call)
    body = await call.json(_claim_decoder)
    holder = to_holder(body.node)
    broker = call.front.broker
    config = queue_config(broker, name)
    lease_ms = config.lease_ms if body.lease_ms is None else clamped_lease(body.lease_ms)
    command = Lease(name, min(max(body.max, 1), CLAIM_MAX), lease_ms, holder)
    leased = expect(Leased, await _claim(call, command, waits=config.claim_jitter_ms > 0), name)
    jobs = leased.deliveries
    # A `ClaimedAnswer`. A name that fits a path needs no escaping.
    text = b'{"topic":"%b","claimed":%b,"count":%d,"ready":%d}'
    told = text % (name, jobs_text(jobs, config), len(jobs), leased.ready)
    return Answer(told, topic=name, lasting=broker.lasts(leased))


async def _claim(call: Call, command: Lease, waits: bool) -> Reply:
    """At once, or, where claims share, when their window ends. A client that hangs up meanwhile gets nothing."""
    if not waits:
        return call.front.broker.handle(command)
    answered: asyncio.Future[Reply | ClientLeft] = asyncio.get_running_loop().create_future()

    def deliver(reply: Reply | ClientLeft) -> None:
        if not answered.done():
            answered.set_result(reply)

    waiter = call.front.broker.claim(command, deliver)
    gone = asyncio.ensure_future(call.left())
    gone.add_done_callback(lambda _: deliver(ClientLeft("the client left while it waited for jobs")))
    try:
        reply = await answered
    finally:
        waiter.cancel()
        gone.cancel()
    if isinstance(reply, ClientLeft):
        raise reply
    return reply


async def ack_jobs(call: Call) -> Answer:
    name = named_topic(call)
    body = await call.json(_ack_decoder)
    config, leases = _named_leases(call, name, body)
    command = AckHeld(name, leases.slots, to_holder(body.node), leases.tokens)
    done = expect(SlotsDone, call.front.broker.handle(command), name)
    answer = AckedAnswer(
        name.decode(), done.count, _seqs(done.skipped), done.ready, done.in_flight,
        _skipped_ids(config, body, leases, done),
    )  # fmt: skip
    return Answer(encode(answer), topic=name, quiet=True)


async def nack_jobs(call: Call) -> Answer:
    name = named_topic(call)
    body = await call.json(_nack_decoder)
    config, leases = _named_leases(call, name, body)
    delay_ms = min(body.delay_ms, limits.DAY_MS)
    command = NackHeld(name, leases.slots, to_holder(body.node), leases.tokens, delay_ms)
    done = expect(SlotsDone, call.front.broker.handle(command), name)
    answer = NackedAnswer(
        name.decode(), done.count, _seqs(done.skipped), done.ready, done.in_flight,
        _skipped_ids(config, body, leases, done),
    )  # fmt: skip
    return Answer(encode(answer), topic=name)


async def extend_leases(call: Call) -> Answer:
    name = named_topic(call)
    body = await call.json(_extend_decoder)
    config, leases = _named_leases(call, name, body)
    command = ExtendHeld(name, leases.slots, to_holder(body.node), clamped_lease(body.lease_ms), leases.tokens)
    done = expect(SlotsDone, call.front.broker.handle(command), name)
    if config.partitions > 1:
        names = dict(zip(leases.slots, body.lease_ids or (), strict=True))
        deadlines = {names[slot]: deadline_ms for slot, deadline_ms in done.deadlines_ms.items()}
    else:
        deadlines = {str(seq): deadline_ms for seq, deadline_ms in done.deadlines_ms.items()}
    answer = ExtendedAnswer(
        name.decode(), done.count, _seqs(done.skipped), deadlines, _skipped_ids(config, body, leases, done)
    )
    return Answer(encode(answer), topic=name)


def _named_leases(call: Call, name: bytes, body: AckBody) -> tuple[TopicConfig, NamedLeases]:
    config = queue_config(call.front.broker, name)
    return config, to_leases(config, body.seqs, body.lease_ids)


def _seqs(slots: Sequence[int]) -> list[int]:
    return [slot & SEQ_MAX if slot <= SLOT_MASK else slot for slot in slots]  # a seq that is none is shown as it came


def _skipped_ids(
    config: TopicConfig, body: AckBody, leases: NamedLeases, done: SlotsDone
) -> list[str] | msgspec.UnsetType:
    """Where seqs alone do not name jobs."""
    if config.partitions == 1:
        return msgspec.UNSET
    ids = dict(zip(leases.slots, body.lease_ids or (), strict=True))
    return [ids[slot] for slot in done.skipped]
