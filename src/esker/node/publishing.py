"""Publishes committed batches of bulk loads beside the traffic, each row exactly once.

One task does it. It takes turns between loads, chunk by chunk: rows from a file, a command, and the journal then has
the rows together with the mark of the load (engine/loads.py). Between chunks it gives the loop back: a load with a
share of 0.5 waits for the disk, and then for as long again as the chunk took from its decision to the disk. With a
share of 1, and while no client asks anything of the node, it goes on at once, a few chunks ahead of the disk.

What the engine refuses for the moment (a full topic, memory, disk) is tried again later; what it refuses for good fails
the batch, and says why. Files go when every row of theirs is on disk, whatever the class of their topics.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from esker.columns.parts import flaw_for
from esker.engine.commands import CreateTopic, Publish
from esker.engine.config import Durability, TopicConfig, TopicType
from esker.engine.limits import MINUTE_MS
from esker.engine.loads import Mark
from esker.engine.machine import Machine
from esker.engine.replies import Published, Reply
from esker.engine.topic import Topic
from esker.engine.topics import not_found
from esker.errors import Code, LoadProblem, LoadRefused, Refusal, ShardStopped
from esker.node.shard import Batch, Shard
from esker.node.staging import Manifest, Place, Staging, check_part

if TYPE_CHECKING:
    from esker.columns.incoming import Block, Piece

ACTIVE_MAX: Final = 4  # batches that are read at a time: each holds up to two blocks in memory
UNSYNCED_CHUNKS_MAX: Final = 4
_TURN_CHUNKS: Final = 8  # published of a load before another has its turn
_RETRY_S_MIN, _RETRY_S_MAX = 0.1, 5.0
OTHERS_S: Final = 1.0  # after a client's last command the share holds for so long: many ask only a few times a second
_PATIENT_S: Final = 1.0  # who waits for longer holds no blocks meanwhile

_QUEUE_ONLY: Final = frozenset({"priority", "delay_ms", "ttl_ms", "retry_ms", "max_deliveries"})
_diagnostics = structlog.get_logger("esker.loads")

_Arrival = asyncio.Future[BaseException | None]


class LoadState(msgspec.Struct, frozen=True, kw_only=True):
    state: str  # staged, publishing, done, failed, unknown
    rows: int = 0
    published: int = 0
    message: str | None = None
    duplicate: bool = False


class Publisher:
    """`batches` are those that were committed and are not done; whoever adds one calls `wake`."""

    def __init__(self, machine: Machine, shard: Shard, staging: Staging) -> None:
        self._machine = machine
        self._shard = shard
        self._staging = staging
        self.batches: dict[Place, Running] = {}
        self._turns = 0
        self._unsynced: deque[_Arrival] = deque()
        self._used = shard.used
        self._used_at = -OTHERS_S  # when a client was last seen to use the node
        self._unawaited = 0  # chunks published since the last wait for the disk, of topics whose writes do not wait
        self._woken = asyncio.Event()
        self._ending = False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="esker-load-read")
        self.rows = 0
        self.paused_s = 0.0  # left to others between chunks
        self.loop_s = 0.0  # of the event loop's time, without what the journal took

    def wake(self) -> None:
        self._woken.set()

    def end(self) -> None:
        """Lets `run` return after the chunk it is at."""
        self._ending = True
        self._woken.set()

    def close(self) -> None:
        for running in self.batches.values():
            running.let_go()
        self._pool.shutdown(wait=True)

    def mark(self, place: Place) -> Mark | None:
        """How far the load of a batch is, which may be another batch of it."""
        return self._machine.loads.marks.get(place.name.encode())

    async def run(self) -> None:
        """Until `end`. Raises what is nobody's fault but ours."""
        try:
            while not self._ending:
                self._woken.clear()
                running = self._next()
                if running is None:
                    await self._sleep()
                else:
                    await self._turn(running)
        except ShardStopped:
            return  # told elsewhere; a restart goes on

    def _next(self) -> Running | None:
        """Whose turn it is: of the first few that can go on, the one that has waited longest."""
        now = time.monotonic()
        first: dict[str, Running] = {}
        for place, running in sorted(self.batches.items(), key=lambda item: item[0].batch):
            if running.failed is None and running.accepted.done():
                first.setdefault(place.name, running)
        ready = [running for running in first.values() if running.retry_at <= now]
        return min(ready[:ACTIVE_MAX], key=lambda running: running.turn, default=None)

    async def _sleep(self) -> None:
        waits = [running.retry_at for running in self.batches.values() if running.failed is None]
        delay = max(0.001, min(waits) - time.monotonic()) if waits else None
        try:
            await asyncio.wait_for(self._woken.wait(), delay)
        except TimeoutError:
            return

    async def _turn(self, running: Running) -> None:
        self._turns += 1
        running.turn = self._turns
        try:
            for _ in range(_TURN_CHUNKS):
                if self._ending or not await self._step(running):
                    return
        except LoadRefused as error:
            if error.problem == LoadProblem.NOT_AVAILABLE:
                running.wait(str(error), self.mark(running.place))
            else:
                await self._fail(running, str(error))

    async def _step(self, running: Running) -> bool:
        """Publishes one chunk. False: the turn is over."""
        piece = await running.piece(self._pool, self._staging)
        if piece is not None and running.chunk <= running.skip:
            running.passed(piece.rows)
            return True
        began = time.perf_counter()
        reply = self._publish(running, piece)
        self.loop_s += time.perf_counter() - began
        if isinstance(reply, Refusal):
            if reply.retryable:
                running.pending = piece
                running.wait(reply.message, self.mark(running.place))
            else:
                await self._fail(running, reply.message)
            return False
        if isinstance(reply, Published) and reply.duplicate:
            await self._fail(running, f"load {running.place.load} has gone on to a later batch")
            return False
        if piece is None:
            await self._finish(running)
            return False
        self.rows += piece.rows
        running.passed(piece.rows)
        await self._pace(running.manifest.share, began)
        return True

    def _publish(self, running: Running, piece: Piece | None) -> Reply:
        """The rows of a piece, or (None) the mark that the batch is done."""
        manifest = running.manifest
        load = manifest.place.name.encode()
        if piece is None:
            return self._shard.run(Publish(load, manifest.batch, running.chunk, running.rows, True, None))
        name = piece.topic if manifest.topic is None else manifest.topic
        assert name is not None, "a commit without a topic takes parts with a column only"
        topic = self._topic(manifest, name)
        if isinstance(topic, Refusal):
            return topic
        if topic.number not in running.cleared:
            problem = mismatch(manifest, name, topic.config)
            if problem is not None:
                return problem
            running.cleared.add(topic.number)
        work = piece.work(name, topic.config, manifest.value_format)
        rows = running.rows + piece.rows
        return self._shard.run(Publish(load, manifest.batch, running.chunk, rows, False, work))

    def _topic(self, manifest: Manifest, name: bytes) -> Topic | Refusal:
        topic = self._machine.names.get(name)
        if topic is None:
            if not manifest.create:
                return not_found(name)
            reply = self._shard.run(CreateTopic(name, new_config(manifest)))
            if isinstance(reply, Refusal):
                return reply
            topic = self._machine.names[name]
        return topic

    async def _pace(self, share: float, began: float) -> None:
        """Waits for the disk when it is behind, and gives the loop back: to others for as long as the share says."""
        if self._is_alone():
            share = 1.0
        gate = self._shard.gate
        if gate is not None:
            self._unsynced.append(_arrival(gate))
        else:
            self._unawaited += 1
        if self._unawaited >= UNSYNCED_CHUNKS_MAX:
            self._unawaited = 0
            await self._shard.settled()
        while len(self._unsynced) >= (UNSYNCED_CHUNKS_MAX if share == 1 else 1):
            error = await self._unsynced.popleft()
            if error is not None:
                raise error
        pause_s = (time.perf_counter() - began) * (1 - share) / share
        self.paused_s += pause_s
        await asyncio.sleep(pause_s)

    def _is_alone(self) -> bool:
        """Whether no client has used the node lately."""
        now, used = time.monotonic(), self._shard.used
        if used != self._used:
            self._used, self._used_at = used, now
        return now - self._used_at >= OTHERS_S

    async def _finish(self, running: Running) -> None:
        await self._shard.settled()
        running.let_go()
        await asyncio.get_running_loop().run_in_executor(self._pool, self._staging.drop_committed, running.manifest)
        del self.batches[running.place]
        running.ended.set()

    async def _fail(self, running: Running, why: str) -> None:
        """Its parts stay, for a while: the same batch may be committed again."""
        place = running.place
        _diagnostics.warning("a load failed", load=place.load, batch=place.batch, published=running.published, why=why)
        running.let_go()
        running.failed = why
        failed = msgspec.structs.replace(running.manifest, failed=why)
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, self._staging.write_manifest, failed)
        except LoadRefused as error:  # then a restart tries it again, which is as good
            _diagnostics.warning("a failed load was not noted", load=place.load, why=str(error))
        running.ended.set()


