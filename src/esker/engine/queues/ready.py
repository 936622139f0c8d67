"""The ready jobs of a partition, best first: a binary heap of integers.

A key is the priority (turned by the mode) above the seq, so integer order is delivery order and the seq needs no tuple.
A job that leaves from the middle leaves its key behind; a key counts only while the owner says so (`key_of(seq) ==
key`). Garbage is bounded: past half of the heap, it is rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush

from esker.engine.config import Mode
from esker.engine.limits import SEQ_BITS, SEQ_MAX

SIGN = {Mode.MIN: 1, Mode.MAX: -1, Mode.FIFO: 0}
_SLACK = 1024


class ReadyHeap:
    """`key_of(seq)` is the owner's truth: the key of a ready job, None for one that is not ready."""

    __slots__ = ("_heap", "_key_of")

    def __init__(self, key_of: Callable[[int], int | None]) -> None:
        self._heap: list[int] = []
        self._key_of = key_of

    def push_all(self, keys: Iterable[int], ready: int) -> None:
        """`ready` is the number of jobs that are ready now, these included."""
        heap = self._heap
        for key in keys:
            heappush(heap, key)
        self.tidy(ready)

    def tidy(self, ready: int) -> None:
        """Keeps the garbage bounded. `ready` is the number of jobs that are ready now."""
        if len(self._heap) > 2 * ready + _SLACK:
            self.rebuild(self._heap)

    def rebuild(self, keys: Iterable[int]) -> None:
        key_of = self._key_of
        self._heap = [key for key in set(keys) if key_of(key & SEQ_MAX) == key]
        heapify(self._heap)

    def load(self, keys: list[int]) -> None:
        """Takes over a list of true keys, at recovery."""
        self._heap = keys
        heapify(keys)

    def first(self) -> int | None:
        """The best key, or None."""
        heap, key_of = self._heap, self._key_of
        while heap:
            key = heap[0]
            if key_of(key & SEQ_MAX) == key:
                return key
            heappop(heap)
        return None

    def pop(self) -> int | None:
        """Takes out the first key, true or not; None: there is none.

        A true one is put back, or its job leaves the ready ones at once; then `tidy` is called.
        """
        return heappop(self._heap) if self._heap else None

    def put_back(self, key: int) -> None:
        heappush(self._heap, key)

    def drop(self, key: int, ready: int) -> None:
        """Forgets `key` if it is first; elsewhere it is garbage, which stays bounded. `ready` jobs are left."""
        heap = self._heap
        if heap and heap[0] == key:
            heappop(heap)
        self.tidy(ready)

    def in_order(self) -> Iterator[int]:
        """All true keys, best first, without changing the heap: O(k log k) for the first k."""
        heap, key_of = self._heap, self._key_of
        frontier = [(heap[0], 0)] if heap else []
        last = None
        while frontier:
            key, index = heappop(frontier)
            for child in (2 * index + 1, 2 * index + 2):
                if child < len(heap):
                    heappush(frontier, (heap[child], child))
            if key != last and key_of(key & SEQ_MAX) == key:
                last = key
                yield key

    def __len__(self) -> int:
        """Keys held, garbage included."""
        return len(self._heap)


def ready_key(sign: int, priority: int, seq: int) -> int:
    return (priority * sign << SEQ_BITS) + seq
