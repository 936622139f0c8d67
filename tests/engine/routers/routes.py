"""A machine with logs and routers, in words that say what a test means."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from esker.engine.commands import Append, Forward, NewRecord, PutRouter, PutTopic, Read, RouterState
from esker.engine.config import Durability, RouterOptions, TopicConfig, TopicType
from esker.engine.replies import Count, Record, Records, RouterView, TopicPut, Written
from esker.errors import Refusal
from tests.engine.rig import Rig, expect

PLAIN = RouterOptions()
LOG = TopicConfig(type=TopicType.LOG, durability=Durability.DISK)
FSYNC_LOG = TopicConfig(type=TopicType.LOG, durability=Durability.FSYNC)


class Routes(Rig):
    def topic(self, name: bytes, config: TopicConfig = LOG, **changes: object) -> None:
        expect(TopicPut, self.do(PutTopic(name, msgspec.structs.replace(config, **changes))))

    def route(self, way: bytes, options: RouterOptions = PLAIN) -> RouterView:
        """`way`: "a>b" makes a router of that name from a to b."""
        source, dest = way.split(b">")
        return expect(RouterView, self.do(PutRouter(way, source, dest, options)))

    def route_refused(self, way: bytes, options: RouterOptions = PLAIN) -> Refusal:
        source, dest = way.split(b">")
        return self.refused(PutRouter(way, source, dest, options))

    def write(self, topic: bytes, *data: bytes, tag: bytes = b"", node: bytes = b"", meta: bytes = b"") -> Written:
        return self.append(topic, [NewRecord(each, tag, node, meta) for each in data])

    def append(self, topic: bytes, records: Sequence[NewRecord]) -> Written:
        return expect(Written, self.do(Append(topic, records)))

    def forward(self) -> int:
        """One step after the other until nothing is left to do; returns how many copies were made."""
        made = 0
        while self.machine.routers.behind:
            made += expect(Count, self.do(Forward())).count
        return made

    def read(self, topic: bytes, after: int = 0) -> Records:
        return expect(Records, self.do(Read(topic, after, 1000)))

    def records(self, topic: bytes) -> list[Record]:
        found: list[Record] = []
        after = 0
        while (page := self.read(topic, after)).records:
            found += page.records
            after = page.next_from_seq
        return found

    def data(self, topic: bytes) -> list[bytes]:
        return [record.data for record in self.records(topic)]

    def router(self, name: bytes) -> RouterView:
        return expect(RouterView, self.do(RouterState(name)))
