"""How far from the best a job was that was leased."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Final

RANK_MAX: Final = 1000  # better jobs counted for one lease


def better_than(key: int, heap: Sequence[int], is_true: Callable[[int], bool]) -> int:
    """How many keys of a heap are better and no garbage, up to `RANK_MAX`: walks from its top without changing it.

    >>> better_than(7, [1, 5, 3, 9], lambda key: key != 5)
    2
    """
    found, last = 0, None
    frontier = [(heap[0], 0)] if heap else []
    while frontier and found < RANK_MAX:
        better, index = heappop(frontier)
        if better >= key:
            break
        for child in (2 * index + 1, 2 * index + 2):
            if child < len(heap):
                heappush(frontier, (heap[child], child))
        if better != last and is_true(better):
            found += 1
        last = better
    return found
