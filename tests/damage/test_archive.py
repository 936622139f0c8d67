"""A file of the archive is read as it was written, or not at all, by the node and by Spark's tasks."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from esker.archive.history import events_files
from esker.archive.records import RecordsFile, RecordsPlace, Stored, encode_records
from esker.columns.eventfiles import events_of
from esker.columns.eventnames import Names
from esker.columns.eventwish import EVERYTHING
from esker.engine import events
from esker.engine.commands import NewRecord
from esker.engine.logs.block import Content
from esker.errors import ArchiveError
from esker.spark.cold import check_files, read_file
from esker.spark.errors import EskerSparkError
from esker.spark.plan import ColdFile

COUNT = 50
PLACE = RecordsPlace(b"a", 7, 0, 1, COUNT)
BODIES = [NewRecord(b'{"n":%d}' % n, tag=b"t%d" % (n % 3), meta=b'{"k":"v"}') for n in range(COUNT)]
RECORDS = encode_records(PLACE, [Stored(1, (1 << COUNT) - 1, Content([0], [1_750_000_000_000], BODIES))])
PATH = "records/topic=a/epoch=7/p0-0000000000000001-0000000000000050.parquet"
COLUMNS = ["seq", "ts", "node", "tag", "meta", "data"]
HAPPENED = events.encode_batch([events.NodeStarted(1_750_000_000_000 + n) for n in range(COUNT)])
(EVENTS,) = events_files([(1, HAPPENED)], Names())


def flipped(data: bytes, seed: int) -> bytes:
    random = Random(seed)
    changed = bytearray(data)
    changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def by_spark(folder: Path, path: str, data: bytes, key: str, columns: list[str], sha256: str = "") -> list[object]:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(data)
    file = ColdFile(path, 1, COUNT, (), sha256)
    return [row for batch in read_file(str(folder), file, key, 0, 1 << 60, columns) for row in batch.to_pylist()]


@pytest.mark.parametrize("known", [RECORDS.sha256, ""], ids=["noted in the journal", "in the file alone"])
def test_no_flipped_bit_of_a_file_with_records_passes(known: str) -> None:
    assert len(RecordsFile("f", RECORDS.data, known).records(1, COUNT)) == COUNT
    for seed in range(300):
        with pytest.raises(ArchiveError, match="f"):
            RecordsFile("f", flipped(RECORDS.data, seed), known)


def test_no_flipped_bit_of_a_file_with_records_passes_sparks_tasks(tmp_path: Path) -> None:
    assert len(by_spark(tmp_path, PATH, RECORDS.data, "seq", COLUMNS, RECORDS.sha256)) == COUNT
    for seed in range(100):
        with pytest.raises(EskerSparkError, match="archive"):
            by_spark(tmp_path, PATH, flipped(RECORDS.data, seed), "seq", COLUMNS)


def test_no_flipped_bit_of_a_file_is_passed_on_to_sparks_own_reader(tmp_path: Path) -> None:
    (tmp_path / PATH).parent.mkdir(parents=True)
    (tmp_path / PATH).write_bytes(RECORDS.data)
    file = ColdFile(PATH, 1, COUNT, (), RECORDS.sha256)
    check_files(str(tmp_path), [file])
    for seed in range(30):
        (tmp_path / PATH).write_bytes(flipped(RECORDS.data, seed))
        with pytest.raises(EskerSparkError, match="archive"):
            check_files(str(tmp_path), [file])


def test_no_flipped_bit_of_a_file_with_events_passes(tmp_path: Path) -> None:
    sound = list(events_of("f", EVENTS.data, EVERYTHING, 0, 1 << 60))
    assert sound
    for seed in range(200):
        with pytest.raises(ArchiveError, match="f"):
            list(events_of("f", flipped(EVENTS.data, seed), EVERYTHING, 0, 1 << 60))
    assert len(by_spark(tmp_path, EVENTS.name, EVENTS.data, "position", ["position", "kind"])) == COUNT
    for seed in range(50):
        with pytest.raises(EskerSparkError, match="archive"):
            by_spark(tmp_path, EVENTS.name, flipped(EVENTS.data, seed), "position", ["position", "kind"])


def test_another_file_in_the_place_of_one_is_refused(tmp_path: Path) -> None:
    """It is whole, so only the checksum that was noted tells."""
    other = encode_records(PLACE, [Stored(1, 0b111, Content([0], [1_750_000_000_000], BODIES))])
    assert len(RecordsFile("f", other.data, other.sha256).records(1, 3)) == 3
    with pytest.raises(ArchiveError, match="another file"):
        RecordsFile("f", other.data, RECORDS.sha256)
    with pytest.raises(EskerSparkError, match="another file"):
        by_spark(tmp_path, PATH, other.data, "seq", COLUMNS, RECORDS.sha256)


def without_checksum(data: bytes, file_format: str) -> bytes:
    """The file as an earlier version wrote it."""
    file = pq.ParquetFile(pa.BufferReader(data))
    footer = {key: value for key, value in file.metadata.metadata.items() if key.startswith(b"esker.")}
    del footer[b"esker.sha256"]
    sink = BytesIO()
    table = file.read().replace_schema_metadata(None)
    with pq.ParquetWriter(sink, table.schema, compression="zstd") as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({**footer, b"esker.format": file_format.encode()})
    return sink.getvalue()


def test_files_from_before_there_were_checksums_are_read(tmp_path: Path) -> None:
    old = without_checksum(RECORDS.data, "1")
    assert RecordsFile("f", old).records(1, COUNT) == RecordsFile("f", RECORDS.data).records(1, COUNT)
    assert len(by_spark(tmp_path, PATH, old, "seq", COLUMNS)) == COUNT
    for file_format in ("1", "2"):
        old = without_checksum(EVENTS.data, file_format)
        assert list(events_of("f", old, EVERYTHING, 0, 1 << 60))
        assert len(by_spark(tmp_path, EVENTS.name, old, "position", ["position"])) == COUNT


def test_a_file_whose_format_has_a_checksum_is_refused_without_one(tmp_path: Path) -> None:
    stripped = without_checksum(RECORDS.data, "2")
    with pytest.raises(ArchiveError, match="checksum is missing"):
        RecordsFile("f", stripped)
    with pytest.raises(EskerSparkError, match="checksum is missing"):
        by_spark(tmp_path, PATH, stripped, "seq", COLUMNS)
    with pytest.raises(ArchiveError, match="checksum is missing"):
        list(events_of("f", without_checksum(EVENTS.data, "3"), EVERYTHING, 0, 1 << 60))
