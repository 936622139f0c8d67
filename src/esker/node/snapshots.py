"""Snapshots of queues for bulk readers: taken in one turn of the loop, gathered beside the traffic, kept as files.

    take    one turn: the journal position, and a view of the queue as it is there (engine/queues/snapshot.py)
    walk    slices of about a millisecond on the loop, with pauses for everybody else
    write   a thread turns `CHUNK_JOBS` jobs at a time into a chunk, a file that is a whole Arrow stream
    read    whoever asks for a chunk waits until it is there

A reader may be slow or dead: the walk does not wait for it, and what it has not fetched lies on the disk, not in
memory. The walk waits for the disk only, and then at most `CHUNKS_AHEAD` chunks are in memory.

As long as a queue does not change, whoever asks for the same of it gets the same snapshot.

Who is done with a snapshot need not say so. Those that are gathered stay as long as there is room; when a new one needs
it, those go that nobody has used for longest. Nothing here survives the process: what an earlier life has left is
removed at the start.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

import structlog

from esker.engine.machine import Machine
from esker.engine.queues.snapshot import Piece, QueueView, Selection
from esker.engine.topic import Topic
from esker.errors import InvariantBroken, SnapshotProblem, SnapshotRefused, quoted
from esker.journal.patience import OUT_OF_SPACE
from esker.node.directory import FREE_BYTES_MIN
from esker.node.shard import Shard

if TYPE_CHECKING:
    from esker.columns.jobs import Source

CHUNK_JOBS: Final = 65_536  # in one file
CHUNKS_AHEAD: Final = 2  # gathered and not yet written; each holds some 10 MiB and the payloads that left meanwhile
GATHERING_MAX: Final = 4  # at a time: each keeps what its queue loses meanwhile
SNAPSHOTS_MAX: Final = 64  # all of them, so that what is told of them stays small
SPARED_S: Final = 60.0  # since its last use one does not make room for others: its reader is likely to come back
EXPIRES_S: Final = 15 * 60.0  # after the last use
_ROW_BYTES: Final = 256  # of a job in a file beyond its payload, about
_SLICE_S: Final = 0.001  # how long the walk keeps the loop at a time
_OTHERS_S: Final = 0.000_1  # others who take longer than this when they get the loop have work to do
_LOOK_S: Final = 10.0  # between looks for snapshots that expired

_diagnostics = structlog.get_logger("esker.snapshots")


class Taken(NamedTuple):
    """What a snapshot is, told at once. `jobs`: of the whole queue, whatever is wanted of it."""

    snapshot: str
    position: int
    epoch: int
    jobs: int
    chunks: int
    expires_ms: int


class _Snapshot:
    def __init__(
        self,
        source: Source,
        view: QueueView,
        directory: Path,
        chunks: int,
        gather: Callable[[_Snapshot], Coroutine[None, None, None]],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.source = source
        self.view = view
        self.directory = directory
        self.chunks: list[asyncio.Future[Path]] = [loop.create_future() for _ in range(chunks)]
        self.used_at = loop.time()
        self.readers = 0
        self.takers = 1  # who were given it, and have not said that they are done
        self.bytes = 0  # of its files
        self.broken: BaseException | None = None
        self.writing: set[asyncio.Future[Path]] = set()
        self.walk = loop.create_task(gather(self), name=f"snapshot of {quoted(source.name)}")

    def serves(self, source: Source) -> bool:
        """Whether it is what somebody would get who asks now."""
        return self.broken is None and self.view.current and self.source == source

    def fail(self, error: BaseException) -> None:
        self.broken = error
        for chunk in self.chunks:
            if not chunk.done():
                chunk.set_exception(error)
                chunk.exception()  # it is told to whoever asks, and to nobody else


class Snapshots:
    """Lives on the loop."""

    def __init__(self, machine: Machine, shard: Shard, directory: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._machine = machine
        self._shard = shard
        self._directory = directory.absolute()
        self._snapshots: dict[str, _Snapshot] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="esker-snapshots")
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._walking = asyncio.Lock()
        self._leaving: dict[asyncio.Task[None], int] = {}  # removals under way, and the bytes they free
        self.expires_s = EXPIRES_S
        if directory.exists():
            shutil.rmtree(directory)

    async def prepare(self, columns: Sequence[str] | None) -> None:
        """To be awaited before `take`: loads what columns need, which takes a moment. Raises UnknownColumn."""
        # Not in the pool: whoever asks would wait behind chunks that are being written.
        await self._loop.run_in_executor(None, _source, b"", 0, Selection(), columns)

    def take(self, topic: bytes, wanted: Selection, columns: Sequence[str] | None) -> Taken:
        """The queue of this name, which must be there, as it is now. Raises SnapshotRefused."""
        queue = self._machine.names[topic]
        source = _source(topic, queue.number, wanted, columns)
        for name, snapshot in self._snapshots.items():
            if snapshot.serves(source):
                snapshot.takers += 1
                snapshot.used_at = self._loop.time()
                return self._taken(name, snapshot, queue)
        payload_bytes = sum(partition.bytes for partition in queue.partitions) if source.has("value") else 0
        name = secrets.token_hex(16)
        directory = self._directory / name
        self._make(directory, queue.jobs * _ROW_BYTES + payload_bytes)
        self._shard.flush()
        view = QueueView(self._machine, queue)
        snapshot = _Snapshot(source, view, directory, math.ceil(view.jobs / CHUNK_JOBS), self._gather)
        self._snapshots[name] = snapshot
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_S, self._look)
        return self._taken(name, snapshot, queue)

    def _taken(self, name: str, snapshot: _Snapshot, queue: Topic) -> Taken:
        jobs = sum(partition.records for partition in queue.partitions)
        expires_ms = self._machine.last_ms + int(self.expires_s * 1000)
        return Taken(name, self._shard.flush(), queue.number, jobs, len(snapshot.chunks), expires_ms)

    def _make(self, directory: Path, size: int) -> None:
        """A directory for so many bytes. Raises SnapshotRefused."""
        try:
            self._directory.mkdir(exist_ok=True)
            self._admit(size, shutil.disk_usage(self._directory).free)
            directory.mkdir()
        except OSError as error:
            raise SnapshotRefused(SnapshotProblem.FAILED, f"cannot write to {self._directory}: {error}") from error

    def _admit(self, size: int, free: int) -> None:
        """Makes room for one more, if that is enough. Raises SnapshotRefused, and then all stay."""
        if sum(not snapshot.walk.done() for snapshot in self._snapshots.values()) >= GATHERING_MAX:
            raise SnapshotRefused(
                SnapshotProblem.TOO_MANY,
                f"{GATHERING_MAX} snapshots are being gathered, which is the most at a time: ask again in a moment",
            )
        places = len(self._snapshots) + 1 - SNAPSHOTS_MAX
        lacking = size + FREE_BYTES_MIN - free - sum(self._leaving.values())
        going: list[str] = []
        for name, snapshot in self._idle(SPARED_S):
            if places <= 0 and lacking <= 0:
                break
            going.append(name)
            places -= 1
            lacking -= snapshot.bytes
        if places > 0:
            raise SnapshotRefused(
                SnapshotProblem.TOO_MANY,
                f"{SNAPSHOTS_MAX} snapshots are kept, which is the most, and all were used within {SPARED_S:g} s: "
                "delete one, or ask again in a moment",
            )
        if lacking > 0:
            raise _no_room()
        for name in going:
            self._leave(name)

    def topic_of(self, name: str) -> bytes:
        """Raises SnapshotRefused when it is gone."""
        return self._find(name).source.name

    async def file(self, name: str, number: int) -> str | None:
        """Where a chunk lies, as soon as it is there. Otherwise like `chunk`."""
        async with self.chunk(name, number) as file:
            return None if file is None else file.name

    @contextlib.asynccontextmanager
    async def chunk(self, name: str, number: int) -> AsyncIterator[BinaryIO | None]:
        """A chunk, as soon as it is there, to be read; None: there is none of this number.

        Raises SnapshotRefused when the snapshot is gone, or could not be made.
        """
        snapshot = self._find(name)
        if number >= len(snapshot.chunks):
            yield None
            return
        snapshot.readers += 1
        try:
            path = await asyncio.shield(snapshot.chunks[number])  # others may wait for it too
            with path.open("rb") as file:
                yield file
        finally:
            snapshot.readers -= 1
            snapshot.used_at = self._loop.time()

    async def delete(self, name: str) -> None:
        """It stays while others were given it. Raises SnapshotRefused when it is gone already."""
        snapshot = self._find(name)
        snapshot.takers -= 1
        if snapshot.takers:
            return
        await asyncio.shield(self._leave(name))

    async def close(self) -> None:
        """Before the store is closed: nothing here looks at it any more."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        for name in list(self._snapshots):
            self._leave(name)
        if self._leaving:
            await asyncio.wait(self._leaving)
        await self._loop.run_in_executor(None, self._pool.shutdown)

    # -- gathering

    async def _gather(self, snapshot: _Snapshot) -> None:
        try:
            if self._leaving:
                await asyncio.wait(self._leaving)  # they make the room for this one
            await self._walk(snapshot)
            snapshot.view.finish()
        except asyncio.CancelledError:
            snapshot.fail(gone())
            raise
        except SnapshotRefused as error:
            snapshot.fail(error)
        except Exception as error:  # noqa: BLE001 whatever it is, it ends this snapshot and nothing else
            snapshot.fail(_failed(snapshot, error))
        finally:
            if not snapshot.view.walked:
                snapshot.view.close()

    async def _walk(self, snapshot: _Snapshot) -> None:
        view, number, walked, count = snapshot.view, 0, 0, 0
        pieces: list[Piece] = []
        piece: Piece | None
        while True:
            async with self._walking:  # together the walks take no more of the loop than one
                began = perf_counter()
                while (piece := view.next()) is not None:
                    pieces.append(piece)
                    count += len(piece.jobs)
                    if count >= CHUNK_JOBS or perf_counter() - began >= _SLICE_S:
                        break
                await _breathe(perf_counter() - began)
            if piece is None:
                break
            if count >= CHUNK_JOBS:
                await self._write(snapshot, number, pieces)
                pieces, walked, number, count = [], walked + count, number + 1, 0
        if view.gave_up:
            raise SnapshotRefused(
                SnapshotProblem.FAILED,
                "jobs of the queue changed faster than the snapshot could be written; ask again, or without `value`",
            )
        if walked + count != view.jobs:
            raise InvariantBroken(
                f"the snapshot has {walked + count} of {view.jobs} jobs of {quoted(snapshot.source.name)}"
            )
        for rest in range(number, len(snapshot.chunks)):  # jobs come in slices, so the last chunks may have got none
            await self._write(snapshot, rest, pieces)
            pieces = []
        if snapshot.writing:
            await asyncio.wait(snapshot.writing)

    async def _write(self, snapshot: _Snapshot, number: int, pieces: list[Piece]) -> None:
        """Returns when there is room for more in memory, which may be long before it is written."""
        while len(snapshot.writing) >= CHUNKS_AHEAD:
            await asyncio.wait(snapshot.writing, return_when=asyncio.FIRST_COMPLETED)
        if snapshot.broken is not None:
            raise snapshot.broken
        path = snapshot.directory / f"{number}.arrow"
        writing = self._loop.run_in_executor(self._pool, _write_chunk, path, snapshot.source, pieces)
        snapshot.writing.add(writing)
        writing.add_done_callback(lambda done: self._written(snapshot, number, done))

    def _written(self, snapshot: _Snapshot, number: int, done: asyncio.Future[Path]) -> None:
        snapshot.writing.discard(done)
        error = gone() if done.cancelled() else done.exception()
        if error is not None:
            snapshot.fail(error if isinstance(error, SnapshotRefused) else _failed(snapshot, error))
        elif not snapshot.chunks[number].done():
            snapshot.bytes += done.result().stat().st_size
            snapshot.chunks[number].set_result(done.result())

    # -- going

    def _find(self, name: str) -> _Snapshot:
        snapshot = self._snapshots.get(name)
        if snapshot is None or self._closing:
            raise gone()
        return snapshot

    def _idle(self, spared_s: float) -> list[tuple[str, _Snapshot]]:
        """Those that are gathered and were not used for so long, the longest first."""
        until = self._loop.time() - spared_s
        found = [
            (name, snapshot)
            for name, snapshot in self._snapshots.items()
            if snapshot.walk.done() and not snapshot.readers and snapshot.used_at <= until
        ]
        return sorted(found, key=lambda each: each[1].used_at)

    def _leave(self, name: str) -> asyncio.Task[None]:
        """From now on it is gone for everybody; what it holds goes by and by."""
        snapshot = self._snapshots.pop(name)
        leaving = self._loop.create_task(self._remove(snapshot), name=f"end of snapshot {name}")
        self._leaving[leaving] = snapshot.bytes
        leaving.add_done_callback(self._leaving.pop)
        return leaving

    async def _remove(self, snapshot: _Snapshot) -> None:
        snapshot.walk.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await snapshot.walk
        if snapshot.writing:
            await asyncio.wait(snapshot.writing)
        snapshot.view.close()
        snapshot.fail(gone())
        await self._loop.run_in_executor(self._pool, shutil.rmtree, snapshot.directory, True)

    def _look(self) -> None:
        self._timer = None
        for name, _ in self._idle(self.expires_s):
            self._leave(name)
        if self._snapshots:
            self._timer = self._loop.call_later(_LOOK_S, self._look)


