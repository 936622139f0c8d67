"""Reading a range of a log as columns: many records at a time, beside the traffic.

On the loop a chunk of the range is captured: which records of which blocks live, and the records that are in memory.
That is a matter of microseconds a block and changes nothing. A thread reads the others from the store, or takes them
from a file of the archive, and makes an Arrow batch. While a chunk is sent the next one is made, and no more.

What a range holds does not change: records are never rewritten. Those deleted on request are left out in silence.
Everything else that is not there is a gap, and told before the first record; what is lost after that, while a stream is
under way, cuts it (RangeLost), and who asks again is told.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_left
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from esker.engine.commands import Command, TopicState
from esker.engine.events import RecordBody
from esker.engine.logs.archived import ArchivedFile
from esker.engine.logs.block import Block, Content, PackedBodies, offsets
from esker.engine.logs.gaps import LOST, Gap
from esker.engine.logs.partition import LogPartition
from esker.engine.machine import Machine
from esker.engine.replies import Reply, TopicStatus
from esker.errors import ArchiveError, EskerError, InvariantBroken, Refusal
from esker.node.spool import Spool
from esker.store.interface import Store
from esker.store.logs import packed_content

if TYPE_CHECKING:
    from esker.archive.records import RecordsFile
    from esker.columns.arrow import Message
    from esker.columns.records import Part

OpenFile = Callable[[str, str], Awaitable["RecordsFile | None"]]

_T = TypeVar("_T")

CHUNK_ROWS = 65_536
CHUNK_BYTES = 8 << 20  # of data and meta, at most
STREAM_BYTES = 4 << 20  # in a chunk of a stream, which is held several times on its way; small ones cost Spark more
GAPS_MAX = 1000  # told at a time
FILE_BYTES = 32 << 20  # of data and meta in a file, about
_THREADS = 1  # makes over two million rows a second; a second one was no quicker on two cores, and held 40 MB more
_TRIES = 3  # of a chunk whose blocks or file leave while it is read


class RangeRefused(EskerError):
    """A range cannot be read. `code` is for programs, as is `detail`."""

    def __init__(self, code: str, message: str, detail: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.detail = detail or {}


class NotHere(EskerError):
    """Records are in the archive, and no file is made of them: they are in one."""


class RangeLost(EskerError):
    """Some of the range went while it was read, or the whole topic."""


class _BlockGone(EskerError):
    """A block left the store between two looks."""


class RangeWish(msgspec.Struct, frozen=True):
    """The records of `topic` from seq `first` to before `end` (None: all there are), as `columns` (None: all).

    `since_ms` and `until_ms`: only what came then; the latter is exclusive.
    """

    topic: bytes
    first: int = 1
    end: int | None = None
    epoch: int | None = None
    columns: Sequence[str] | None = None
    tag_prefix: bytes = b""
    without_nodes: frozenset[bytes] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None
    skip_gaps: bool = False


class _Held(NamedTuple):
    """A block as it was captured. `content` None: it is in the store."""

    first_seq: int
    length: int
    live: int
    content: Content | None


class Room(NamedTuple):
    """How much goes into one chunk. One record always does."""

    rows: int = CHUNK_ROWS
    bytes: int = CHUNK_BYTES


_ROOM = Room(bytes=STREAM_BYTES)
_FILE_ROOM = Room(bytes=FILE_BYTES)


class Chunk(NamedTuple):
    """What one batch is made of. `file`: all of its blocks are in this one. `last`: the last seq it covers."""

    number: int
    last: int
    blocks: Sequence[_Held]
    file: str
    sha256: str = ""  # of the file


class Filed(NamedTuple):
    """A file with the next records of a range, and the seq that the range goes on at. `path` None: there are none."""

    path: Path | None
    next: int


class Ranges:
    """Lives on the loop. `open_file` fetches a file of the archive; None: there is no archive. Files go to `spool`."""

    def __init__(
        self,
        machine: Machine,
        store: Store,
        handle: Callable[[Command], Reply],
        open_file: OpenFile | None,
        spool: Path,
    ) -> None:
        self._machine = machine
        self._store = store
        self._handle = handle
        self._open_file = open_file
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="esker-columns")
        self._spool = Spool(spool, self._pool)
        self._ahead: set[asyncio.Task[None]] = set()

    @property
    def folder(self) -> Path:
        """Where files are."""
        return self._spool.folder

    def open(self, wish: RangeWish) -> Range:
        """Raises RangeRefused, or UnknownColumn."""
        log = self.log_of(wish.topic, wish.epoch)
        end = log.next_seq if wish.end is None else wish.end
        if end > log.next_seq:
            raise RangeRefused("invalid_request", f"to is {end}; the next offset is {log.next_seq}")
        if wish.first > end:
            raise RangeRefused("invalid_request", f"from is {wish.first}, which is behind to, {end}")
        first, upto = _between(log, wish, end)
        gaps = gaps_of(log, first, upto)
        if len(gaps) > GAPS_MAX or (gaps and not wish.skip_gaps):
            raise _data_loss(wish.topic, gaps)
        return Range(self, wish, log.topic.number, first, upto, end, gaps)

    def log_of(self, name: bytes, epoch: int | None, touch: bool = True) -> LogPartition:
        """The log of this name, its floors up to date. Raises RangeRefused."""
        status = self._handle(TopicState(name, touch=touch))
        shown = name.decode("utf-8", "backslashreplace")
        if isinstance(status, Refusal):
            raise RangeRefused("topic_not_found", status.message, {"topic": shown})
        if not isinstance(status, TopicStatus):
            raise InvariantBroken(f"the engine answered {type(status).__name__} where TopicStatus was promised")
        if epoch is not None and status.number != epoch:
            raise RangeRefused(
                "stale_epoch", f"topic {shown!r} is at epoch {status.number}, not {epoch}: it was made again",
                {"topic": shown, "epoch": status.number},
            )  # fmt: skip
        log = self._machine.names[name].log
        if log is None:
            raise RangeRefused(
                "wrong_type", f"topic {shown!r} is a queue: take a snapshot of its jobs", {"topic": shown}
            )
        return log

    def capture(self, name: bytes, number: int, after: int, upto: int, most: Room) -> Chunk:
        """What comes behind `after`, up to `upto`, as much as there is room for. Raises RangeLost."""
        try:
            log = self.log_of(name, number, touch=False)
        except RangeRefused as error:
            raise RangeLost(str(error)) from error
        if max(log.cap_floor, log.ttl_floor) > after + 1:
            raise RangeLost(f"records behind {after} went while they were to be read")
        return captured(log, after, upto, most)

    async def message_of(self, chunk: Chunk, view: View) -> Message | None:
        """None: something of it left meanwhile, and it must be captured again."""
        loop = asyncio.get_running_loop()
        if not chunk.file:
            return await loop.run_in_executor(self._pool, view.of_blocks, self._store, chunk)
        if self._open_file is None:
            raise ArchiveError(f"{chunk.file} is in an archive, and this node was started without its setting")
        file = await self._open_file(chunk.file, chunk.sha256)
        if file is None:
            return None
        return await loop.run_in_executor(self._pool, view.of_file, file, chunk)

    async def path_of(self, chunk: Chunk, view: View) -> Path | None:
        """As `message_of`. Raises NotHere and NoFile."""
        if chunk.file:
            raise NotHere("these records are in the archive: stream them, or read its files")
        key = (chunk.number, tuple((held.first_seq, held.live) for held in chunk.blocks), view.key)
        try:
            return await self._spool.get(key, lambda path: view.write_blocks(self._store, chunk, path))
        except _BlockGone:
            return None

    def make_ahead(self, making: Coroutine[None, None, object]) -> None:
        """Somebody will soon ask for this file. Whatever goes wrong is told then."""

        async def make() -> None:
            with contextlib.suppress(EskerError):
                await making

        task = asyncio.create_task(make(), name="columns ahead")
        self._ahead.add(task)
        task.add_done_callback(self._ahead.discard)

    def close(self) -> None:
        for task in self._ahead:
            task.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._spool.close()


class Range:
    """A range that can be read. `end` is the one that was asked for; `gaps` are passed over."""

    def __init__(
        self, ranges: Ranges, wish: RangeWish, number: int, first: int, upto: int, end: int, gaps: list[Gap]
    ) -> None:
        self._ranges = ranges
        self._topic = wish.topic
        self._view = View(wish)
        self._position = first - 1
        self._last = upto - 1
        self.number = number
        self.end = end
        self.gaps = gaps
        self._skip(gaps)

    def _skip(self, gaps: Sequence[Gap]) -> None:
        """A gap at the start is passed at once: what lies below a floor would look lost."""
        for gap in gaps:
            if gap.first == self._position + 1:
                self._position = gap.last

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The Arrow stream of all of it. Raises RangeLost when some went meanwhile."""
        coming = asyncio.ensure_future(self._next())
        try:
            made = await coming
            yield self._view.opening
            while made is not None:
                coming = asyncio.ensure_future(self._next())
                for piece in made:
                    yield piece
                del made  # it was sent: only the next one is held while that is made
                made = await coming
            yield self._view.end
        finally:
            coming.cancel()
            with contextlib.suppress(asyncio.CancelledError, EskerError):  # nobody is there to be told
                await coming

    async def block(self, most: Room) -> tuple[bytes, int]:
        """What there is room for as one whole stream, and the last seq that it covers."""
        made = await self._next(most) or ()
        return b"".join((self._view.opening, *made, self._view.end)), self._position

    async def file(self) -> Filed:
        """The next of it as a file, while the one behind that is being made. Raises as `pieces` does, and NotHere."""
        path = await self._file() if self._position < self._last else None
        if self._position >= self._last:
            return Filed(path, self.end)  # what lies behind was narrowed away
        self._ranges.make_ahead(copy(self)._file())
        return Filed(path, self._position + 1)

    async def _file(self) -> Path | None:
        """Files end where the seq is a multiple of their rows, so that other ranges are made of the same ones."""
        upto = min(self._last, self._position + CHUNK_ROWS - self._position % CHUNK_ROWS)
        return await self._step(self._ranges.path_of, upto, _FILE_ROOM)

    async def _next(self, most: Room = _ROOM) -> Iterable[bytes] | None:
        """The pieces of the next chunk; None: that was all."""
        if self._position >= self._last:
            return None
        return await self._step(self._ranges.message_of, self._last, most) or ()

    async def _step(self, make: Callable[[Chunk, View], Awaitable[_T | None]], upto: int, most: Room) -> _T | None:
        """Makes something of the next chunk, and goes on behind it; None: no record of it lives."""
        missing = ""
        for _ in range(_TRIES):
            chunk = self._ranges.capture(self._topic, self.number, self._position, upto, most)
            made = await make(chunk, self._view) if chunk.blocks else None
            if made is not None or not chunk.blocks:
                self._position = chunk.last
                return made
            missing = chunk.file or f"block {chunk.blocks[0].first_seq} of topic {chunk.number}"
        raise ArchiveError(f"{missing} is not where it should be")


