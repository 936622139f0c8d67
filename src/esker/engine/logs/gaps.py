"""Seqs that were given out, or may have been, and whose records no reader will ever get: who passes is told.

They come from crashes (a class that may lose its tail never gives a seq out twice, so what is lost leaves a hole), from
restarts of ephemeral topics, and from routers whose source let go of records too early.
"""

from __future__ import annotations

from bisect import bisect_right

import msgspec

LOST = "lost"


class Gap(msgspec.Struct, frozen=True, array_like=True):
    first: int
    last: int
    reason: str


class Gaps:
    """In order, and apart from one another."""

    __slots__ = ("all",)

    def __init__(self) -> None:
        self.all: list[Gap] = []

    def add(self, gap: Gap) -> None:
        """Behind all others. Joins the last one where it can."""
        known = self.all
        if known and known[-1].last + 1 == gap.first and known[-1].reason == gap.reason:
            known[-1] = Gap(known[-1].first, gap.last, gap.reason)
        else:
            known.append(gap)

    def after(self, seq: int) -> Gap | None:
        """The first one that ends behind `seq`."""
        if not self.all:
            return None
        at = bisect_right(self.all, seq, key=lambda gap: gap.last)
        return self.all[at] if at < len(self.all) else None

    def forget_below(self, seq: int) -> None:
        """What lies below a floor is told by the floor."""
        if self.all and self.all[0].last < seq:
            self.all = [gap for gap in self.all if gap.last >= seq]
