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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import structlog

from esker.archive.opening import check_installed
from esker.engine.commands import Command, Lease, Read
from esker.engine.config import TopicConfig
from esker.engine.events import NodeStarted
from esker.engine.ids import place
from esker.engine.machine import Machine
from esker.engine.queues.job import JobState
from esker.engine.replies import Leased, Records, Reply
from esker.errors import ArchiveError, SettingsError, ShardStopped
from esker.journal.disk import Disk
from esker.journal.file import FileJournal
from esker.node.checkpointer import Checkpointer
from esker.node.clockkeeping import ClockKeeper, started_clock
from esker.node.cohorts import Answer, Claim
from esker.node.directory import DataDirectory
from esker.node.diskmeter import MeteredDisk
from esker.node.eventprocess import EventProcess
from esker.node.eventreading import EventRange, EventsWish, Histories
from esker.node.holding import Holding
from esker.node.interface import Facts
from esker.node.loading import Loading
from esker.node.loopwatch import LoopWatch
from esker.node.planning import Plan, Planner, PlanWish
from esker.node.ranges import Range, Ranges, RangeWish
from esker.node.recovery import Recovered, recover
from esker.node.settings import Settings, is_live
from esker.node.shard import Batch, Shard
from esker.node.snapshots import Snapshots
from esker.node.waiting import Waiter, WaitingRoom
from esker.node.watching import Watcher
from esker.store.cold import ColdStore
from esker.store.rocksdb import RocksStore

if TYPE_CHECKING:
    from esker.node.archiving import Archiving

_diagnostics = structlog.get_logger("esker.node")


