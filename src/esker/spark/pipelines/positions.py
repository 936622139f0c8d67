"""Which positions of the journal a history has, and which are missing in it.

A position without events has no row, so rows do not show what is missing. The names of events files do: each says its
first and its last position, and the next file begins one behind it. A broker says the same of its files and its
journal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from esker.errors import SettingsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from esker.spark.plan import EventsPlan

FIRST_POSITION: Final = 1  # of every journal
_NAME: Final = re.compile(r"(?:.*/)?(\d{20})-(\d{20})\.parquet")
_SHOWN: Final = 20  # holes in a line of text


@dataclass(frozen=True, slots=True)
class Span:
    """`first` to `last` position; `holes` in between: the first and the last position of each, in order."""

    first: int
    last: int
    holes: tuple[tuple[int, int], ...] = ()

    @property
    def begins_late(self) -> bool:
        return self.first > FIRST_POSITION

    @property
    def missing(self) -> int:
        return sum(last - first + 1 for first, last in self.holes)

    def lines(self) -> list[str]:
        """What a reader of results must know."""
        told = []
        if self.begins_late:
            told.append(f"history begins at position {self.first:,}: what came before is not known")
        told += [f"positions {first:,} to {last:,} are missing" for first, last in self.holes[:_SHOWN]]
        if len(self.holes) > _SHOWN:
            told.append(f"… and {len(self.holes) - _SHOWN:,} more holes")
        return told


def span_of_ranges(ranges: Iterable[tuple[int, int]]) -> Span | None:
    """Of ranges of positions, in any order; None where there is none."""
    ordered = sorted(ranges)
    if not ordered:
        return None
    holes: list[tuple[int, int]] = []
    first, last = ordered[0]
    for begin, end in ordered:
        if begin > last + 1:
            holes.append((last + 1, begin - 1))
        last = max(last, end)
    return Span(first, last, tuple(holes))


def span_of_files(paths: Iterable[str]) -> Span | None:
    """Of events files, by their names. Raises SettingsError for a file whose name does not say its positions."""
    ranges: list[tuple[int, int]] = []
    for path in paths:
        found = _NAME.fullmatch(unquote(path))
        if found is None:
            raise SettingsError(
                f"{path} is no events file of an archive: it is not called <first position>-<last position>.parquet, "
                "so it is not known what is missing beside it"
            )
        ranges.append((int(found[1]), int(found[2])))
    return span_of_ranges(ranges)


def span_of_frame(events: DataFrame) -> Span | None:
    """Of the files that a DataFrame reads; None: it reads no files of an archive, so nothing is known."""
    try:
        return span_of_files(events.inputFiles())
    except SettingsError:
        return None


def span_of_plan(events: EventsPlan) -> Span:
    """A broker has everything from `first` on. Files that lie before it are cut off by a hole."""
    ranges = [(file.first, file.last) for file in events.files]
    if events.next > events.first:
        ranges.append((events.first, events.next - 1))
    return span_of_ranges(ranges) or Span(events.first, events.next - 1)
