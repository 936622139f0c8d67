"""Bulk loads: rows are staged in files, committed in one step, then published, each exactly once.

    part by part:  upload ─► checked ─► on disk           nothing is visible, anything may be thrown away
    commit:        manifest on disk                       the point of no return
    publishing.py: file ─► pieces ─► Publish ─► journal   a chunk's rows and its mark in one batch
                   all of it on disk ─► the files go      the mark stays, and knows duplicates

A restart finds the manifests, asks the marks in the machine how far each has come, and goes on behind them. A batch
that failed before any row of it was published may be committed anew with other parts; one that failed half way, when it
is committed again, goes on with its own: whatever comes again, no row is published twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import structlog

from esker.columns.parts import Facts
from esker.engine.config import TopicConfig, TopicType
from esker.engine.machine import Machine
from esker.engine.topics import not_found
from esker.errors import LoadProblem, LoadRefused
from esker.journal.disk import Disk
from esker.node.publishing import LoadState, Publisher, Running, mismatch, new_config, without_arrow
from esker.node.shard import Shard
from esker.node.staging import (
    PART_BYTES_MAX,
    STAGED_S_MAX,
    CommittedPart,
    Manifest,
    Place,
    ReceivedFile,
    Staging,
    ValueFormat,
    check_part,
    chunk_rows,
    fits_topic,
)

UPLOADS_MAX: Final = 64  # parts received at a time
STAGED_MAX: Final = 50_000  # parts that wait to be committed
BATCHES_MAX: Final = 1000  # committed and not finished
_WRITE_BYTES: Final = 1 << 20
_SYNC_BYTES: Final = 4 << 20
_SWEEP_S: Final = 3600.0

_diagnostics = structlog.get_logger("esker.loads")
T = TypeVar("T")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A commit. `parts` are names that staging gave."""

    place: Place
    parts: list[str]
    topic: bytes | None
    kind: TopicType | None
    create: bool
    config: TopicConfig | None
    value_format: ValueFormat | None
    share: float


