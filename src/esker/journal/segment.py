"""Segment files: their names, how one comes to be, and the one that is being written.

A segment is named after its first position (`00000000000000000042.segment`), so a directory listing is the index. It is
made ahead as a *spare* of its full size: an append into bytes the file already has costs half of one that makes it
grow, since the disk need not record a new size. A spare holds zeros, or what an earlier segment left in it.

    NNNN.filling  a spare in the making       thrown away when the journal is opened
    NNNN.spare    of full size and on disk    its content means nothing
    N*20.segment  header on disk before the name, so a segment with a bad header is damaged, never unfinished
"""

from __future__ import annotations

import secrets
from pathlib import Path

from esker.errors import SyncFailed
from esker.journal.disk import Disk, write_all
from esker.journal.frame import (
    END,
    FRAME_HEADER_BYTES,
    HEADER_SYNCED_OFFSET,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    encode_segment_header,
    frame_header,
    header_synced,
    seal,
    sync_mark,
    usable_segment_id,
)
from esker.journal.patience import OUT_OF_DESCRIPTORS, Patience

SEGMENT_SUFFIX = ".segment"
SPARE_SUFFIX = ".spare"
FILLING_SUFFIX = ".filling"

# What a segment needs besides its frames: its header, and the end or mark behind the last frame.
SEGMENT_OVERHEAD_BYTES = SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES

# Zeros are written and synced in steps, so that filling a spare never holds up an append for long.
_FILL_BYTES = 1024 * 1024
_FILL_SYNC_BYTES = 4 * _FILL_BYTES


def segment_path(directory: Path, first_position: int) -> Path:
    return directory / f"{first_position:020d}{SEGMENT_SUFFIX}"


def segment_paths(disk: Disk, directory: Path) -> list[tuple[int, Path]]:
    """First positions and paths of all segments, oldest first. Other files are not ours to judge."""
    found = []
    for name in disk.names(directory):
        stem = name.removesuffix(SEGMENT_SUFFIX)
        if stem != name and len(stem) == 20 and stem.isascii() and stem.isdigit():
            found.append((int(stem), directory / name))
    return sorted(found)


def bytes_on_disk(batch: bytes) -> int:
    return FRAME_HEADER_BYTES + len(batch)


def fill_with_zeros(disk: Disk, path: Path, size: int) -> None:
    """Makes a file of `size` zeros, all of it on disk; takes it away again when that fails."""
    fd = disk.open(path, create=True)
    try:
        zeros = bytes(min(_FILL_BYTES, size))
        for offset in range(0, size, _FILL_BYTES):
            write_all(disk, fd, zeros[: size - offset], offset)
            if (offset + _FILL_BYTES) % _FILL_SYNC_BYTES == 0:
                disk.fdatasync(fd)
        disk.fdatasync(fd)
    except OSError:
        disk.unlink(path)
        raise
    finally:
        disk.close(fd)


class OpenSegment:
    """The segment that takes the appends. `offset` is where the next frame goes; the writer alone moves it."""

    __slots__ = ("_disk", "_fd", "offset", "path", "segment_id", "size")

    def __init__(self, disk: Disk, fd: int, path: Path, segment_id: int, offset: int, size: int) -> None:
        self._disk = disk
        self._fd = fd
        self.path = path
        self.segment_id = segment_id
        self.offset = offset
        self.size = size

    @classmethod
    def reopen(cls, disk: Disk, path: Path, segment_id: int, offset: int, size: int) -> OpenSegment:
        """Goes on behind the frames a segment has, once these are on disk (a killed process may not have synced)."""
        segment = cls(disk, disk.open(path), path, segment_id, offset, size)
        try:
            segment.sync()
        except SyncFailed:
            segment.close()
            raise
        return segment

    @classmethod
    def start(cls, disk: Disk, spare: Path, first_position: int, patience: Patience) -> OpenSegment:
        """Turns a spare into the segment that begins with `first_position`, and makes that durable."""
        path = segment_path(spare.parent, first_position)
        segment_id = usable_segment_id(secrets.randbits(64))
        header = encode_segment_header(SegmentHeader(segment_id, first_position))
        fd = patience.until_done(lambda: disk.open(spare))
        segment = cls(disk, fd, path, segment_id, SEGMENT_HEADER_BYTES, disk.size(spare))
        try:
            write_all(disk, segment._fd, header + END, 0)
            segment.sync()
            disk.rename(spare, path)
            # Only the lack of a descriptor comes from opening the directory; any other error may be that of its sync.
            patience.until_done(lambda: disk.sync_directory(path.parent), OUT_OF_DESCRIPTORS)
        except (OSError, SyncFailed):
            segment.close()
            raise
        return segment

    @property
    def room(self) -> int:
        """Bytes left for frames."""
        return self.size - self.offset - FRAME_HEADER_BYTES

    def header_for(self, position: int, synced: int, batch: bytes) -> bytes:
        return frame_header(self.segment_id, position, synced, batch)

    def write(self, parts: list[bytes]) -> None:
        """Writes frames and an end at `offset`, which stays where it is."""
        parts.append(END)
        write_all(self._disk, self._fd, b"".join(parts), self.offset)

    def sync(self) -> None:
        """Raises `SyncFailed`, after which nothing is known of what is on disk. Never to be tried again."""
        try:
            self._disk.fdatasync(self._fd)
        except OSError as error:
            raise SyncFailed(
                f"fdatasync of {self.path} failed: {error.strerror or error}; what is on disk is not known until the "
                "journal is opened again: check the disk"
            ) from error

    def cut(self) -> None:
        """Takes away everything behind `offset`. The segment takes no more frames after that."""
        self._disk.truncate(self._fd, self.offset)
        self.size = self.offset

    def mark(self, offset: int, synced: int) -> None:
        """Notes behind the frame that ends at `offset` that it and all before it are on disk."""
        write_all(self._disk, self._fd, sync_mark(self.segment_id, synced), offset)

    def mark_header(self, synced: int) -> None:
        """Notes the same where no damage to the tail reaches."""
        write_all(self._disk, self._fd, header_synced(self.segment_id, synced), HEADER_SYNCED_OFFSET)

    def seal(self, last_position: int) -> None:
        """Notes that the journal was closed in order, with everything up to `last_position` on disk."""
        if self.room < 0:
            return
        write_all(self._disk, self._fd, seal(self.segment_id, last_position), self.offset)
        self.mark_header(last_position)
        self.sync()

    def close(self) -> None:
        self._disk.close(self._fd)
