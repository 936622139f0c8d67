"""How far readers outside the node say they have come, so that their lag can be seen beside everything else.

A report is a courtesy and nothing depends on it: reports live in memory, the youngest `CONSUMERS_MAX` of them, and each
for `KEPT_S` after it came. A lag is told against the topic as it is when somebody asks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from esker.engine.commands import TopicState
from esker.engine.replies import TopicStatus
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
        self._known: dict[str, Consumer] = {}  # the one that reported last is last

    def report(self, consumer: Consumer) -> None:
        self._known.pop(consumer.name, None)
        self._known[consumer.name] = consumer
        while len(self._known) > CONSUMERS_MAX:
            del self._known[next(iter(self._known))]

    def all(self) -> Iterator[Consumer]:
        """Those heard of lately, in the order of their last reports."""
        oldest = time.time() - KEPT_S
        for consumer in list(self._known.values()):
            if consumer.reported_at >= oldest:
                yield consumer
            else:
                del self._known[consumer.name]

    def lag(self, topic: str, offset: int) -> int | None:
        """How many seqs are behind an offset; None when there is no such topic."""
        status = self._broker.handle(TopicState(topic.encode(), touch=False))
        return max(0, status.next_seq - offset) if isinstance(status, TopicStatus) else None
