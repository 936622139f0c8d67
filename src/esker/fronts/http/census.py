"""How much there is already, for the caps on making more.

Topics and routers are counted by the node. The bytes of all topics take a walk through them, so a sum is kept for a
while that is long compared with what the walk took, and what this front wrote since is added to it. Where topics are
few enough for a short walk, nobody is refused before they were counted anew; on a node of a hundred thousand the sum
may lag what was deleted by seconds.
"""

from __future__ import annotations

from time import perf_counter

from esker.engine.commands import ListTopics, RouterState, TopicState
from esker.engine.replies import TopicPage, TopicStatus
from esker.errors import Refusal
from esker.fronts.http.errors import expect, throttled
from esker.fronts.http.options import HttpOptions
from esker.node.interface import Broker

_PAGE = 1000
_KEPT = 50  # times as long as it took


class Census:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._bytes = 0
        self._good_until = 0.0
        self._few = True  # topics, at the last walk

    def allow_topics(self, names: tuple[bytes, ...], options: HttpOptions) -> None:
        """Raises 429 if making those of `names` that do not exist would be too much."""
        most = options.max_topics
        if not most:
            return
        there, _ = self._broker.counts()
        if there + len(names) <= most:
            return
        missing = [name for name in names if isinstance(self._broker.handle(TopicState(name, False)), Refusal)]
        if missing and there + len(missing) > most:
            raise throttled(f"there are as many topics as may be: {most}", "max_topics", most)

    def allow_router(self, name: bytes, options: HttpOptions) -> None:
        most = options.max_routers
        if not most:
            return
        _, there = self._broker.counts()
        if there >= most and isinstance(self._broker.handle(RouterState(name)), Refusal):
            raise throttled(f"there are as many routers as may be: {most}", "max_routers", most)

    def allow_bytes(self, size: int, options: HttpOptions) -> None:
        """Raises 429 if `size` more bytes would be too much; else they are counted."""
        most = options.max_total_bytes
        if not most:
            return
        if perf_counter() > self._good_until or (self._few and self._bytes + size > most):
            self._walk()
        if self._bytes + size > most:
            raise throttled(f"all topics together would hold more than {most} bytes", "max_total_bytes", most)
        self._bytes += size

    def _walk(self) -> None:
        began = perf_counter()
        topics = every_topic(self._broker)
        self._bytes = sum(status.bytes for status in topics)
        self._few = len(topics) <= _PAGE
        ended = perf_counter()
        self._good_until = ended + _KEPT * (ended - began)


def every_topic(broker: Broker) -> list[TopicStatus]:
    """The state of all topics, in order of their names."""
    found: list[TopicStatus] = []
    more = True
    while more:
        after = found[-1].name if found else b""
        page = expect(TopicPage, broker.handle(ListTopics(after=after, count=_PAGE)))
        found += page.topics
        more = page.more and len(page.topics) > 0
    return found
