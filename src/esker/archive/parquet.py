# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)
"""Columns to Parquet and back: with those of esker.columns the only module that speaks to pyarrow.

Files are compressed with zstd and say in their footer, under keys that start with `esker.`, what they hold, and the
checksum of all of it (esker.checksums). pyarrow has no types, so nothing of it leaves this module but for those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from io import BytesIO
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from esker import checksums
from esker.columns.arrow import first_at_least
from esker.errors import ArchiveError

ROW_GROUP_ROWS = 64 * 1024

Values = Sequence[int | None] | Sequence[bytes | None] | Sequence[str | None]


class Kind(StrEnum):
    NUMBER = "number"
    TIME = "time"  # milliseconds since the epoch
    TEXT = "text"  # str, or bytes that are UTF-8
    BYTES = "bytes"


_TYPES = {
    Kind.NUMBER: pa.int64(),
    Kind.TIME: pa.timestamp("ms", tz="UTC"),
    Kind.TEXT: pa.string(),
    Kind.BYTES: pa.binary(),
}


def kind_of(values: Sequence[bytes | None]) -> Kind:
    """TEXT where all of it is UTF-8."""
    try:
        b"".join(value for value in values if value).decode()
        for value in values:
            if value and value[0] >= 0x80:  # pieces that are wrong alone might be right when joined
                value.decode()
    except UnicodeDecodeError:
        return Kind.BYTES
    return Kind.TEXT


class Sealed(NamedTuple):
    """A whole file, and the checksum that is in it."""

    data: bytes
    sha256: str


class FileWriter:
    """Makes one file. Each `add` is a row group; rows must come in the order of the first column of `sorted_by`."""

    def __init__(self, kinds: Mapping[str, Kind], sorted_by: Sequence[str]) -> None:
        self._kinds = kinds
        self._schema = pa.schema([pa.field(name, _TYPES[kind]) for name, kind in kinds.items()])
        self._sink = BytesIO()
        order = [pq.SortingColumn(list(kinds).index(name)) for name in sorted_by]
        self._writer = pq.ParquetWriter(self._sink, self._schema, compression="zstd", sorting_columns=order)

    def add(self, columns: Mapping[str, Values]) -> None:
        arrays = [_array(columns[name], kind) for name, kind in self._kinds.items()]
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)

    def finish(self, footer: Mapping[str, str]) -> Sealed:
        return _finished(self._writer, self._sink, footer)


class BlockWriter:
    """Makes one file of blocks that are columns already, such as `esker.columns` makes. Each `add` is a row group."""

    def __init__(self, schema: pa.Schema, sorted_by: Sequence[str]) -> None:
        self._sink = BytesIO()
        order = [pq.SortingColumn(schema.get_field_index(name)) for name in sorted_by]
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd", sorting_columns=order)

    def add(self, block: pa.RecordBatch) -> None:
        self._writer.write_batch(block, row_group_size=ROW_GROUP_ROWS)

    def finish(self, footer: Mapping[str, str]) -> Sealed:
        return _finished(self._writer, self._sink, footer)


def _finished(writer: pq.ParquetWriter, sink: BytesIO, footer: Mapping[str, str]) -> Sealed:
    writer.add_key_value_metadata({**footer, checksums.FOOTER_KEY: checksums.UNSEALED})
    writer.close()
    return Sealed(*checksums.seal(sink.getvalue()))


def _array(values: Values, kind: Kind) -> pa.Array:
    if kind == Kind.TIME:
        return pa.array(values, pa.int64()).cast(_TYPES[kind])
    return pa.array(values, _TYPES[kind])


class FileReader:
    """A file in memory: its columns stay in Arrow's form, and only what is asked for becomes Python."""

    def __init__(self, name: str, data: bytes, sha256: str = "") -> None:
        """Raises ArchiveError when it is not a whole Parquet file. `sha256`: its checksum, where that is known."""
        problem = checksums.damage(data, sha256)
        if problem is not None:
            raise ArchiveError(f"{name}: {problem}; put it back from a backup")
        try:
            file = pq.ParquetFile(pa.BufferReader(data))
            self._table = file.read().combine_chunks()
            metadata = file.metadata.metadata or {}
            self.footer = {key.decode(): value.decode() for key, value in metadata.items() if key.startswith(b"esker.")}
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ArchiveError(f"{name} is not a whole Parquet file: {error}") from error
        self.rows = int(self._table.num_rows)
        self.size = int(self._table.nbytes)

    def numbers(self, name: str, start: int, count: int) -> list[int]:
        """Numbers or times of some rows."""
        values: list[int] = self._column(name, start, count).cast(pa.int64()).to_pylist()
        return values

    def texts(self, name: str, start: int, count: int) -> list[bytes | None]:
        values: list[bytes | None] = self._column(name, start, count).cast(pa.binary()).to_pylist()
        return values

    def find(self, name: str, value: int) -> int:
        """The first row, of a column in order, whose number is not below `value`."""
        return first_at_least(self._table.column(name), value)

    @property
    def table(self) -> pa.Table:
        """All of it, for those who work with columns (esker.columns)."""
        return self._table

    def _column(self, name: str, start: int, count: int) -> pa.ChunkedArray:
        return self._table.column(name).slice(start, count)
