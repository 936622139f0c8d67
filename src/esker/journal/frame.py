"""The bytes of the file journal: segment headers, frames and seals. Pure: no files here.

A segment file is a header and then frames, one for each batch, without gaps. All numbers are little-endian.

    segment header (64 bytes)            frame header (32 bytes), then the batch
      0  magic          8 bytes            0  length    u32  header and batch together
      8  format version u32                4  mark      u32  the low half of the segment id
     12  zero           u32               8  position  u64
     16  segment id     u64  random       16  synced    u64  every position up to here was on disk when this was written
     24  first position u64               24  checksum  u64  xxh3 over segment id, header and batch
     32  checksum       u64  xxh3 of the 32 bytes before
     40  zero

Behind the last frame are 32 zero bytes (`END`); a journal that was closed in order has a *seal* there instead: a header
without a batch whose length is 1, and whose `synced` covers all.

* The segment id seeds the checksum, so bytes that an earlier life of a recycled file left behind never pass as frames.
* The mark makes the frames behind a damaged place findable at memory speed, although no length leads there.
* `synced` tells damage from a torn tail. A disk that loses power may keep later sectors of an unsynced write and lose
  earlier ones, so a good frame behind a bad one proves nothing by itself; one whose `synced` covers the bad place does.

A change of this format takes a new `VERSION` and a reader for the old one; a newer version is refused untouched.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from esker.errors import DataDirectoryError

VERSION = 1
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


class SegmentHeader(NamedTuple):
    segment_id: int
    first_position: int


class Frame(NamedTuple):
    """Where a good frame lies: `start` to `end`. Of a seal, `position` is that of the last frame before it."""

    position: int
    synced: int
    start: int
    end: int
    is_seal: bool

    def batch(self, data: bytes) -> bytes:
        return data[self.start + FRAME_HEADER_BYTES : self.end]


def usable_segment_id(bits: int) -> int:
    """A segment id from 64 random bits: a zero mark would look like the end."""
    return bits if bits & _MARK_BITS else bits | 1


def encode_segment_header(header: SegmentHeader) -> bytes:
    fixed = _SEGMENT.pack(_MAGIC, VERSION, 0, header.segment_id, header.first_position)
    return (fixed + _CHECKSUM.pack(xxh3_64_intdigest(fixed))).ljust(SEGMENT_HEADER_BYTES, b"\0")


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
    return SegmentHeader(segment_id, first_position)


def frame_header(segment_id: int, position: int, synced: int, batch: bytes) -> bytes:
    """What goes before `batch` on disk."""
    prefix = _PREFIX.pack(FRAME_HEADER_BYTES + len(batch), segment_id & _MARK_BITS, position, synced)
    # Chained by seed, so that the batch is not copied to be hashed together with its header.
    return prefix + _CHECKSUM.pack(xxh3_64_intdigest(batch, xxh3_64_intdigest(prefix, segment_id)))


def seal(segment_id: int, position: int) -> bytes:
    """The mark of a close in order behind the frame at `position`. Write it only once that frame is on disk."""
    prefix = _PREFIX.pack(_SEAL_LENGTH, segment_id & _MARK_BITS, position, position)
    return prefix + _CHECKSUM.pack(xxh3_64_intdigest(b"", xxh3_64_intdigest(prefix, segment_id)))


def frame_at(data: bytes, view: memoryview, start: int, segment_id: int) -> Frame | None:
    """The good frame or seal that begins at `start`; None when there is none. `view` is a view of all of `data`."""
    body = start + FRAME_HEADER_BYTES
    if body > len(data):
        return None
    length, mark, position, synced, checksum = _FRAME.unpack_from(data, start)
    if mark != segment_id & _MARK_BITS:
        return None
    is_seal = length == _SEAL_LENGTH
    end = body if is_seal else start + length
    if end < body or end > len(data):
        return None
    prefix_sum = xxh3_64_intdigest(view[start : start + _PREFIX.size], segment_id)
    if checksum != xxh3_64_intdigest(view[body:end], prefix_sum):
        return None
    return Frame(position, synced, start, end, is_seal)


def frames_from(data: bytes, start: int, segment_id: int, position: int) -> Iterator[Frame]:
    """The good frames in unbroken order from `start`, where the one at `position` should be. A seal is not given."""
    with memoryview(data) as view:
        while (frame := frame_at(data, view, start, segment_id)) is not None:
            if frame.is_seal or frame.position != position:
                return
            yield frame
            start = frame.end
            position += 1


def frames_beyond(data: bytes, start: int, segment_id: int) -> Iterator[Frame]:
    """Every good frame and seal that begins at or behind `start`, found by its mark."""
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