class Running:
    """A batch that was committed: how far it is, and where its next rows come from."""

    def __init__(self, manifest: Manifest, mark: Mark | None) -> None:
        self.manifest = manifest
        self.place = manifest.place
        self.names = frozenset(part.name for part in manifest.parts)
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # its manifest is on disk
        self.ended = asyncio.Event()  # done, or failed
        self.failed = manifest.failed
        if self.failed is not None:
            self.ended.set()
        self.message: str | None = None  # what it waits for
        self.turn = 0
        self.cleared: set[int] = set()  # topics that take these rows
        self._retry_s = _RETRY_S_MIN
        self.retry_at = 0.0
        self.rewind(mark)

    def rewind(self, mark: Mark | None) -> None:
        """To the first row; what the mark knows will be passed over."""
        self.skip, self.published = -1, 0  # chunks up to this one are in, and so many rows
        if mark is not None and mark.batch == self.place.batch:
            self.skip, self.published = mark.chunk, mark.rows
        self.chunk = 0  # the next one
        self.rows = 0  # of the chunks before it
        self.pending: Piece | None = None  # it was refused for the moment
        self._blocks: Iterator[Block] | None = None
        self._pieces: Iterator[Piece] | None = None
        self._ahead: asyncio.Future[Block | None] | None = None

    def revive(self, mark: Mark | None) -> None:
        """After it has failed: once more from where it stopped."""
        self.failed = self.message = None
        self.retry_at, self._retry_s = 0.0, _RETRY_S_MIN
        self.ended = asyncio.Event()
        self.rewind(mark)

    def told(self) -> LoadState:
        return LoadState(
            state="publishing" if self.failed is None else "failed",
            rows=self.manifest.rows,
            published=self.published,
            message=self.failed or self.message,
        )

    async def piece(self, pool: ThreadPoolExecutor, staging: Staging) -> Piece | None:
        """The next one; None when there is none left. While one block is published, the next is read."""
        if self.pending is not None:
            piece, self.pending = self.pending, None
            return piece
        while True:
            found = None if self._pieces is None else next(self._pieces, None)
            if found is not None:
                return found
            block = await self._block(pool, staging)
            if block is None:
                return None
            self._pieces = block.pieces(self.manifest.chunk_rows, self.manifest.chunk_bytes)

    async def _block(self, pool: ThreadPoolExecutor, staging: Staging) -> Block | None:
        loop = asyncio.get_running_loop()
        if self._blocks is None:
            sums = [(part.name, part.facts.sha256) for part in self.manifest.parts]
            self._blocks = _blocks_of([(staging.part(self.place, *each), each[1]) for each in sums])
        if self._ahead is None:
            self._ahead = loop.run_in_executor(pool, next, self._blocks, None)
        ahead, self._ahead = self._ahead, None
        block = await ahead
        if block is not None:
            self._ahead = loop.run_in_executor(pool, next, self._blocks, None)
            self._ahead.add_done_callback(_noted)
        return block

    def passed(self, rows: int) -> None:
        self.chunk += 1
        self.rows += rows
        self.published = max(self.published, self.rows)
        self.message = None
        self._retry_s = _RETRY_S_MIN

    def wait(self, why: str, mark: Mark | None) -> None:
        """It cannot go on for the moment."""
        self.message = why
        self.retry_at = time.monotonic() + self._retry_s
        if self._retry_s >= _PATIENT_S:
            self.rewind(mark)
        self._retry_s = min(2 * self._retry_s, _RETRY_S_MAX)

    def let_go(self) -> None:
        """Of the file it reads, and of what it has read."""
        self._blocks = self._pieces = self._ahead = self.pending = None


