"""What a journal directory holds, and whether it is whole. Reads only; opening and repair both act on its result.

The frames of a segment are walked from its header on, checksums only. What the walk meets at its end is judged:

* In a segment with another one behind it: the walk must end exactly before the first position of that one, for a
  segment is synced before the next begins. Anything else is damage.
* In the last segment: zeros, a mark or the end of the file are a clean end. Anything else is a torn tail (an append
  that was under way when the power went). But where a good frame or mark further on, or the segment header, was written
  after a sync that covered the place, something that was promised is gone, and that is damage, whatever is there now.

What cannot be told, so that an append that was acknowledged goes like a torn tail or like nothing:

* After a loss of power: damage to the last synced write. Its mark was not synced, and went with the power.
* After a kill: damage that takes the last synced frames *and* the mark behind them (zeros over both, or a cut), within
  a second of their sync, before the segment header has it. All that was synced earlier is known by the header.
* In a journal that was closed in order: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from esker.errors import JournalError
from esker.journal.disk import Disk
from esker.journal.frame import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    VERSION,
    Frame,
    SegmentHeader,
    decode_segment_header,
    frame_at,
    frames_beyond,
    frames_from,
    written_end,
)
from esker.journal.segment import segment_paths


@dataclass(frozen=True, slots=True)
class Stray:
    """Good frames that lie behind a bad place."""

    frames: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Fault:
    """The first bad place of a segment. `torn` says that nothing promised was there.

    `reaches` is the last position that is known to have been in the segment; None when nothing tells.
    """

    path: Path
    offset: int
    bytes: int
    what: str
    torn: bool
    stray: Stray
    reaches: int | None


@dataclass(frozen=True, slots=True)
class SurveyedSegment:
    """`end` is the offset behind the last good frame; `last_position` is first_position - 1 when there is none."""

    path: Path
    segment_id: int
    first_position: int
    last_position: int
    end: int
    size: int
    fault: Fault | None
    version: int = VERSION

    @property
    def frames(self) -> int:
        return self.last_position - self.first_position + 1


def read_segment(disk: Disk, path: Path) -> bytes:
    try:
        return disk.read(path)
    except OSError as error:
        raise JournalError(f"cannot read {path}: {error.strerror or error}; check the disk") from error


def survey(disk: Disk, directory: Path) -> list[SurveyedSegment]:
    """All segments of a journal, oldest first. Raises `DataDirectoryError` when one has a newer format."""
    paths = segment_paths(disk, directory)
    next_firsts: list[int | None] = [first for first, _ in paths]
    next_firsts.append(None)
    return [
        _survey_segment(path, read_segment(disk, path), first, next_first)
        for (first, path), next_first in zip(paths, next_firsts[1:], strict=True)
    ]


def _survey_segment(path: Path, data: bytes, first: int, next_first: int | None) -> SurveyedSegment:
    header = decode_segment_header(data, str(path))
    if header is None or header.first_position != first:
        what = (
            "the segment header is damaged"
            if header is None
            else f"the header begins at position {header.first_position}, the name at {first}"
        )
        reaches = None if next_first is None else next_first - 1
        fault: Fault | None = Fault(path, 0, len(data), what, False, Stray(0, 0), reaches)
        return SurveyedSegment(path, 0, first, first - 1, 0, len(data), fault)
    end, last = SEGMENT_HEADER_BYTES, first - 1
    for frame in frames_from(data, end, header.segment_id, first):
        end, last = frame.end, frame.position
    if next_first is None:
        fault = _judge_tail(path, data, end, header, last + 1)
    else:
        fault = _judge_middle(path, data, end, header.segment_id, last + 1, next_first)
    return SurveyedSegment(path, header.segment_id, first, last, end, len(data), fault, header.version)


def _judge_middle(path: Path, data: bytes, end: int, segment_id: int, expected: int, next_first: int) -> Fault | None:
    if expected == next_first:
        return None
    end = _behind_mark(data, end, segment_id, expected - 1)
    beyond = list(frames_beyond(data, end, segment_id))
    found_again = min((frame.position for frame in beyond if frame.position > expected), default=next_first)
    lost = f"position {expected}" if found_again - expected == 1 else f"positions {expected} to {found_again - 1}"
    what = (
        f"{lost} should be here and cannot be read"
        if expected < next_first
        else f"it holds positions up to {expected - 1}, but the next segment begins at {next_first}"
    )
    return Fault(path, end, written_end(data, end, segment_id) - end, what, False, _stray(beyond), next_first - 1)


def _judge_tail(path: Path, data: bytes, end: int, header: SegmentHeader, expected: int) -> Fault | None:
    segment_id = header.segment_id
    begun = _behind_mark(data, end, segment_id, expected - 1)
    marked = begun > end
    beyond = list(frames_beyond(data, begun, segment_id))
    synced = max([header.synced, *(frame.synced for frame in beyond)])
    if synced < expected and not beyond and (marked or not any(data[end : end + FRAME_HEADER_BYTES])):
        return None
    torn = synced < expected
    lost_upto = min([synced, *(frame.position - 1 for frame in beyond if not frame.is_mark)])
    what = (
        f"the append of position {expected} was cut short"
        if torn
        else f"{_positions(expected, lost_upto)} on disk and cannot be read"
    )
    reaches = max([*(frame.position for frame in beyond), *([] if torn else [synced])], default=None)
    return Fault(path, end, written_end(data, end, segment_id) - end, what, torn, _stray(beyond), reaches)


def _behind_mark(data: bytes, end: int, segment_id: int, last: int) -> int:
    """`end`, or the end of the mark that follows the frame of position `last` there."""
    with memoryview(data) as view:
        here = frame_at(data, view, end, segment_id)
    return here.end if here is not None and here.is_mark and here.position == last else end


def _positions(first: int, last: int) -> str:
    return f"position {first} was" if first == last else f"positions {first} to {last} were"


def _stray(beyond: list[Frame]) -> Stray:
    frames = [frame for frame in beyond if not frame.is_mark]
    return Stray(len(frames), sum(frame.end - frame.start for frame in frames))
