# mypy: disable-error-code="no-any-unimported"
"""The data of records as a column, straight from how the store packs them.

Most records have data and nothing else. Packed, such records differ only in their data, and what is between two of them
is always the same:

    mark  head data  nothing else  mark  head data  nothing else …

So the data of thousands is found by splitting at `nothing else` and `mark`, which Arrow does without making an object
of each record and without holding the interpreter. Data may hold the same bytes by chance: every head is checked
against the length of what follows it, and the number of records against what the blocks say. When all agree, the whole
was read as msgpack reads it; when anything differs, the records are to be looked at one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from esker.columns import arrow
from esker.engine.events import RecordBody
from esker.engine.logs.block import PackedBodies

_PLAIN: Final = msgspec.msgpack.encode(RecordBody(b""))
_MARK: Final = _PLAIN[:1]
_SHORT, _LONG = 0xC4, 0xC5  # heads of msgpack's binary: of up to 255 bytes, then their number; of up to 65,535
_REST: Final = _PLAIN[3:-1]  # no tag, no node, no meta; then follows how often it was forwarded
_SHORT_HEAD, _LONG_HEAD = 2, 3  # bytes


def data_of(packs: Sequence[PackedBodies]) -> pa.Array | None:
    """The data of all records in order; None: some have more than data, or are very long."""
    packed = b"".join([bodies.records for bodies in packs])
    rest = _REST + packed[-1:]
    if not (packed.startswith(_MARK) and packed.endswith(rest)):
        return None
    ends = pa.py_buffer(array("i", (len(_MARK), len(packed) - len(rest))))
    whole = pa.Array.from_buffers(arrow.BYTES, 1, [None, ends, pa.py_buffer(packed)])
    pieces = pc.split_pattern(whole, pattern=rest + _MARK).values
    return _unheaded(pieces) if len(pieces) == sum(map(len, packs)) else None


def _unheaded(pieces: pa.Array) -> pa.Array | None:
    """The pieces without their heads, if each is as long as its head says."""
    lengths = pc.binary_length(pieces).cast(arrow.NUMBER)
    heads = _numbers(pieces, 0, _SHORT_HEAD)
    if heads is None:
        return None
    if heads.equals(_heads(lengths)):
        return pc.binary_replace_slice(pieces, 0, _SHORT_HEAD, b"")
    short = pc.equal(pc.bit_wise_and(heads, 0xFF), _SHORT)
    long = pc.invert(short)
    if not heads.filter(short).equals(_heads(lengths.filter(short))):
        return None
    rest = pieces.filter(long)
    kinds, told = _numbers(rest, 0, 1), _numbers(rest, 1, 2)
    if kinds is None or told is None or not pc.all(pc.equal(kinds, _LONG)).as_py():
        return None
    said = pc.add(pc.multiply(pc.bit_wise_and(told, 0xFF), 256), pc.shift_right(told, 8))  # the high byte is first
    if not pc.add(said, _LONG_HEAD).equals(lengths.filter(long)):
        return None
    cut = pc.binary_replace_slice(pieces.filter(short), 0, _SHORT_HEAD, b"")
    parts = pa.concat_arrays([cut, pc.binary_replace_slice(rest, 0, _LONG_HEAD, b"")])
    order = pa.concat_arrays([pc.indices_nonzero(short), pc.indices_nonzero(long)])
    return parts.take(pc.sort_indices(order))


def _heads(lengths: pa.Array) -> pa.Array:
    """What short heads are, as numbers: the length is their second byte, so the higher one."""
    return pc.add(pc.multiply(pc.subtract(lengths, _SHORT_HEAD), 256), _SHORT)


def _numbers(pieces: pa.Array, place: int, width: int) -> pa.Array | None:
    """One byte, or two, at this place of each, the lowest first; None: one is too short."""
    cut = pc.binary_slice(pieces, place, place + width)
    if not pc.all(pc.equal(pc.binary_length(cut), width)).as_py():
        return None
    kind = pa.uint8() if width == 1 else pa.uint16()
    return pa.Array.from_buffers(kind, len(cut), [None, cut.buffers()[2]]).cast(arrow.NUMBER)