class View:
    """How the records of a range are shown. Its methods run in threads; pyarrow is loaded when the first is made."""

    def __init__(self, wish: RangeWish) -> None:
        from esker.columns import arrow, records

        self._schema = records.schema_of(wish.columns)
        self._pick = records.Pick(wish.tag_prefix, wish.without_nodes)
        self.key: Hashable = (*self._schema.names, self._pick)
        self.opening: bytes = arrow.schema_piece(self._schema)
        self.end: bytes = arrow.END

    def of_blocks(self, store: Store, chunk: Chunk) -> Message | None:
        """None: the store no longer has some of it, so it is in the archive by now, or gone."""
        from esker.columns import arrow, records

        try:
            return arrow.Message(records.of_parts(self._schema, _parts(store, chunk), self._pick))
        except _BlockGone:
            return None

    def write_blocks(self, store: Store, chunk: Chunk, path: Path) -> None:
        """Raises _BlockGone."""
        from esker.columns import records

        records.write_parts(path, self._schema, _parts(store, chunk), self._pick)

    def of_file(self, file: RecordsFile, chunk: Chunk) -> Message:
        from esker.columns import arrow, records

        masks = [(held.first_seq, held.length, held.live) for held in chunk.blocks]
        batch = records.of_file(self._schema, chunk.file, file.columns, masks, self._pick)
        return arrow.Message(batch)


