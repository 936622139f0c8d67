# mypy: disable-error-code="no-any-unimported"
"""Events files of the archive as the blocks that a reader asked for; files of earlier formats too."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from esker import checksums
from esker.columns.eventnames import text
from esker.columns.events import SCHEMA, blocks, schema_of
from esker.columns.eventwish import KINDS, Wanted
from esker.errors import ArchiveError

_UNSEALED_FORMATS = (b"1", b"2")
_CHOSEN_BY = ("position", "kind", "topic", "topic_number")


def events_of(name: str, data: bytes, wanted: Wanted, start: int, end: int) -> Iterator[bytes]:
    """The rows of positions from `start` on and below `end`, as messages of an Arrow stream.

    Runs in a thread, a row group at a time. Raises ArchiveError when the file cannot be read.
    """
    problem = checksums.damage(data)
    if problem is not None:
        raise ArchiveError(f"{name}: {problem}; put it back from a backup")
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        footer = file.metadata.metadata or {}
        if footer.get(b"esker.format") not in _UNSEALED_FORMATS and checksums.FOOTER_KEY.encode() not in footer:
            raise ArchiveError(f"{name}: it is damaged: its checksum is missing; put it back from a backup")
        there = [each for each in dict.fromkeys((*wanted.columns, *_CHOSEN_BY)) if each in file.schema_arrow.names]
        for group in range(file.num_row_groups):
            if _is_within(file.metadata.row_group(group), start, end):
                rows = _shaped(
                    _chosen(file.read_row_group(group, there, use_threads=False), wanted, start, end), wanted
                )
                yield b"".join(bytes(block.serialize()) for batch in rows.to_batches() for block in blocks(batch))
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise ArchiveError(f"{name} is not a whole events file: {error}") from error


def _is_within(group: pq.RowGroupMetaData, start: int, end: int) -> bool:
    told = group.column(0).statistics  # of the position, which is the first column of every format
    return told is None or not told.has_min_max or (told.max >= start and told.min < end)


def _chosen(rows: pa.Table, wanted: Wanted, start: int, end: int) -> pa.Table:
    position = rows.column("position")
    mask = pc.and_(pc.greater_equal(position, start), pc.less(position, end))
    if wanted.kinds is not None or wanted.prefixes:
        kinds = [kind for kind in KINDS if wanted.kind(kind)]
        mask = pc.and_(mask, pc.is_in(rows.column("kind"), value_set=pa.array(kinds, pa.string())))
    if wanted.topics is not None:
        names = pa.array(sorted(map(text, wanted.topics)), pa.string())
        mask = pc.and_(mask, pc.is_in(rows.column("topic"), value_set=names))
    if wanted.prefixes:
        mask = pc.and_(mask, _reached(rows, wanted))
    return rows.filter(mask)


def _reached(rows: pa.Table, wanted: Wanted) -> pa.ChunkedArray:
    """Not those whose topic is shown as its number, because nobody knew the name."""
    topic = rows.column("topic")
    reached = pc.not_equal(topic, rows.column("topic_number").cast(pa.string()))
    begins = [pc.starts_with(topic, text(prefix)) for prefix in wanted.prefixes]
    some = begins[0]
    for each in begins[1:]:
        some = pc.or_(some, each)
    return pc.fill_null(pc.and_(reached, some), False)


def _shaped(rows: pa.Table, wanted: Wanted) -> pa.Table:
    """In the columns asked for, those that the file lacks being null."""
    arrays = []
    for name in wanted.columns:
        kind = SCHEMA.field(name).type
        if name in rows.column_names:
            arrays.append(rows.column(name).cast(kind))
        else:
            arrays.append(pa.chunked_array([pa.nulls(rows.num_rows, kind)]))
    return pa.table(arrays, schema=schema_of(wanted)).combine_chunks()
