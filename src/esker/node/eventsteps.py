"""What the worker beside the node does (eventworker.py): it reads segments of the journal and makes columns of them.

Many share it, and each asks for a small step at a time. Whoever reads a segment has a cursor, which knows what came
before in it; one that is left at some place is kept for a while, for whoever follows the history comes back there.
"""

from __future__ import annotations

import gc
import os
import signal
import struct
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from esker.archive.history import EventsFile, events_steps
from esker.columns.eventnames import Names
from esker.columns.events import EventColumns, blocks
from esker.columns.eventwish import Wanted
from esker.engine.events import decode_batch
from esker.errors import EskerError, JournalCorrupt
from esker.journal.disk import RealDisk
from esker.journal.frame import FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, decode_segment_header, frame_at
from esker.journal.segment import SEGMENT_SUFFIX, segment_paths
from esker.node.eventwire import (
    Answer,
    ArchiveEvents,
    Failed,
    Learn,
    LeaveEvents,
    PipeClosed,
    ReadEvents,
    Rows,
    Step,
    receive_request,
    send,
)

_WINDOW_BYTES: Final = 4 << 20  # of a segment, read at a time
_STEP_ROWS: Final = 32_768  # made in one step: some 5 MB, of which the node holds a few for each reader
_STEP_BYTES: Final = 8 << 20  # of the journal looked at in one step, if it makes few rows
_CURSORS_MAX: Final = 64  # who read at a time; each holds a file and some MB. One too many begins anew each time
_PARKED_MAX: Final = 8  # who may come back for more
_NICE: Final = 5  # traffic comes first
_LENGTH = struct.Struct("<I")


class Segment:
    """A segment that is read from its start, a frame at a time. It may grow meanwhile, or be overwritten."""

    def __init__(self, path: Path) -> None:
        """Raises FileNotFoundError when it is gone, JournalCorrupt when it cannot be read."""
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._offset = SEGMENT_HEADER_BYTES
        self._window = b""
        self._window_at = 0
        header = decode_segment_header(os.pread(self._fd, SEGMENT_HEADER_BYTES, 0), str(path))
        if header is None:
            os.close(self._fd)
            raise JournalCorrupt(f"{path} changed since it was opened: its header is damaged")
        self._segment_id = header.segment_id
        self.next = header.first_position  # position of the next frame

    def close(self) -> None:
        os.close(self._fd)

    def batch(self) -> bytes | None:
        """The next batch; None: there is none, or no more."""
        found = self._in_window()
        if found is None:
            found = self._read_on()
        if found is not None:
            self.next += 1
        return found

    def _in_window(self) -> bytes | None:
        start = self._offset - self._window_at
        with memoryview(self._window) as view:
            frame = frame_at(self._window, view, start, self._segment_id)
        if frame is None or frame.is_mark or frame.position != self.next:
            return None
        self._offset += frame.end - frame.start
        return frame.batch(self._window)

    def _read_on(self) -> bytes | None:
        """A frame may lie beyond the window, or be longer than one."""
        head = os.pread(self._fd, FRAME_HEADER_BYTES, self._offset)
        if len(head) < FRAME_HEADER_BYTES:
            return None
        (length,) = _LENGTH.unpack_from(head)
        left = os.fstat(self._fd).st_size - self._offset
        if not FRAME_HEADER_BYTES <= length <= left:
            return None
        self._window = os.pread(self._fd, max(length, min(_WINDOW_BYTES, left)), self._offset)
        self._window_at = self._offset
        return self._in_window()


class Reading:
    """One who reads a segment: knows what came before, and so the names and the ids of jobs."""

    def __init__(self, request: ReadEvents, names: Names) -> None:
        self.path = request.path
        self.wanted: Wanted = request.wanted
        self._segment = Segment(Path(request.path))
        self._columns = EventColumns(names, request.wanted)
        self.told = self._segment.next

    def close(self) -> None:
        self._segment.close()

    def goes_on(self, request: ReadEvents) -> bool:
        return (self.path, self.told, self.wanted) == (request.path, request.start, request.wanted)

    def step(self, start: int, end: int) -> tuple[Rows, bytes]:
        segment, columns = self._segment, self._columns
        looked = 0
        gone = False
        while segment.next < end and columns.rows < _STEP_ROWS and looked < _STEP_BYTES:
            batch = segment.batch()
            if batch is None:
                gone = True
                break
            looked += len(batch)
            happened = decode_batch(batch)
            if segment.next - 1 < start:
                columns.pass_over(happened)
            else:
                columns.add(segment.next - 1, happened)
        self.told = segment.next
        if not columns.rows:
            return Rows(max(start, self.told), gone), b""
        rows = columns.take()
        data = b"".join(bytes(block.serialize()) for block in blocks(rows))
        return Rows(self.told, gone), data


