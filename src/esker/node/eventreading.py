"""The history as columns: from the journal's segments, and from the archive for what has left them.

A range is read from wherever its next position is: a segment, through the worker (eventprocess.py), or an events file.
A segment may go at any time, but only after its events are in the archive, so what is no longer in the one is in the
other: looking again, at the segments first, finds it. Positions have no holes, so every row is told once.

Only what is on disk is told. A range without an end ends with all that was decided when it was asked for.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from esker.archive.paths import EVENTS
from esker.columns.eventwish import Wanted
from esker.errors import ArchiveError, EskerError, InvariantBroken, ShardStopped
from esker.journal.disk import RealDisk
from esker.journal.segment import segment_paths
from esker.node.eventprocess import EventProcess, WorkerLost
from esker.node.eventwire import Answer, ReadEvents, Rows
from esker.node.shard import Shard

if TYPE_CHECKING:
    from esker.archive.interface import ArchiveStore

_THREADS = 2
_TRIES = 3  # without a row gained, before it counts as lost
_GAPS_MAX = 100  # told
_NAME = re.compile(r"events/day=\d{4}-\d\d-\d\d/(\d{20})-(\d{20})\.parquet")


class EventsRefused(EskerError):
    """The range cannot be read as it was asked for; `code` is a stable word."""

    def __init__(self, code: str, message: str, detail: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.detail = detail or {}


class EventsLost(EskerError):
    """What was there when the range was opened is no longer, or cannot be read."""


class EventsWish(msgspec.Struct, frozen=True):
    """Positions from `start` (None: the oldest there is) to before `end` (None: all that is on disk)."""

    wanted: Wanted
    start: int | None = None
    end: int | None = None


class Source(NamedTuple):
    """Where a position is: a segment's path, or the name of an events file. `end`: what it can tell ends before it."""

    name: str
    end: int
    archived: bool


class Sources:
    """All segments and files, as they were found."""

    def __init__(self, segments: Sequence[tuple[int, Path]], files: Sequence[tuple[int, int, str]], end: int) -> None:
        """Both in order; `end` is behind the last position."""
        self._segments = segments
        self.files = files
        self._end = end

    @property
    def first(self) -> int:
        """The oldest position from which on nothing is missing."""
        oldest = min([self._end, *self._firsts()])
        gaps = self.gaps(oldest, self._end)
        return gaps[-1][1] + 1 if gaps else oldest

    def _firsts(self) -> list[int]:
        return [*(each[0] for each in self._segments), *(each[0] for each in self.files)]

    def find(self, position: int) -> Source | None:
        """The journal comes first: of what is in both, it needs no fetching."""
        place = bisect_right(self._segments, position, key=lambda segment: segment[0])
        if place:
            end = self._segments[place][0] if place < len(self._segments) else self._end
            return Source(str(self._segments[place - 1][1]), end, archived=False)
        place = bisect_right(self.files, position, key=lambda file: file[0])
        if place and self.files[place - 1][1] >= position:
            _, last, name = self.files[place - 1]
            return Source(name, last + 1, archived=True)
        return None

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """What of a range is nowhere: first and last positions."""
        gaps: list[tuple[int, int]] = []
        position = start
        while position < end:
            source = self.find(position)
            if source is None:
                until = min([end, *(first for first in self._firsts() if first > position)])
                gaps.append((position, until - 1))
                position = until
            else:
                position = source.end
        return gaps


class Layout(NamedTuple):
    """Positions: of the oldest event, behind the newest on disk, and behind the newest that `files` have."""

    first: int
    next: int
    hot_from: int
    files: Sequence[tuple[int, int, str]]


