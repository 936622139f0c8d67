"""A node on a virtual loop: the real machine, shard, checkpointer, journal, archive mover and recovery, without fronts.

    data ─ VirtualJournal on a RamDisk ─ any store ─ recovery ─ shard ─ checkpointer ─ mover and reader of the archive

It is put together as `esker.node.runtime.Node` puts them together. Disk, store and archive come from the caller and
outlive it: `kill` ends the node as a power cut or `kill -9` would, then the next one is made on what they kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

from esker.archive.interface import ArchiveStore
from esker.engine.commands import Read
from esker.engine.events import NodeStarted
from esker.engine.machine import Machine
from esker.engine.replies import Reply
from esker.errors import ShardStopped
from esker.journal.disk import Disk
from esker.node.checkpointer import Checkpointer
from esker.node.clock import Clock
from esker.node.coldreading import ColdReader
from esker.node.loopwatch import LoopWatch
from esker.node.moving import Mover
from esker.node.recovery import Recovered, recover
from esker.node.settings import Settings
from esker.node.shard import Shard
from esker.node.waiting import WaitingRoom
from esker.store.cold import ColdStore
from esker.store.interface import Store
from esker.testing.virtual_journal import VirtualJournal
from esker.testing.virtual_loop import VirtualLoop

START_S = 1_700_000_000.0
JOURNAL = Path("journal")
FLUSH_BYTES = 4096  # a checkpoint persists what it wrote after so many: little, so that it does so often


class VirtualNode:
    """Recovers, and serves from then on. To be made on the loop that runs it. `archive` None: it has none.

    `on_append` hears of every batch: its position, and what it holds.
    """

    def __init__(
        self,
        settings: Settings,
        disk: Disk,
        store: Store,
        archive: ArchiveStore | None,
        dice: Random,
        on_append: Callable[[int, bytes], None] | None = None,
        on_written: Callable[[int], None] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            raise TypeError(f"a VirtualNode runs on a VirtualLoop, not on {type(loop).__name__}")
        self._loop = loop
        self._dice = dice
        self._spent_s = 0.0
        self.settings = settings
        self.store = store
        self.failure: Exception | None = None  # why a task of it ended, if one did
        self.journal = _HeardJournal(
            JOURNAL,
            segment_bytes=settings.segment_size,
            sync_interval_ms=settings.sync_interval_ms,
            reserve_bytes=0,
            inline=True,
            disk=disk,
        )
        self.journal.on_append, self.journal.on_written = on_append, on_written
        waiting = WaitingRoom()
        self.machine = Machine(Random(dice.getrandbits(64)), ColdStore(store), waiting)
        self.recovered: Recovered = recover(self.machine, self.journal, store)
        self.recovered_position = self.journal.last_position  # what the journal had
        self.machine.memory_limit = settings.memory_limit_bytes
        clock = Clock(self.machine.last_ms, lambda: START_S + loop.time(), loop.time)
        self.machine.record(None, NodeStarted(clock.now_ms()), sync=False)
        self.shard = Shard(self.machine, self.journal, clock, waiting)
        self.now_ms = clock.now_ms
        self._watch = LoopWatch()
        self.checkpointer = Checkpointer(
            self.machine, self.shard, self.journal, store, settings, self._watch, flush_bytes=FLUSH_BYTES,
            monotonic=self._monotonic,
        )  # fmt: skip
        self._checkpoints = loop.create_task(self._guard(self.checkpointer.run), name="checkpoints")
        self._tasks = [self._checkpoints]
        self.mover: Mover | None = None
        self._reader: ColdReader | None = None
        if archive is not None:
            self._reader = ColdReader(archive, self.shard.handle, self._number_of)
            self.mover = Mover(
                self.machine, self.shard, self.journal, store, self.checkpointer, archive, settings, self._monotonic
            )
            self._tasks.append(loop.create_task(self._guard(self.mover.run), name="archive"))

    def _monotonic(self) -> float:
        """Computing takes some time as well: without it nothing would ever give way to others."""
        self._spent_s += self._dice.choice((0.0, 0.0, 0.0001, 0.002))
        return self._loop.time() + self._spent_s

    def _number_of(self, name: bytes) -> int | None:
        topic = self.machine.names.get(name)
        return None if topic is None else topic.number

    async def _guard(self, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
        except ShardStopped:
            return
        except Exception as error:  # noqa: BLE001 told to whoever looks at the node
            self.failure = self.failure or error
            self.shard.stop(error)

    async def read(self, command: Read) -> Reply:
        return self.shard.handle(command) if self._reader is None else await self._reader.read(command)

    async def close(self) -> None:
        """An orderly end, as `Node.close`."""
        if self.mover is not None:
            self.mover.end()
            await self._tasks[1]
            self.mover.close()
        self.shard.close()
        if self.shard.stopped is None:
            await self.shard.settled()
            self.machine.release_reserves()
        self.checkpointer.end()
        await self._checkpoints
        self._watch.close()
        if self._reader is not None:
            self._reader.close()
        self.journal.close()

    async def kill(self) -> None:
        """Nothing of it does anything any more. Its disk must be dead by now, and its store must take nothing."""
        self._loop.end_threads()
        self.shard.stopped = self.shard.stopped or ShardStopped("the process was killed")
        self.shard.close()
        self._watch.close()
        while not all(task.done() for task in self._tasks):  # asyncio.wait_for may take a cancellation for a result
            for task in self._tasks:
                task.cancel()
            await asyncio.sleep(0)
        self._loop.end_threads()
        if self.mover is not None:
            self.mover.close()
        if self._reader is not None:
            self._reader.close()


class _HeardJournal(VirtualJournal):
    on_append: Callable[[int, bytes], None] | None = None
    on_written: Callable[[int], None] | None = None

    def append(self, batch: bytes, sync: bool, done: Callable[[BaseException | None], None]) -> int:
        position = self.last_position + 1
        if self.on_append is not None:
            self.on_append(position, batch)

        def answered(error: BaseException | None) -> None:
            if error is None and self.on_written is not None:
                self.on_written(position)
            done(error)

        return super().append(batch, sync, answered)
