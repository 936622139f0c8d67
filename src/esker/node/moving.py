"""Moves old records to the archive, and removes files that no log mentions any more. Beside the traffic, in a thread.

For each log: blocks that the store has, behind its most recent ones and behind every router, go into a file as soon as
they fill one, or are old enough. The order of effects makes a crash harmless at any point:

    file in the archive ─► event LogArchived in the journal ─► checkpoint ─► records leave the store
    record deleted, topic dropped, floor moved ─► checkpoint ─► files without a living block are removed

A file without its event is a leftover, which the next start removes: the records are still in the store. That is why an
archive belongs to one data directory (archive/opening.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import structlog

from esker.archive.interface import ArchiveStore
from esker.archive.paths import RECORDS, records_path
from esker.archive.records import RecordsPlace, Stored, encode_records
from esker.engine import commands
from esker.engine.logs.archived import archivable_upto
from esker.engine.logs.block import Block
from esker.engine.logs.partition import LogPartition
from esker.engine.machine import Machine
from esker.errors import ArchiveError, InvariantBroken, Refusal
from esker.journal.interface import Journal
from esker.node.checkpointer import Checkpointer
from esker.node.settings import Settings
from esker.node.shard import Shard
from esker.store.interface import Store
from esker.store.logs import stored_content

FILE_ROWS = 64 * 1024  # records in a file: one row group
FILE_BYTES = 32 << 20  # of data and meta in a file: what a thread holds in memory for it, a few times
_POLL_S = 0.25
_ROUND_S = 60.0  # between looks at logs that nobody writes to
_RETRY_S = 30.0  # after the archive could not be reached
_TOPICS_PER_TURN = 1000

_diagnostics = structlog.get_logger("esker.archive")


class Load(NamedTuple):
    """What goes into one file. `blocks`: first seq, count and living records of each."""

    place: RecordsPlace
    blocks: list[tuple[int, int, int]]

    @property
    def path(self) -> str:
        return records_path(*self.place)


class Mover:
    def __init__(
        self,
        machine: Machine,
        shard: Shard,
        journal: Journal,
        store: Store,
        checkpointer: Checkpointer,
        archive: ArchiveStore,
        settings: Settings,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._machine = machine
        self._shard = shard
        self._journal = journal
        self._store = store
        self._checkpointer = checkpointer
        self._archive = archive
        self._settings = settings
        self._monotonic = monotonic
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="esker-archive-write")
        self._ending = asyncio.Event()
        self._leaving: list[tuple[int, list[str]]] = []  # files to remove, once a checkpoint has this position
        self._known = self._known_files()
        self.files_written = 0
        self.records_moved = 0

    async def run(self) -> None:
        """Until `end`. What the archive refuses is tried again later; nothing is lost meanwhile."""
        swept = False
        seen, next_round = -1, 0.0
        while not self._ending.is_set():
            if self._checkpointer.done != seen or self._monotonic() >= next_round:
                seen, next_round = self._checkpointer.done, self._monotonic() + _ROUND_S
                try:
                    if not swept:
                        await self._sweep()
                        swept = True
                    await self._remove_released()
                    await self._move_all()
                except ArchiveError as error:
                    _diagnostics.warning("archive not reached", why=str(error), retry_s=_RETRY_S)
                    await self._pause(_RETRY_S)
            await self._pause(_POLL_S)

    def end(self) -> None:
        """Lets `run` return after the file it is at."""
        self._ending.set()

    def close(self) -> None:
        self._pool.shutdown(wait=True)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._ending.wait(), seconds)
        except TimeoutError:
            return

    # -- files that go

    def _known_files(self) -> set[str]:
        """As the recovery found them: asked before anything else happens, for what is released later has to wait for a
        checkpoint."""
        logs = (topic.log for topic in self._machine.topics.values() if topic.log is not None)
        self._machine.cold_blocks.released.clear()  # of the recovery: they are among the leftovers
        return {file.path for log in logs for file in log.files.all}

    async def _sweep(self) -> None:
        """Removes what a crash left behind, and tells of what should be there and is not."""
        known, loop = self._known, asyncio.get_running_loop()
        there = await loop.run_in_executor(self._pool, lambda: set(self._archive.names(RECORDS)))
        for name in sorted(there - known):
            await loop.run_in_executor(self._pool, self._archive.delete, name)
        if missing := sorted(known - there):
            _diagnostics.error("files are missing", archive=self._archive.where, count=len(missing), first=missing[0])

    async def _remove_released(self) -> None:
        blocks = self._machine.cold_blocks
        if blocks.released:
            position = self._journal.last_position + (1 if self._machine.outbox else 0)
            self._leaving.append((position, blocks.released))
            blocks.released = []
        loop = asyncio.get_running_loop()
        while self._leaving and self._leaving[0][0] <= self._checkpointer.last_position:
            for name in self._leaving[0][1]:
                await loop.run_in_executor(self._pool, self._archive.delete, name)
            self._leaving.pop(0)

    # -- records that move

    async def _move_all(self) -> None:
        numbers = list(self._machine.topics)
        for start in range(0, len(numbers), _TOPICS_PER_TURN):
            for number in numbers[start : start + _TOPICS_PER_TURN]:
                while not self._ending.is_set() and (load := self._next_load(number)) is not None:
                    if not await self._move(load):
                        break
            await asyncio.sleep(0)

    def _next_load(self, number: int) -> Load | None:
        return load_of(self._machine, number, self._settings.archive_hot_blocks, self._settings.archive_after_s)

    async def _move(self, load: Load) -> bool:
        """Whether it is done. If not, the store does not have all of it yet, or no longer."""
        loop = asyncio.get_running_loop()
        sha256 = await loop.run_in_executor(self._pool, write_file, self._store, self._archive, load)
        if sha256 is None:
            return False
        place = load.place
        reply = self._shard.run(commands.ArchiveRecords(place.number, place.first, place.last, load.path, sha256))
        if isinstance(reply, Refusal):
            await loop.run_in_executor(self._pool, self._archive.delete, load.path)
            return False
        self.files_written += 1
        self.records_moved += sum(live.bit_count() for _, _, live in load.blocks)
        return True


def load_of(machine: Machine, number: int, hot: int, after_s: int) -> Load | None:
    """What of a log is to be moved now, if anything. `hot` and `after_s` as in the settings."""
    topic = machine.topics.get(number)
    log = None if topic is None else topic.log
    if log is None or not log.topic.journaled or len(log.blocks) <= max(1, hot):
        return None
    if log.unjournaled_marks:  # after a crash records may be back that a file made now would not have
        return None
    blocks: list[tuple[int, int, int]] = []
    rows = size = 0
    oldest_ms = 0
    for block in _movable(log, archivable_upto(machine, log), max(1, hot)):
        oldest_ms = oldest_ms or block.last_ts
        blocks.append((block.first_seq, block.count, block.live))
        rows += block.live.bit_count()
        size += block.live_bytes
        if rows >= FILE_ROWS or size >= FILE_BYTES:
            break
    else:
        if not blocks or oldest_ms + after_s * 1000 > machine.last_ms:
            return None
    first, last = blocks[0][0], blocks[-1][0] + blocks[-1][1] - 1
    return Load(RecordsPlace(log.topic.name, number, log.index, first, last), blocks)


def _movable(log: LogPartition, upto: int, hot: int) -> Iterator[Block]:
    """What is in the store and not yet in the archive, without the newest blocks and without those a router needs."""
    last = log.blocks[-hot].first_seq
    for block in log.blocks_after(log.files.upto):
        if block.first_seq >= last or block.end - 1 > upto or not block.coolable:
            return
        yield block


def write_file(store: Store, archive: ArchiveStore, load: Load) -> str | None:
    """From the store to the archive; returns the file's checksum. Runs in a thread.

    None: the store does not have all of it yet, or no longer.
    """
    stored: list[Stored] = []
    for first_seq, count, live in load.blocks:
        try:
            content = stored_content(store, load.place.number, load.place.partition, first_seq)
        except InvariantBroken:  # the block left meanwhile, or the checkpoint with it has only begun
            return None
        if len(content.bodies) < count:
            return None
        stored.append(Stored(first_seq, live, content))
    file = encode_records(load.place, stored)
    archive.put(load.path, file.data)
    return file.sha256
