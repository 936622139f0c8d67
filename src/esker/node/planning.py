"""What a bulk reader is told before it reads: which topics there are, how far each reaches, and where its records are.

A plan is made in steps between which others have their turn, so it is no snapshot: each topic is told as it was at one
moment, and `position` covers all of those. The order within a topic makes it honest: first which records of a file no
longer count, then the floors. What a cap or the age takes in between lies below `earliest`, and whoever starts below it
knows that it misses something; nothing that was lost is passed off as deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from esker.engine.commands import Command, TopicState
from esker.engine.limits import BLOCK_RECORDS_MAX
from esker.engine.logs.archived import ArchivedFile
from esker.engine.logs.partition import LogPartition
from esker.engine.machine import Machine
from esker.engine.replies import Reply, TopicStatus
from esker.engine.topic import Topic
from esker.errors import EskerError
from esker.journal.interface import Journal
from esker.node.eventreading import Histories
from esker.node.ranges import gaps_of, seq_at

if TYPE_CHECKING:
    from esker.archive.interface import ArchiveStore

TOPICS_MAX = 10_000
PATTERN_CHARS_MAX = 1000
TIMES_MAX = 16
_SEQS_PER_STEP = 4096  # of a file that are looked at together
_RUNS_PER_TURN = 1024  # blocks, and runs of living records in them, before others have their turn: about a millisecond
_LOOKS_PER_TURN = 128  # the same of topics
_LOOKS_PER_TIME = 8  # what finding a time in one costs, in looks: a block is read from the store
_NAMES_PER_TURN = 1000


class PlanRefused(EskerError):
    """The plan cannot be made as it was asked for."""


class PlanWish(msgspec.Struct, frozen=True):
    """Names, or a pattern that whole names must match, or all topics where neither is given.

    `shown`: which topics the one who asks may know of. Without `files`, those of the archive are left out, which makes
    a plan cheap whatever there is: to look for what is new, nobody needs them.
    """

    shown: Callable[[bytes], bool]
    topics: Sequence[bytes] | None = None
    pattern: str | None = None
    at_ms: Sequence[int] = ()
    events: bool = False
    files: bool = True


class PlannedFile(msgspec.Struct, frozen=True):
    """A file of the archive. `rows` of it still count; the runs of `dead` (first, count …) do not."""

    path: str
    first: int
    last: int
    rows: int
    dead: list[int]
    sha256: str = ""  # its checksum; none for a file from before they had one


class PlannedGap(msgspec.Struct, frozen=True):
    first: int
    last: int
    reason: str


class PlannedPartition(msgspec.Struct, frozen=True):
    partition: int
    earliest: int
    next: int
    records: int
    bytes: int
    at: list[int]
    hot_from: int
    files: list[PlannedFile]
    gaps: list[PlannedGap]


class PlannedTopic(msgspec.Struct, frozen=True):
    topic: str
    type: str
    epoch: int
    dead_letter: str | None
    partitions: list[PlannedPartition]


class PlannedEvents(msgspec.Struct, frozen=True):
    """Positions of the journal; from `hot_from` on they are in the node."""

    first: int
    next: int
    hot_from: int
    files: list[PlannedEventsFile]


class PlannedEventsFile(msgspec.Struct, frozen=True):
    path: str
    first: int
    last: int


class Plan(msgspec.Struct, frozen=True):
    node: str
    position: int
    now_ms: int
    archive: str | None
    spool: str
    topics: list[PlannedTopic]
    missing: list[str]
    events: PlannedEvents | None


class Planner:
    """Lives on the loop."""

    def __init__(
        self,
        node_id: str,
        machine: Machine,
        journal: Journal,
        handle: Callable[[Command], Reply],
        now_ms: Callable[[], int],
        archive: ArchiveStore | None,
        histories: Histories,
        spool: Path,
    ) -> None:
        self._node_id = node_id
        self._machine = machine
        self._journal = journal
        self._handle = handle
        self._now_ms = now_ms
        self._archive = archive
        self._histories = histories
        self._spool = str(spool)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="esker-plan")

    async def plan(self, wish: PlanWish) -> Plan:
        """Raises PlanRefused."""
        names = await self._names(wish)
        topics: list[PlannedTopic] = []
        missing: list[str] = []
        looked = 0
        for name in names:
            planned = await self._topic(name, wish)
            if planned is not None:
                topics.append(planned)
            elif wish.topics is not None:
                missing.append(_text(name))
            looked += 1 + _LOOKS_PER_TIME * len(wish.at_ms)
            if looked >= _LOOKS_PER_TURN:
                looked = 0
                await asyncio.sleep(0)
        events = await self._events() if wish.events else None
        return Plan(
            self._node_id, self._position(), self._now_ms(), None if self._archive is None else self._archive.where,
            self._spool, topics, missing, events,
        )  # fmt: skip

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _position(self) -> int:
        """Of the batch with everything decided until now."""
        return self._journal.last_position + (1 if self._machine.outbox else 0)

    # -- topics

    async def _names(self, wish: PlanWish) -> Sequence[bytes]:
        if wish.topics is not None:
            return list(dict.fromkeys(wish.topics))
        everything = list(self._machine.sorted_names.in_order())
        names: list[bytes] = []
        for start in range(0, len(everything), _NAMES_PER_TURN):
            names += [name for name in everything[start : start + _NAMES_PER_TURN] if wish.shown(name)]
            await asyncio.sleep(0)
        if wish.pattern is not None:
            loop = asyncio.get_running_loop()
            names = await loop.run_in_executor(self._pool, _matching, names, wish.pattern)
        if len(names) > TOPICS_MAX:
            what = "topics are there" if wish.pattern is None else "topics match the pattern"
            raise PlanRefused(f"{len(names)} {what}; at most {TOPICS_MAX} are planned at a time")
        return names

    async def _topic(self, name: bytes, wish: PlanWish) -> PlannedTopic | None:
        """None: there is no such topic."""
        while (topic := self._machine.names.get(name)) is not None:
            files = await self._files(topic.log) if topic.log is not None and wish.files else []
            status = self._handle(TopicState(name, touch=False))  # from here on the floors are up to date
            if isinstance(status, TopicStatus) and status.number == topic.number:
                dead_letter = topic.config.dead_letter
                return PlannedTopic(
                    _text(name), topic.config.type.value, topic.number,
                    None if dead_letter is None else _text(dead_letter),
                    _of_queue(topic) if topic.log is None else [self._of_log(topic.log, status, files, wish.at_ms)],
                )  # fmt: skip
        return None

    async def _files(self, log: LogPartition) -> list[PlannedFile]:
        planned: list[PlannedFile] = []
        looked = 0
        for file in list(log.files.all):
            live: list[int] = []
            for after in range(file.first - 1, file.last, _SEQS_PER_STEP):
                runs = log.live_runs(after, min(after + _SEQS_PER_STEP, file.last))
                live += runs
                looked += _SEQS_PER_STEP // BLOCK_RECORDS_MAX + len(runs) // 2
                if looked >= _RUNS_PER_TURN:
                    looked = 0
                    await asyncio.sleep(0)
            planned.append(_planned(file, live))
        return planned

    def _of_log(
        self, log: LogPartition, status: TopicStatus, files: Sequence[PlannedFile], at_ms: Sequence[int]
    ) -> PlannedPartition:
        earliest = min(status.earliest_seq, log.next_seq)
        return PlannedPartition(
            partition=0,
            earliest=earliest,
            next=log.next_seq,
            records=log.count,
            bytes=log.bytes,
            at=[_first_living(log, seq_at(log, ms)) for ms in at_ms],
            hot_from=max(earliest, log.files.upto + 1),
            files=[file for file in files if file.last >= earliest],
            gaps=[PlannedGap(gap.first, gap.last, gap.reason) for gap in gaps_of(log, 1, log.next_seq)],
        )

    # -- events

    async def _events(self) -> PlannedEvents:
        found = await self._histories.layout()
        files = [PlannedEventsFile(name, first, last) for first, last, name in found.files]
        return PlannedEvents(found.first, found.next, found.hot_from, files)


def _planned(file: ArchivedFile, live: Sequence[int]) -> PlannedFile:
    dead: list[int] = []
    at = file.first
    for first, count in zip(live[::2], live[1::2], strict=True):
        if first > at:
            dead += (at, first - at)
        at = first + count
    if at <= file.last:
        dead += (at, file.last + 1 - at)
    return PlannedFile(file.path, file.first, file.last, sum(live[1::2]), dead, file.sha256)


def _first_living(log: LogPartition, seq: int) -> int:
    """Of the records from `seq` on; `next_seq`: none."""
    for block in log.blocks_after(seq - 1):
        live = block.live & block.bits(seq, block.end)
        if live:
            return block.first_seq + (live & -live).bit_length() - 1
    return log.next_seq


def _of_queue(topic: Topic) -> list[PlannedPartition]:
    return [
        PlannedPartition(
            partition.index, partition.earliest_seq(), partition.next_seq, partition.records, 0, [],
            partition.earliest_seq(), [], [],
        )
        for partition in topic.partitions
    ]  # fmt: skip


def _matching(names: Sequence[bytes], pattern: str) -> list[bytes]:
    """Runs in a thread."""
    from esker.columns.patterns import matching

    try:
        return matching(names, pattern)
    except ValueError as error:
        raise PlanRefused(f"pattern {pattern[:100]!r} is no regular expression: {error}") from error


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