def _parts(store: Store, chunk: Chunk) -> Iterator[Part]:
    """Raises _BlockGone."""
    from esker.columns.records import Part

    for held in chunk.blocks:
        content = held.content
        if content is None:
            yield Part(held.first_seq, held.live, *_stored(store, chunk.number, held))
        else:
            yield Part(held.first_seq, held.live, content.starts, content.stamps, content.bodies)


def _stored(
    store: Store, number: int, held: _Held
) -> tuple[Sequence[int], Sequence[int], Sequence[RecordBody] | PackedBodies]:
    """Its starts, stamps and bodies. Raises _BlockGone."""
    try:
        content = packed_content(store, number, 0, held.first_seq)
    except InvariantBroken as error:
        raise _BlockGone(str(error)) from error
    packed = PackedBodies(memoryview(content.bodies))
    if len(packed) == held.length:
        return content.starts, content.stamps, packed
    if len(packed) < held.length:
        raise _BlockGone(f"block {held.first_seq} is shorter than it was")
    # It has grown since; what was deleted meanwhile may have been emptied.
    head = Content(content.starts, content.stamps, packed.unpacked()).head(held.length)
    if not all(head.bodies[offset].data for offset in offsets(held.live)):
        raise _BlockGone(f"records of block {held.first_seq} were deleted")
    return head.starts, head.stamps, head.bodies


