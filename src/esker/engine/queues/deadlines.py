"""Which jobs have something due when, for millions of jobs, without a timer each.

Jobs are kept in buckets by the time they are due; a small heap orders the buckets. Against a heap of jobs this costs 8
bytes a waiting job instead of 52 (the seq is the very object the job holds), and adding is O(1).

A cancelled deadline is not searched for: it is counted, and a bucket whose garbage passes half of it is filtered. So
garbage is bounded, and no single step is longer than one bucket.

`shift` sets the width of a bucket: 2**shift milliseconds. A deadline is reported when its whole bucket has passed,
never early, and at most that much late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush


class Deadlines:
    """The owner's truth: `dues_of(seqs)` are the times these jobs wait for here, 0 for none (or no such job).

    `none_of(seqs)` says whether all of them are gone, which it may know sooner.
    """

    __slots__ = ("_buckets", "_dues_of", "_garbage", "_mask", "_none_of", "_order", "_shift")

    def __init__(
        self, shift: int, dues_of: Callable[[Iterable[int]], list[int]], none_of: Callable[[Iterable[int]], bool]
    ) -> None:
        self._shift = shift
        self._mask = (1 << shift) - 1
        self._dues_of = dues_of
        self._none_of = none_of
        self._buckets: dict[int, list[int]] = {}
        self._garbage: dict[int, int] = {}
        self._order: list[int] = []

    def add(self, due_ms: int, seq: int) -> int:
        """Returns when the deadline will be reported."""
        return self.add_all(due_ms, (seq,))

    def add_all(self, due_ms: int, seqs: Sequence[int]) -> int:
        """The same for jobs that are due together."""
        number = (due_ms + self._mask) >> self._shift
        bucket = self._buckets.get(number)
        if bucket is None:
            self._buckets[number] = list(seqs)
            heappush(self._order, number)
        else:
            bucket += seqs
        return number << self._shift

    def cancel(self, due_ms: int, count: int = 1) -> None:
        """So many jobs no longer wait for `due_ms`. Call it after the owner's truth has changed."""
        number = (due_ms + self._mask) >> self._shift
        bucket = self._buckets.get(number)
        if bucket is None:
            return  # already taken
        garbage = self._garbage.get(number, 0) + count
        if garbage * 2 < len(bucket):
            self._garbage[number] = garbage
            return
        self._garbage.pop(number, None)
        if not self._none_of(bucket):
            shift, mask = self._shift, self._mask
            seqs = dict.fromkeys(bucket)  # a job that left and came back within one bucket is in it twice: once will do
            alive = [seq for seq, due in zip(seqs, self._dues_of(seqs), strict=True) if (due + mask) >> shift == number]
            if alive:
                self._buckets[number] = alive
                return
        del self._buckets[number]
        if len(self._order) > 2 * len(self._buckets) + 1024:
            self._order = list(self._buckets)
            heapify(self._order)

    def next_ms(self) -> int | None:
        """No deadline is reported before this time."""
        order = self._order
        while order and order[0] not in self._buckets:
            heappop(order)
        return order[0] << self._shift if order else None

    def take(self, now: int, limit: int) -> list[int]:
        """Up to `limit` jobs whose time has come, and perhaps some that were cancelled: ask the owner's truth."""
        taken: list[int] = []
        while (due := self.next_ms()) is not None and due <= now and len(taken) < limit:
            number = self._order[0]
            bucket = self._buckets[number]
            room = limit - len(taken)
            taken += bucket[-room:]
            if len(bucket) > room:
                del bucket[-room:]
                break
            heappop(self._order)
            del self._buckets[number]
            self._garbage.pop(number, None)
        return taken

    def __len__(self) -> int:
        """Entries held, garbage included."""
        return sum(map(len, self._buckets.values()))
