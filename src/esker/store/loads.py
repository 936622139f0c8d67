"""The marks of bulk loads in the store: one key each.

All that changed goes into the write that moves the position of a checkpoint. A mark that is ahead of the position would
do no harm (folding never moves one back), but one that was forgotten must not go before its rows are safe.
"""

from __future__ import annotations

import msgspec

from esker.engine.loads import Loads, Mark
from esker.store import keys
from esker.store.interface import Store

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Mark).decode


class LoadShare:
    """What had to be saved of the marks when the checkpoint began."""

    def __init__(self, loads: Loads) -> None:
        """Takes the changes off the marks."""
        self.puts = [(keys.load_key(load), _encode(loads.marks[load])) for load in sorted(loads.dirty)]
        self.deletes = [keys.load_key(load) for load in sorted(loads.dropped)]
        loads.dirty, loads.dropped = set(), set()


def load_marks(store: Store, loads: Loads) -> None:
    """In the order in which they moved: the idle ones go first when there are too many."""
    found = [(key[1:], _decode(value)) for key, value in store.scan(*keys.LOADS)]
    loads.marks = dict(sorted(found, key=lambda pair: pair[1].ts))
