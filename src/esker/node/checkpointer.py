"""Runs checkpoints beside the traffic: small slices on the loop, the slow part in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from esker.engine.machine import Machine
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


class Checkpointer:
    def __init__(
        self,
        machine: Machine,
        shard: Shard,
        journal: Journal,
        store: Store,
        settings: Settings,
        watch: LoopWatch,
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

    def ask(self) -> None:
        """A checkpoint now, whether or not one is due."""
        self._wanted.set()

    async def run(self) -> None:
        """Checkpoints when one is due or asked for, and a last time after `end`."""
        while not self._ending:
            try:
                await asyncio.wait_for(self._wanted.wait(), _POLL_S)
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
        cut short would leave the next to claim a position without them.
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
        await self._persist()

    async def _persist(self) -> None:
        self._journal.expect_slow(True)
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._store.persist)
        finally:
            self._journal.expect_slow(False)

    async def _write(self, made: list[Slice]) -> None:
        """Writes slices once the journal holds every event that they reflect."""
        await self._shard.settled()
        self._resumed_at = self._monotonic()
        for piece in made:
            while not self._store.write(piece.puts, piece.deletes, piece.ranges):
                await self._persist()
            cool(self._machine, piece, min(self._settings.hot_payloads, self._machine.memory_limit // 4))
            await self._breathe()
        made.clear()

    async def _breathe(self) -> None:
        """Gives the loop back, for longer than it was used: traffic comes first, unless checkpoints fall behind it."""
        used_s = self._monotonic() - self._resumed_at
        gathered = self._machine.totals.unsaved_bytes / self._settings.checkpoint_after
        await asyncio.sleep(0 if self._ending else used_s * max(0.0, _PATIENCE - gathered))
        self._resumed_at = self._monotonic()
