"""What routers copied into one partition: each record of a source at most once, in order."""

from __future__ import annotations


class Copies:
    """By router: the last seq of its source that was copied, or needs no copy, and the seq of its last copy."""

    __slots__ = ("_copied", "_cursors")

    def __init__(self) -> None:
        self._cursors: dict[int, int] = {}
        self._copied: dict[int, int] = {}

    def begin(self, router: int, cursor: int) -> None:
        """A router leads here from now on."""
        self._cursors[router] = max(cursor, self._cursors.get(router, 0))

    def add(self, router: int, source: int, seq: int) -> tuple[str, str] | None:
        """A copy of seq `source`, at `seq`; what was expected and what was found, where it may not be."""
        last, copy = self._cursors.get(router), self._copied.get(router)
        self._cursors[router] = source if last is None else max(last, source)
        self._copied[router] = seq
        if last is not None and source <= last:
            return f"router {router} copies what lies behind seq {last} of its source", f"seq {source} again"
        if copy is not None and seq <= copy:
            return f"a copy behind seq {copy}", f"one at seq {seq}"
        return None
