"""Runs checkpoints beside the traffic: small slices on the loop, the slow part in a thread.

A checkpoint that began is completed before the next one begins, because it took the changes off the machine. When the
store fails it, on a full disk or for want of a file descriptor, the store is opened again, and what was written since
the last persist is written again, until that works. So slices are kept until they are durable, and payloads stay in
memory as long: what only the store has can always be read, whatever it lost. Meanwhile the shard serves; the journal
has every event and keeps them all, since only a whole checkpoint lets it retire segments.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import structlog

from esker.engine.machine import Machine
from esker.errors import ShardStopped, StoreFailed
from esker.journal.interface import Journal
from esker.node.loopwatch import LoopWatch
from esker.node.settings import Settings
from esker.node.shard import Shard
from esker.store.checkpoint import Checkpoint
from esker.store.cooling import cool
from esker.store.interface import Store
from esker.store.slices import Slice

_POLL_S = 0.25
_PATIENCE = 3  # a checkpoint uses a quarter of the loop's time; more, the more of the next one has gathered meanwhile
_SLICES_PER_SYNC = 8  # slices made before one wait for the disk; more would hold more memory, fewer would wait more
FLUSH_BYTES = 16 << 20  # written and not persisted: in memory twice; RocksDB makes writers wait at about as much
RETRY_S_MIN = 1.0  # before a failed write is tried again; doubled each time, as each try costs the disk some work
RETRY_S_MAX = 30.0  # the longest that a checkpoint is behind once there is room again

_diagnostics = structlog.get_logger("esker.node")


class Checkpointer:
    def __init__(
        self,
        machine: Machine,
        shard: Shard,
        journal: Journal,
        store: Store,
        settings: Settings,
        watch: LoopWatch,
        *,
        flush_bytes: int = FLUSH_BYTES,
        retry_s: tuple[float, float] = (RETRY_S_MIN, RETRY_S_MAX),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._machine = machine
        self._shard = shard
        self._journal = journal
        self._store = store
        self._settings = settings
        self._watch = watch
        self._monotonic = monotonic
        self._wanted = asyncio.Event()
        self._ending = False
        self.running = False
        self._resumed_at = 0.0  # when the running checkpoint got the loop back
        self.done = 0
        self.last_position = 0
        self.last_seconds = 0.0
        self.last_at = self._monotonic()
        self._flush_bytes = flush_bytes
        self._retry_s = retry_s
        self._unpersisted: list[Slice] = []  # written in this order since the last persist
        self._unpersisted_bytes = 0
        self.failures = 0
        self.failure: StoreFailed | None = None  # why the running checkpoint does not get on
        self._failing_since = 0.0

    @property
    def failing_s(self) -> float:
        """For how long the running checkpoint has been failing; 0.0: it is not."""
        return 0.0 if self.failure is None else self._monotonic() - self._failing_since

    def ask(self) -> None:
        """A checkpoint now, whether or not one is due."""
        self._wanted.set()

    async def run(self) -> None:
        """Checkpoints when one is due or asked for, and a last time after `end`."""
        try:
            await self._run()
        except StoreFailed as error:  # raised only when it is to end
            _diagnostics.error("the last checkpoint failed: the next start reads the journal instead", why=str(error))

    async def _run(self) -> None:
        while not self._ending:
            try:
                async with asyncio.timeout(_POLL_S):
                    await self._wanted.wait()
            except TimeoutError:
                if not self._is_due():
                    continue
            self._wanted.clear()
            if not self._ending:
                await self._checkpoint()
        await self._checkpoint()

    def end(self) -> None:
        """Lets `run` return after one last checkpoint.

        It must not be cancelled instead: a checkpoint takes the changes off the machine when it begins, so one that is
        cut short would leave the next to claim a position without them. A last one that the store fails is tried once
        more, and given up: the journal has what it would have saved.
        """
        self._ending = True
        self._wanted.set()

    async def _checkpoint(self) -> None:
        if self._shard.stopped is not None:
            return
        started = self._resumed_at = self._monotonic()
        self.running = self._watch.checkpointing = True
        try:
            position = self._shard.flush()
            if position != self.last_position or self._machine.touched:
                await self._save(Checkpoint(self._machine, position))
                self._journal.retire(position)
                self.last_position = position
                self.done += 1
        finally:
            self.running = self._watch.checkpointing = False
        self.last_at = self._monotonic()
        self.last_seconds = self.last_at - started

    def _is_due(self) -> bool:
        if not (self._machine.touched or self._machine.dirty_topics or self._machine.deleted_topics):
            return False
        old = self._monotonic() - self.last_at >= self._settings.checkpoint_interval_s
        return old or self._machine.totals.unsaved_bytes >= self._settings.checkpoint_after

    async def _save(self, checkpoint: Checkpoint) -> None:
        made: list[Slice] = []
        for piece in checkpoint.slices():
            if piece.puts or piece.deletes or piece.ranges:
                made.append(piece)
            if len(made) == _SLICES_PER_SYNC:
                await self._write(made)
            await self._breathe()
        await self._write([*made, checkpoint.last()])
        await self._flush()

    async def _write(self, made: list[Slice]) -> None:
        """Writes slices once the journal holds every event that they reflect."""
        await self._shard.settled()
        self._resumed_at = self._monotonic()
        for piece in made:
            self._unpersisted.append(piece)
            self._unpersisted_bytes += sum(len(value) for _, value in piece.puts)
            try:
                await self._put(piece)
            except StoreFailed as error:
                await self._repeat(error)
            if self._unpersisted_bytes >= self._flush_bytes:
                await self._flush()
            await self._breathe()
        made.clear()

    async def _put(self, piece: Slice) -> None:
        while not self._store.write(piece.puts, piece.deletes, piece.ranges):
            await self._aside(self._store.persist)

    async def _flush(self) -> None:
        """Makes durable what was written. Only then may memory let go of it."""
        try:
            await self._aside(self._store.persist)
        except StoreFailed as error:
            await self._repeat(error)
        persisted, self._unpersisted, self._unpersisted_bytes = self._unpersisted, [], 0
        self._resumed_at = self._monotonic()
        for piece in persisted:
            cool(self._machine, piece, min(self._settings.hot_payloads, self._machine.memory_limit // 4))
            await self._breathe()

    async def _aside(self, work: Callable[[], None]) -> None:
        """In a thread, which keeps the disk busy."""
        self._journal.expect_slow(True)
        try:
            await asyncio.get_running_loop().run_in_executor(None, work)
        finally:
            self._journal.expect_slow(False)

    # -- a store that fails

    async def _repeat(self, error: StoreFailed) -> None:
        """Opens the store again and repeats what it may have lost, until all of that is durable."""
        pause_s, pause_s_max = self._retry_s
        tries = 0
        self._failing_since = self._monotonic()
        while True:
            tries += 1
            self._note_failure(error, pause_s)
            await self._pause(pause_s)
            try:
                await self._aside(self._store.reopen)
                for piece in self._unpersisted:
                    self._resumed_at = self._monotonic()
                    await self._put(piece)
                    await self._breathe()
                await self._aside(self._store.persist)
                break
            except StoreFailed as again:
                if self._ending:
                    raise
                error, pause_s = again, min(2 * pause_s, pause_s_max)
        self.failure = None
        _diagnostics.warning(
            "the checkpoint goes on: the store writes again",
            tries=tries, seconds=round(self._monotonic() - self._failing_since, 1),
        )  # fmt: skip

    def _note_failure(self, error: StoreFailed, pause_s: float) -> None:
        self.failures += 1
        self.failure = error
        free = self._journal.free_bytes
        _diagnostics.error(
            "a checkpoint failed: it is tried again, and the journal grows until one succeeds",
            why=str(error), next_try_s=0.0 if self._ending else pause_s,
            journal_can_grow_by="unknown" if free is None else f"{free >> 20} MiB",
        )  # fmt: skip

    async def _pause(self, seconds: float) -> None:
        """Until then, or until somebody asks for a checkpoint or for the end."""
        if not self._ending:
            self._wanted.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wanted.wait()
        if self._shard.stopped is not None:
            raise ShardStopped(str(self._shard.stopped))

    async def _breathe(self) -> None:
        """Gives the loop back, for longer than it was used: traffic comes first, unless checkpoints fall behind it."""
        used_s = self._monotonic() - self._resumed_at
        gathered = self._machine.totals.unsaved_bytes / self._settings.checkpoint_after
        await asyncio.sleep(0 if self._ending else used_s * max(0.0, _PATIENCE - gathered))
        self._resumed_at = self._monotonic()
