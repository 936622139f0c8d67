"""The archive of a node, put together: moving records there, reading them, and keeping the history of events.

Only a node with the setting `archive` imports this, and with it pyarrow.
"""

from __future__ import annotations

import asyncio

import structlog

from esker.archive.interface import ArchiveStore
from esker.archive.opening import open_archive
from esker.archive.records import RecordsFile
from esker.engine.commands import Read
from esker.engine.machine import Machine
from esker.engine.replies import Reply
from esker.errors import ShardStopped
from esker.journal.interface import Journal
from esker.node.checkpointer import Checkpointer
from esker.node.coldreading import ColdReader
from esker.node.eventprocess import EventProcess
from esker.node.history import History
from esker.node.moving import Mover
from esker.node.settings import Settings
from esker.node.shard import Shard
from esker.store.interface import Store

_diagnostics = structlog.get_logger("esker.archive")


class Archiving:
    """Raises SettingsError when the archive cannot be used. `history` serves from now on, the rest after `start`."""

    def __init__(self, settings: Settings, node_id: str, events: EventProcess) -> None:
        self._settings = settings
        self._archive = open_archive(settings.archive, node_id)
        self.history = History(self._archive, events)
        self._mover: Mover | None = None
        self._reader: ColdReader | None = None
        self._moving: asyncio.Task[None] | None = None

    def start(self, machine: Machine, shard: Shard, journal: Journal, store: Store, checkpointer: Checkpointer) -> None:
        """After the recovery, on the loop."""

        def number_of(name: bytes) -> int | None:
            topic = machine.names.get(name)
            return None if topic is None else topic.number

        self._reader = ColdReader(self._archive, shard.handle, number_of)
        self._mover = Mover(machine, shard, journal, store, checkpointer, self._archive, self._settings)
        self._moving = asyncio.create_task(self._move(self._mover), name="archive")

    async def read(self, command: Read) -> Reply:
        assert self._reader is not None, "read before start"
        return await self._reader.read(command)

    async def file(self, name: str, sha256: str) -> RecordsFile | None:
        """A file with records; None: it is gone. `sha256`: its checksum, where it is known."""
        assert self._reader is not None, "read before start"
        return await self._reader.file(name, sha256)

    @property
    def store(self) -> ArchiveStore:
        return self._archive

    def facts(self) -> dict[str, int | float | str]:
        facts: dict[str, int | float | str] = {
            "archive": self._archive.where,
            "history_segments": self.history.segments,
        }
        if self._mover is not None and self._reader is not None:
            facts["files_written"] = self._mover.files_written
            facts["records_moved"] = self._mover.records_moved
            facts["files_read"] = self._reader.files_read
        return facts

    async def end(self) -> None:
        """Moves no more. Reads and the history go on until `close`."""
        if self._mover is not None and self._moving is not None:
            self._mover.end()
            await self._moving
            self._mover.close()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self.history.close()

    async def _move(self, mover: Mover) -> None:
        try:
            await mover.run()
        except ShardStopped:
            return  # told elsewhere; a restart goes on
        except Exception as error:  # noqa: BLE001 the node serves on without it, and somebody must know
            _diagnostics.error("nothing is moved to the archive any more", why=f"{type(error).__name__}: {error}")
