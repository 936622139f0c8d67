"""Reading a log through both tiers: what the machine has is answered at once, what is in the archive is fetched.

The machine decides what a reader gets: floors, marks, gaps. For records that only a file has it says which (see
`replies.Archived`); they are fetched in a thread, and the limits of the read are applied here as the machine applies
them. Then the read goes on, until the reply is full or something must be told before what follows.

A file may leave between the two steps; then the machine is asked again. Files that were read last stay in memory, in
Arrow's form.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from esker.engine import limits
from esker.engine.commands import Command, Read
from esker.engine.replies import Archived, Record, Records, Reply
from esker.errors import ArchiveError

if TYPE_CHECKING:
    from esker.archive.interface import ArchiveStore
    from esker.archive.records import RecordsFile

# Bytes of files kept in memory for the next read. One that is larger is kept alone: who reads a file reads on in it.
CACHE_BYTES = 64 << 20
_THREADS = 4
_STEP_ROWS = 1024  # rows turned into records at a time


class _Picked(NamedTuple):
    records: list[Record]
    looked: int
    last: int  # the last seq looked at; `Archived.upto` when that is all


class ColdReader:
    """Lives on the loop. `number_of` gives the number of the topic that has a name now."""

    def __init__(
        self, archive: ArchiveStore, handle: Callable[[Command], Reply], number_of: Callable[[bytes], int | None]
    ) -> None:
        self._archive = archive
        self._handle = handle
        self._number_of = number_of
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="esker-archive-read")
        self._files: OrderedDict[str, RecordsFile] = OrderedDict()
        self._opening: dict[str, asyncio.Future[RecordsFile | None]] = {}
        self.files_read = 0

    async def read(self, command: Read) -> Reply:
        """Raises ArchiveError when the archive does not have what it should."""
        found: Records | None = None
        number = self._number_of(command.topic)
        asked, missing = command, ""
        while True:
            reply = self._handle(asked)
            if found is not None and not self._joins(reply, asked, number):
                return found
            if not isinstance(reply, Records) or reply.archived is None:
                return reply if found is None or not isinstance(reply, Records) else _join(found, reply)
            wanted = reply.archived
            part = await self._fetch(reply, wanted, alone=found is None)
            if part is None:
                if wanted.file == missing:
                    raise ArchiveError(f"{missing} is not in the archive at {self._archive.where}; put it back")
                missing = wanted.file
                continue
            found = part if found is None else _join(found, part)
            rest = _rest(command, found)
            if rest is None or part.next_from_seq < wanted.upto:
                return found
            asked = rest

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _joins(self, reply: Reply, asked: Read, number: int | None) -> bool:
        """Whether a further reply may be sent together with what was found before it."""
        if not isinstance(reply, Records) or reply.tombstone is not None or self._number_of(asked.topic) != number:
            return False
        if reply.records:  # one record always fits, but here it is not the only one
            return len(reply.records[0].data) + len(reply.records[0].meta) <= asked.max_bytes
        return True

    async def _fetch(self, reply: Records, wanted: Archived, alone: bool) -> Records | None:
        """None: the file is gone."""
        file = await self.file(wanted.file, wanted.sha256)
        if file is None:
            return None
        picked = await asyncio.get_running_loop().run_in_executor(self._pool, _pick, file, wanted, alone)
        last = max(reply.next_from_seq, picked.last)
        return msgspec.structs.replace(
            reply, records=picked.records, next_from_seq=last, scanned=reply.scanned + picked.looked, archived=None,
            files_read=1,
        )  # fmt: skip

    async def file(self, name: str, sha256: str) -> RecordsFile | None:
        """None: it is gone. Raises ArchiveError when it is damaged. `sha256`: its checksum, where it is known."""
        file = self._files.get(name)
        if file is not None:
            self._files.move_to_end(name)
            return file
        opening = self._opening.get(name)
        if opening is None:  # whoever comes meanwhile waits for the same
            opening = asyncio.get_running_loop().run_in_executor(self._pool, self._load, name, sha256)
            self._opening[name] = opening
            opening.add_done_callback(lambda done: self._opened(name, done))
        return await asyncio.shield(opening)

    def _load(self, name: str, sha256: str) -> RecordsFile | None:
        from esker.archive.records import RecordsFile

        data = self._archive.get(name)
        return None if data is None else RecordsFile(name, data, sha256)

    def _opened(self, name: str, done: asyncio.Future[RecordsFile | None]) -> None:
        del self._opening[name]
        if done.cancelled() or done.exception() is not None:
            return
        file = done.result()
        if file is None:
            return
        self.files_read += 1
        self._files[name] = file
        while len(self._files) > 1 and sum(each.size for each in self._files.values()) > CACHE_BYTES:
            self._files.popitem(last=False)


def _rest(command: Read, found: Records) -> Read | None:
    """What is left of a read; None: nothing is."""
    room = min(command.limit, limits.READ_RECORDS_MAX) - len(found.records)
    size = sum(len(record.data) + len(record.meta) for record in found.records)
    left = min(command.max_bytes, limits.READ_BYTES_MAX) - size
    if room <= 0 or left <= 0 or found.scanned >= limits.READ_LOOK_MAX or found.next_from_seq >= found.head_seq:
        return None
    return msgspec.structs.replace(command, after=found.next_from_seq, limit=room, max_bytes=left)


def _join(found: Records, more: Records) -> Records:
    return Records(
        [*found.records, *more.records], more.next_from_seq, more.head_seq, more.earliest_seq, found.tombstone,
        found.scanned + more.scanned, None, found.files_read + more.files_read,
    )  # fmt: skip


def _pick(file: RecordsFile, wanted: Archived, alone: bool) -> _Picked:
    """As the machine walks through a block (engine/logs/reading.py). `alone`: the first record fits, however large."""
    records: list[Record] = []
    looked = size = 0
    last = 0
    nodes = wanted.nodes
    for first, count in zip(wanted.runs[::2], wanted.runs[1::2], strict=True):
        seq, end = first, first + count
        while seq < end:
            step = min(end - seq, _STEP_ROWS if nodes else max(1, wanted.limit - len(records)))
            for record in file.records(seq, step):
                if len(records) >= wanted.limit or looked >= limits.READ_LOOK_MAX:
                    return _Picked(records, looked, last)
                if not nodes or not record.node or record.node not in nodes:
                    size += len(record.data) + len(record.meta)
                    if size > wanted.max_bytes and (records or not alone):
                        return _Picked(records, looked, last)
                    records.append(record)
                looked += 1
                last = record.seq
            seq += step
    return _Picked(records, looked, wanted.upto)
