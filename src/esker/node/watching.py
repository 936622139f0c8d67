"""Who watches topics, and in which order they are told that something changed.

The problem: one append may concern ten thousand watchers. Telling them all at once would hold up every other client of
the node, and telling them in the order of arrival would let a chatty topic hold up an important one.

The idea: a change only marks its topic as due. `serve` then wakes a bounded number of watchers, those of the topic with
the highest effective priority first; the rest wait for the next call. A topic's priority grows while it waits, so each
gets its turn. Within a topic, whoever was woken longest ago comes first.

Invariants:
* A watcher is woken after every change of its topics that it has not been woken after already (`seen` < mark), and
  never twice for the same change.
* `revision` of a watched topic changes at once, with the command that changed it. It is never one that was told before
  while the topic was not watched, and so may have changed unseen.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

WATCHERS_PER_STEP = 256  # woken before others have their turn: each then sends, about 10 us

Rank = Callable[[bytes, int], int]
"""Priority of delivery of a topic whose watchers wait since then: the highest is served first."""


class Watcher:
    """`wake` is called until `cancel`."""

    __slots__ = ("_room", "live", "seen", "topics", "wake")

    def __init__(self, room: WatchRoom, topics: Sequence[bytes], wake: Callable[[], None], seen: int) -> None:
        self._room = room
        self.topics = tuple(dict.fromkeys(topics))
        self.wake = wake
        self.seen = seen  # the last change this watcher was woken after
        self.live = True

    def cancel(self) -> None:
        if self.live:
            self.live = False
            self._room.leave(self)


class _Due:
    """A topic with watchers to wake: since when, for which change, and how many of them have not been looked at."""

    __slots__ = ("left", "mark", "since_ms")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.mark = self.left = 0


class WatchRoom:
    """Watchers by topic. `watched` is kept equal to the set of names that somebody watches."""

    def __init__(self, watched: set[bytes]) -> None:
        self._watched = watched
        self._topics: dict[bytes, OrderedDict[Watcher, None]] = {}
        self._due: dict[bytes, _Due] = {}
        self._revisions: dict[bytes, int] = {}
        self._marks = 0

    def __len__(self) -> int:
        return len({watcher for watchers in self._topics.values() for watcher in watchers})

    @property
    def due(self) -> bool:
        return len(self._due) > 0

    def enter(self, topics: Sequence[bytes], wake: Callable[[], None]) -> Watcher:
        self._marks += 1
        watcher = Watcher(self, topics, wake, self._marks)
        for name in watcher.topics:
            if name not in self._topics:
                self._topics[name] = OrderedDict()
                self._revisions[name] = self._marks
                self._watched.add(name)
            self._topics[name][watcher] = None
        return watcher

    def leave(self, watcher: Watcher) -> None:
        for name in watcher.topics:
            watchers = self._topics[name]
            del watchers[watcher]
            if not watchers:
                del self._topics[name]
                self._watched.discard(name)
                self._due.pop(name, None)
                self._revisions.pop(name, None)

    def revision(self, topic: bytes) -> int:
        """Grows with every change of a watched topic; 0 when nobody watches it."""
        return self._revisions.get(topic, 0)

    def changed(self, names: Iterable[bytes], now_ms: int) -> bool:
        """Marks topics as changed; whether there is anybody to wake."""
        self._marks += 1
        for name in names:
            watchers = self._topics.get(name)
            if watchers is not None:
                self._revisions[name] = self._marks
                due = self._due.get(name)
                if due is None:
                    due = self._due[name] = _Due(now_ms)
                due.mark = self._marks
                due.left = len(watchers)  # a look at all of them again: those left out come first
        return len(self._due) > 0

    def wake_everybody(self) -> None:
        """At once, and as if all topics had changed: the shard serves no more."""
        self.changed(list(self._topics), 0)
        self._due.clear()
        for watcher in {watcher for watchers in self._topics.values() for watcher in watchers}:
            watcher.wake()

    def serve(self, now_ms: int, rank: Rank, limit: int = WATCHERS_PER_STEP) -> bool:
        """Wakes up to `limit` watchers, the most urgent topics first; whether some are left for the next step.

        Urgency grows with waiting, but only so far, so a quarter of each step goes to whoever has waited longest:
        topics that never stop changing cannot keep the others out.
        """
        if len(self._due) == 1:
            for name, due in list(self._due.items()):
                self._serve_topic(name, due, now_ms, limit)
            return len(self._due) > 0
        urgent = sorted(self._due.items(), key=lambda item: -rank(item[0], item[1].since_ms))
        left = self._serve_in(urgent, now_ms, limit - limit // 4)
        if self._due:
            self._serve_in(sorted(self._due.items(), key=_waited_longest), now_ms, left + limit // 4)
        return len(self._due) > 0

    def _serve_in(self, order: list[tuple[bytes, _Due]], now_ms: int, limit: int) -> int:
        for name, due in order:
            if limit <= 0:
                break
            limit = self._serve_topic(name, due, now_ms, limit)
        return limit

    def _serve_topic(self, name: bytes, due: _Due, now_ms: int, limit: int) -> int:
        """How many of `limit` are left. Waking may make watchers come and go."""
        due.since_ms = now_ms  # what is left of it begins to wait now
        while limit > 0:
            watchers = self._topics.get(name)
            if watchers is None:
                return limit  # the last one left, and took the topic with it
            if due.left <= 0:
                del self._due[name]
                return limit
            due.left -= 1
            watcher = next(iter(watchers))
            watchers.move_to_end(watcher)
            if watcher.seen < due.mark:
                watcher.seen = self._marks
                limit -= 1
                watcher.wake()
        if due.left <= 0:
            self._due.pop(name, None)
        return limit


def _waited_longest(item: tuple[bytes, _Due]) -> int:
    return item[1].since_ms
