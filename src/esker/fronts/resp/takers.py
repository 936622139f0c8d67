"""Who took a lease over the Redis protocol: a connection, or all connections of one name.

Disque's clients settle jobs by id. A worker whose lease has run out must not touch the lease of its successor, so
leases say who took them (engine/queues/tokens.py), and NACK, WORKING and JOB EXTEND without a token are accepted only
from there. Connections with the same name (`CLIENT SETNAME`, `HELLO … SETNAME`) are one client: so a pool can be one.
What a closed connection took belongs to nobody: its client may have connected again.

Numbers begin at a random one for each life of a server, so that leases of an earlier life belong to nobody. Two clients
may get the same number, with a chance of one in 500 million; then they are not kept apart.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

from esker.engine.queues.tokens import TAKER_BITS

_NAMED = 1 << (TAKER_BITS - 1)  # numbers from here on are of names, those below of connections


class Takers:
    """The takers whose connections are open."""

    __slots__ = ("_live", "_next")

    def __init__(self) -> None:
        self._next = secrets.randbelow(_NAMED)
        self._live: Counter[int] = Counter()

    def enter(self, name: bytes = b"") -> int:
        """A connection begins, or takes this name."""
        if name:
            taker = _NAMED | int.from_bytes(blake2b(name, digest_size=4).digest(), "big") & (_NAMED - 1)
        else:
            taker = 1 + self._next
            self._next = (self._next + 1) % (_NAMED - 1)
        self._live[taker] += 1
        return taker

    def leave(self, taker: int) -> None:
        self._live[taker] -= 1
        if not self._live[taker]:
            del self._live[taker]

    def ended(self, takers: Sequence[int]) -> list[int]:
        """Those of them who have no open connection."""
        return [taker for taker in takers if taker not in self._live]
