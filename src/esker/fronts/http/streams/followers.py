"""One reader's place in one topic, and what it is told next.

    gap ──► records ──► … ──► caught up (once) ──► records as they come
                 └──────────── behind again, when more came than fits one message ─┘
    the topic goes: told once, and nothing after it

Both push protocols read through this, so they tell the same story; how a notice looks on the wire is theirs.
"""

from __future__ import annotations

import msgspec

from esker.engine.replies import Tombstone
from esker.fronts.http.reading import wire_reason
from esker.fronts.http.streams.pages import Page, Pages, View

_AT_CONNECT = frozenset({"cap", "ttl", "mixed", "lost"})


class Gap(msgspec.Struct, frozen=True, gc=False):
    topic: str
    reason: str
    tombstone: Tombstone


class Batch(msgspec.Struct, frozen=True, gc=False):
    topic: str
    page: Page
    from_seq: int  # the place before it: its records are behind this seq
    to_seq: int


class CaughtUp(msgspec.Struct, frozen=True, gc=False):
    topic: str
    head_seq: int


class Gone(msgspec.Struct, frozen=True, gc=False):
    topic: str
    head_seq: int


Notice = Gap | Batch | CaughtUp | Gone


class Follower:
    """`cursor`: the last seq that needs not be delivered any more."""

    __slots__ = ("_epoch", "_fresh", "_head", "_live", "_revision", "cursor", "gone", "name", "topic", "view")

    def __init__(self, topic: str, cursor: int, view: View) -> None:
        self.topic = topic
        self.name = topic.encode()  # what the broker calls it
        self.cursor = cursor
        self.view = view
        self.gone = False
        self._epoch = 0  # of the topic that was read first; another of the same name is not followed
        self._head = cursor
        self._fresh = True  # nothing was read since the reader connected
        self._live = False  # told that it has caught up
        self._revision = -1

    def idle(self, revision: int) -> bool:
        """Whether a read would give nothing new: it stood at the head, and the topic has not changed since."""
        return self.gone or (self._live and self._revision == revision)

    def read(self, pages: Pages) -> list[Notice] | None:
        """What the reader is told next, in order; `cursor` is moved behind it.

        None: that has to be fetched from the archive (`fetch`).
        """
        page = pages.read(self.topic, self.cursor, self.view)
        return None if page.in_archive else self._told(page)

    async def fetch(self, pages: Pages) -> list[Notice]:
        """The same of what is in the archive."""
        return self._told(await pages.fetch(self.topic, self.cursor, self.view))

    def _told(self, page: Page) -> list[Notice]:
        found = page.found
        if found is None or (self._epoch and page.epoch != self._epoch):
            self.gone = True
            return [Gone(self.topic, self._head)]
        notices: list[Notice] = []
        tombstone = found.tombstone
        if tombstone is not None:
            reason = "from_seq_too_old" if self._fresh and tombstone.reason in _AT_CONNECT else wire_reason(tombstone)
            notices.append(Gap(self.topic, reason, tombstone))
            self.cursor = resume_seq(tombstone)
        if found.records:
            notices.append(Batch(self.topic, page, self.cursor, found.next_from_seq))
        self.cursor = found.next_from_seq
        self._epoch = page.epoch
        self._head = found.head_seq
        self._revision = page.revision
        self._fresh = False
        if found.next_from_seq < found.head_seq:
            self._live = False
        elif not self._live:
            self._live = True
            notices.append(CaughtUp(self.topic, found.head_seq))
        return notices


def resume_seq(tombstone: Tombstone) -> int:
    """Where a reader goes on behind a gap: in a topic that was made again, at its beginning."""
    return tombstone.earliest_seq - 1 if tombstone.reason == "recreated" else tombstone.gap_to
