"""What topics and routers were at each moment of a history: the few events that change how all others are judged.

They are collected on the driver and sent to every task, so there must be few of them: one for each topic that is made,
configured or deleted, each router that is put, and each start of the node.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

SIGN: Final = {"min": 1, "max": -1, "fifo": 0}  # of a priority in the order of delivery
FACT_KINDS: Final = ("TopicCreated", "TopicConfigured", "TopicDeleted", "RouterPut", "NodeStarted")
LAST: Final = 1 << 62  # behind every position, and every ordinal


class Config(NamedTuple):
    """What of a topic's configuration decides how its events are judged."""

    sign: int = 1
    journaled: bool = True
    dead_letter: str | None = None  # without such a topic, deliveries have no limit
    max_deliveries: int = 0  # 0: no limit but a job's own
    leases_survive: bool = False  # a restart
    partitions: int = 1
    cap_records: int | None = 0  # 0: none; None: the history does not say
    cap_bytes: int = 0

    def most_deliveries(self, own: int) -> int:
        """Of a job whose own limit is `own`, -1 for none. 0: no limit, as where dead letters have no topic."""
        if self.dead_letter is None:
            return 0
        return own if own >= 0 else self.max_deliveries


class ChangeKind(IntEnum):
    CREATED = 0
    CONFIGURED = 1
    DELETED = 2
    ROUTER = 3
    STARTED = 4
    SNAPSHOT = 5  # not of the history: the living jobs of a queue were looked at here
    HOLE = 6  # not of the history: what happened before this position, and behind the last row, is missing


class Change(NamedTuple):
    """`router`, `cursor`: of a router that leads here, and the last seq of its source that needs no copy."""

    position: int
    ordinal: int
    kind: ChangeKind
    time_ms: int
    config: Config | None = None
    router: int = 0
    cursor: int = 0


NO_CHANGE: Final = Change(LAST, 0, ChangeKind.STARTED, 0)  # after everything


class FactRow(NamedTuple):
    """A row of the history that is a fact. `detail` is its JSON text."""

    position: int
    ordinal: int
    time_ms: int
    kind: str
    topic: int | None
    name: str | None
    router: int | None
    detail: str | None


@dataclass(slots=True)
class Facts:
    """`starts_told`: the history tells where the node was restarted. `graves`: dead-letter topics, by name, whose every
    record is told, with the position of their making. `old_upto`: the last position that is surely of a format that
    tells too little to judge."""

    names: dict[int, str] = field(default_factory=dict)
    everywhere: list[Change] = field(default_factory=list)  # what concerns all topics: starts, and holes
    starts_told: bool = False
    graves: dict[str, int] = field(default_factory=dict)
    old_upto: int | None = None
    _changes: dict[int, list[Change]] = field(default_factory=dict)

    def story(self, topic: int) -> list[Change]:
        """What changed for a topic, in order, closed by `NO_CHANGE`."""
        changes = [*self._changes.get(topic, ()), *self.everywhere]
        return [*sorted(changes, key=lambda change: (change.position, change.ordinal)), NO_CHANGE]

    def snapshot(self, topic: int, position: int, time_ms: int) -> None:
        """The living jobs of a topic are known as they were behind this position."""
        self.add(topic, Change(position, LAST, ChangeKind.SNAPSHOT, time_ms))

    def holes(self, holes: Iterable[tuple[int, int]]) -> None:
        """Positions are missing (first and last of each hole), so anything may have happened to any topic there."""
        self.everywhere += [Change(last, LAST, ChangeKind.HOLE, 0) for _, last in holes]

    def add(self, topic: int, change: Change) -> None:
        self._changes.setdefault(topic, []).append(change)


def facts_of(rows: Iterable[FactRow]) -> Facts:
    facts = Facts()
    for row in sorted(rows, key=lambda row: (row.position, row.ordinal)):
        place = row.position, row.ordinal
        detail = _detail(row)
        match row.kind:
            case "NodeStarted":
                facts.starts_told = True
                facts.everywhere.append(Change(*place, ChangeKind.STARTED, row.time_ms))
            case "RouterPut":
                cursor = _number(detail, "cursor")
                change = Change(*place, ChangeKind.ROUTER, row.time_ms, None, row.router or 0, cursor)
                facts.add(_number(detail, "dest_number"), change)
            case "TopicCreated" | "TopicConfigured" if row.topic is not None:
                if row.detail is None:
                    facts.old_upto = row.position
                if row.name is not None:
                    facts.names[row.topic] = row.name
                kind = ChangeKind.CREATED if row.kind == "TopicCreated" else ChangeKind.CONFIGURED
                facts.add(row.topic, Change(*place, kind, row.time_ms, _config(detail)))
            case "TopicDeleted" if row.topic is not None:
                facts.add(row.topic, Change(*place, ChangeKind.DELETED, row.time_ms))
    _find_graves(facts)
    return facts


def _find_graves(facts: Facts) -> None:
    wanted: set[str] = set()
    made: dict[str, int] = {}
    untold: set[str] = set()
    for number, changes in facts._changes.items():
        name = facts.names.get(number)
        for change in changes:
            if change.config is not None and change.config.dead_letter is not None:
                wanted.add(change.config.dead_letter)
            if name is not None and change.config is not None and not change.config.journaled:
                untold.add(name)
            if name is not None and change.kind == ChangeKind.CREATED:
                made[name] = min(made.get(name, change.position), change.position)
    facts.graves = {name: made[name] for name in wanted & made.keys() - untold}


def _detail(row: FactRow) -> Mapping[str, object]:
    if not row.detail:
        return {}
    try:
        found = json.loads(row.detail)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _config(detail: Mapping[str, object]) -> Config | None:
    """None where the row does not tell, as in histories of an older format."""
    if not detail:
        return None
    return Config(
        SIGN.get(str(detail.get("mode", "min")), 1),
        detail.get("durability") != "ephemeral",
        None if detail.get("dead_letter") is None else str(detail["dead_letter"]),
        _number(detail, "max_deliveries"),
        bool(detail.get("lazy") or detail.get("leases_durable")),
        _number(detail, "partitions") or 1,
        _number(detail, "cap_records") if "cap_records" in detail else None,
        _number(detail, "cap_bytes"),
    )


def _number(detail: Mapping[str, object], key: str) -> int:
    found = detail.get(key, 0)
    return found if isinstance(found, int) else 0
