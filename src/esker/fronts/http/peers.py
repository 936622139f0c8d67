"""Who is at the other end of a connection, as far as keys are concerned."""

from __future__ import annotations

from typing import Final

PEER: Final = "esker.peer"  # where an ASGI scope has it


class Peer:
    __slots__ = ("address", "failures", "proven")

    def __init__(self, address: str = "?") -> None:
        self.address = address  # as far as guesses are counted
        self.proven = b""  # the digest of the last secret that was right
        self.failures = 0  # since then
