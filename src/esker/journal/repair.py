"""Looking at a damaged journal, and making it usable again at a price that is named first.

`inspect` only reads. `repair` keeps every batch before the first damage and sets the rest aside: what follows a lost
batch was decided on a state that can no longer be rebuilt, so it cannot be kept. Unless a checkpoint has that state:
positions up to `covered` are not needed any more, so where the damage lies among those, it is the batches behind
`covered` that are kept, up to the next damage, and most often nothing is lost at all.

Nothing is deleted: each file that loses something stays beside the journal as `*.damaged`. Positions go on from the
first lost one.

The broker must be stopped. A crash during `repair` leaves a journal that `repair` can be called on again.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from esker.errors import DataDirectoryError
from esker.journal.disk import Disk, RealDisk, write_all
from esker.journal.frame import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    encode_segment_header,
    frame_header,
    frames_beyond,
    usable_segment_id,
)
from esker.journal.segment import bytes_on_disk, segment_path
from esker.journal.survey import SurveyedSegment, read_segment, survey

DAMAGED_SUFFIX = ".damaged"
_REPAIRING_SUFFIX = ".repairing"


@dataclass(frozen=True, slots=True)
class Damage:
    """One bad place. `bytes` are those that cannot be read there; 0 when they are simply missing."""

    path: Path
    offset: int
    bytes: int
    what: str
    torn: bool


@dataclass(frozen=True, slots=True)
class Loss:
    """What a repair gives up. Positions from `first_position` on; `last_position` is None when nothing tells it.

    `readable_batches` and `readable_bytes` count the batches behind the first damage that are good in themselves.
    """

    first_position: int
    last_position: int | None
    readable_batches: int
    readable_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentReport:
    path: Path
    first_position: int
    last_position: int
    bytes: int


@dataclass(frozen=True, slots=True)
class JournalReport:
    """`kept_upto` is the last position that a repair keeps, or that a checkpoint has anyway.

    `loss` is None when nothing promised is gone.
    """

    directory: Path
    segments: tuple[SegmentReport, ...]
    damage: tuple[Damage, ...]
    kept_upto: int
    loss: Loss | None

    @property
    def sound(self) -> bool:
        """Whether the journal opens as it is. A torn tail does no harm: opening cuts it."""
        return all(damage.torn for damage in self.damage)


@dataclass(frozen=True, slots=True)
class RepairResult:
    """What was found, and the files that now hold what was set aside."""

    report: JournalReport
    set_aside: tuple[Path, ...]


def inspect(directory: Path, covered: int = 0, disk: Disk | None = None) -> JournalReport:
    """Reads the journal in `directory` and changes nothing. Raises `DataDirectoryError` when there is none to read.

    `covered` is the position of the checkpoint that recovery would begin with.
    """
    disk = RealDisk() if disk is None else disk
    return _report(disk, directory, _surveyed(directory, disk), covered)


def repair(directory: Path, covered: int = 0, disk: Disk | None = None) -> RepairResult:
    """Makes a journal that opens, of what `inspect` says is kept. Does nothing to a sound one."""
    disk = RealDisk() if disk is None else disk
    segments = _surveyed(directory, disk)
    report = _report(disk, directory, segments, covered)
    if report.sound:
        return RepairResult(report, ())
    damaged, *later = segments[_first_damaged(segments) :]
    if damaged.last_position < covered:
        return RepairResult(report, _begin_behind(disk, directory, segments, covered))
    # First the damaged one, so that until the last step the gap behind it is there to be seen.
    # The last one is replaced in any case: its header says that more was on disk.
    changes = damaged.fault is not None and (damaged.fault.bytes or not later)
    set_aside = [_replace_with_prefix(disk, damaged)] if changes else []
    set_aside += [_set_aside(disk, segment.path) for segment in reversed(later)]
    return RepairResult(report, tuple(sorted(set_aside)))


def _surveyed(directory: Path, disk: Disk) -> list[SurveyedSegment]:
    try:
        segments = survey(disk, directory)
    except OSError as error:
        raise DataDirectoryError(f"{directory} cannot be read: {error.strerror or error}") from error
    if not segments:
        raise DataDirectoryError(
            f"{directory} holds no journal segments: give the directory that has the .segment files"
        )
    return segments


def _first_damaged(segments: list[SurveyedSegment]) -> int:
    return next(i for i, segment in enumerate(segments) if segment.fault is not None and not segment.fault.torn)


def _report(disk: Disk, directory: Path, segments: list[SurveyedSegment], covered: int) -> JournalReport:
    faults = [segment.fault for segment in segments if segment.fault is not None]
    kept_upto = next((s.last_position for s in segments if s.fault is not None), segments[-1].last_position)
    loss: Loss | None = None
    if not all(fault.torn for fault in faults):
        behind = segments[_first_damaged(segments) :]
        loss = _loss(behind)
        if behind[0].last_position < covered:
            kept_upto, loss = _left_behind(disk, segments, covered, loss)
    return JournalReport(
        directory,
        tuple(SegmentReport(s.path, s.first_position, s.last_position, s.size) for s in segments),
        tuple(Damage(fault.path, fault.offset, fault.bytes, fault.what, fault.torn) for fault in faults),
        kept_upto,
        loss,
    )


def _left_behind(disk: Disk, segments: list[SurveyedSegment], covered: int, whole: Loss) -> tuple[int, Loss | None]:
    """How far the batches behind `covered` reach, and what of the `whole` loss is lost then."""
    positions = {position: bytes_on_disk(batch) for position, batch in _readable(disk, segments) if position > covered}
    kept_upto = covered
    while kept_upto + 1 in positions:
        kept_upto += 1
    reached = max([whole.last_position or 0, *positions])
    if reached <= kept_upto:
        return kept_upto, None
    beyond = [size for position, size in positions.items() if position > kept_upto]
    return kept_upto, Loss(kept_upto + 1, reached, len(beyond), sum(beyond))


def _readable(disk: Disk, segments: list[SurveyedSegment]) -> Iterator[tuple[int, bytes]]:
    """Positions and batches of all that can be read, wherever it lies, in order."""
    for segment in segments:
        if segment.end >= SEGMENT_HEADER_BYTES:  # else its header is gone, and with it what its frames are known by
            data = read_segment(disk, segment.path)
            for frame in frames_beyond(data, SEGMENT_HEADER_BYTES, segment.segment_id):
                if not frame.is_mark:
                    yield frame.position, frame.batch(data)


def _loss(segments: list[SurveyedSegment]) -> Loss:
    """What goes when all behind the first damage goes; `segments` begins with the damaged one."""
    damaged, *later = segments
    faults = [segment.fault for segment in segments if segment.fault is not None]
    reached = [fault.reaches for fault in faults if fault.reaches is not None]
    reached += [segment.last_position for segment in later]
    return Loss(
        damaged.last_position + 1,
        max(reached, default=None),
        sum(segment.frames for segment in later) + sum(fault.stray.frames for fault in faults),
        sum(max(0, segment.end - SEGMENT_HEADER_BYTES) for segment in later)
        + sum(fault.stray.bytes for fault in faults),
    )


def _begin_behind(disk: Disk, directory: Path, segments: list[SurveyedSegment], covered: int) -> tuple[Path, ...]:
    """Makes one segment of the batches behind `covered`, and sets all others aside.

    It comes first. Until the last of the others has gone they do not fit together, so that a repair that a crash cut
    short is seen to be needed still, and finds all it needs.
    """
    segment_id = usable_segment_id(secrets.randbits(64))
    frames = bytearray()
    expected = covered + 1
    for position, batch in _readable(disk, segments):
        if position == expected:
            frames += frame_header(segment_id, position, position - 1, batch) + batch
            expected += 1
    content = encode_segment_header(SegmentHeader(segment_id, covered + 1, synced=expected - 1)) + frames
    path = segment_path(directory, covered + 1)
    others = [segment.path for segment in segments if segment.path != path]
    set_aside = [] if len(others) == len(segments) else [_second_name(disk, path)]
    _put(disk, path, content)
    set_aside += [_set_aside(disk, other) for other in reversed(others)]
    return tuple(sorted(set_aside))


def _replace_with_prefix(disk: Disk, segment: SurveyedSegment) -> Path:
    """Puts a copy of the good part in the place of a damaged segment, which stays under another name."""
    keeps_frames = segment.end >= SEGMENT_HEADER_BYTES
    segment_id = segment.segment_id if keeps_frames else usable_segment_id(secrets.randbits(64))
    # A header of its own: the old one may say that what is lost was on disk.
    prefix = encode_segment_header(SegmentHeader(segment_id, segment.first_position, synced=segment.last_position))
    if keeps_frames:
        prefix += read_segment(disk, segment.path)[SEGMENT_HEADER_BYTES : segment.end]
    aside = _second_name(disk, segment.path)
    _put(disk, segment.path, prefix)
    return aside


def _put(disk: Disk, path: Path, content: bytes) -> None:
    """A segment of this content, in the place of the one of that name, if there is one: at no moment is it missing."""
    repairing = path.with_name(path.name + _REPAIRING_SUFFIX)
    fd = disk.open(repairing, create=True)
    try:
        write_all(disk, fd, content, 0)
        disk.fdatasync(fd)
    finally:
        disk.close(fd)
    disk.rename(repairing, path)
    disk.sync_directory(path.parent)


def _second_name(disk: Disk, path: Path) -> Path:
    aside = _free_name(disk, path)
    disk.link(path, aside)
    disk.sync_directory(path.parent)
    return aside


def _set_aside(disk: Disk, path: Path) -> Path:
    aside = _free_name(disk, path)
    disk.rename(path, aside)
    disk.sync_directory(path.parent)
    return aside


def _free_name(disk: Disk, path: Path) -> Path:
    taken = set(disk.names(path.parent))
    name = path.name + DAMAGED_SUFFIX
    number = 2
    while name in taken:
        name = f"{path.name}.{number}{DAMAGED_SUFFIX}"
        number += 1
    return path.with_name(name)