async def _breathe(used_s: float) -> None:
    """Lets others run; if they had something to do, for as long as the walk did."""
    began = perf_counter()
    await asyncio.sleep(0)
    if perf_counter() - began > _OTHERS_S:
        await asyncio.sleep(used_s)


# -- in the thread


def _source(name: bytes, number: int, wanted: Selection, columns: Sequence[str] | None) -> Source:
    from esker.columns.jobs import Source  # brings pyarrow along, which a node without snapshots never loads

    return Source(name, number, wanted, columns)


def _write_chunk(path: Path, source: Source, pieces: list[Piece]) -> Path:
    """Leaves no pieces."""
    from esker.columns.jobs import write_chunk

    try:
        write_chunk(path, source, _taken_from(pieces), partial(_check_room, path.parent))
    except OSError as error:
        if error.errno in OUT_OF_SPACE:
            raise _no_room() from error
        raise
    return path


def _taken_from(pieces: list[Piece]) -> Iterator[Piece]:
    """One after the other, so that jobs are freed while the processor has them at hand, and not all at the end."""
    pieces.reverse()
    while pieces:
        yield pieces.pop()


def _check_room(directory: Path, size: int) -> None:
    if shutil.disk_usage(directory).free < size + FREE_BYTES_MIN:
        raise _no_room()


def _no_room() -> SnapshotRefused:
    return SnapshotRefused(
        SnapshotProblem.NO_ROOM,
        f"there is no room for the snapshot: the disk must keep {FREE_BYTES_MIN >> 20} MiB free; "
        "delete other snapshots, or ask for fewer columns",
    )


def _failed(snapshot: _Snapshot, error: BaseException) -> SnapshotRefused:
    topic = snapshot.source.name.decode("utf-8", "backslashreplace")
    _diagnostics.error("snapshot failed", topic=topic, why=f"{type(error).__name__}: {error}")
    return SnapshotRefused(SnapshotProblem.FAILED, f"the snapshot could not be made: {error}")


def gone() -> SnapshotRefused:
    return SnapshotRefused(
        SnapshotProblem.GONE, "there is no such snapshot, or no longer: take another, and read that from the start"
    )
