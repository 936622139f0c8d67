"""Looking at a damaged journal, and making it usable again at a price that is named first.

`inspect` only reads. `repair` keeps every batch before the first damage and sets the rest aside: what follows a lost
batch was decided on a state that can no longer be rebuilt, so it cannot be kept. Nothing is deleted: each file that
loses something stays beside the journal as `*.damaged`. Positions go on from the first lost one.

The broker must be stopped. A crash during `repair` leaves a journal that `repair` can be called on again.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from esker.errors import DataDirectoryError
from esker.journal.disk import Disk, RealDisk, write_all
from esker.journal.frame import SEGMENT_HEADER_BYTES, SegmentHeader, encode_segment_header, usable_segment_id
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
    """`kept_upto` is the last position before the first bad place; `loss` is None when nothing promised is gone."""

    directory: Path
    segments: tuple[SegmentReport, ...]
    damage: tuple[Damage, ...]
    kept_upto: int
    loss: Loss | None

    @property
    def sound(self) -> bool:
        """Whether the journal opens as it is. A torn tail does no harm: opening cuts it."""
        return self.loss is None


@dataclass(frozen=True, slots=True)
class RepairResult:
    """What was found, and the files that now hold what was set aside."""

    report: JournalReport
    set_aside: tuple[Path, ...]


def inspect(directory: Path, disk: Disk | None = None) -> JournalReport:
    """Reads the journal in `directory` and changes nothing. Raises `DataDirectoryError` when there is none to read."""
    return _report(directory, _surveyed(directory, RealDisk() if disk is None else disk))


def repair(directory: Path, disk: Disk | None = None) -> RepairResult:
    """Keeps what comes before the first damage. Does nothing to a sound journal."""
    disk = RealDisk() if disk is None else disk
    segments = _surveyed(directory, disk)
    report = _report(directory, segments)
    if report.sound:
        return RepairResult(report, ())
    damaged, *later = segments[_first_damaged(segments) :]
    # First the damaged one, so that until the last step the gap behind it is there to be seen.
    set_aside = [_replace_with_prefix(disk, damaged)] if damaged.fault is not None and damaged.fault.bytes else []
    for segment in reversed(later):
        aside = _free_name(disk, segment.path)
        disk.rename(segment.path, aside)
        disk.sync_directory(directory)
        set_aside.append(aside)
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


def _report(directory: Path, segments: list[SurveyedSegment]) -> JournalReport:
    faults = [segment.fault for segment in segments if segment.fault is not None]
    return JournalReport(
        directory,
        tuple(SegmentReport(s.path, s.first_position, s.last_position, s.size) for s in segments),
        tuple(Damage(fault.path, fault.offset, fault.bytes, fault.what, fault.torn) for fault in faults),
        next((s.last_position for s in segments if s.fault is not None), segments[-1].last_position),
        None if all(fault.torn for fault in faults) else _loss(segments[_first_damaged(segments) :]),
    )


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


def _replace_with_prefix(disk: Disk, segment: SurveyedSegment) -> Path:
    """Puts a copy of the good part in the place of a damaged segment, which stays under another name."""
    keeps_frames = segment.end >= SEGMENT_HEADER_BYTES
    if keeps_frames:
        prefix = read_segment(disk, segment.path)[: segment.end]
    else:
        prefix = encode_segment_header(SegmentHeader(usable_segment_id(secrets.randbits(64)), segment.first_position))
    repairing = segment.path.with_name(segment.path.name + _REPAIRING_SUFFIX)
    fd = disk.open(repairing, create=True)
    try:
        write_all(disk, fd, prefix, 0)
        disk.fdatasync(fd)
    finally:
        disk.close(fd)
    # A second name and then a rename over the first: at no moment is the segment missing.
    aside = _free_name(disk, segment.path)
    disk.link(segment.path, aside)
    disk.sync_directory(segment.path.parent)
    disk.rename(repairing, segment.path)
    disk.sync_directory(segment.path.parent)
    return aside


def _free_name(disk: Disk, path: Path) -> Path:
    taken = set(disk.names(path.parent))
    name = path.name + DAMAGED_SUFFIX
    number = 2
    while name in taken:
        name = f"{path.name}.{number}{DAMAGED_SUFFIX}"
        number += 1
    return path.with_name(name)
