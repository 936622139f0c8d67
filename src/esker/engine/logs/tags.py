"""Which records of a log have which tag, so that deleting by tag never walks the log.

Seqs of one tag are in order, since records come in order. A record that goes is not searched for here: its seq stays
until garbage passes half, then all of it leaves, in steps so small that nobody waits for them. So the owner has to be
asked about every seq that is found.

For prefixes the tags are kept in order, as runs: new tags wait unsorted until there are enough for a run, and runs are
merged with younger ones up to a bound. So no step sorts, merges or filters more than one run, however many tags there
are.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from heapq import merge

from esker.engine import limits
from esker.engine.events import RecordBody
from esker.engine.queues.sums import Totals

_SLACK = 1024
_STEP = 2048  # tags and seqs looked at in one step: well under a millisecond
_YOUNG_MAX = 4096  # tags that wait to be sorted: about a millisecond
_RUN_MAX = 32 * 1024  # tags in a run: merging or filtering one takes a few milliseconds
_PIECE = 16 * 1024  # seqs sorted at once


class TagIndex:
    """`alive(seqs)` is the owner's truth: those of some seqs, in order, whose records are not gone."""

    __slots__ = (
        "_alive",
        "_bytes",
        "_garbage",
        "_held",
        "_pruned",
        "_runs",
        "_seqs",
        "_todo",
        "_totals",
        "_unfiltered",
        "_young",
    )

    def __init__(self, alive: Callable[[Sequence[int]], list[int]], totals: Totals) -> None:
        self._alive = alive
        self._totals = totals
        self._bytes = 0  # of memory, counted in the totals
        self._seqs: dict[bytes, int | array[int]] = {}  # a tag is often that of one record: an array would cost more
        self._runs: list[list[bytes]] = []  # each in order; replaced and never changed, as `find` may be under way
        self._young: list[bytes] = []  # tags that are in no run yet
        self._held = 0  # seqs in here
        self._garbage = 0  # of them, about
        self._todo: list[bytes] = []  # tags that the sweep under way has yet to look at
        self._pruned = 0  # tags that are gone and may still be in runs
        self._unfiltered = 0  # runs that have yet to be rid of such tags

    def add_all(self, first_seq: int, bodies: Sequence[RecordBody]) -> int:
        """Adds records in a row. Returns how many of them have a tag."""
        before = self._held
        for offset, body in enumerate(bodies):
            if body.tag:
                self.add(body.tag, first_seq + offset)
        return self._held - before

    def add(self, tag: bytes, seq: int) -> None:
        known = self._seqs.get(tag)
        if known is None:
            self._seqs[tag] = seq
            self._young.append(tag)
            if len(self._young) >= _YOUNG_MAX:
                self._make_run()
            self._count(limits.TAG_MEMORY_BYTES + len(tag))
        elif isinstance(known, int):
            self._seqs[tag] = array("Q", (known, seq))
        else:
            known.append(seq)
        self._held += 1
        self._count(limits.TAGGED_MEMORY_BYTES)

    def let_go(self, count: int) -> None:
        """Up to `count` records with tags are gone. Call it after the owner's truth has changed."""
        self._garbage += count
        if self.sweeping or self._garbage > self._held // 2 + _SLACK:
            self.sweep()

    @property
    def sweeping(self) -> bool:
        return bool(self._todo) or self._unfiltered > 0

    def sweep(self) -> None:
        """One step of a sweep; begins one if there is enough garbage."""
        if self._unfiltered:
            self._filter_run()
            return
        if not self._todo:
            if self._garbage <= self._held // 2 + _SLACK:
                return
            self._todo = list(self._seqs)
            self._garbage = 0  # but for what goes from now on
        left = _STEP
        while self._todo and left > 0:
            tag = self._todo.pop()
            known = self._seqs.get(tag)
            if known is not None:
                left -= 1 + self._prune(tag, known)
        if not self._todo and self._pruned > len(self._seqs) // 2 + _SLACK:
            self._pruned, self._unfiltered = 0, len(self._runs)

    def _filter_run(self) -> None:
        self._unfiltered = min(self._unfiltered, len(self._runs)) - 1
        if self._unfiltered >= 0:
            self._runs[self._unfiltered] = [tag for tag in self._runs[self._unfiltered] if tag in self._seqs]
        self._unfiltered = max(self._unfiltered, 0)

    def _prune(self, tag: bytes, known: int | array[int]) -> int:
        """Returns how many seqs were looked at."""
        seqs = (known,) if isinstance(known, int) else known
        living = self._alive(seqs)
        if len(living) < len(seqs):
            self._held -= len(seqs) - len(living)
            self._count((len(living) - len(seqs)) * limits.TAGGED_MEMORY_BYTES)
            if not living:
                self._count(-limits.TAG_MEMORY_BYTES - len(tag))
                del self._seqs[tag]
                self._pruned += 1
            else:
                self._seqs[tag] = living[0] if len(living) == 1 else array("Q", living)
        return len(seqs)

    def find(self, tag: bytes, prefix: bool) -> Iterator[list[int]]:
        """The seqs of records with this tag, or with one that begins so; in order, a few at a time.

        Some of them may be gone. Each step is bounded; those that only look yield nothing. Records may come and go
        between steps.
        """
        if not prefix:
            known = self._seqs.get(tag, ())
            seqs = (known,) if isinstance(known, int) else known[:]
            for at in range(0, len(seqs), limits.DELETE_STEP):
                yield list(seqs[at : at + limits.DELETE_STEP])
            return
        pieces: list[Sequence[int]] = []
        piece: list[int] = []
        for looked, each in enumerate(self._beginning(tag), 1):
            known = self._seqs.get(each, ())
            if isinstance(known, int):
                piece.append(known)
            elif known:
                pieces.append(known[:])
            if len(piece) == _PIECE:
                pieces.append(sorted(piece))
                piece = []
            if looked % limits.DELETE_STEP == 0:
                yield []
        pieces.append(sorted(piece))
        yield from _in_order(pieces)

    def clear(self) -> None:
        self._seqs, self._runs, self._young, self._todo = {}, [], [], []
        self._held = self._garbage = self._pruned = self._unfiltered = 0
        self.forget_totals()

    def forget_totals(self) -> None:
        """It is about to go, or was emptied."""
        self._count(-self._bytes)

    def _count(self, amount: int) -> None:
        self._bytes += amount
        self._totals.kept_bytes += amount

    def _beginning(self, prefix: bytes) -> Iterator[bytes]:
        """Tags that begin so, and perhaps some that are gone; one that went and came again may be told twice."""
        if self._young:
            self._make_run()
        for run in self._runs[:]:
            for at in range(bisect_left(run, prefix), len(run)):
                if not run[at].startswith(prefix):
                    break
                yield run[at]

    def _make_run(self) -> None:
        run, self._young = sorted(self._young), []
        while self._runs and len(self._runs[-1]) <= min(2 * len(run), _RUN_MAX - len(run)):
            run = list(dict.fromkeys(sorted(self._runs.pop() + run)))  # merges: both are in order already
        self._runs.append(run)

    def __len__(self) -> int:
        """Seqs held, garbage included."""
        return self._held


def _in_order(pieces: list[Sequence[int]]) -> Iterator[list[int]]:
    """Merges them, a few seqs at a time, each but once."""
    found: list[int] = []
    last = -1
    for seq in merge(*pieces):
        if seq != last:
            found.append(seq)
            last = seq
        if len(found) == limits.DELETE_STEP:
            yield found
            found = []
    if found:
        yield found
