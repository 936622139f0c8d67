"""Pages of records, read and encoded once for all who stand at the same place.

The problem: a thousand watchers of one topic want the same bytes after every append. The idea: what a read gave is kept
for the rest of this turn of the loop, by topic, position and view; whoever comes with the same wish gets the same page.

A page is valid while the topic's revision stands still, and never beyond the turn: so no watcher takes an older page
for the newest, and a deletion is seen by every read of the next turn.
"""

from __future__ import annotations

import asyncio

import msgspec

from esker.engine.commands import Read, TopicState
from esker.engine.config import TopicType
from esker.engine.replies import Records, Reply, TopicStatus
from esker.fronts.http.bodies import Nodes
from esker.fronts.http.fragments import Shape, record_text
from esker.fronts.http.reading import batch_bytes, record_limit, to_nodes
from esker.node.interface import Broker

_encode = msgspec.json.Encoder().encode


class View(msgspec.Struct, frozen=True, gc=False):
    """What a reader wants to see of records."""

    nodes: frozenset[bytes] = frozenset()  # whose records it leaves out
    limit: int = 256
    max_bytes: int = 262_144
    shape: Shape = Shape()


class Page:
    """What one read gave; `found` is None when the topic is gone. `epoch` tells topics of the same name apart."""

    __slots__ = ("_fields", "epoch", "found", "jobs", "revision", "shared", "topic", "view")

    def __init__(
        self, topic: str, view: View, found: Records | None, status: TopicStatus | None, revision: int
    ) -> None:
        self.topic = topic
        self.view = view
        self.found = found
        self.epoch = 0 if status is None else status.number
        self.jobs = status is not None and status.config.type == TopicType.QUEUE
        self.revision = revision
        self.shared: dict[str, bytes | str] = {}  # finished messages, by what each reader's protocol calls them
        self._fields: bytes | None = None

    @property
    def in_archive(self) -> bool:
        """Its records have to be fetched."""
        return self.found is not None and self.found.archived is not None

    def fields(self, from_seq: int, to_seq: int) -> bytes:
        """The inside of a message with these records, without braces. All who share the page pass the same seqs."""
        if self._fields is None:
            assert self.found is not None
            self._fields = b'"topic":%b,"from_seq":%d,"to_seq":%d,"head_seq":%d,"records":[%b]' % (
                _encode(self.topic),
                from_seq,
                to_seq,
                self.found.head_seq,
                b",".join([record_text(record, self.view.shape, self.jobs) for record in self.found.records]),
            )
        return self._fields


class Pages:
    """All reads of a front's streams. Must live on the loop of its broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._kept: dict[tuple[str, int, View], Page] = {}
        self.read_count = 0  # reads that were really made

    def read(self, topic: str, after: int, view: View) -> Page:
        name = topic.encode()
        revision = self._broker.revision(name)
        key = (topic, after, view)
        page = self._kept.get(key)
        if page is not None and page.revision == revision:
            return page
        self.read_count += 1
        found = self._broker.handle(Read(name, after, view.limit, view.max_bytes, view.nodes))
        revision = self._broker.revision(name)  # of what was found: the next look may let routers run
        page = self._page(topic, view, found, revision)
        if page.in_archive:
            return page
        if not self._kept:
            self._loop.call_soon(self._kept.clear)
        self._kept[key] = page
        return page

    async def fetch(self, topic: str, after: int, view: View) -> Page:
        """`read` of a place that is in the archive. Raises ArchiveError."""
        revision = self._broker.revision(topic.encode())
        found = await self._broker.read(Read(topic.encode(), after, view.limit, view.max_bytes, view.nodes))
        return self._page(topic, view, found, revision)

    def _page(self, topic: str, view: View, found: Reply, revision: int) -> Page:
        status = self._broker.handle(TopicState(topic.encode(), touch=False))
        return Page(
            topic,
            view,
            found if isinstance(found, Records) else None,
            status if isinstance(status, TopicStatus) else None,
            revision,
        )


def view_of(node: Nodes | None, limit: int, max_batch_bytes: int, *, data: bool, tags: bool, meta: bool) -> View:
    """The view a request asks for, within the bounds that hold for all. Raises 400."""
    return View(to_nodes(node), record_limit(limit), batch_bytes(max_batch_bytes), Shape(data, tags, meta))