class Upload:
    """A part on its way in: `write` …, `check`, `keep`; and whatever happens, `drop`."""

    def __init__(self, loading: Loading, place: Place, name: str, file: ReceivedFile) -> None:
        self._loading = loading
        self._place = place
        self.name = name
        self._file = file
        self._waiting: list[bytes] = []
        self._waits = self._size = self._synced = 0

    async def write(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > PART_BYTES_MAX:
            raise LoadRefused(LoadProblem.TOO_LARGE, f"a part has at most {PART_BYTES_MAX} bytes; send several")
        self._waiting.append(data)
        self._waits += len(data)
        if self._waits >= _WRITE_BYTES:
            sync = self._size - self._synced >= _SYNC_BYTES
            if sync:
                self._synced = self._size
            await self._flush(sync)

    async def _flush(self, sync: bool) -> None:
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._waits = 0
        await self._loading.in_files(partial(self._file.write, data, sync))

    async def check(self, kind: TopicType | None, value_format: ValueFormat | None) -> Facts:
        """After the last `write`: what is in it, which is on disk now. Raises LoadRefused."""
        await self._flush(sync=True)
        self._file.close()
        return await self._loading.look(self._file.path, kind, value_format, self._file.checksum)

    async def keep(self, facts: Facts) -> None:
        """Makes it a part."""
        await self._loading.keep(self._file.path, self._place, self.name, facts)

    async def drop(self) -> None:
        """Ends it, in any case. What `keep` made of it stays."""
        self._file.close()
        await self._loading.dropped(self._file.path, self._place)


class Loading:
    """Made and used on the loop that runs it. The directory need not exist."""

    def __init__(self, machine: Machine, shard: Shard, directory: Path, disk: Disk) -> None:
        self._machine = machine
        self._staging = Staging(directory, disk)
        self._publisher = Publisher(machine, shard, self._staging)
        self._batches = self._publisher.batches
        self._staged: dict[tuple[Place, str], Facts] = {}  # of parts that were looked at in this life of the process
        self._arriving: set[tuple[Place, str]] = set()  # parts that are just being put in their place
        self._broken: dict[Place, str] = {}  # committed, and the manifest cannot be read
        self._uploads = 0
        self._files = ThreadPoolExecutor(2, thread_name_prefix="esker-load-files")
        self._looking = ThreadPoolExecutor(1, thread_name_prefix="esker-load-check")
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Goes on with what was committed before."""
        self._staging.drop_uploads()
        for place in list(self._staging.places()):
            found = self._staging.manifest(place)
            mark = self._publisher.mark(place)
            if isinstance(found, str):
                self._broken[place] = found
                _diagnostics.error("a load cannot be resumed", load=place.load, batch=place.batch, why=found)
            elif self._is_done(place):
                self._staging.drop_all(place)
            elif found is not None:
                running = self._batches[place] = Running(found, mark)
                running.accepted.set_result(None)
        for work, name in ((self._publisher.run(), "loads"), (self._sweep(), "sweep")):
            self._tasks.append(asyncio.create_task(_watched(work), name=name))

    # -- staging

    async def open(self, place: Place, name: str) -> Upload:
        if self._uploads >= UPLOADS_MAX:
            raise LoadRefused(LoadProblem.TOO_MANY, f"too many parts are being received; at most {UPLOADS_MAX}")
        if len(self._staged) >= STAGED_MAX:
            raise LoadRefused(LoadProblem.TOO_MANY, f"too many parts wait to be committed; at most {STAGED_MAX}")
        self._uploads += 1
        try:
            return Upload(self, place, name, await self.in_files(partial(self._staging.begin, place, name)))
        except BaseException:
            self._uploads -= 1
            raise

    async def in_files(self, do: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._files, do)

    async def look(self, path: Path, kind: TopicType | None, value_format: ValueFormat | None, checksum: str) -> Facts:
        """`checksum`: what it was when the file was received. Raises LoadRefused."""

        def inspect() -> Facts:
            check_part(path, checksum)
            try:
                from esker.columns import incoming
            except ImportError as error:
                raise without_arrow() from error
            return msgspec.structs.replace(incoming.inspect(path, kind, value_format), sha256=checksum)

        return await asyncio.get_running_loop().run_in_executor(self._looking, inspect)

    async def keep(self, path: Path, place: Place, name: str, facts: Facts) -> None:
        running = self._batches.get(place)
        if running is not None and name in running.names and not self._is_void(place):
            return  # an attempt that was committed is sent again: the first one counts
        self._arriving.add((place, name))
        try:
            await self.in_files(partial(self._staging.keep, path, place, name, facts.sha256))
        finally:
            self._arriving.discard((place, name))
        self._staged[place, name] = facts

    async def dropped(self, path: Path, place: Place) -> None:
        self._uploads -= 1
        await self.in_files(partial(self._staging.discard, path, place))

    async def facts(self, place: Place, names: Sequence[str]) -> list[Facts]:
        """Of staged parts. Raises LoadRefused for one that is not there."""
        found = []
        there: dict[str, str] | None = None
        for name in names:
            known = self._staged.get((place, name))
            if known is None:
                if there is None:
                    there = await self.in_files(partial(self._staging.staged, place))
                if name not in there:
                    raise LoadRefused(LoadProblem.BAD_COMMIT, f"part {name} of this batch is not staged")
                path = self._staging.part(place, name, there[name])
                known = self._staged[place, name] = await self.look(path, None, None, there[name])
            found.append(known)
        return found

    async def abort(self, place: Place) -> int:
        """Returns how many parts were dropped. Raises LoadRefused once the batch was committed."""
        if await self._known(place) is not None:
            raise LoadRefused(LoadProblem.COMMITTED, "this batch was committed, and cannot be undone")
        names = list(await self.in_files(partial(self._staging.staged, place)))
        await self._drop(place, names)
        return len(names)

    async def _drop(self, place: Place, names: Sequence[str]) -> None:
        """Drops parts, but for those that are being published."""
        running = self._batches.get(place)
        gone = [name for name in names if running is None or name not in running.names]
        for name in gone:
            self._staged.pop((place, name), None)
        await self.in_files(partial(self._staging.drop_parts, place, gone))

    # -- committing

    async def commit(self, order: Order) -> LoadState:
        """Returns when the batch will be published whatever happens, or when it is known already.

        Raises LoadRefused, and Refusal where a topic cannot take the rows.
        """
        place = order.place
        known = await self._known(place)
        if known is None or self._is_void(place):
            manifest = await self._manifest(order)
            if await self._known(place) is None or self._is_void(place):  # else another commit of it was quicker
                await self._accept(manifest)
                return await self.status(place)
        await self._drop(place, order.parts)
        await self._again(place)
        return msgspec.structs.replace(await self.status(place), duplicate=True)

    async def _manifest(self, order: Order) -> Manifest:
        facts = await self.facts(order.place, order.parts)
        parts = [CommittedPart(name, each) for name, each in zip(order.parts, facts, strict=True)]
        for part in parts:
            if not fits_topic(part.name, order.topic):
                raise LoadRefused(LoadProblem.BAD_COMMIT, f"part {part.name} was staged for another topic")
            has_column = "topic" in part.facts.columns
            if has_column and order.topic is not None:
                raise LoadRefused(LoadProblem.BAD_COMMIT, f"topic is given, and part {part.name} has a column topic")
            if not has_column and order.topic is None:
                raise LoadRefused(
                    LoadProblem.BAD_COMMIT, f"topic is not given, and part {part.name} has no such column"
                )
        manifest = Manifest(
            load=order.place.load,
            batch=order.place.batch,
            namespace=order.place.namespace,
            parts=parts,
            topic=order.topic,
            kind=order.kind,
            create=order.create,
            config=order.config,
            value_format=order.value_format,
            share=order.share,
            chunk_rows=chunk_rows(order.share, {name for each in facts for name in each.columns}),
        )
        names = {order.topic} if order.topic is not None else {name for each in facts for name in each.topics}
        for name in sorted(names):
            topic = self._machine.names.get(name)
            if topic is None and not order.create:
                raise not_found(name)
            problem = mismatch(manifest, name, new_config(manifest) if topic is None else topic.config)
            if problem is not None:
                raise problem
        return manifest

    async def _accept(self, manifest: Manifest) -> None:
        """Between the look at what is there and the place in the table nothing may be awaited."""
        place = manifest.place
        later = [other.batch for other in self._batches if other.name == place.name and other.batch > place.batch]
        if later:
            raise LoadRefused(
                LoadProblem.BAD_COMMIT,
                f"batch {min(later)} of load {place.load} was committed already; batches of a load are committed in "
                "order",
            )
        for part in manifest.parts:
            if (place, part.name) in self._arriving:
                raise LoadRefused(LoadProblem.BAD_COMMIT, f"part {part.name} is being received again; wait for it")
        if len(self._batches) >= BATCHES_MAX:
            raise LoadRefused(LoadProblem.TOO_MANY, f"too many batches wait to be published; at most {BATCHES_MAX}")
        before = self._batches.get(place)
        running = self._batches[place] = Running(manifest, None)
        try:
            await self.in_files(partial(self._staging.write_manifest, manifest))
        except BaseException as error:
            del self._batches[place]
            if before is not None:
                self._batches[place] = before
            running.accepted.set_exception(error)
            running.accepted.exception()  # told to those who wait for it, if any
            raise
        running.accepted.set_result(None)
        self._broken.pop(place, None)
        for name in running.names:
            self._staged.pop((place, name), None)
        self._publisher.wake()
        if before is not None:
            await self._drop(place, sorted(before.names))

    async def _known(self, place: Place) -> LoadState | None:
        """The state of a batch that was accepted before."""
        running = self._batches.get(place)
        if running is not None:
            await asyncio.shield(running.accepted)
            return running.told()
        mark = self._publisher.mark(place)
        if mark is None or mark.batch < place.batch:
            broken = self._broken.get(place)
            return None if broken is None else LoadState(state="failed", message=broken)
        if mark.batch > place.batch:
            return LoadState(state="done")
        if mark.done:
            return LoadState(state="done", rows=mark.rows, published=mark.rows)
        return LoadState(
            state="failed", published=mark.rows, message=self._broken.get(place, "the rest of it was given up")
        )

    def _is_done(self, place: Place) -> bool:
        """Whether all of it is in: what lies about of it is of no use."""
        mark = self._publisher.mark(place)
        return mark is not None and (mark.batch, mark.done) >= (place.batch, True)

    def _is_void(self, place: Place) -> bool:
        """Whether it failed before any of its rows was published: then it may come again with other parts."""
        running, mark = self._batches.get(place), self._publisher.mark(place)
        failed = running is not None and running.failed is not None
        return (failed or place in self._broken) and (mark is None or mark.batch < place.batch)

    async def _again(self, place: Place) -> None:
        """A batch that failed half way goes on with its own parts, unless the load has gone on to a later batch."""
        running, mark = self._batches.get(place), self._publisher.mark(place)
        if running is not None and running.failed is not None and mark is not None and mark.batch == place.batch:
            await self.in_files(
                partial(self._staging.write_manifest, msgspec.structs.replace(running.manifest, failed=None))
            )
            running.revive(mark)
            self._publisher.wake()

    # -- how far it is

    async def status(self, place: Place) -> LoadState:
        known = await self._known(place)
        if known is not None:
            return known
        names = await self.in_files(partial(self._staging.staged, place))
        if not names:
            return LoadState(state="unknown")
        rows = sum(each.rows for name in names if (each := self._staged.get((place, name))) is not None)
        return LoadState(state="staged", rows=rows)

    def ended(self, place: Place) -> asyncio.Event | None:
        """Set when the batch is done or has failed; None when nobody works on it."""
        running = self._batches.get(place)
        return None if running is None else running.ended

    def figures(self) -> dict[str, int | float | str]:
        failed = sum(running.failed is not None for running in self._batches.values())
        return {
            "loads_staged_parts": len(self._staged),
            "loads_publishing": len(self._batches) - failed,
            "loads_failed": failed,
            "loads_rows": self._publisher.rows,
            "loads_loop_seconds": round(self._publisher.loop_s, 3),
            "loads_paused_seconds": round(self._publisher.paused_s, 3),
        }

    # -- ending

    async def end(self) -> None:
        """Publishes no more; what is left goes on after the next start."""
        self._publisher.end()
        publishing, sweeping = self._tasks
        sweeping.cancel()
        await asyncio.gather(publishing, sweeping, return_exceptions=True)

    def close(self) -> None:
        self._publisher.close()
        self._files.shutdown(wait=True)
        self._looking.shutdown(wait=True)

    async def _sweep(self) -> None:
        """What was never committed, and what has failed, goes after a day; what is left of what is done, at once."""
        while True:
            for place in await self.in_files(self._old):
                running = self._batches.get(place)
                if running is None or running.failed is not None:
                    self._batches.pop(place, None)
                    self._broken.pop(place, None)
                    self._staged = {key: facts for key, facts in self._staged.items() if key[0] != place}
                    await self.in_files(partial(self._staging.drop_all, place))
            await asyncio.sleep(_SWEEP_S)

    def _old(self) -> list[Place]:
        now = time.time()
        places = self._staging.places()
        return [place for place in places if self._staging.age_s(place, now) > STAGED_S_MAX or self._is_done(place)]


async def _watched(work: Coroutine[None, None, None]) -> None:
    """The node serves on without it, and somebody must know."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 whatever it is
        _diagnostics.exception("loads stand still until the next start", why=f"{type(error).__name__}: {error}")
