"""Which blocks that the store has are still in memory, and which of them leave it first: the one saved longest ago.

So the ends of the logs that are written to stay in memory, where nearly all readers are.
"""

from __future__ import annotations

from collections import OrderedDict

from esker.engine.logs.block import Block
from esker.engine.logs.partition import LogPartition

_SLACK = 1024


class Warmth:
    __slots__ = ("_limit", "_saved")

    def __init__(self) -> None:
        self._saved: OrderedDict[Block, LogPartition] = OrderedDict()
        self._limit = _SLACK  # past this many, those that left memory otherwise are looked for

    def saved(self, log: LogPartition, block: Block) -> None:
        """A checkpoint has written what there was of a block when it began."""
        self._saved[block] = log
        self._saved.move_to_end(block)
        if len(self._saved) > self._limit:
            self._saved = OrderedDict((each, owner) for each, owner in self._saved.items() if each.content is not None)
            self._limit = 2 * len(self._saved) + _SLACK

    def cool(self, budget: int) -> None:
        """Lets blocks go until everything that is in memory needs no more than `budget` bytes."""
        while self._saved:
            block, log = self._saved.popitem(last=False)
            if log.totals.hot_bytes <= budget:
                self._saved[block] = log
                self._saved.move_to_end(block, last=False)
                return
            log.cool(block)  # one that has grown since stays, and is listed again when it is saved