class Node:
    """Opens the data directory and recovers; the shard serves from then on. Call it on the loop that will run it.

    `disk` stands in for the journal's disk; see `esker.testing.faults`.
    """

    def __init__(self, settings: Settings, disk: Disk | None = None) -> None:
        self.settings = settings
        self._meter = MeteredDisk()  # counts nothing when another disk stands in for it
        with contextlib.ExitStack() as opened:
            directory = DataDirectory(Path(settings.data))
            opened.callback(directory.close)
            self.node_id = directory.node_id
            # Kept open, so that a node without a descriptor left can still tell how it is.
            self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
            opened.callback(os.close, self._statm)
            self._event_process = EventProcess()
            opened.callback(self._event_process.close)
            self._archiving = _open_archive(settings, self.node_id, self._event_process)
            self._journal = FileJournal(
                directory.journal,
                segment_bytes=settings.segment_size,
                sync_interval_ms=settings.sync_interval_ms,
                inline=True,
                on_retire=None if self._archiving is None else self._archiving.history.may_go,
                disk=self._meter if disk is None else disk,
            )
            opened.callback(self._journal.close)
            if self._archiving is not None:
                opened.callback(self._archiving.close)
            self._store = RocksStore(directory.store)
            opened.callback(self._store.close)
            self._waiting = WaitingRoom()
            self._machine = Machine(Random(secrets.randbits(128)), ColdStore(self._store), self._waiting)
            self.recovered: Recovered = recover(self._machine, self._journal, self._store)
            self._event_process.know(self._machine)
            self._opened = opened.pop_all()  # closed again, in reverse order, by `close`
        self._apply_settings()
        self._machine.lazy_config = TopicConfig(durability=settings.queue_durability)
        self._clock = started_clock(directory.clock, self._machine.last_ms, settings.clock_jump_max_s * 1000)
        self._clock_keeper = ClockKeeper(directory.clock, self._clock)
        started = NodeStarted(self._clock.now_ms())
        self._machine.record(None, started, sync=False)  # goes with the first batch of this life
        self._shard = Shard(self._machine, self._journal, self._clock, self._waiting)
        self._shard.on_stop = self._shard_stopped
        self._watch = LoopWatch()
        self._checkpointer = Checkpointer(self._machine, self._shard, self._journal, self._store, settings, self._watch)
        self._checkpoints = asyncio.create_task(self._run_checkpoints(), name="checkpoints")
        if self._archiving is not None:
            self._archiving.start(self._machine, self._shard, self._journal, self._store, self._checkpointer)
        archiving = self._archiving
        self._ranges = Ranges(
            self._machine, self._store, self._shard.handle, None if archiving is None else archiving.file,
            directory.spool,
        )  # fmt: skip
        self._histories = Histories(
            directory.journal, self._shard, self._event_process, None if archiving is None else archiving.store
        )
        self._planner = Planner(
            self.node_id, self._machine, self._journal, self._shard.handle, self._clock.now_ms,
            None if archiving is None else archiving.store, self._histories, self._ranges.folder,
        )  # fmt: skip
        self.loads = Loading(self._machine, self._shard, directory.loads, self._meter if disk is None else disk)
        self._opened.callback(self.loads.close)
        self.loads.start()
        self.snapshots = Snapshots(self._machine, self._shard, directory.snapshots)
        self.stop_asked = asyncio.Event()
        self.started_at = time.time()
        # Bound once: these are called for every command.
        self.handle: Callable[[Command], Reply] = self._shard.handle
        self.commit: Callable[[], None] = self._shard.commit
        self.lasts: Callable[[Leased], bool] = self._shard.lasts
        self.now_ms: Callable[[], int] = self._clock.now_ms
        for note in self._journal.notes:
            _diagnostics.warning("journal", note=note)

    # -- what fronts use (node/interface.py)

    @property
    def gate(self) -> Batch | None:
        return self._shard.gate

    async def read(self, command: Read) -> Reply:
        if self._archiving is not None:
            return await self._archiving.read(command)
        reply = self.handle(command)
        if isinstance(reply, Records) and reply.archived is not None:
            raise ArchiveError(f"{reply.archived.file} is in an archive, and this node was started without its setting")
        return reply

    def read_range(self, wish: RangeWish) -> Range:
        return self._ranges.open(wish)

    async def read_events(self, wish: EventsWish) -> EventRange:
        return await self._histories.open(wish)

    async def plan(self, wish: PlanWish) -> Plan:
        return await self._planner.plan(wish)

    def wait_for_jobs(
        self,
        topics: Sequence[bytes],
        timeout_ms: int,
        deliver: Callable[[Leased | None], None],
        lease: Lease | None = None,
        taker: int = 0,
    ) -> Waiter:
        return self._shard.wait_for_jobs(topics, timeout_ms, deliver, lease, taker)

    def claim(self, command: Lease, deliver: Answer) -> Claim:
        return self._shard.claim(command, deliver)

    def watch_leases(self, topic: bytes, holder: bytes, wake: Callable[[], None]) -> Holding:
        return self._shard.watch_leases(topic, holder, wake)

    def still_held(self, topic: bytes, leases: Mapping[int, int]) -> dict[int, int]:
        return self._shard.still_held(topic, leases)

    def watch(self, topics: Sequence[bytes], wake: Callable[[], None]) -> Watcher:
        return self._shard.watch(topics, wake)

    def revision(self, topic: bytes) -> int:
        return self._shard.revision(topic)

    def config_of(self, topic: bytes) -> TopicConfig | None:
        found = self._machine.names.get(topic)
        return None if found is None else found.config

    def topic_of(self, message_id: int) -> bytes | None:
        found = self._machine.topics.get(place(message_id).topic)
        return None if found is None else found.name

    def given_config(self, topic: bytes) -> TopicConfig | None:
        found = self._machine.names.get(topic)
        return None if found is None or found.lazy else found.config

    def blocked_on(self, topic: bytes) -> int:
        return self._waiting.count(topic)

    def checkpoint(self) -> None:
        self._checkpointer.ask()

    def shutdown(self) -> None:
        self._journal.hurry()
        self.stop_asked.set()

    def reconfigure(self, key: str, value: str) -> None:
        if not is_live(key):
            raise SettingsError(f"setting {key!r} is unknown or cannot be changed while the node runs")
        self.settings.set(key, value)
        self._apply_settings()
        if key == "clock_jump_max_s":
            self._clock.trust(self.settings.clock_jump_max_s * 1000)
            self._clock_keeper.report()

    @property
    def stopped(self) -> ShardStopped | None:
        """Why the node no longer serves, if so."""
        return self._shard.stopped

    @property
    def stalled(self) -> str | None:
        if self._journal.waits_for is None:
            return None
        return "the journal waits for space, or a file descriptor, for a new segment: no change is answered until then"

    @property
    def problem(self) -> str | None:
        refusal, failing_s = self._machine.refuse_new, self._checkpointer.failing_s
        problems = [] if refusal is None else [refusal.message]
        if (stalled := self.stalled) is not None:
            problems.append(stalled)
        if self._checkpointer.failure is not None:
            problems.append(f"checkpoints have failed for {failing_s:.0f} s: the journal grows until one succeeds")
        return "; ".join(problems) or None

    def counts(self) -> tuple[int, int]:
        return len(self._machine.names), len(self._machine.routers.numbers)

    def facts(self) -> Facts:
        machine, checkpointer = self._machine, self._checkpointer
        states = {
            f"jobs_{state.name.lower()}": sum(topic.count(state) for topic in machine.topics.values())
            for state in JobState
        }
        return {
            "Memory": {
                "used_memory": machine.memory_bytes(),
                "used_memory_rss": self._resident_bytes(),
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
                "journal_pending": self._shard.pending,
                "journal_pending_peak": self._shard.pending_peak,
                "journal_read_only": int(self._shard.stopped is not None or self._machine.refuse_new is not None),
                "journal_waits_for": " ".join((self._journal.waits_for or "").split()),
                "journal_free_bytes": -1 if self._journal.free_bytes is None else self._journal.free_bytes,
                "checkpoint_in_progress": int(checkpointer.running),
                "checkpoint_position": checkpointer.last_position,
                "checkpoint_last_seconds": round(checkpointer.last_seconds, 3),
                "checkpoint_age_seconds": round(time.monotonic() - checkpointer.last_at, 1),
                "checkpoint_failures": checkpointer.failures,
                "checkpoint_failing_seconds": round(checkpointer.failing_s, 1),
                "checkpoint_error": _line(checkpointer.failure),
                "stopped": _line(self._shard.stopped),
                "recovered_events": self.recovered.events,
                "recovery_seconds": round(self.recovered.seconds, 3),
            },
            "Clock": {"clock_held": int(self._clock.held), "clock_drift_ms": self._clock.drift_ms},
            "Disk": self._meter.facts(),
            **({} if self._archiving is None else {"Archive": self._archiving.facts()}),
            "Loads": self.loads.figures(),
            "Loop": {**self._watch.facts(), "checkpoints_done": checkpointer.done},
        }

    # -- ending

    async def close(self) -> None:
        """Finishes what was accepted, checkpoints, and lets go of the directory."""
        await self.snapshots.close()
        await self.loads.end()
        if self._archiving is not None:
            await self._archiving.end()
        self._shard.close()
        if self._shard.stopped is None:
            with contextlib.suppress(ShardStopped):  # the shard has said why to all who wait, and to the operator
                await self._shard.settled()
                self._machine.release_reserves()
        self._checkpointer.end()
        await self._checkpoints
        self._watch.close()
        self._clock_keeper.close()
        self._ranges.close()
        self._planner.close()
        self._histories.close()
        self._opened.close()

    async def _run_checkpoints(self) -> None:
        try:
            await self._checkpointer.run()
        except Exception as error:  # noqa: BLE001 whatever it is, the shard must not go on without checkpoints
            self._shard.stop(error)

    def _shard_stopped(self, why: ShardStopped) -> None:
        _diagnostics.critical("shard stopped", why=str(why))

    def _resident_bytes(self) -> int:
        return int(os.pread(self._statm, 256, 0).split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def _apply_settings(self) -> None:
        self._machine.memory_limit = self.settings.memory_limit_bytes
        self._machine.topics_max = self.settings.max_topics


def _open_archive(settings: Settings, node_id: str, events: EventProcess) -> Archiving | None:
    if not settings.archive:
        return None
    check_installed()
    from esker.node.archiving import Archiving  # brings pyarrow along, which a node without an archive never loads

    return Archiving(settings, node_id, events)


def _line(error: BaseException | None) -> str:
    """INFO has a fact a line."""
    return "" if error is None else " ".join(str(error).split())
