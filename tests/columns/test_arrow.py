"""The pieces that columns and their streams are made of."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.columns import arrow, records
from esker.columns.patterns import matching
from esker.engine.events import RecordBody
from tests.columns.streams import whole


def test_pieces_make_one_stream_and_none_is_large() -> None:
    schema = pa.schema([pa.field("value", arrow.BYTES, nullable=False)])
    batches = [pa.record_batch([pa.array([b"x" * 3_000_000, b"y"])], schema=schema) for _ in range(2)]
    pieces = [arrow.schema_piece(schema), *(piece for batch in batches for piece in arrow.Message(batch)), arrow.END]
    assert max(map(len, pieces)) <= arrow.PIECE_BYTES
    assert [row["value"] for row in whole(b"".join(pieces))] == [b"x" * 3_000_000, b"y"] * 2


def test_a_stream_without_its_end_is_not_taken_for_a_whole_one() -> None:
    schema = pa.schema([pa.field("offset", arrow.NUMBER)])
    with pytest.raises(AssertionError):
        whole(arrow.schema_piece(schema))


def test_masks_are_counted_out() -> None:
    assert arrow.counted([]).to_pylist() == []
    assert arrow.counted([(5, 2, 0b11), (9, 1, 0b1)]).to_pylist() == [5, 6, 9]
    mixed = [(1, 3, 0b111), (4, 3, 0b111), (7, 3, 0b101), (10, 2, 0), (12, 9, 0b100000001)]
    assert arrow.counted(mixed).to_pylist() == [*range(1, 8), 9, 12, 20]
    size = 2 * arrow.BATCH_ROWS + 1
    long = arrow.counted([(3, size, (1 << size) - 1)])
    assert (len(long), long[0].as_py(), long[len(long) - 1].as_py()) == (131_073, 3, 131_075)


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, (1 << 20) - 1), st.integers(0, 3)), max_size=8))
def test_counting_is_what_it_says(shapes: list[tuple[int, int, int]]) -> None:
    masks, at = [], 1
    for count, bits, hole in shapes:
        masks.append((at + hole, count, bits & ((1 << count) - 1)))
        at += hole + count
    wanted = [first + n for first, count, bits in masks for n in range(count) if bits >> n & 1]
    assert arrow.counted(masks).to_pylist() == wanted


def test_times_keep_their_milliseconds() -> None:
    column = arrow.times([1_748_470_000_123, None])
    assert column.type == arrow.TIME
    assert column.cast(pa.int64()).to_pylist() == [1_748_470_000_123_000, None]


def test_records_of_parts_keep_masks_and_times() -> None:
    def bodies(start: int) -> list[RecordBody]:
        return [RecordBody(b"%d" % n) for n in range(start, start + 10)]

    parts = [
        records.Part(1, (1 << 10) - 1, [0], [100], bodies(1)),
        records.Part(11, 0, [0], [150], bodies(11)),
        records.Part(21, 0b1000010001, [0, 4, 8], [200, 300, 400], bodies(21)),
    ]
    batch = records.of_parts(records.schema_of(("offset", "timestamp", "value")), parts)
    assert batch.column("offset").to_pylist() == [*range(1, 11), 21, 25, 30]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [100_000] * 10 + [200_000, 300_000, 400_000]
    assert batch.column("value").to_pylist() == [b"%d" % n for n in (*range(1, 11), 21, 25, 30)]


def test_no_parts_make_an_empty_batch() -> None:
    assert records.of_parts(records.schema_of(None), []).num_rows == 0


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a.?", [b"a", b"ab"]),
        ("a|bc", [b"a", b"bc"]),
        (".*", [b"a", b"ab", b"bc"]),
        ("", []),
        ("A", []),
        ("(?i)A", [b"a"]),
    ],
)
def test_a_pattern_matches_as_a_whole(pattern: str, found: list[bytes]) -> None:
    assert matching([b"a", b"ab", b"bc"], pattern) == found


@pytest.mark.parametrize("pattern", ["(", "a)(b", r"(a)\1", "(?=a)", "a{2000}", "[", "*"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="Invalid regular expression"):
        matching([b"a"], pattern)
