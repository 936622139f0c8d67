"""Consumers that run elsewhere (a Spark query, say): where they are, and how far behind."""

from __future__ import annotations

import re
import time
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from esker.fronts.http.answers import encode
from esker.fronts.http.bodies import TopicName, Unsigned, check_unsigned, extra
from esker.fronts.http.calls import Answer, Call
from esker.fronts.http.consumers import Consumer
from esker.fronts.http.errors import invalid
from esker.fronts.http.names import topic_name

PARTITIONS_MAX: Final = 10_000  # in one report
INFO_MAX: Final = 32
NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._:\-]{0,127}"
_NAME = re.compile(NAME_PATTERN)

Text = Annotated[str, Meta(max_length=256)]


class ConsumerBody(msgspec.Struct, kw_only=True):
    """`topics`: by topic and partition, the offset that is read next."""

    topics: dict[TopicName, Annotated[dict[Text, Unsigned], extra(maxProperties=PARTITIONS_MAX)]]
    rows: Unsigned = 0
    info: Annotated[dict[Text, Text | int | float], extra(maxProperties=INFO_MAX)] = {}

    def __post_init__(self) -> None:
        for offsets in self.topics.values():
            check_unsigned(topics=max(offsets.values(), default=0))
        check_unsigned(rows=self.rows)


class PartitionLag(msgspec.Struct):
    topic: str
    partition: str
    offset: int
    lag: int | None


class ConsumerAnswer(msgspec.Struct):
    consumer: str
    rows: int
    reported_ms: int
    info: dict[str, str | int | float]
    partitions: list[PartitionLag]


class ConsumersAnswer(msgspec.Struct):
    consumers: list[ConsumerAnswer]


_decoder = msgspec.json.Decoder(ConsumerBody)


async def report_consumer(call: Call) -> Answer:
    name = call.params["consumer"]
    if _NAME.fullmatch(name) is None:
        raise invalid(f"{name[:64]!r} is no name of a consumer: 1 to 128 letters, digits or . _ : -")
    body = await call.json(_decoder)
    for topic in body.topics:
        call.reach(topic_name(topic), in_body=True)
    if sum(map(len, body.topics.values())) > PARTITIONS_MAX:
        raise invalid(f"topics names more than {PARTITIONS_MAX} partitions")
    if len(body.info) > INFO_MAX:
        raise invalid(f"info has {len(body.info)} entries; at most {INFO_MAX}")
    consumer = Consumer(name, body.topics, body.rows, body.info, time.time())
    call.front.consumers.report(call.key, consumer)
    return Answer(encode(_shown(call, consumer)))


async def list_consumers(call: Call) -> Answer:
    return Answer(encode(ConsumersAnswer([_shown(call, consumer) for consumer in call.front.consumers.seen(call.key)])))


def _shown(call: Call, consumer: Consumer) -> ConsumerAnswer:
    lags = [
        PartitionLag(topic, partition, offset, call.front.consumers.lag(topic, offset))
        for topic, offsets in consumer.offsets.items()
        for partition, offset in offsets.items()
    ]
    reported_ms = int(consumer.reported_at * 1000)
    return ConsumerAnswer(consumer.name, consumer.rows, reported_ms, dict(consumer.info), lags)
