"""How ranges are cut for tasks, what is told as lost, and which columns the broker is asked for."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.spark.deadletters import origin
from esker.spark.errors import EskerSparkError
from esker.spark.jobs import deal
from esker.spark.offsets import Edge
from esker.spark.options import read_options
from esker.spark.plan import ColdFile, Gap, PartitionPlan, Slice, cut, lost, resolve, slice_rows
from esker.spark.records import pieces
from esker.spark.schemas import headers_of, records_columns
from esker.spark.tables import divided
from esker.spark.writer import meta_with


def _part(**changed: object) -> PartitionPlan:
    told = {
        "topic": "t", "partition": 0, "epoch": 1, "earliest": 11, "next": 101, "at": {}, "hot_from": 61,
        "files": (), "gaps": (),
    } | changed  # fmt: skip
    return PartitionPlan(**told)  # type: ignore[arg-type]


@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 100), st.lists(st.integers(1, 1000), unique=True))
def test_cuts_cover_a_range_without_overlap_and_none_is_too_large(
    start: int, length: int, rows: int, marks: list[int]
) -> None:
    end = start + length
    borders = sorted(mark for mark in marks if start < mark < end)
    found = list(cut(start, end, rows, borders))
    assert found[0][0] == start
    assert found[-1][1] == end
    assert all(one[1] == other[0] for one, other in pairwise(found))
    assert all(0 < high - low <= rows for low, high in found)


def test_files_are_not_torn_where_they_fit() -> None:
    assert list(cut(1, 401, 200, [101, 201, 301])) == [(1, 201), (201, 401)]
    assert list(cut(1, 401, 150, [101, 201, 301])) == [(1, 101), (101, 201), (201, 301), (301, 401)]


def test_tasks_are_worth_their_while_and_more_than_one_for_much() -> None:
    plain = read_options({"subscribe": "t"}, streaming=False)
    assert [slice_rows(total, plain) for total in (0, 40_000, 60_000, 200_000, 10_000_000)] == [
        1, 40_000, 50_000, 100_000, 250_000,
    ]  # fmt: skip
    told = read_options({"subscribe": "t", "minpartitions": "8", "maxrecordsperpartition": "9000"}, streaming=False)
    assert [slice_rows(total, told) for total in (800, 1_000_000)] == [100, 9000]


def test_what_lies_between_files_is_asked_of_the_broker() -> None:
    files = (ColdFile("b", 31, 40), ColdFile("a", 11, 20))
    part = Slice("t", 0, 1, 5, 60, 41, files, "/archive", "n")
    found = [(piece.low, piece.high, piece.file and piece.file.path) for piece in pieces(part, direct=True)]
    assert found == [(5, 11, None), (11, 21, "a"), (21, 31, None), (31, 41, "b"), (41, 60, None)]
    assert [(piece.low, piece.high) for piece in pieces(part, direct=False)] == [(5, 60)]


def test_what_is_below_the_earliest_offset_is_lost() -> None:
    assert lost(_part(), 11, 101) == []
    assert lost(_part(), 5, 101) == [Gap(5, 10, "retention")]
    assert lost(_part(gaps=(Gap(1, 10, "cap"), Gap(30, 31, "lost"))), 5, 31) == [Gap(1, 10, "cap"), Gap(30, 31, "lost")]
    assert lost(_part(gaps=(Gap(30, 31, "lost"),)), 32, 40) == []


@pytest.mark.parametrize(
    ("edge", "said"),
    [
        (Edge(offsets={("t", 0): 102}), "option startingOffsets: offset 102 of topic 't', partition 0 lies behind"),
        (Edge(offsets={("u", 0): 5}), "option startingOffsets: topic 't', partition 0 is not in it"),
        (Edge(offsets={("t", 0): 50, ("t", 1): 5}), "option startingOffsets: topic 't' has no partition 1"),
        (Edge(offsets={("t", 0): 50}, epochs={"t": 2}), "topic 't' was deleted and made again"),
        (Edge(position=5), "option startingOffsets: a position of events"),
        (Edge(time_ms=9), "option startingOffsets: topic 't', partition 0 has no record at or after 9"),
    ],
)
def test_a_start_that_cannot_be_is_refused(edge: Edge, said: str) -> None:
    with pytest.raises(EskerSparkError, match=said):
        resolve(edge, {("t", 0): _part(at={9: 101})}, "startingOffsets", end=False, missing_is_latest=False)


def test_a_time_without_records_is_the_end_where_that_is_wanted() -> None:
    parts = {("t", 0): _part(at={9: 101})}
    assert resolve(Edge(time_ms=9), parts, "startingOffsets", end=False) == {("t", 0): 101}
    assert resolve(Edge(time_ms=9), parts, "endingOffsets", end=True, missing_is_latest=False) == {("t", 0): 101}


def test_only_what_is_needed_is_asked_of_the_broker() -> None:
    assert records_columns(["value"]) == ["offset", "value"]
    assert records_columns(["topic", "partition", "timestampType"]) == ["offset"]
    assert records_columns(["headers", "key"]) == ["offset", "tag", "meta"]


def test_chunks_of_a_snapshot_are_dealt_out_once() -> None:
    options = read_options({"subscribe": "q", "table": "jobs", "minpartitions": "3"}, streaming=False)
    dealt = deal("q", "s", 7, 1000, options)
    assert [part.chunks for part in dealt] == [(0, 3, 6), (1, 4), (2, 5)]
    assert deal("q", "s", 0, 0, options) == []


def test_headers_and_meta_become_one_another() -> None:
    assert headers_of('{"a":"x","b":2}') == [{"key": "a", "value": b"x"}, {"key": "b", "value": b"2"}]
    assert headers_of(None) is headers_of("[1]") is headers_of("no json") is None
    assert meta_with(None, [{"key": "a", "value": b"x"}]) == '{"a": "x"}'
    assert meta_with('{"a":1}', [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]) == '{"a": 1, "b": null}'
    assert headers_of('{"a":null,"b":"\\ud800"}') == [{"key": "a", "value": None}, {"key": "b", "value": b'"\\ud800"'}]
    assert meta_with('{"a":1}', None) == '{"a":1}'


def test_a_letter_tells_its_origin_and_nonsense_tells_nothing() -> None:
    meta = '{"$dead_letter_from":"q","$dead_letter_src_seq":"7","$dead_letter_deliveries":"3","$dead_letter_id":"D1"}'
    assert origin(meta) == {
        "source_topic": "q", "source_seq": 7, "source_id": "D1", "reason": "max_deliveries", "attempts": 3,
        "priority": 0,
    }  # fmt: skip
    for nonsense in (None, "", "[]", "{", '{"$dead_letter_from":5,"$dead_letter_src_seq":"9e9"}'):
        assert set(origin(nonsense).values()) == {None}


def test_files_with_many_dead_records_are_not_read_by_spark() -> None:
    clean, few = ColdFile("a", 1, 10), ColdFile("b", 11, 20, (12, 1))
    gnawed = ColdFile("c", 21, 1000, tuple(n for first in range(21, 1000, 4) for n in (first, 1)))
    assert divided([gnawed, few, clean]) == ([clean, few], [gnawed])