# -- looking at a log


def captured(log: LogPartition, after: int, upto: int, most: Room) -> Chunk:
    """The living records behind `after` up to `upto`, all from one place: memory and store, or one file."""
    held: list[_Held] = []
    file: ArchivedFile | None = None
    rows = size = 0
    last = upto
    for block in log.blocks_after(after):
        if block.first_seq > upto:
            break
        live = block.live & block.bits(after + 1, upto)
        if not live:
            continue
        archived = log.in_archive(block)
        if held:
            elsewhere = archived if file is None else block.first_seq > file.last or not archived
            if elsewhere or size + block.live_bytes > most.bytes:
                last = block.first_seq - 1
                break
        elif archived:
            (file,) = log.files.touching(block.first_seq, block.first_seq)
        some = _lowest(live, most.rows - rows)
        held.append(_Held(block.first_seq, block.count, some, _copied(block)))
        rows += some.bit_count()
        size += block.live_bytes
        if rows >= most.rows:
            last = min(upto, block.first_seq + (some.bit_length() if some != live else block.count) - 1)
            break
    return Chunk(log.topic.number, last, held, *(("", "") if file is None else (file.path, file.sha256)))


def _lowest(bits: int, count: int) -> int:
    """The lowest `count` of the bits that are set."""
    if bits.bit_count() <= count:
        return bits
    last = next(islice(offsets(bits), count - 1, None))
    return bits & ((2 << last) - 1)


def _copied(block: Block) -> Content | None:
    """Of a block in memory: records may be added to it, or emptied, while a thread looks at it."""
    content = block.content
    return None if content is None else Content(content.starts[:], content.stamps[:], content.bodies[:])


def gaps_of(log: LogPartition, first: int, end: int) -> list[Gap]:
    """What of the seqs from `first` to before `end` was lost, in order. The floors must be up to date."""
    found: list[Gap] = []
    floor = max(log.cap_floor, log.ttl_floor)
    if first < min(floor, end):
        reasons = [reason for reason, at in (("cap", log.cap_floor), ("ttl", log.ttl_floor)) if first < at]
        found.append(Gap(first, min(floor, end) - 1, reasons[0] if len(reasons) == 1 else "mixed"))
        first = min(floor, end)
    gap = log.gaps.after(first - 1)
    while gap is not None and gap.first < end:
        found.append(Gap(max(gap.first, first), min(gap.last, end - 1), gap.reason))
        gap = log.gaps.after(gap.last)
    if end > max(first, log.head_seq + 1):  # a crash may have taken these: no record will ever have them
        found.append(Gap(max(first, log.head_seq + 1), end - 1, LOST))
    return found


def seq_at(log: LogPartition, ms: int) -> int:
    """Of the first record that came at `ms` or later, gone ones too; `next_seq`: there is none."""
    blocks = log.blocks
    at = bisect_left(blocks, ms, key=lambda block: block.last_ts)
    if at == len(blocks):
        return log.next_seq
    block = blocks[at]
    return block.first_seq if block.first_ts >= ms else block.first_seq + log.outline(block).first_at(ms)


def _behind_older(log: LogPartition, ms: int) -> int:
    """The seq behind the last record that came before `ms`; 0: there is none."""
    blocks = log.blocks
    seq = seq_at(log, ms)
    at = bisect_left(blocks, seq, key=lambda block: block.end)  # blocks before this end at `seq` or earlier
    if at < len(blocks) and blocks[at].first_seq < seq:
        return seq
    return blocks[at - 1].end if at else 0


def _between(log: LogPartition, wish: RangeWish, end: int) -> tuple[int, int]:
    """The range narrowed to the times asked for. Gaps beside it stay within, as nobody knows when they were."""
    first = wish.first
    if wish.since_ms is not None:
        first = max(first, _behind_older(log, wish.since_ms))
    if wish.until_ms is not None:
        end = min(end, seq_at(log, wish.until_ms))
    return min(first, end), end


def _data_loss(topic: bytes, gaps: Sequence[Gap]) -> RangeRefused:
    shown = topic.decode("utf-8", "backslashreplace")
    told = [{"first": gap.first, "last": gap.last, "reason": gap.reason} for gap in gaps[:GAPS_MAX]]
    more = f", and {len(gaps) - 1} gaps more" if len(gaps) > 1 else ""
    return RangeRefused(
        "data_loss",
        f"records {gaps[0].first} to {gaps[0].last} of topic {shown!r} are lost ({gaps[0].reason}){more}; "
        "start behind them, or ask with on_gap=skip",
        {"topic": shown, "gaps": told},
    )
