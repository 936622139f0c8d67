"""A file of records is plain Parquet: any reader finds the records, in order, and what they are."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from esker.archive.records import RecordsFile, RecordsPlace, Stored, encode_records
from esker.engine.events import RecordBody
from esker.engine.logs.block import Content
from esker.engine.replies import Record

PLACE = RecordsPlace(b"render:a", 7, 0, 1, 8)
BODIES = [
    RecordBody(b'{"n":1}', b"tag", b"node", b'{"k":"v"}'),
    RecordBody(b"null"),
    RecordBody(b'"gone"'),
    RecordBody('"ü"'.encode(), "täg".encode()),
]
BLOCKS = [
    Stored(1, 0b1011, Content([0, 2], [1_750_000_000_000, 1_750_000_000_777], BODIES)),
    Stored(7, 0b11, Content([0], [1_750_000_001_000], [RecordBody(b"1"), RecordBody(b"2")])),
]


def test_pyarrow_finds_columns_types_order_and_footer(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(encode_records(PLACE, BLOCKS).data)
    file = pq.ParquetFile(path)
    assert [(field.name, str(field.type)) for field in file.schema_arrow] == [
        ("seq", "int64"), ("ts", "timestamp[ms, tz=UTC]"), ("node", "string"), ("tag", "string"), ("meta", "string"),
        ("data", "string"),
    ]  # fmt: skip
    rows = file.read().to_pylist()
    assert [row["seq"] for row in rows] == [1, 2, 4, 7, 8]
    assert [row["data"] for row in rows] == ['{"n":1}', "null", '"ü"', "1", "2"]
    assert [row["node"] for row in rows] == ["node", None, None, None, None]
    assert [row["tag"] for row in rows] == ["tag", None, "täg", None, None]
    assert [row["meta"] for row in rows] == ['{"k":"v"}', None, None, None, None]
    assert rows[2]["ts"].timestamp() == 1_750_000_000.777
    group = file.metadata.row_group(0)
    assert file.num_row_groups == 1
    assert group.column(5).compression == "ZSTD"
    assert group.sorting_columns == (pq.SortingColumn(0),)
    ours = {key: value for key, value in file.metadata.metadata.items() if key.startswith(b"esker.")}
    assert len(ours.pop(b"esker.sha256")) == 64
    assert ours == {
        b"esker.format": b"2", b"esker.topic": b"render:a", b"esker.topic_number": b"7", b"esker.partition": b"0",
        b"esker.first_seq": b"1", b"esker.last_seq": b"8",
    }  # fmt: skip


def test_duckdb_reads_it_too(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(encode_records(PLACE, BLOCKS).data)
    with duckdb.connect() as connection:
        found = connection.execute(f"select seq, data, tag from '{path}' where tag is not null").fetchall()
    assert found == [(1, '{"n":1}', "tag"), (4, '"ü"', "täg")]


def test_our_reader_gives_back_what_was_written() -> None:
    file = RecordsFile("x", encode_records(PLACE, BLOCKS).data)
    assert file.records(1, 2) == [
        Record(1, 1_750_000_000_000, b'{"n":1}', b"node", b"tag", b'{"k":"v"}'),
        Record(2, 1_750_000_000_000, b"null", b"", b"", b""),
    ]
    assert [record.seq for record in file.records(7, 2)] == [7, 8]


def test_bytes_that_are_no_text_survive() -> None:
    bodies = [RecordBody(b"\xff\x00", b"\xc3", b"\xa4"), RecordBody(b"1", b"\xa4", b"n")]
    file = RecordsFile("x", encode_records(PLACE, [Stored(1, 0b11, Content([0], [5], bodies))]).data)
    assert file.records(1, 2) == [
        Record(1, 5, b"\xff\x00", b"\xa4", b"\xc3", b""),
        Record(2, 5, b"1", b"n", b"\xa4", b""),
    ]
