"""Offsets: where a query starts, ends and has got to.

An offset is the seq of the record to read next, so ends are exclusive. Spark stores progress as JSON text and takes a
batch to be empty when two texts are equal; so everything here is written in one order: topics by name, partitions by
number.

    {"orders": {"0": 4711}, "$epochs": {"orders": 17}}      of records; the epoch tells a topic from its successor
    {"$events": {"0": 90210}}                               of the event history: a position of the journal
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from esker.spark.errors import wrong_option

EARLIEST: Final = -2
LATEST: Final = -1
EPOCHS: Final = "$epochs"
EVENTS: Final = "$events"

Spot = tuple[str, int]  # a topic and a partition of it
Json = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Edge:
    """Where a range starts or ends: the same place for all partitions, a time for all, or each its own."""

    place: int | None = None  # EARLIEST or LATEST
    time_ms: int | None = None
    offsets: Mapping[Spot, int] | None = None  # EARLIEST and LATEST may be among them
    times_ms: Mapping[Spot, int] | None = None
    epochs: Mapping[str, int] | None = None
    position: int | None = None  # of the event history

    @property
    def is_latest(self) -> bool:
        return self.place == LATEST or (self.offsets is not None and LATEST in self.offsets.values())

    @property
    def is_earliest(self) -> bool:
        return self.place == EARLIEST or (self.offsets is not None and EARLIEST in self.offsets.values())

    def times(self) -> tuple[int, ...]:
        """The times whose offsets must be asked for."""
        times = set() if self.time_ms is None else {self.time_ms}
        return tuple(sorted(times | set((self.times_ms or {}).values())))


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stream has got in each partition."""

    offsets: Mapping[Spot, int]
    epochs: Mapping[str, int]

    def to_json(self) -> Json:
        found: Json = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            found.setdefault(topic, {})[str(partition)] = offset
        found[EPOCHS] = dict(sorted(self.epochs.items()))
        return found

    @classmethod
    def from_json(cls, found: Json) -> Progress:
        offsets = {
            (topic, int(partition)): offset
            for topic, partitions in found.items()
            if not topic.startswith("$")
            for partition, offset in partitions.items()
        }
        return cls(offsets, dict(found.get(EPOCHS, {})))


def events_json(position: int) -> Json:
    return {EVENTS: {"0": position}}


def events_position(found: Json) -> int:
    return found[EVENTS]["0"]


def parse_edge(name: str, text: str) -> Edge:
    """`earliest`, `latest`, or JSON: offsets of topics, or a position of events."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Edge(place=EARLIEST if word == "earliest" else LATEST)
    found = _parse_map(name, text, least=EARLIEST)
    epochs = found.pop(EPOCHS, None)
    events = found.pop(EVENTS, None)
    if events is not None:
        if set(events) != {"0"}:
            raise wrong_option(name, f'events have one partition: {{"{EVENTS}":{{"0":n}}}}')
        return Edge(position=events["0"])
    offsets = {(topic, int(number)): offset for topic, parts in found.items() for number, offset in parts.items()}
    return Edge(offsets=offsets, epochs=epochs)


def parse_edge_times(name: str, text: str) -> Edge:
    found = _parse_map(name, text, least=0)
    return Edge(times_ms={(topic, int(number)): ms for topic, parts in found.items() for number, ms in parts.items()})


def share(spans: Mapping[Spot, tuple[int, int]], limit: int) -> dict[Spot, int]:
    """Ends that take at most `limit` offsets in all, each partition in proportion to what it has; `limit` is at least
    1 and some end always moves, or the stream would stand still."""
    waiting = {spot: max(0, end - start) for spot, (start, end) in spans.items()}
    total = sum(waiting.values())
    if total <= limit:
        return {spot: end for spot, (_, end) in spans.items()}
    taken = {spot: waiting[spot] * limit // total for spot in spans}
    left = limit - sum(taken.values())
    # What rounding left over goes to those that lost most by it, so that small partitions come along as well.
    for spot in sorted(spans, key=lambda spot: (-(waiting[spot] * limit % total), spot))[:left]:
        taken[spot] += 1
    return {spot: start + taken[spot] for spot, (start, _) in spans.items()}


def _parse_map(name: str, text: str, least: int) -> Json:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    shape = '{"topic":{"0":23}}'
    if not isinstance(found, dict) or not found:
        raise wrong_option(name, f"{text[:80]!r}; it is earliest, latest or JSON like {shape}")
    for topic, partitions in found.items():
        if not isinstance(partitions, dict) or not partitions:
            raise wrong_option(name, f"topic {topic!r} needs its partitions, as in {shape}")
        for key, value in partitions.items():
            if type(value) is not int or value < least:
                raise wrong_option(
                    name, f"topic {topic!r}, partition {key!r}: {value!r} is no number of {least} or more"
                )
            if topic != EPOCHS and not (key.isascii() and key.isdigit()):
                raise wrong_option(name, f"topic {topic!r}: {key!r} is no partition number")
    return found
