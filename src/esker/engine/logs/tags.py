"""Which records of a log have which tag, so that deleting by tag never walks the log.

Seqs of one tag are in order, since records come in order. A record that goes is not searched for here: its seq stays
until garbage passes half, then all of it leaves, in steps so small that nobody waits for them. So the owner is asked
about every seq that is found.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from esker.engine import limits
from esker.engine.events import RecordBody
from esker.engine.queues.sums import Totals

_SLACK = 1024
_STEP = 2048  # tags and seqs looked at in one step: well under a millisecond


class TagIndex:
    """`alive(seqs)` is the owner's truth: those of some seqs, in order, whose records are not gone."""

    __slots__ = ("_alive", "_bytes", "_garbage", "_held", "_order", "_seqs", "_shrunk", "_todo", "_totals", "_young")

    def __init__(self, alive: Callable[[Sequence[int]], list[int]], totals: Totals) -> None:
        self._alive = alive
        self._totals = totals
        self._bytes = 0  # of memory, counted in the totals
        self._seqs: dict[bytes, int | array[int]] = {}  # a tag is often that of one record: an array would cost more
        self._order: list[bytes] = []
        self._young: list[bytes] = []  # tags that are not yet in order
        self._held = 0  # seqs in here
        self._garbage = 0  # of them, about
        self._todo: list[bytes] = []  # tags that the sweep under way has yet to look at
        self._shrunk = False  # `_order` may hold tags that are gone

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
        if self._todo or self._garbage > self._held // 2 + _SLACK:
            self.sweep()

    @property
    def sweeping(self) -> bool:
        return bool(self._todo)

    def sweep(self) -> None:
        """One step of a sweep; begins one if there is enough garbage."""
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
                self._shrunk = True
            else:
                self._seqs[tag] = living[0] if len(living) == 1 else array("Q", living)
        return len(seqs)

    def find(self, tag: bytes, prefix: bool) -> list[int]:
        """The seqs of the living records with this tag, or with one that begins so; in order."""
        if not prefix:
            return self._living(tag)
        return sorted(seq for each in self._beginning(tag) for seq in self._living(each))

    def clear(self) -> None:
        self._seqs, self._order, self._young, self._todo = {}, [], [], []
        self._held = self._garbage = 0
        self.forget_totals()

    def forget_totals(self) -> None:
        """It is about to go, or was emptied."""
        self._count(-self._bytes)

    def _count(self, amount: int) -> None:
        self._bytes += amount
        self._totals.kept_bytes += amount

    def _beginning(self, prefix: bytes) -> Iterator[bytes]:
        if self._shrunk:
            self._order = [tag for tag in self._order if tag in self._seqs]
            known = set(self._order)  # one that went and came again is young as well
            self._young = [tag for tag in dict.fromkeys(self._young) if tag in self._seqs and tag not in known]
            self._shrunk = False
        if self._young:
            self._order += self._young
            self._order.sort()  # merges: the old ones are in order already
            self._young = []
        for at in range(bisect_left(self._order, prefix), len(self._order)):
            tag = self._order[at]
            if not tag.startswith(prefix):
                return
            yield tag

    def _living(self, tag: bytes) -> list[int]:
        known = self._seqs.get(tag)
        if known is None:
            return []
        return self._alive((known,) if isinstance(known, int) else known)

    def __len__(self) -> int:
        """Seqs held, garbage included."""
        return self._held
