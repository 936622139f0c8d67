"""Routers: rules that copy every record of one topic into another. Here is which there are; forwarding.py makes copies.

A router reads its source like any consumer, by a *cursor*: the last seq of the source that needs no more forwarding. It
starts at the source's head, so only what is written later is copied. What the graph of routers promises:

* A topic is fed by routers of one source only. So the copies in it are one ordered stream, and which copy got which
  seq follows from the journal alone.
* There is no cycle without a router that allows it (and counts hops), so forwarding always ends.
* A router never outlives a topic at its ends.

`behind` holds every router whose source moved since it last forwarded, except those in `stalled`: their destination is
full and refuses, and they are tried again after a while. Both are derived, and rebuilt by `settle` after a recovery.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING

from esker.engine import events, limits
from esker.engine.config import RouterOptions
from esker.engine.topic import Topic

if TYPE_CHECKING:
    from esker.engine.machine import Machine

_PLAIN = RouterOptions()


class Router:
    __slots__ = (
        "created_ms", "cursor", "dest", "forwarded", "name", "number", "options", "patience_ms", "plain", "retry_ms",
        "source",
    )  # fmt: skip

    def __init__(
        self, number: int, name: bytes, source: int, dest: int, created_ms: int, options: RouterOptions
    ) -> None:
        self.number = number
        self.name = name
        self.source = source  # numbers of topics
        self.dest = dest
        self.created_ms = created_ms
        self.configure(options)
        self.cursor = 0
        self.forwarded = 0  # copies made in all
        self.retry_ms = 0  # when a stalled router is tried again
        self.patience_ms = 0  # how long it waited the last time

    def configure(self, options: RouterOptions) -> None:
        self.options = options
        self.plain = options == _PLAIN  # copies everything as it is


class Routers:
    """All routers of a shard, found by name, by number and by the topics at their ends."""

    def __init__(self) -> None:
        self.next_router = 1
        self.names: dict[bytes, Router] = {}
        self.numbers: dict[int, Router] = {}
        self.by_source: dict[int, dict[int, Router]] = {}  # number of the topic, then of the router
        self.by_dest: dict[int, dict[int, Router]] = {}
        self.behind: dict[int, Router] = {}
        self.stalled: dict[int, Router] = {}
        self.eager: dict[int, Router] = {}  # those behind a queue; empty between two commands
        self.depth = 0  # of topics that fill one another just now (forwarding.before_loss)
        self._sorted: list[bytes] = []
        # What the next checkpoint has to look at.
        self.dirty: dict[int, Router] = {}
        self.dropped: list[int] = []

    # -- finding

    def touches(self, topic: Topic) -> bool:
        return topic.number in self.by_source or topic.number in self.by_dest

    def of(self, topic: Topic) -> list[Router]:
        """The routers with this topic at one of their ends, eldest first."""
        ends = self.by_source.get(topic.number, {}) | self.by_dest.get(topic.number, {})
        return [ends[number] for number in sorted(ends)]

    def named_from(self, prefix: bytes, after: bytes) -> Iterator[Router]:
        """Those whose name starts with `prefix` and comes behind `after`, in order of their names."""
        start = bisect_left(self._sorted, prefix if prefix > after else after + b"\0")
        for name in self._sorted[start:]:
            if not name.startswith(prefix):
                return
            yield self.names[name]

    def path(self, start: int, end: int) -> list[int] | None:
        """A shortest way along routers from one topic to another, both included; None: there is none."""
        came_from = {start: start}
        edge = [start]
        while edge and end not in came_from:
            reached: list[int] = []
            for topic in edge:
                for router in self.by_source.get(topic, {}).values():
                    if router.dest not in came_from:
                        came_from[router.dest] = topic
                        reached.append(router.dest)
            edge = reached
        if end not in came_from:
            return None
        way = [end]
        while way[-1] != start:
            way.append(came_from[way[-1]])
        return way[::-1]

    # -- who has work to do

    def source_moved(self, topic: Topic) -> None:
        """A topic got records: its routers have work. A cheap test when it has none."""
        routers = self.by_source.get(topic.number)
        if routers:
            self.behind.update(routers)
            if topic.log is None:
                self.eager.update(routers)

    def stall(self, router: Router, now: int) -> None:
        """The destination takes no more: try again later, and later still each time."""
        self.behind.pop(router.number, None)
        self.stalled[router.number] = router
        router.patience_ms = min(max(2 * router.patience_ms, limits.ROUTER_RETRY_MS_MIN), limits.ROUTER_RETRY_MS_MAX)
        router.retry_ms = now + router.patience_ms

    def moved_on(self, router: Router) -> None:
        """The destination took something."""
        self.stalled.pop(router.number, None)
        router.retry_ms = router.patience_ms = 0

    def next_retry_ms(self) -> int | None:
        """When `Forward` should be asked again because of routers that are stalled; None: no router is."""
        return min((router.retry_ms for router in self.stalled.values()), default=None)

    def settle(self, machine: Machine) -> None:
        """After a recovery: whoever is behind its source is found anew."""
        self.stalled = {}
        self.behind = {
            router.number: router
            for router in self.numbers.values()
            if (source := machine.topics.get(router.source)) is not None and router.cursor + 1 < source.first.next_seq
        }

    # -- evolving

    def put(self, event: events.RouterPut) -> None:
        router = self.numbers.get(event.router)
        if router is None:
            router = Router(event.router, event.name, event.source, event.dest, event.ts, event.options)
            self.add(router)
        router.configure(event.options)
        router.cursor = max(router.cursor, event.cursor)
        self.dirty[router.number] = router

    def add(self, router: Router) -> None:
        self.next_router = max(self.next_router, router.number + 1)
        self.names[router.name] = router
        self.numbers[router.number] = router
        self.by_source.setdefault(router.source, {})[router.number] = router
        self.by_dest.setdefault(router.dest, {})[router.number] = router
        insort(self._sorted, router.name)

    def drop(self, event: events.RouterDropped) -> None:
        router = self.numbers.pop(event.router, None)
        if router is None:
            return
        del self.names[router.name]
        del self._sorted[bisect_left(self._sorted, router.name)]
        for ends, topic in ((self.by_source, router.source), (self.by_dest, router.dest)):
            del ends[topic][router.number]
            if not ends[topic]:
                del ends[topic]
        for some in (self.behind, self.stalled, self.eager, self.dirty):
            some.pop(router.number, None)
        self.dropped.append(router.number)
