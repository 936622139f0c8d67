"""The bytes of the file journal: segment headers, frames and seals. Pure: no files here.

A segment file is a header and then frames, one for each batch, without gaps. All numbers are little-endian.

    segment header (64 bytes)            frame header (32 bytes), then the batch
      0  magic          8 bytes            0  length    u32  header and batch together
      8  format version u32                4  mark      u32  the low half of the segment id
     12  zero           u32               8  position  u64
     16  segment id     u64  random       16  synced    u64  every position up to here was on disk when this was written
     24  first position u64               24  checksum  u64  xxh3 over segment id, header and batch
     32  checksum       u64  xxh3 of the 32 bytes before
     40  synced         u64  as in a frame, of about a second ago at most; 0: nothing is said
     48  checksum       u64  xxh3 over segment id and synced
     56  zero

Behind the last frame are 32 zero bytes (`END`), or a *mark*: a header without a batch whose `synced` is the position of
the frame before it. Its length is 2 where it was written after a sync, and 1 (a *seal*) where the journal was closed in
order.

* The segment id seeds the checksum, so bytes that an earlier life of a recycled file left behind never pass as frames.
* The mark makes the frames behind a damaged place findable at memory speed, although no length leads there.
* `synced` tells damage from a torn tail. A disk that loses power may keep later sectors of an unsynced write and lose
  earlier ones, so a good frame behind a bad one proves nothing by itself; one whose `synced` covers the bad place does.
* A mark says the same of the last frames, which no other follows. It is written after each sync and before the sync is
  told to anyone, and the next frame takes its place. It is not synced itself, so it costs a write into a page that the
  next frame dirties anyway. The copy in the segment header is there for damage that takes the tail and its mark.

A change of this format takes a new `VERSION` and a reader for the old one; a newer version is refused untouched.
Version 1 has no marks but seals, and zeros in the header from 40 on. Its segments are read and not appended to.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from esker.errors import DataDirectoryError

VERSION = 2
SEGMENT_HEADER_BYTES = 64
FRAME_HEADER_BYTES = 32
END = bytes(FRAME_HEADER_BYTES)

# The length field holds header and batch.
BATCH_BYTES_MAX = 0xFFFF_FFFF - FRAME_HEADER_BYTES

_MAGIC = b"eskerj\r\n"
_SEGMENT = struct.Struct("<8sIIQQ")
_CHECKSUM = struct.Struct("<Q")
_PREFIX = struct.Struct("<IIQQ")
_FRAME = struct.Struct("<IIQQQ")
_MARK = struct.Struct("<I")
_MARK_BITS = 0xFFFF_FFFF
_MARK_OFFSET = 4
_SEAL_LENGTH = 1
_MARK_LENGTH = 2
_SYNCED = struct.Struct("<QQ")

HEADER_SYNCED_OFFSET = 40
"""Where `header_synced` goes in a segment."""


class SegmentHeader(NamedTuple):
    segment_id: int
    first_position: int
    version: int = VERSION
    synced: int = 0


class Frame(NamedTuple):
    """Where a good frame lies: `start` to `end`. Of a mark, `position` is that of the last frame before it."""

    position: int
    synced: int
    start: int
    end: int
    is_mark: bool  # after a sync, or the seal of a close in order

    def batch(self, data: bytes) -> bytes:
        return data[self.start + FRAME_HEADER_BYTES : self.end]


def usable_segment_id(bits: int) -> int:
    """A segment id from 64 random bits: zeros in its low half would look like the end."""
    return bits if bits & _MARK_BITS else bits | 1


def encode_segment_header(header: SegmentHeader) -> bytes:
    fixed = _SEGMENT.pack(_MAGIC, VERSION, 0, header.segment_id, header.first_position)
    synced = header_synced(header.segment_id, header.synced) if header.synced else b""
    return (fixed + _CHECKSUM.pack(xxh3_64_intdigest(fixed)) + synced).ljust(SEGMENT_HEADER_BYTES, b"\0")


def header_synced(segment_id: int, position: int) -> bytes:
    """What a segment header says from `HEADER_SYNCED_OFFSET` on. Only for positions that are on disk."""
    fixed = _CHECKSUM.pack(position)
    return fixed + _CHECKSUM.pack(xxh3_64_intdigest(fixed, segment_id))


def decode_segment_header(data: bytes, name: str) -> SegmentHeader | None:
    """None when the header is damaged. Raises `DataDirectoryError` when a newer Esker wrote it."""
    if len(data) < SEGMENT_HEADER_BYTES:
        return None
    magic, version, _, segment_id, first_position = _SEGMENT.unpack_from(data)
    if magic != _MAGIC:
        return None
    # Before the checksum, which a newer format may keep elsewhere.
    if version > VERSION:
        raise DataDirectoryError(
            f"{name} has journal format {version} and this Esker reads up to {VERSION}: "
            "start the newer Esker that wrote it; nothing was changed"
        )
    if _CHECKSUM.unpack_from(data, _SEGMENT.size)[0] != xxh3_64_intdigest(data[: _SEGMENT.size]):
        return None
    synced, checksum = _SYNCED.unpack_from(data, HEADER_SYNCED_OFFSET)
    if checksum != xxh3_64_intdigest(data[HEADER_SYNCED_OFFSET : HEADER_SYNCED_OFFSET + 8], segment_id):
        synced = 0  # damaged, or never written: it only ever adds to what the frames say
    return SegmentHeader(segment_id, first_position, version, synced)


def frame_header(segment_id: int, position: int, synced: int, batch: bytes) -> bytes:
    """What goes before `batch` on disk."""
    prefix = _PREFIX.pack(FRAME_HEADER_BYTES + len(batch), segment_id & _MARK_BITS, position, synced)
    # Chained by seed, so that the batch is not copied to be hashed together with its header.
    return prefix + _CHECKSUM.pack(xxh3_64_intdigest(batch, xxh3_64_intdigest(prefix, segment_id)))


def sync_mark(segment_id: int, position: int) -> bytes:
    """Goes behind the frame at `position`. Write it only once that frame is on disk."""
    return _mark(_MARK_LENGTH, segment_id, position)


def seal(segment_id: int, position: int) -> bytes:
    """The mark of a close in order, which is nothing but that."""
    return _mark(_SEAL_LENGTH, segment_id, position)


def _mark(length: int, segment_id: int, position: int) -> bytes:
    prefix = _PREFIX.pack(length, segment_id & _MARK_BITS, position, position)
    return prefix + _CHECKSUM.pack(xxh3_64_intdigest(b"", xxh3_64_intdigest(prefix, segment_id)))


def frame_at(data: bytes, view: memoryview, start: int, segment_id: int) -> Frame | None:
    """The good frame or mark that begins at `start`; None when there is none. `view` is a view of all of `data`."""
    body = start + FRAME_HEADER_BYTES
    if body > len(data):
        return None
    length, mark, position, synced, checksum = _FRAME.unpack_from(data, start)
    if mark != segment_id & _MARK_BITS:
        return None
    is_mark = length in (_SEAL_LENGTH, _MARK_LENGTH)
    end = body if is_mark else start + length
    if end < body or end > len(data):
        return None
    prefix_sum = xxh3_64_intdigest(view[start : start + _PREFIX.size], segment_id)
    if checksum != xxh3_64_intdigest(view[body:end], prefix_sum):
        return None
    return Frame(position, synced, start, end, is_mark)


def frames_from(data: bytes, start: int, segment_id: int, position: int) -> Iterator[Frame]:
    """The good frames in unbroken order from `start`, where the one at `position` should be. Marks are not given."""
    with memoryview(data) as view:
        while (frame := frame_at(data, view, start, segment_id)) is not None:
            if frame.is_mark or frame.position != position:
                return
            yield frame
            start = frame.end
            position += 1


def frames_beyond(data: bytes, start: int, segment_id: int) -> Iterator[Frame]:
    """Every good frame and mark that begins at or behind `start`, found by its mark."""
    mark = _MARK.pack(segment_id & _MARK_BITS)
    with memoryview(data) as view:
        hit = data.find(mark, start + _MARK_OFFSET)
        while hit != -1:
            frame = frame_at(data, view, hit - _MARK_OFFSET, segment_id)
            if frame is not None:
                yield frame
            hit = data.find(mark, frame.end + _MARK_OFFSET if frame is not None else hit + 1)


def written_end(data: bytes, start: int, segment_id: int) -> int:
    """How far from `start` on this life of the file has written, as well as damaged bytes can tell."""
    mark = _MARK.pack(segment_id & _MARK_BITS)
    end = start + len(data[start : start + FRAME_HEADER_BYTES].rstrip(b"\0"))
    hit = data.find(mark, start + _MARK_OFFSET)
    while hit != -1:
        begin = hit - _MARK_OFFSET
        (length,) = _MARK.unpack_from(data, begin)
        end = max(end, min(begin + max(length, FRAME_HEADER_BYTES), len(data)))
        hit = data.find(mark, hit + 1)
    return end
