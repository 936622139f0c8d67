"""What a run tells while it goes on, and how streams and loads feed it.

A pipeline speaks to a `Progress`; the command line shows it as bars, a program may count, a test may listen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_S: Final = 1
_PATIENCE_S: Final = 30


class Progress(Protocol):
    def stage(self, title: str, total: int | None = None, unit: str = "rows") -> None:
        """A new part of the work begins. `total` None: nobody knows how much it will be."""

    def advance(self, done: int, total: int | None = None) -> None:
        """So much of the stage is done, counted from its start."""

    def note(self, text: str) -> None:
        """Something worth a line of its own."""


class Quiet:
    """Says nothing."""

    def stage(self, title: str, total: int | None = None, unit: str = "rows") -> None: ...

    def advance(self, done: int, total: int | None = None) -> None: ...

    def note(self, text: str) -> None: ...


QUIET: Final[Progress] = Quiet()


@dataclass(slots=True)
class StreamTotals:
    """What all batches of a stream came to. `observed`: sums of the metrics that `observe` gave, by their names."""

    rows: int = 0
    batches: int = 0
    late: int = 0
    behind: int | None = None
    observed: dict[str, int] = field(default_factory=dict)
    _seen: tuple[int, str] = (-1, "")

    def take(self, reports: Iterable[Mapping[str, object]]) -> None:
        """Adds the reports that are new. Spark repeats recent ones, and reports idle moments under the next batch."""
        for report in reports:
            mark = (_whole(report.get("batchId")), str(report.get("timestamp")))
            if mark <= self._seen:
                continue
            self._seen = mark
            rows = _whole(report.get("numInputRows"))
            self.rows += rows
            self.batches += rows > 0
            for operator in _mappings(report.get("stateOperators")):
                self.late += _whole(operator.get("numRowsDroppedByWatermark"))
            sources = list(_mappings(report.get("sources")))
            if sources:
                self.behind = sum(_behind(source) for source in sources)
            observed = report.get("observedMetrics")
            if isinstance(observed, Mapping):
                for name, row in observed.items():
                    self.observed[str(name)] = self.observed.get(str(name), 0) + _first_number(row)


def follow(query: StreamingQuery, progress: Progress, stopping: Event) -> StreamTotals:
    """Shows a stream until it ends, or until it is told to; raises what ended it."""
    totals = StreamTotals()
    while not query.awaitTermination(_LOOK_S):
        _show(query, totals, progress)
        if stopping.is_set():
            progress.note("stopping behind this batch")
            _stop(query)
            break
    _show(query, totals, progress)
    return totals


def _stop(query: StreamingQuery) -> None:
    """Spark breaks off the batch it is in, and the next run would do it again. A moment's wait saves that."""
    for _ in range(_PATIENCE_S):
        if not query.isActive or not query.status["isTriggerActive"] or query.awaitTermination(_LOOK_S):
            break
    query.stop()


def _show(query: StreamingQuery, totals: StreamTotals, progress: Progress) -> None:
    totals.take(json.loads(report.json) for report in query.recentProgress)
    progress.advance(totals.rows, None if totals.behind is None else totals.rows + totals.behind)


@contextmanager
def watching(look: Callable[[], None]) -> Iterator[None]:
    """Calls `look` now and then from another thread while this one waits for Spark; what `look` raises ends it only."""
    done = Event()

    def keep_looking() -> None:
        while not done.wait(_LOOK_S):
            look()

    thread = Thread(target=keep_looking, name="esker-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _behind(source: Mapping[str, object]) -> int:
    """Records that the source has and the stream has not read, from offsets as {"topic":{"0":next}}."""
    latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
    return sum(max(0, offset - end.get(place, 0)) for place, offset in latest.items())


def _offsets(offset: object) -> dict[tuple[str, str], int]:
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    if not isinstance(offset, Mapping):
        return {}
    return {
        (str(topic), str(partition)): place
        for topic, partitions in offset.items()
        if isinstance(partitions, Mapping) and topic != "$epochs"
        for partition, place in partitions.items()
        if isinstance(place, int)
    }


def _mappings(found: object) -> Iterator[Mapping[str, object]]:
    if isinstance(found, list):
        yield from (each for each in found if isinstance(each, Mapping))


def _first_number(row: object) -> int:
    values = row.values() if isinstance(row, Mapping) else ()
    return next((value for value in values if isinstance(value, int)), 0)


def _whole(found: object) -> int:
    return found if isinstance(found, int) else 0
