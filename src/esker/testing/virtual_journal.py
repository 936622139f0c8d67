"""The file journal on a virtual loop: its writer and its maker of spares take their turns there, without threads.

What they do to the disk is what the real ones do, to the byte; only when they do it is decided by the loop's dice. Give
it a `RamDisk`, and a node can lose its power at any step of it.
"""

from __future__ import annotations

import asyncio

from esker.journal.file import FileJournal
from esker.journal.spares import SpareShelf
from esker.journal.writer import Append, Writer
from esker.testing.virtual_loop import VirtualLoop


def _virtual_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise TypeError(f"a VirtualJournal runs on a VirtualLoop, not on {type(loop).__name__}")
    return loop


class VirtualWriter(Writer):
    """Writes what was given to it in a later turn, or now and then at once."""

    def _start(self) -> None:
        self._loop = _virtual_loop()
        self._waiting: list[Append] = []
        self._closed = False

    def _now(self) -> float:
        return self._loop.time()

    def put(self, append: Append) -> None:
        self._waiting.append(append)
        if len(self._waiting) == 1:
            self._loop.in_thread(self._write_waiting)

    def write_now(self, append: Append) -> bool:
        if self._waiting or self._loop.dice.random() < 0.5:
            return False
        self._commit([append])
        self._sync_later()
        return True

    def close(self) -> None:
        self._write_waiting()
        self._closed = True
        self._finish()

    def _write_waiting(self) -> None:
        if self._waiting and not self._closed:
            appends, self._waiting = self._waiting, []
            self._commit(appends)
            self._sync_later()

    def _sync_later(self) -> None:
        wait_s = self._time_to_sync()
        if wait_s is not None:
            self._loop.in_thread(self._sync_overdue, wait_s)

    def _sync_overdue(self) -> None:
        if self._time_to_sync() is not None and not self._closed:
            self._guarded(self._sync)


class VirtualShelf(SpareShelf):
    def _start(self) -> None:
        self._loop = _virtual_loop()
        self._loop.in_thread(self._late_round)

    def _late_round(self) -> None:
        if not self._closing and self._asked > self._finished:
            self._round()

    def _ask(self) -> int:
        self._loop.in_thread(self._late_round)
        return super()._ask()

    def _await_round(self) -> None:
        super()._ask()
        self._round()

    def close(self) -> None:
        self._closing = True
        self._round()


class VirtualJournal(FileJournal):
    """Made and used on a `VirtualLoop`."""

    writer_type = VirtualWriter
    shelf_type = VirtualShelf
