"""A node: everything that one process runs, put together, started and stopped in order.

data directory ─ journal ─ store ─ recovery ─ machine ─ shard ─ checkpointer ─ (fronts, by the caller)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import structlog

from esker.engine.commands import Command
from esker.engine.config import TopicConfig
from esker.engine.machine import Machine
from esker.engine.queues.job import JobState
from esker.engine.replies import Leased, Reply
from esker.errors import SettingsError, ShardStopped
from esker.journal.disk import Disk
from esker.journal.file import FileJournal
from esker.node.checkpointer import Checkpointer
from esker.node.clock import Clock
from esker.node.directory import DataDirectory
from esker.node.interface import Facts
from esker.node.loopwatch import LoopWatch
from esker.node.recovery import Recovered, recover
from esker.node.settings import Settings, is_live
from esker.node.shard import Batch, Shard
from esker.node.waiting import Waiter, WaitingRoom
from esker.store.jobs import cold_payload
from esker.store.rocksdb import RocksStore

_diagnostics = structlog.get_logger("esker.node")


class Node:
    """Opens the data directory and recovers; the shard serves from then on. Call it on the loop that will run it.

    `disk` stands in for the journal's disk; see `esker.testing.faults`.
    """

    def __init__(self, settings: Settings, disk: Disk | None = None) -> None:
        self.settings = settings
        with contextlib.ExitStack() as opened:
            directory = DataDirectory(Path(settings.data))
            opened.callback(directory.close)
            self.node_id = directory.node_id
            self._journal = FileJournal(
                directory.journal,
                segment_bytes=settings.segment_size,
                sync_interval_ms=settings.sync_interval_ms,
                inline=True,
                disk=disk,
            )
            opened.callback(self._journal.close)
            self._store = RocksStore(directory.store)
            opened.callback(self._store.close)
            self._waiting = WaitingRoom()
            self._machine = Machine(
                Random(secrets.randbits(128)), lambda *place: cold_payload(self._store, *place), self._waiting
            )
            self.recovered: Recovered = recover(self._machine, self._journal, self._store)
            self._opened = opened.pop_all()  # closed again, in reverse order, by `close`
        self._apply_settings()
        self._machine.lazy_config = TopicConfig(durability=settings.queue_durability)
        self._clock = Clock(self._machine.last_ms)
        self._shard = Shard(self._machine, self._journal, self._clock, self._waiting)
        self._shard.on_stop = self._shard_stopped
        self._watch = LoopWatch()
        self._checkpointer = Checkpointer(self._machine, self._shard, self._journal, self._store, settings, self._watch)
        self._checkpoints = asyncio.create_task(self._run_checkpoints(), name="checkpoints")
        self.stop_asked = asyncio.Event()
        self.started_at = time.time()
        # Bound once: these are called for every command.
        self.handle: Callable[[Command], Reply] = self._shard.handle
        self.now_ms: Callable[[], int] = self._clock.now_ms
        for note in self._journal.notes:
            _diagnostics.warning("journal", note=note)

    # -- what fronts use (node/interface.py)

    @property
    def gate(self) -> Batch | None:
        return self._shard.gate

    def wait_for_jobs(
        self, topics: Sequence[bytes], timeout_ms: int, deliver: Callable[[Leased | None], None]
    ) -> Waiter:
        return self._shard.wait_for_jobs(topics, timeout_ms, deliver)

    def blocked_on(self, topic: bytes) -> int:
        return self._waiting.count(topic)

    def checkpoint(self) -> None:
        self._checkpointer.ask()

    def shutdown(self) -> None:
        self.stop_asked.set()

    def reconfigure(self, key: str, value: str) -> None:
        if not is_live(key):
            raise SettingsError(f"setting {key!r} is unknown or cannot be changed while the node runs")
        self.settings.set(key, value)
        self._apply_settings()

    @property
    def stopped(self) -> ShardStopped | None:
        """Why the node no longer serves, if so."""
        return self._shard.stopped

    def facts(self) -> Facts:
        machine, checkpointer = self._machine, self._checkpointer
        states = {
            f"jobs_{state.name.lower()}": sum(topic.count(state) for topic in machine.topics.values())
            for state in JobState
        }
        return {
            "Memory": {
                "used_memory": machine.memory_bytes(),
                "used_memory_rss": _resident_bytes(),
                "used_memory_peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "hot_payload_bytes": machine.totals.hot_bytes,
                "maxmemory": machine.memory_limit,
            },
            "Jobs": {"registered_jobs": machine.totals.jobs, **states},
            "Queues": {"registered_queues": len(machine.topics)},
            "Persistence": {
                "loading": 0,
                "journal_position": self._journal.last_position,
                "journal_batches": self._shard.batches,
                "journal_events": self._shard.events,
                "checkpoint_in_progress": int(checkpointer.running),
                "checkpoint_position": checkpointer.last_position,
                "checkpoint_last_seconds": round(checkpointer.last_seconds, 3),
                "recovered_events": self.recovered.events,
                "recovery_seconds": round(self.recovered.seconds, 3),
            },
            "Loop": {**self._watch.facts(), "checkpoints_done": checkpointer.done},
        }

    # -- ending

    async def close(self) -> None:
        """Finishes what was accepted, checkpoints, and lets go of the directory."""
        self._shard.close()
        if self._shard.stopped is None:
            await self._shard.settled()
            self._machine.release_reserves()
        self._checkpointer.end()
        await self._checkpoints
        self._watch.close()
        self._opened.close()

    async def _run_checkpoints(self) -> None:
        try:
            await self._checkpointer.run()
        except Exception as error:  # noqa: BLE001 whatever it is, the shard must not go on without checkpoints
            self._shard.stop(error)

    def _shard_stopped(self, why: ShardStopped) -> None:
        _diagnostics.critical("shard stopped", why=str(why))

    def _apply_settings(self) -> None:
        self._machine.memory_limit = self.settings.memory_limit_bytes


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
