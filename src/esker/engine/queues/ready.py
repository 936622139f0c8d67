"""The ready jobs of a partition, best first: a run of integers in order, and a binary heap of the others.

A key is the priority (turned by the mode) above the seq, so integer order is delivery order and the seq needs no tuple.
Most jobs come in the order in which they go, and a key that does is added at the end of the run and taken from its
front, at a twentieth of what a heap of many jobs costs.
A job that leaves from the middle leaves its key behind; a key counts only while the owner says so (`key_of(seq) ==
key`). Garbage is bounded: past half of all keys, it is filtered out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush, merge
from itertools import islice
from operator import le

from esker.engine.config import Mode
from esker.engine.limits import SEQ_BITS, SEQ_MAX

SIGN = {Mode.MIN: 1, Mode.MAX: -1, Mode.FIFO: 0}
_SLACK = 1024


class ReadyHeap:
    """`key_of(seq)` is the owner's truth: the key of a ready job, None for one that is not ready."""

    __slots__ = ("_heap", "_key_of", "_run")

    def __init__(self, key_of: Callable[[int], int | None]) -> None:
        self._run: deque[int] = deque()  # never falls
        self._heap: list[int] = []
        self._key_of = key_of

    def push_all(self, keys: Sequence[int], ready: int) -> None:
        """`ready` is the number of jobs that are ready now, these included."""
        run = self._run
        for key in keys:
            if not run or key > run[-1]:
                run.append(key)
            else:
                heappush(self._heap, key)
        self.tidy(ready)

    def push_run(self, keys: Sequence[int], ready: int) -> None:
        """The same for keys that rise, of which there is at least one."""
        run = self._run
        if not run or keys[0] > run[-1]:
            run.extend(keys)
            self.tidy(ready)
        else:
            self.push_all(keys, ready)

    def tidy(self, ready: int) -> None:
        """Keeps the garbage bounded. `ready` is the number of jobs that are ready now."""
        if len(self._run) + len(self._heap) > 2 * ready + _SLACK:
            self._rebuild()

    def _rebuild(self) -> None:
        key_of = self._key_of
        heap = set(self._heap).difference(self._run)  # a key may be in both, and twice in either
        self._run = deque([key for key in dict.fromkeys(self._run) if key_of(key & SEQ_MAX) == key])
        self._heap = [key for key in heap if key_of(key & SEQ_MAX) == key]
        heapify(self._heap)

    def load(self, keys: list[int]) -> None:
        """Takes over a list of true keys, at recovery."""
        rising = all(map(le, keys, islice(keys, 1, None)))
        self._run = deque(keys) if rising else deque()
        self._heap = [] if rising else keys
        heapify(self._heap)

    def first(self) -> int | None:
        """The best key, or None."""
        key_of = self._key_of
        while keys := self.pop(1):
            if key_of(keys[0] & SEQ_MAX) == keys[0]:
                self.put_back(keys)
                return keys[0]
        return None

    def pop(self, count: int) -> list[int]:
        """Takes out the first keys in order, true or not; fewer than `count` only where there are no more.

        True ones are put back, or their jobs leave the ready ones at once; then `tidy` is called.
        """
        run, heap = self._run, self._heap
        count = min(count, len(run) + len(heap))
        if not heap or (len(run) >= count > 0 and run[count - 1] <= heap[0]):
            return [run.popleft() for _ in range(count)]
        return [heappop(heap) if heap and (not run or heap[0] < run[0]) else run.popleft() for _ in range(count)]

    def put_back(self, keys: Sequence[int]) -> None:
        """Those that were taken out last, in their order: nothing that is left comes before them."""
        self._run.extendleft(reversed(keys))

    def drop(self, key: int, ready: int) -> None:
        """Forgets `key` if it is in front; elsewhere it is garbage, which stays bounded. `ready` jobs are left."""
        if self._run and self._run[0] == key:
            self._run.popleft()
        elif self._heap and self._heap[0] == key:
            heappop(self._heap)
        self.tidy(ready)

    def in_order(self) -> Iterator[int]:
        """All true keys, best first, without changing anything: O(k log k) for the first k."""
        key_of = self._key_of
        last = None
        for key in merge(self._run, _sorted(self._heap)):
            if key != last and key_of(key & SEQ_MAX) == key:
                last = key
                yield key

    def __len__(self) -> int:
        """Keys held, garbage included."""
        return len(self._run) + len(self._heap)


def _sorted(heap: Sequence[int]) -> Iterator[int]:
    """The keys of a heap in order, without changing it."""
    frontier = [(heap[0], 0)] if heap else []
    while frontier:
        key, index = heappop(frontier)
        yield key
        for child in (2 * index + 1, 2 * index + 2):
            if child < len(heap):
                heappush(frontier, (heap[child], child))


def ready_key(sign: int, priority: int, seq: int) -> int:
    return (priority * sign << SEQ_BITS) + seq
