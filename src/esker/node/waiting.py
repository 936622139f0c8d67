"""Who waits for jobs: first come, first served in each queue, however many queues one waits for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from esker.engine.commands import Lease
from esker.engine.replies import Leased

Deliver = Callable[[Leased | None], None]


class Waiter:
    """One blocked call. It is served once: with jobs, with None at its time limit, or never if it was cancelled.

    `lease` is what it asks for; None: one job of whichever of `topics` gets one, for `taker` (`Lease.taker`).
    """

    __slots__ = ("_lease", "_taker", "deliver", "live", "on_end", "topics")

    def __init__(self, topics: Sequence[bytes], deliver: Deliver, lease: Lease | None = None, taker: int = 0) -> None:
        self.topics = topics
        self.deliver = deliver
        self._lease = lease
        self._taker = taker
        self.live = True
        self.on_end: Callable[[], None] | None = None

    def lease_of(self, topic: bytes) -> Lease:
        """What it asks of a topic that has jobs."""
        return self._lease or Lease(topic, taker=self._taker)

    def cancel(self) -> None:
        self._end()

    def serve(self, jobs: Leased | None) -> None:
        if self.live:
            self._end()
            self.deliver(jobs)

    def _end(self) -> None:
        if self.live:
            self.live = False
            on_end, self.on_end = self.on_end, None  # it knows the waiter: no cycle may stay
            if on_end is not None:
                on_end()


class WaitingRoom:
    """Waiters by queue. `in` asks whether anyone waits for a queue."""

    def __init__(self) -> None:
        self._queues: dict[bytes, deque[Waiter]] = {}
        self._live: dict[bytes, int] = {}

    def enter(self, waiter: Waiter) -> None:
        names = dict.fromkeys(waiter.topics)
        for name in names:
            self._queues.setdefault(name, deque()).append(waiter)
            self._live[name] = self._live.get(name, 0) + 1

        def leave() -> None:
            for name in names:
                self._leave(name)

        waiter.on_end = leave

    def first(self, topic: bytes) -> Waiter | None:
        """Who waits longest for this queue."""
        queue = self._queues.get(topic)
        while queue:
            if queue[0].live:
                return queue[0]
            queue.popleft()
        return None

    def of(self, topic: bytes) -> list[Waiter]:
        """All who wait for this queue, longest first."""
        return [waiter for waiter in self._queues.get(topic, ()) if waiter.live]

    def all(self) -> Iterator[Waiter]:
        return iter({waiter for queue in self._queues.values() for waiter in queue if waiter.live})

    def count(self, topic: bytes) -> int:
        return self._live.get(topic, 0)

    def __contains__(self, topic: object) -> bool:
        return topic in self._live

    def __bool__(self) -> bool:
        return bool(self._live)

    def _leave(self, name: bytes) -> None:
        """Drops the dead from a queue once they outnumber the living, so that waiting costs no memory in the end."""
        self._live[name] -= 1
        if not self._live[name]:
            del self._live[name]
            del self._queues[name]
        elif len(self._queues[name]) > 2 * self._live[name] + 16:
            self._queues[name] = deque(waiter for waiter in self._queues[name] if waiter.live)