class Histories:
    """Lives on the loop. `archive` None: there is none."""

    def __init__(self, journal: Path, shard: Shard, process: EventProcess, archive: ArchiveStore | None) -> None:
        self._journal = journal
        self._shard = shard
        self._archive = archive
        self.process = process
        self._closed = False
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="esker-events")

    async def open(self, wish: EventsWish) -> EventRange:
        """Raises EventsRefused, and ShardStopped when nothing can be said any more."""
        known = await self._known()
        end = known if wish.end is None else wish.end
        if end > known:
            raise EventsRefused("invalid_request", f"to is {end}; the next position is {known}")
        sources = await self.sources(known)
        start = min(sources.first, end) if wish.start is None else wish.start
        if start > end:
            raise EventsRefused("invalid_request", f"from is {start}, which is behind to, {end}")
        gaps = sources.gaps(start, end)
        if gaps:
            shown = [{"first": first, "last": last} for first, last in gaps[:_GAPS_MAX]]
            raise EventsRefused(
                "data_loss",
                f"events of positions {gaps[0][0]} to {gaps[0][1]} are neither in the journal nor in an archive",
                {"gaps": shown, "first": sources.first},
            )
        return EventRange(self, sources, wish.wanted, start, end)

    async def layout(self) -> Layout:
        """Where the history is. Positions below `next` are on disk, so that no crash gives them to other events."""
        known = await self._known()
        sources = await self.sources(known)
        files = sources.files
        return Layout(sources.first, known, files[-1][1] + 1 if files else sources.first, files)

    async def _known(self) -> int:
        """The position behind all that was decided until now, once it is on disk."""
        if self._shard.stopped is not None:
            raise ShardStopped(str(self._shard.stopped))
        known = self._shard.flush() + 1
        await self._shard.settled()
        return known

    async def sources(self, end: int) -> Sources:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._look, end)

    async def ask(self, request: ReadEvents) -> tuple[Rows, bytes]:
        """A worker that dies is asked once more, after a new start. Raises WorkerLost and WorkerFailed."""
        try:
            answer, data = await self._ask(request)
        except WorkerLost:
            answer, data = await self._ask(request)
        if not isinstance(answer, Rows):
            raise InvariantBroken(f"the worker answered {type(answer).__name__} where Rows was promised")
        return answer, data

    async def _ask(self, request: ReadEvents) -> tuple[Answer, bytes]:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.process.ask, request)

    async def leave(self, cursor: int) -> None:
        if not self._closed:
            await asyncio.get_running_loop().run_in_executor(self._pool, self.process.leave, cursor)

    async def messages(self, name: str, wanted: Wanted, start: int, end: int) -> AsyncIterator[bytes]:
        """The rows of an events file. Raises ArchiveError."""
        loop = asyncio.get_running_loop()
        made = await loop.run_in_executor(self._pool, self._open_file, name, wanted, start, end)
        while (message := await loop.run_in_executor(self._pool, next, made, None)) is not None:
            yield message

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    # -- in threads

    def _look(self, end: int) -> Sources:
        """Segments first: one that goes meanwhile is in the archive by then."""
        segments = segment_paths(RealDisk(), self._journal)
        files: list[tuple[int, int, str]] = []
        for name in () if self._archive is None else self._archive.names(EVENTS):
            match = _NAME.fullmatch(name)
            if match is not None:
                files.append((int(match[1]), int(match[2]), name))
        return Sources(segments, sorted(files), end)

    def _open_file(self, name: str, wanted: Wanted, start: int, end: int) -> Iterator[bytes]:
        from esker.columns.eventfiles import events_of

        data = None if self._archive is None else self._archive.get(name)
        if data is None:
            raise ArchiveError(f"{name} is not in the archive; put it back")
        return events_of(name, data, wanted, start, end)


class EventRange:
    """A range that can be read, and all of which was somewhere when it was opened."""

    def __init__(self, histories: Histories, sources: Sources, wanted: Wanted, start: int, end: int) -> None:
        self._histories = histories
        self._sources = sources
        self._wanted = wanted
        self._cursor = next(histories.process.cursors)
        self.start = start
        self.end = end

    async def pieces(self) -> AsyncIterator[bytes]:
        """The Arrow stream of all of it. Raises EventsLost and ArchiveError."""
        from esker.columns.arrow import END, PIECE_BYTES, schema_piece
        from esker.columns.events import schema_of

        opening = schema_piece(schema_of(self._wanted))
        try:
            async for messages in self._messages():
                if opening:  # only now: until the first rows are there, it can be told that they are not
                    yield opening
                    opening = b""
                for start in range(0, len(messages), PIECE_BYTES):
                    yield messages[start : start + PIECE_BYTES]
        finally:
            await asyncio.shield(self._histories.leave(self._cursor))
        yield opening + END

    async def _messages(self) -> AsyncIterator[bytes]:
        position, fruitless = self.start, 0
        while position < self.end:
            source = self._sources.find(position)
            if source is None or fruitless:
                self._sources = await self._histories.sources(self.end)
                source = self._sources.find(position)
            if source is None or fruitless >= _TRIES:
                raise EventsLost(f"events from position {position} on can no longer be read")
            end = min(source.end, self.end)
            if source.archived:
                async for messages in self._histories.messages(source.name, self._wanted, position, end):
                    yield messages
                position = end
            else:
                request = ReadEvents(self._cursor, source.name, position, end, self._wanted)
                answer, messages = await self._histories.ask(request)
                if messages:
                    yield messages
                fruitless = fruitless + 1 if answer.gone and answer.next == position else 0
                position = answer.next
