# mypy: disable-error-code="no-any-unimported"
"""What all columns have in common: their types, and the pieces of an Arrow stream.

A stream is `schema_piece`, then the pieces of each batch, then `END`. Whoever reads it may tell a whole one by `END`.

pyarrow has no types; only the modules of this package and archive/parquet.py know it. Threads call these: whatever
takes more than a moment is done by Arrow, which lets go of the interpreter meanwhile, or in steps of `STEP_ROWS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from esker.errors import EskerError

BATCH_ROWS: Final = 65_536  # in one batch
BATCH_BYTES: Final = 8 << 20  # of payloads in one batch, about
STEP_ROWS: Final = 4096  # turned into a column at a time, with the interpreter held: about half a millisecond
STEP_BYTES: Final = 6 << 20  # of packed records, which Arrow makes a column of: only joining them holds it, for a ms
PIECE_BYTES: Final = 1 << 20  # sent at a time

END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"

NUMBER: Final = pa.int64()
SMALL: Final = pa.int32()
TIME: Final = pa.timestamp("us", tz="UTC")
TEXT: Final = pa.string()
BYTES: Final = pa.binary()

_COUNT: Final = pa.array(range(BATCH_ROWS), NUMBER)


class UnknownColumn(EskerError):
    """A column was asked for that there is not."""


def chosen(fields: Mapping[str, pa.Field], names: Sequence[str] | None) -> pa.Schema:
    """The schema of the columns that were asked for, in that order; None: all. Raises UnknownColumn."""
    if names is None:
        return pa.schema(fields.values())
    unknown = [name for name in names if name not in fields]
    if unknown:
        raise UnknownColumn(f"there is no column {unknown[0][:64]!r}; there are {', '.join(fields)}")
    if len(set(names)) < len(names):
        raise UnknownColumn(f"a column is asked for twice: {', '.join(names)[:200]}")
    if not names:
        raise UnknownColumn("no column is asked for; leave `columns` out to get all")
    return pa.schema([fields[name] for name in names])


# -- columns


def texts(values: Sequence[bytes | None]) -> pa.Array:
    """Texts of bytes; what is no UTF-8 in them is shown by backslashes."""
    try:
        return pa.array(values, TEXT)
    except pa.ArrowInvalid:
        return pa.array([None if value is None else value.decode("utf-8", "backslashreplace") for value in values])


def times(values: Sequence[int | None]) -> pa.Array:
    """Of milliseconds since the epoch."""
    return to_times(pa.array(values, NUMBER))


def to_times(millis: pa.Array) -> pa.Array:
    return millis.cast(pa.timestamp("ms", tz="UTC")).cast(TIME)


def counted(masks: Iterable[tuple[int, int, int]]) -> pa.Array:
    """Numbers by masks of (first, count, bits): first + n for every bit n that is set, in order."""
    columns: list[pa.Array] = []
    start = end = 0  # of those that are all wanted, and follow one another
    for first, count, bits in masks:
        if bits == (1 << count) - 1 and (first == end or start == end):
            start, end = first if start == end else start, first + count
            continue
        columns += _range(start, end)
        start, end = first, first + count
        if bits != (1 << count) - 1:
            (numbers,) = _range(start, end)
            columns.append(numbers.filter(mask(bits, count)))
            start = end
    return joined(columns + _range(start, end), NUMBER)


def _range(start: int, end: int) -> list[pa.Array]:
    """In steps that the table of numbers is long enough for."""
    return [pc.add(_COUNT.slice(0, min(BATCH_ROWS, end - at)), at) for at in range(start, end, BATCH_ROWS)]


def mask(bits: int, count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bits.to_bytes((count + 7) // 8, "little"))])


def repeated(values: Sequence[int], ends: Sequence[int]) -> pa.Array:
    """The first value up to row `ends[0]`, the next up to `ends[1]` …"""
    if not ends:
        return pa.array([], NUMBER)
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(pa.array(ends, SMALL), pa.array(values, NUMBER)))


def joined(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    if len(arrays) == 1:
        return arrays[0]
    return pa.concat_arrays(arrays) if arrays else pa.array([], kind)


# -- a stream


def schema_piece(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize())


class Message:
    """A batch as it is sent. Iterating gives it in pieces, none of which takes long to copy.

    They are copied when they are asked for and not before: memory that was just let go of is taken again.
    """

    __slots__ = ("_buffer",)

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._buffer = batch.serialize()

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, self._buffer.size, PIECE_BYTES):
            yield self._buffer[start : start + PIECE_BYTES].to_pybytes()


def first_at_least(column: pa.ChunkedArray, value: int) -> int:
    """The first row, of a column in order, whose number is not below `value`."""
    low, high = 0, len(column)
    while low < high:
        middle = (low + high) // 2
        if column[middle].as_py() < value:
            low = middle + 1
        else:
            high = middle
    return low
