"""What is missing in a history is known by the names of its files, and by what a broker says of them."""

from __future__ import annotations

import pytest

from esker.archive.paths import events_path
from esker.errors import SettingsError
from esker.spark.pipelines.positions import Span, span_of_files, span_of_plan, span_of_ranges
from esker.spark.plan import ColdFile, EventsPlan


def _names(*ranges: tuple[int, int]) -> list[str]:
    return [f"file:///a%20b/{events_path(0, *each)}" for each in ranges]


def test_files_that_follow_each_other_have_no_holes() -> None:
    assert span_of_files(_names((8, 20), (1, 7), (21, 21))) == Span(1, 21)
    assert span_of_files(_names((1, 7), (1, 7), (5, 9))) == Span(1, 9)
    assert span_of_files([]) is None


def test_a_missing_file_is_a_hole() -> None:
    span = span_of_files(_names((5, 7), (10, 20), (22, 30)))
    assert span == Span(5, 30, ((8, 9), (21, 21)))
    assert (span.begins_late, span.missing) == (True, 3)
    assert span.lines()[0].startswith("history begins at position 5")
    assert span.lines()[1:] == ["positions 8 to 9 are missing", "positions 21 to 21 are missing"]


def test_of_many_holes_the_first_are_told() -> None:
    span = span_of_ranges((n, n) for n in range(1, 100, 2))
    assert span is not None
    assert len(span.holes) == 49
    assert span.lines()[-1] == "… and 29 more holes"


def test_a_file_without_positions_in_its_name_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"part-0\.parquet is no events file"):
        span_of_files([*_names((1, 7)), "/events/part-0.parquet"])


@pytest.mark.parametrize(
    ("first", "files", "holes"),
    [
        (1, (), ()),
        (1, ((1, 10), (11, 20)), ()),
        (21, ((1, 10),), ((11, 20),)),  # the broker has everything from 21 on, and something before a hole
        (31, ((1, 10), (21, 30)), ((11, 20),)),
    ],
)
def test_a_broker_that_misses_a_file_says_so_by_its_plan(
    first: int, files: tuple[tuple[int, int], ...], holes: tuple[tuple[int, int], ...]
) -> None:
    planned = tuple(ColdFile("", *each) for each in files)
    assert span_of_plan(EventsPlan(first, 41, 31, planned)) == Span(1, 40, holes)