class Worker:
    def __init__(self) -> None:
        self._names = Names()
        self._readings: OrderedDict[int, Reading] = OrderedDict()
        self._parked = 0  # cursors of those who left have numbers below 0
        self._archiving: tuple[str, Iterator[EventsFile | None]] | None = None

    def answer(self, request: Learn | ReadEvents | LeaveEvents | ArchiveEvents) -> tuple[Answer, bytes] | None:
        if isinstance(request, ReadEvents):
            return self._read(request)
        if isinstance(request, ArchiveEvents):
            return self._archive(request)
        if isinstance(request, LeaveEvents):
            self._leave(request.cursor)
            return None
        for number, name in request.topics:
            self._names.topic_is(number, name)
        for number, name, dest in request.routers:
            self._names.router_is(number, name, dest)
        return None

    def _read(self, request: ReadEvents) -> tuple[Answer, bytes]:
        reading = self._reading(request)
        if reading is None:
            return Rows(request.start, gone=True), b""
        return reading.step(request.start, request.end)

    def _reading(self, request: ReadEvents) -> Reading | None:
        """The one of this cursor, or one that was left at the very place, or a new one. None: the segment is gone."""
        found = self._readings.get(request.cursor)
        if found is not None and (found.path == request.path and found.told <= request.start):
            self._readings.move_to_end(request.cursor)
            return found
        self._drop(request.cursor)
        parked = next((number for number, each in self._readings.items() if number < 0 and each.goes_on(request)), None)
        if parked is not None:
            found = self._readings.pop(parked)
        else:
            try:
                found = Reading(request, self._names)
            except FileNotFoundError:
                return None
        self._readings[request.cursor] = found
        while len(self._readings) > _CURSORS_MAX + _PARKED_MAX:
            self._drop(next(iter(self._readings)))
        return found

    def _leave(self, cursor: int) -> None:
        """Kept for a while: whoever follows the history comes back for what is new, and asks from here on."""
        reading = self._readings.pop(cursor, None)
        if reading is None:
            return
        self._parked -= 1
        self._readings[self._parked] = reading
        newest = max(map(str, Path(reading.path).parent.glob(f"*{SEGMENT_SUFFIX}")), default="")
        parked = [number for number in self._readings if number < 0]
        for place, number in enumerate(reversed(parked)):
            if place >= _PARKED_MAX or self._readings[number].path != newest:  # nothing comes behind the others
                self._drop(number)

    def _drop(self, cursor: int) -> None:
        reading = self._readings.pop(cursor, None)
        if reading is not None:
            reading.close()
            gc.collect()

    def _archive(self, request: ArchiveEvents) -> tuple[Answer, bytes]:
        if request.again or self._archiving is None or self._archiving[0] != request.path:
            self._archiving = request.path, events_steps(_batches(Path(request.path)), self._names)
        made = next(self._archiving[1], _END)
        if made is _END:
            self._archiving = None
            return Step(done=True), b""
        return (Step(), b"") if made is None else (Step(made.name), made.data)


_END: Final = EventsFile("", b"")


def _batches(path: Path) -> Iterator[tuple[int, bytes]]:
    """All of a segment that another follows. Raises JournalCorrupt where it ends too early: then it must not go."""
    following = [first for first, other in segment_paths(RealDisk(), path.parent) if other.name > path.name]
    segment = Segment(path)
    try:
        while (batch := segment.batch()) is not None:
            yield segment.next - 1, batch
        if following and segment.next < following[0]:
            raise JournalCorrupt(
                f"{path} is damaged: position {segment.next} cannot be read; it stays, and all behind it, until "
                "`esker journal repair` was run"
            )
    finally:
        segment.close()


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answers until the pipe ends."""
    # Whoever stops the node's whole group means the node: it ends this process when it needs it no more.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError):
        os.nice(_NICE)
    gc.freeze()
    gc.disable()  # a step makes hundreds of thousands of objects, none of them in a cycle; see `_drop`
    worker = Worker()
    with suppress(PipeClosed):
        while True:
            request = receive_request(requests)
            try:
                answer = worker.answer(request)
            except (EskerError, OSError) as error:
                answer = Failed(str(error)), b""
            if answer is not None:
                send(answers, *answer)
