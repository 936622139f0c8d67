"""How far readers outside the node say they have come, so that their lag can be seen beside everything else.

A report is a courtesy and nothing depends on it: reports live in memory, the youngest `CONSUMERS_MAX` of each namespace
(fronts/access.py), and each for `KEPT_S` after it came. A lag is told against the topic as it is when somebody asks.

A name belongs to the namespace of the key that reports it. Others see a consumer if they reach all of its topics.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from esker.engine.commands import TopicState
from esker.engine.replies import TopicStatus
from esker.fronts.access import Key
from esker.node.interface import Broker

CONSUMERS_MAX: Final = 1000
KEPT_S: Final = 3600.0

Offsets = Mapping[str, Mapping[str, int]]


class Consumer(NamedTuple):
    """`offsets`: by topic and partition, the seq it will read next."""

    name: str
    offsets: Offsets
    rows: int  # read in the step it reports
    info: Mapping[str, str | int | float]
    reported_at: float  # seconds since the epoch


class Consumers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[str, dict[str, Consumer]] = {}  # by namespace and name; the one that reported last is last

    def report(self, key: Key, consumer: Consumer) -> None:
        known = self._known.setdefault(key.namespace, {})
        known.pop(consumer.name, None)
        known[consumer.name] = consumer
        while len(known) > CONSUMERS_MAX:
            del known[next(iter(known))]

    def seen(self, key: Key) -> Iterator[Consumer]:
        """Those heard of lately that a key may see: its own first, in the order of their last reports."""
        oldest = time.time() - KEPT_S
        own = key.namespace
        for namespace in sorted(self._known, key=lambda each: each != own):
            known = self._known[namespace]
            for consumer in list(known.values()):
                if consumer.reported_at < oldest:
                    del known[consumer.name]
                elif namespace == own or self._reached(key, consumer):
                    yield consumer

    @staticmethod
    def _reached(key: Key, consumer: Consumer) -> bool:
        if not key.prefixes:
            return True
        return bool(consumer.offsets) and all(key.reaches(topic.encode()) for topic in consumer.offsets)

    def lag(self, topic: str, offset: int) -> int | None:
        """How many seqs are behind an offset; None when there is no such topic."""
        status = self._broker.handle(TopicState(topic.encode(), touch=False))
        return max(0, status.next_seq - offset) if isinstance(status, TopicStatus) else None