def new_config(manifest: Manifest) -> TopicConfig:
    """Of a topic that a load makes."""
    if manifest.config is not None:
        return manifest.config
    if manifest.kind == TopicType.QUEUE:
        return TopicConfig(type=TopicType.QUEUE, durability=Durability.FSYNC)
    return TopicConfig(type=TopicType.LOG, durability=Durability.DISK, idempotency_window_ms=2 * MINUTE_MS)


def mismatch(manifest: Manifest, name: bytes, config: TopicConfig) -> Refusal | None:
    """Why a topic of this config cannot take the load, if so."""
    kind = config.type
    shown = name.decode("utf-8", "backslashreplace")
    if manifest.kind is not None and kind != manifest.kind:
        return Refusal(
            Code.TOPIC_INCOMPATIBLE,
            f"topic {shown!r} is a {kind}, and the load is for a {manifest.kind}",
            {"existing_type": str(kind), "requested_type": str(manifest.kind)},
        )
    for part in manifest.parts:
        flaw = flaw_for(part.facts, kind, manifest.value_format)
        if flaw is not None:
            return Refusal(
                Code.BAD_REQUEST, f"part {part.name}, row {flaw.row}: {flaw.why}", {"part": part.name, "row": flaw.row}
            )
        odd = sorted(_QUEUE_ONLY.intersection(part.facts.columns)) if kind == TopicType.LOG else []
        if odd:
            return Refusal(
                Code.BAD_REQUEST,
                f"part {part.name} has columns for queues only: {', '.join(odd)}; topic {shown!r} is a log",
                {"part": part.name},
            )
    return None


def without_arrow() -> LoadRefused:
    return LoadRefused(LoadProblem.NOT_AVAILABLE, "loads need pyarrow: pip install 'esker[archive]'")


def _blocks_of(parts: list[tuple[Path, str]]) -> Iterator[Block]:
    """Of files with their checksums. Each step runs in a thread. Raises LoadRefused for a part that is damaged."""
    try:
        from esker.columns import incoming
    except ImportError as error:
        raise without_arrow() from error
    for path, checksum in parts:
        check_part(path, checksum)
        yield from incoming.blocks(path)


def _noted(ahead: asyncio.Future[Block | None]) -> None:
    """What was read ahead for nobody may have failed: then nobody needs to hear of it."""
    if not ahead.cancelled():
        ahead.exception()


def _arrival(gate: Batch) -> _Arrival:
    arrival: _Arrival = asyncio.get_running_loop().create_future()

    def arrived(error: BaseException | None) -> None:
        if not arrival.done():
            arrival.set_result(error)

    gate.subscribe(arrived)
    return arrival
