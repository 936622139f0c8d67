"""Whose the leases of a partition are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from esker.engine.queues.partition import QueuePartition


class Holders(dict[int, bytes]):
    """The holders of leased jobs, by seq, where one gave its name; `held` is the same the other way round.

    `holdings` is the shard's: in which partitions a holder has leases.
    """

    __slots__ = ("_holdings", "_partition", "held")

    def __init__(self, partition: QueuePartition, holdings: dict[bytes, set[QueuePartition]]) -> None:
        super().__init__()
        self._partition = partition
        self._holdings = holdings
        self.held: dict[bytes, set[int]] = {}

    def take(self, seqs: Sequence[int], holder: bytes) -> None:
        self.update(dict.fromkeys(seqs, holder))
        held = self.held.get(holder)
        if held is None:
            self.held[holder] = set(seqs)
            self._holdings.setdefault(holder, set()).add(self._partition)
        else:
            held.update(seqs)

    def let_go(self, seqs: Sequence[int]) -> None:
        """By whoever holds them, if anyone does."""
        pop = self.pop
        for holder in {pop(seq, None) for seq in seqs}:
            if holder is not None:
                held = self.held[holder]
                held.difference_update(seqs)
                if not held:
                    del self.held[holder]
                    self._hold_nothing(holder)

    def leave(self) -> None:
        """The partition goes, or is emptied: nobody holds anything in it. What was held can still be read here."""
        for holder in self.held:
            self._hold_nothing(holder)

    def _hold_nothing(self, holder: bytes) -> None:
        partitions = self._holdings[holder]
        partitions.discard(self._partition)
        if not partitions:
            del self._holdings[holder]
