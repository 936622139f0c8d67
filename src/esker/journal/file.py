"""The file journal: a directory of segments, written by one thread (`writer`), kept in spares by another (`spares`).

Opening surveys all segments (see `survey`): a torn tail is cut and noted; damage is refused with `JournalCorrupt`, and
the directory is left as it was. Reading starts at the segment that holds the position. The bytes are in `frame`.

Example:
    >>> import tempfile, threading
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as scratch:
    ...     journal = FileJournal(Path(scratch), segment_bytes=4096)
    ...     durable = threading.Event()
    ...     position = journal.append(b"a batch", sync=True, done=lambda error: durable.set())
    ...     assert durable.wait(10)
    ...     journal.close()
    ...     journal = FileJournal(Path(scratch), segment_bytes=4096)
    ...     print(list(journal.read(after=0)))
    ...     journal.close()
    [(1, b'a batch')]
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock

from esker.errors import DataDirectoryError, JournalCorrupt, JournalError
from esker.journal.disk import Disk, RealDisk, make_directory
from esker.journal.frame import BATCH_BYTES_MAX, SEGMENT_HEADER_BYTES, VERSION, decode_segment_header, frames_from
from esker.journal.interface import Done
from esker.journal.patience import Patience
from esker.journal.segment import SEGMENT_OVERHEAD_BYTES, OpenSegment
from esker.journal.spares import OnRetire, SpareShelf
from esker.journal.survey import Fault, SurveyedSegment, read_segment, survey
from esker.journal.writer import Append, Writer

SEGMENT_BYTES = 64 * 1024 * 1024  # a roll about once a minute at 1 MB/s; two spares are a small part of any disk
SEGMENT_BYTES_MIN = SEGMENT_OVERHEAD_BYTES + 64
SYNC_INTERVAL_MS = 100
INLINE_BYTES_MAX = 1024 * 1024  # of a batch that its caller may write: checksum and write of more take milliseconds
RESERVE_BYTES = 128 * 1024 * 1024  # room for a checkpoint and for the acks that let work drain
SPACE_CHECK_MS = 1000


class FileJournal:
    """The journal of one shard in `directory`, which is made when it is missing. One process may have it open.

    `inline` lets an append that wants a sync be written by its caller, before `append` returns, while the disk is
    quick and the batch is not large.

    `on_retire(path)` is called before a segment goes, on the thread that also makes spares: link or copy the file and
    return. When it raises, or returns False, the segment and all behind it stay, and it is called again later.
    """

    writer_type: type[Writer] = Writer
    shelf_type: type[SpareShelf] = SpareShelf

    def __init__(
        self,
        directory: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        sync_interval_ms: int = SYNC_INTERVAL_MS,
        reserve_bytes: int = RESERVE_BYTES,
        space_check_ms: int = SPACE_CHECK_MS,
        inline: bool = False,
        on_retire: OnRetire | None = None,
        disk: Disk | None = None,
        patience: Patience | None = None,
    ) -> None:
        if segment_bytes < SEGMENT_BYTES_MIN:
            raise ValueError(f"segment_bytes is {segment_bytes}; it must be at least {SEGMENT_BYTES_MIN}")
        self._inline = inline
        self._busy = False
        self._disk: Disk = RealDisk() if disk is None else disk
        self._patience = Patience() if patience is None else patience
        self._notes: list[str] = []
        self._closed = False
        try:
            segments, tail = self._open(directory)
        except OSError as error:
            raise JournalError(f"the journal in {directory} could not be opened: {error}; check the disk") from error
        # Appended to by the writer at a roll, shortened by retire.
        self._segments = [(segment.first_position, segment.path) for segment in segments]
        self._segments_lock = Lock()
        self._last = segments[-1].last_position if segments else 0
        self._shelf = self.shelf_type(
            self._disk,
            directory,
            segment_bytes=segment_bytes,
            reserve_bytes=reserve_bytes,
            space_check_ms=space_check_ms,
            on_retire=on_retire,
            notes=self._notes,
        )
        self._writer = self.writer_type(
            self._disk,
            self._shelf,
            segment=tail,
            last_position=self._last,
            segment_bytes=segment_bytes,
            sync_interval_ms=sync_interval_ms,
            patience=self._patience,
            on_roll=self._rolled,
            notes=self._notes,
        )

    @property
    def first_position(self) -> int:
        with self._segments_lock:
            return self._segments[0][0] if self._segments else 1

    @property
    def last_position(self) -> int:
        return self._last

    @property
    def notes(self) -> Sequence[str]:
        return tuple(self._notes)

    def read(self, after: int) -> Iterator[tuple[int, bytes]]:
        """Positions and batches behind `after`. Only before the first append."""
        with self._segments_lock:
            start = max(0, bisect_right(self._segments, after + 1, key=lambda segment: segment[0]) - 1)
            segments = self._segments[start:]
        ends = [*(first - 1 for first, _ in segments[1:]), self._last]
        for (first, path), last in zip(segments, ends, strict=False):  # of no segment there is an end still
            data = read_segment(self._disk, path)
            header = decode_segment_header(data, str(path))
            if header is None:
                raise JournalCorrupt(f"{path} changed since it was opened: its header is damaged")
            position = first - 1
            for frame in frames_from(data, SEGMENT_HEADER_BYTES, header.segment_id, first):
                if frame.position > last:
                    break
                position = frame.position
                if position > after:
                    yield position, frame.batch(data)
            if position < last:
                raise JournalCorrupt(f"{path} changed since it was opened: position {position + 1} cannot be read")

    def append(self, batch: bytes, sync: bool, done: Done) -> int:
        if self._closed:
            raise JournalError("the journal is closed: open it again to append")
        if len(batch) > BATCH_BYTES_MAX:
            raise ValueError(f"a batch has {len(batch)} bytes; the journal takes at most {BATCH_BYTES_MAX}")
        position = self._last = self._last + 1
        append = Append(position, batch, sync, done)
        inline = sync and self._inline and not self._busy and len(batch) <= INLINE_BYTES_MAX
        if not (inline and self._writer.write_now(append)):
            self._writer.put(append)
        return position

    def expect_slow(self, slow: bool) -> None:
        self._busy = slow

    @property
    def waits_for(self) -> str | None:
        return self._patience.waits_for

    def hurry(self) -> None:
        self._patience.end()

    def has_room(self) -> bool:
        return not self._shelf.full

    @property
    def free_bytes(self) -> int | None:
        return self._shelf.free_bytes

    def retire(self, upto: int) -> None:
        """Segments wholly at or below `upto` go, except the newest. Returns at once; `settle` waits for it."""
        with self._segments_lock:
            count = 0
            while count + 1 < len(self._segments) and self._segments[count + 1][0] - 1 <= upto:
                count += 1
            gone = [path for _, path in self._segments[:count]]
            del self._segments[:count]
            # Within the lock, so that two callers cannot hand over their segments in the wrong order.
            if gone:
                self._shelf.retire(gone)

    def settle(self) -> None:
        """Waits until retired segments are gone, a spare is in hand if there is space, and `has_room` is up to date."""
        self._shelf.settle()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._writer.close()
        self._shelf.close()

    def _open(self, directory: Path) -> tuple[list[SurveyedSegment], OpenSegment | None]:
        try:
            make_directory(self._disk, directory)
        except OSError as error:
            raise DataDirectoryError(f"{directory} cannot be used for a journal: {error.strerror or error}") from error
        segments = survey(self._disk, directory)
        for segment in segments:
            if segment.fault is not None and not segment.fault.torn:
                raise JournalCorrupt(
                    f"{segment.path} is damaged at offset {segment.fault.offset}: {segment.fault.what}. "
                    f"`esker journal check {directory}` says whether anything is lost; `esker journal repair "
                    f"{directory}` keeps what can be kept and sets the rest aside"
                )
        if not segments:
            return segments, None
        last = segments[-1]
        tail = OpenSegment.reopen(self._disk, last.path, last.segment_id, last.end, last.size)
        if last.fault is not None:
            self._cut(tail, last.fault)
            return segments, None
        if last.version < VERSION:
            tail.close()
            return segments, None
        return segments, tail

    def _cut(self, tail: OpenSegment, fault: Fault) -> None:
        tail.cut()
        tail.sync()
        tail.close()
        self._notes.append(
            f"{fault.path} had a torn tail at offset {fault.offset}: {fault.what}; {fault.bytes} bytes were cut, "
            "none of which the journal notes as synced"
        )

    def _rolled(self, segment: OpenSegment, first_position: int) -> None:
        with self._segments_lock:
            # A segment whose every frame was torn has the same first position, and the new one took its place.
            if self._segments and self._segments[-1][0] == first_position:
                self._segments.pop()
            self._segments.append((first_position, segment.path))
