"""What there is to read, as the broker tells it at one moment, and how it is cut into partitions for tasks.

A slice is a range of offsets of one partition of a topic. What lies below `hot_from` is in files of the archive, which
tasks read themselves where they can; the rest comes from the broker. Batches cut at the borders of files where that
fits, streams at equal distances, so that a range that is read again is cut the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from esker.spark.client import Client
from esker.spark.errors import DataLoss, EskerSparkError, Refused
from esker.spark.offsets import EARLIEST, LATEST, Edge, Spot
from esker.spark.options import Choice, ReadOptions

SLICE_ROWS: Final = 250_000  # about a second of work for a task
SLICE_ROWS_MIN: Final = 50_000  # less than that is not worth a second task
TASKS_MIN: Final = 2  # so that a batch of a stream keeps more than one core busy
TIMES_MAX: Final = 16  # that the broker looks up in one plan

_REASONS: Final = {
    "cap": "a cap of the topic",
    "ttl": "their age",
    "mixed": "a cap of the topic, or their age",
    "lost": "a crash may have taken them, the topic is not of class fsync",
    "source_trim": "the source of a router lost them",
}


@dataclass(frozen=True, slots=True)
class ColdFile:
    """A Parquet file of the archive. `dead`: first and count, in turn, of offsets in it that no longer count."""

    path: str
    first: int
    last: int
    dead: tuple[int, ...] = ()
    sha256: str = ""  # its checksum, where the broker knows it


@dataclass(frozen=True, slots=True)
class Gap:
    first: int
    last: int
    reason: str


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    topic: str
    partition: int
    epoch: int
    earliest: int
    next: int
    at: Mapping[int, int]  # by time in ms: the first offset that is not older
    hot_from: int
    files: tuple[ColdFile, ...]
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class EventsPlan:
    first: int
    next: int
    hot_from: int
    files: tuple[ColdFile, ...]


@dataclass(frozen=True, slots=True)
class TopicPlan:
    name: str
    type: str
    epoch: int
    dead_letter: str | None
    partitions: tuple[PartitionPlan, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    node: str
    position: int
    now_ms: int
    archive: str | None
    spool: str | None
    topics: tuple[TopicPlan, ...]
    missing: tuple[str, ...]
    events: EventsPlan | None

    def partitions(self, choice: Choice) -> dict[Spot, PartitionPlan]:
        """Of all topics, those that are chosen. Raises EskerSparkError where a chosen one does not exist."""
        found = {(part.topic, part.partition): part for topic in self.topics for part in topic.partitions}
        for topic, numbers in (choice.assigned or {}).items():
            for number in numbers:
                if (topic, number) not in found and topic not in self.missing:
                    raise EskerSparkError(f"option assign: topic {topic!r} has no partition {number}")
        return {spot: part for spot, part in sorted(found.items()) if choice.takes(*spot)}


@dataclass
class Slice(InputPartition):
    """What one task reads of a log: offsets from `start` to before `end`."""

    topic: str
    partition: int
    epoch: int
    start: int
    end: int
    hot_from: int
    files: tuple[ColdFile, ...]
    archive: str | None
    node: str
    spool: str | None = None


def ask_plan(
    client: Client,
    choice: Choice,
    times: Sequence[int] = (),
    events: bool = False,
    lenient: bool = False,
    files: bool = True,
) -> Plan:
    """One plan; without `files` of records, which may be many. Raises EskerSparkError when a named topic is missing,
    unless `lenient`."""
    if len(times) > TIMES_MAX:
        raise EskerSparkError(f"options by timestamp: {len(times)} different times; at most {TIMES_MAX}")
    body: dict[str, object] = {
        "topics": None if choice.names is None else list(choice.names),
        "pattern": choice.pattern,
        "events": events,
        "files": files,
    }
    if times:
        body["at_ms"] = list(times)
    plan = _plan(client.ask("POST", "/v0/bulk/plan", body=body).body, times)
    if plan.missing and not lenient:
        names = ", ".join(repr(name) for name in plan.missing)
        raise EskerSparkError(f"option subscribe: no topic {names}")
    return plan


def need_type(plan: Plan, wanted: str, table: str, instead: str) -> None:
    for topic in plan.topics:
        if topic.type != wanted:
            raise EskerSparkError(
                f"topic {topic.name!r} is a {topic.type}: the table {table} reads a {wanted}; {instead}"
            )


def resolve(
    edge: Edge, parts: Mapping[Spot, PartitionPlan], option: str, *, end: bool, missing_is_latest: bool = True
) -> dict[Spot, int]:
    """The offset of an edge in each partition."""
    _check_named(edge, parts, option)
    found: dict[Spot, int] = {}
    for spot, part in parts.items():
        topic, number = spot
        if edge.time_ms is not None or edge.times_ms is not None:
            time_ms = edge.time_ms if edge.time_ms is not None else (edge.times_ms or {})[spot]
            offset = part.at[time_ms]
            if offset >= part.next and not end and not missing_is_latest:
                raise EskerSparkError(
                    f"option {option}: topic {topic!r}, partition {number} has no record at or after {time_ms}; "
                    "startingOffsetsByTimestampStrategy=latest starts at the end then"
                )
            found[spot] = offset
            continue
        told = edge.offsets[spot] if edge.offsets is not None else edge.place
        if told == EARLIEST:
            found[spot] = part.earliest
        elif told == LATEST:
            found[spot] = part.next
        elif told is None or told > part.next:
            raise EskerSparkError(
                f"option {option}: offset {told} of topic {topic!r}, partition {number} lies behind its end {part.next}"
            )
        else:
            found[spot] = max(told, 1) if told < part.earliest else told
    return found


def check_epochs(told: Mapping[str, int], parts: Mapping[Spot, PartitionPlan]) -> None:
    """Raises EskerSparkError for offsets of a topic that was deleted and made again."""
    for (topic, _), part in parts.items():
        if topic in told and told[topic] != part.epoch:
            raise EskerSparkError(
                f"topic {topic!r} was deleted and made again: the offsets are of epoch {told[topic]}, it is now "
                f"{part.epoch}, and its offsets mean other records; start a new query with a new checkpoint"
            )


def lost(part: PartitionPlan, start: int, end: int) -> list[Gap]:
    """What is gone of a range."""
    gaps = [gap for gap in part.gaps if gap.first < end and gap.last >= start]
    if start < part.earliest and not any(gap.first <= start for gap in gaps):
        last = min(part.earliest, end) - 1
        if last >= start:
            gaps.insert(0, Gap(start, last, "retention"))
    return gaps


def data_loss(topic: str, partition: int, gaps: Sequence[Gap]) -> DataLoss:
    shown = ", ".join(f"{gap.first} to {gap.last} ({_REASONS.get(gap.reason, gap.reason)})" for gap in gaps[:5])
    return DataLoss(
        f"records of topic {topic!r}, partition {partition} are gone: offsets {shown}"
        f"{' and more' if len(gaps) > 5 else ''}; failOnDataLoss=false passes over them"
    )


def slices(
    plan: Plan, parts: Mapping[Spot, PartitionPlan], ranges: Mapping[Spot, tuple[int, int]], options: ReadOptions,
    even: bool = False,
) -> list[Slice]:  # fmt: skip
    """Cuts ranges for tasks. `even`: by offsets alone, so that the same range is always cut the same way."""
    total = sum(max(0, end - start) for start, end in ranges.values())
    rows = slice_rows(total, options)
    found = []
    for spot, (start, end) in sorted(ranges.items()):
        if start >= end:
            continue
        part = parts[spot]
        borders = () if even else [file.last + 1 for file in part.files if start < file.last + 1 < end]
        for low, high in cut(start, end, rows, borders):
            files = tuple(file for file in part.files if file.first < high and file.last >= low)
            where = plan.archive, plan.node, plan.spool
            found.append(Slice(part.topic, part.partition, part.epoch, low, high, part.hot_from, files, *where))
    return found


def slice_rows(total: int, options: ReadOptions) -> int:
    """How many rows a task gets at most, of so many."""
    fair = max(SLICE_ROWS_MIN, -(-total // TASKS_MIN))
    most = options.partition_records_max or SLICE_ROWS
    return max(1, min(SLICE_ROWS, fair, most, -(-total // options.partitions_min)))


def cut(start: int, end: int, rows: int, borders: Sequence[int] = ()) -> Iterator[tuple[int, int]]:
    """Ranges of about `rows` offsets and never more, which end at one of `borders` where it costs no extra range."""
    units = []
    for low, high in zip((start, *borders), (*borders, end), strict=True):
        pieces = -(-(high - low) // rows)
        units += [(low + (high - low) * k // pieces, low + (high - low) * (k + 1) // pieces) for k in range(pieces)]
    low = start
    for before, (_, high) in pairwise(units):
        if high - low > rows:
            yield low, before[1]
            low = before[1]
    yield low, end


# -- from JSON. What the broker says is checked for its shape, since the endpoint may be anything.


def _plan(body: dict[str, object], times: Sequence[int]) -> Plan:
    try:
        topics = tuple(_topic(topic, times) for topic in _list(body["topics"]))
        events = body.get("events")
        return Plan(
            node=str(body["node"]),
            position=_int(body["position"]),
            now_ms=_int(body["now_ms"]),
            archive=None if body["archive"] is None else str(body["archive"]),
            spool=None if body.get("spool") is None else str(body["spool"]),
            topics=topics,
            missing=tuple(map(str, _list(body["missing"]))),
            events=None if events is None else _events(_dict(events)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"the plan of the broker cannot be read ({error!r}); is it of another version?") from None


def _topic(told: object, times: Sequence[int]) -> TopicPlan:
    topic = _dict(told)
    name, epoch = str(topic["topic"]), _int(topic["epoch"])
    parts = tuple(_partition(name, epoch, _dict(part), times) for part in _list(topic["partitions"]))
    letter = topic.get("dead_letter")
    return TopicPlan(name, str(topic["type"]), epoch, None if letter is None else str(letter), parts)


def _partition(topic: str, epoch: int, part: dict[str, object], times: Sequence[int]) -> PartitionPlan:
    earliest = _int(part["earliest"])
    return PartitionPlan(
        topic=topic,
        partition=_int(part["partition"]),
        epoch=epoch,
        earliest=earliest,
        next=_int(part["next"]),
        at=dict(zip(times, map(_int, _list(part.get("at") or [])), strict=True)) if times else {},
        hot_from=_int(part.get("hot_from", earliest)),
        files=tuple(_file(_dict(file)) for file in _list(part.get("files") or [])),
        gaps=tuple(
            Gap(_int(gap["first"]), _int(gap["last"]), str(gap["reason"]))
            for gap in map(_dict, _list(part.get("gaps") or []))
        ),
    )


def _events(events: dict[str, object]) -> EventsPlan:
    files = tuple(_file(_dict(file)) for file in _list(events["files"]))
    return EventsPlan(_int(events["first"]), _int(events["next"]), _int(events["hot_from"]), files)


def _file(file: dict[str, object]) -> ColdFile:
    path = str(file["path"])
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"a file outside the archive: {path!r}")
    dead = tuple(map(_int, _list(file.get("dead") or [])))
    return ColdFile(path, _int(file["first"]), _int(file["last"]), dead, str(file.get("sha256") or ""))


def _check_named(edge: Edge, parts: Mapping[Spot, PartitionPlan], option: str) -> None:
    """As Kafka does: offsets by partition must name all partitions and no others."""
    named = edge.offsets if edge.offsets is not None else edge.times_ms
    if edge.position is not None:
        raise EskerSparkError(f"option {option}: a position of events; the table records has offsets of topics")
    if named is None:
        return
    for topic, number in parts:
        if (topic, number) not in named:
            raise EskerSparkError(f"option {option}: topic {topic!r}, partition {number} is not in it")
    for topic, number in named:
        if (topic, number) not in parts:
            raise EskerSparkError(f"option {option}: topic {topic!r} has no partition {number}, or is not read")
    if edge.epochs is not None:
        check_epochs(edge.epochs, parts)


def _int(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no number")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value


def _dict(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no object")
    return value
