"""Histories for the auditor: the real engine under random traffic, with crashes, restarts and all classes of topics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random

from esker.columns.eventnames import Names
from esker.columns.events import EventColumns
from esker.engine.commands import (
    Ack,
    AckHeld,
    Append,
    Command,
    ConfigureTopic,
    CreateTopic,
    DropRouter,
    Enqueue,
    Forward,
    Lease,
    NewJob,
    NewRecord,
    PutRouter,
    Tick,
)  # fmt: skip
from esker.engine.config import Discard, Durability, Guarantee, Mode, RouterOptions, TopicConfig, TopicType
from esker.engine.events import NodeStarted, decode_batch
from esker.engine.queues.clockwork import next_wake_ms
from esker.engine.queues.job import JobState
from esker.engine.replies import Delivery, Leased, Reply
from esker.spark.pipelines.codes import CODES, REASONS, Bound, Code, Reason, Row
from esker.spark.pipelines.facts import FACT_KINDS, FactRow, Facts, facts_of
from esker.spark.pipelines.fold import PartitionFold
from esker.spark.pipelines.rules import Findings, Violation, disguised
from tests.engine.rig import START_MS, Rig
from tests.properties import traffic
from tests.properties.world import World

EventRow = dict[str, object]
LiveJob = tuple[int, int, int]  # topic number, partition, seq

OTHERS = {
    b"fleeting": TopicConfig(durability=Durability.EPHEMERAL),
    b"memory": TopicConfig(durability=Durability.MEMORY, mode=Mode.FIFO, leases_durable=True),
    b"strict": TopicConfig(max_deliveries=1, dead_letter=b"small grave", lease_ms=200, mode=Mode.MAX),
    b"small grave": TopicConfig(cap_records=2, discard=Discard.REJECT),
    b"source": TopicConfig(type=TopicType.LOG, durability=Durability.DISK),
    b"copy": TopicConfig(type=TopicType.LOG, durability=Durability.DISK),
    b"firm copy": TopicConfig(type=TopicType.LOG),
    b"copied jobs": TopicConfig(),
}
ROUTES = {b"r1": b"copy", b"r2": b"firm copy", b"r3": b"copied jobs"}


class Life(Rig):
    """A shard with a journal that is kept from its first position, whatever crashes and checkpoints do to it."""

    def __init__(self) -> None:
        self.now = START_MS
        self.world = World(None)
        self.batches_at: dict[int, bytes] = {}
        self._read = 0
        self._begin()

    def _begin(self) -> None:
        self.machine = self.world.machine
        self.machine.record(None, NodeStarted(self.now), sync=False)

    def do(self, command: Command) -> Reply:
        reply = self.world.do(command, self.now)
        for position, batch in self.world.journal.read(self._read):
            self.batches_at[position] = batch
            self._read = position
        return reply

    def settle(self) -> None:
        """All that is due happens."""
        self.do(Tick())
        while (due := next_wake_ms(self.machine)) is not None and due <= self.now:
            self.do(Tick())

    def crash(self, dice: Random) -> None:
        """The journal is cut somewhere behind what was promised."""
        world = self.world
        world.promised = max(world.promised, world.waiting_for)
        cut = dice.randint(world.promised, world.journal.last_position)
        world.crash(cut, dice.randint(0, 3))
        self.batches_at = {position: batch for position, batch in self.batches_at.items() if position <= cut}
        self._read = cut
        self.now += dice.choice([0, 1, 50, 3000])
        self._begin()
        self.settle()

    def restart(self) -> None:
        self.world.restart()
        self._begin()
        self.settle()

    def checkpoint(self) -> None:
        self.world.begin_checkpoint()
        self.world.finish_checkpoint(Random(0))

    def rows(self) -> list[EventRow]:
        return rows_of(self.batches_at)

    def alive(self) -> set[LiveJob]:
        """What a snapshot of all queues would hold."""
        return {
            (topic.number, partition.index, job.seq)
            for topic in self.machine.topics.values()
            for partition in topic.partitions
            for job in partition.jobs.values()
            if job.state != JobState.SPENT
        }

    def heads(self) -> dict[tuple[int, int], int]:
        """The next seq of each partition."""
        return {
            (topic.number, partition.index): partition.next_seq
            for topic in self.machine.topics.values()
            for partition in topic.all_partitions()
        }

    @property
    def queues(self) -> set[int]:
        return {topic.number for topic in self.machine.topics.values() if topic.is_queue}


def rows_of(batches: Mapping[int, bytes]) -> list[EventRow]:
    columns = EventColumns(Names())
    for position, batch in sorted(batches.items()):
        columns.add(position, decode_batch(batch))
    rows: list[EventRow] = columns.take().to_pylist()
    return rows


def random_life(seed: int, rounds: int = 6, steps: int = 150) -> Life:
    """Random traffic on all kinds of topics; between the rounds crashes, restarts and checkpoints."""
    dice = Random(seed)
    life = Life()
    for name, config in OTHERS.items():
        life.do(CreateTopic(name, config))
    for name, dest in ROUTES.items():
        life.do(PutRouter(name, b"source", dest, RouterOptions(guarantee=Guarantee.EXACTLY_ONCE)))
    for _ in range(rounds):
        held: list[Delivery] = []
        for _ in range(steps // 10):
            traffic.live(life, dice, 10)
            for _ in range(5):
                _step(life, dice, held)
        end = dice.choice(["crash", "restart", "checkpoint", "nothing"])
        if end == "crash":
            life.crash(dice)
        elif end == "restart":
            life.restart()
        elif end == "checkpoint":
            life.checkpoint()
    life.do(Tick())
    return life


def _step(life: Life, dice: Random, held: list[Delivery]) -> None:
    topic = dice.choice([b"fleeting", b"memory", b"strict", b"small grave", b"copied jobs", b"plain", b"keyed"])
    kind = dice.random()
    if kind < 0.3:
        life.do(Enqueue(topic, [NewJob(b"x", dice.randint(-3, 3), dice.choice([None, None, 0, 100]))]))
    elif kind < 0.5:
        reply = life.do(Lease(topic, dice.randint(1, 3), dice.choice([None, 100, 1000]), b"w1"))
        held += reply.deliveries if isinstance(reply, Leased) else ()
    elif kind < 0.6 and held:
        each = held.pop(dice.randrange(len(held)))
        life.do(Ack([each.id], [each.token]))
    elif kind < 0.65:
        life.do(AckHeld(topic, [each.id & ((1 << 46) - 1) for each in held[-2:]], b"w1"))
    elif kind < 0.75:
        life.do(Append(b"source", [NewRecord(b"1")] * dice.randint(1, 5)))
        life.do(Forward())
    elif kind < 0.8:
        life.do(Append(dice.choice([b"copy", b"firm copy"]), [NewRecord(b"2")]))
    elif kind < 0.85:
        life.pass_ms(dice.choice([1, 100, 2000]))
    elif kind < 0.9 and topic in (b"fleeting", b"memory"):
        life.do(ConfigureTopic(topic, TopicConfig(durability=dice.choice(list(Durability)))))
    elif kind < 0.92:
        name = dice.choice(list(ROUTES))
        life.do(DropRouter(name))
        life.do(PutRouter(name, b"source", ROUTES[name], RouterOptions()))


# -- without Spark


def facts_in(rows: Iterable[EventRow]) -> Facts:
    return facts_of(
        FactRow(
            _number(row, "position"), _number(row, "ordinal"), _ms(row, "time"), str(row["kind"]),
            _optional(row, "topic_number"), _text(row, "topic"), _optional(row, "router"), _text(row, "detail"),
        )
        for row in rows
        if row["kind"] in FACT_KINDS
    )  # fmt: skip


def fold_row(row: EventRow) -> Row:
    detail = json.loads(str(row["detail"])) if row["detail"] else {}
    code = CODES[str(row["kind"])]
    extra, reason = detail.get("max_deliveries", -1), REASONS.get(str(row["reason"]), 0)
    number = _number(row, "attempts" if code == Code.LEASED else "priority")
    if code == Code.FORWARDED:
        extra, number = _number(row, "source_seq"), _number(row, "router")
        reason = Reason.NOT_DERIVED if detail.get("derived") is False else 0
    elif code == Code.LOST:
        extra = detail["last"]
    return Row(
        _number(row, "position"), _number(row, "ordinal"), _ms(row, "time"), code, _number(row, "seq"), number,
        _text(row, "lease"), _ms(row, "due"), extra, reason, _text(row, "node"), _ms(row, "expires"),
    )  # fmt: skip


def examine(
    rows: list[EventRow],
    alive: set[LiveJob] | None = None,
    queues: Iterable[int] = (),
    grace_ms: int = 1000,
    holes: Sequence[tuple[int, int]] = (),
    heads: Mapping[tuple[int, int], int] | None = None,
) -> Findings:
    """The audit of a history by the fold alone. `alive`: the jobs in `queues` behind the last row; `heads`: the next
    seq of each partition there. `holes`: positions that are missing."""
    facts = facts_in(rows)
    facts.holes(holes)
    last = max(_number(row, "position") for row in rows)
    groups: dict[tuple[int, int], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (_number(row, "position"), _number(row, "ordinal"))):
        if row["kind"] in CODES:
            groups.setdefault((_number(row, "topic_number"), _number(row, "partition")), []).append(fold_row(row))
    if alive is not None:
        for number in queues:
            facts.snapshot(number, last, 0)
        for number, index, seq in alive:
            groups.setdefault((number, index), []).append(Row(last, 1 << 61, 0, Code.LIVE, seq))
    for place, seq in (heads or {}).items():
        bounds = [Row(last, 1 << 61, 0, Code.HEAD, seq, bound) for bound in Bound]
        groups.setdefault(place, []).extend(bounds)
    everything = Findings()
    for (number, index), group in groups.items():
        findings = Findings()
        fold = PartitionFold(
            number, index, facts.story(number), findings, starts_told=facts.starts_told, grace_ms=grace_ms,
            graves=facts.graves, name=facts.names.get(number),
        )  # fmt: skip
        fold.run(group)
        fold.finish()
        everything.evidence += findings.evidence
        everything.broken += findings.broken
        everything.notes += findings.notes
        everything.letters.update(findings.letters)
        everything.deleted.update(findings.deleted)
    for letter, count in everything.deleted.items():
        if disguised(everything.letters[letter], count):
            everything.add(Violation("dead_letter_reason", 0, 0, letter[1], 0, 0, 4, "a dead letter", "deleted"))
    return everything


def _optional(row: EventRow, name: str) -> int | None:
    found = row[name]
    assert found is None or isinstance(found, int)
    return found


def _number(row: EventRow, name: str) -> int:
    return _optional(row, name) or 0


def _text(row: EventRow, name: str) -> str | None:
    found = row[name]
    return None if found is None else str(found)


def _ms(row: EventRow, name: str) -> int:
    found = row[name]
    return 0 if found is None else round(found.timestamp() * 1000)  # type: ignore[attr-defined]


# -- a short, plain history, and lies about it


def plain_life() -> Life:
    """Two jobs done, one that failed and was done, one dead letter, two that wait; and a router that copied."""
    life = Life()
    life.do(CreateTopic(b"q", TopicConfig(max_deliveries=2, dead_letter=b"grave")))
    for name in (b"a", b"b"):
        life.do(CreateTopic(name, TopicConfig(type=TopicType.LOG)))
    life.do(PutRouter(b"r", b"a", b"b", RouterOptions(guarantee=Guarantee.EXACTLY_ONCE)))
    life.do(Append(b"a", [NewRecord(b"1"), NewRecord(b"2"), NewRecord(b"3")]))
    life.do(Forward())
    for priority in (5, 1, 3, 7, 9):
        life.add(b"x", priority, b"q")
    life.now += 10
    for _ in range(2):  # seqs 2 and 3
        (each,) = life.lease(1, b"q", 1000, b"w1")
        life.now += 5
        life.ack(each)
    (each,) = life.lease(1, b"q", 1000, b"w2")  # seq 1
    life.nack(each)
    (each,) = life.lease(1, b"q", 1000, b"w2")
    life.ack(each)
    for _ in range(2):  # seq 4, which is a dead letter at the third try
        (each,) = life.lease(1, b"q", 1000, b"w1")
        life.nack(each)
    (each,) = life.lease(1, b"q", 1000, b"w1")  # seq 5
    life.add(b"last", 2, b"q")
    return life


def where(rows: list[EventRow], kind: str, seq: int, nth: int = 0) -> int:
    """The index of a row of queue `q` or of log `b`."""
    found = [
        at for at, row in enumerate(rows)
        if row["kind"] == kind and row["seq"] == seq and row["topic"] in ("q", "b")
    ]  # fmt: skip
    return found[nth]


def inserted(rows: list[EventRow], at: int, **changes: object) -> list[EventRow]:
    """With a changed copy of a row behind it, at a place of its own."""
    copy = {**rows[at], "ordinal": _number(rows[at], "ordinal") + 1, **changes}
    return [*rows[: at + 1], copy, *rows[at + 1 :]]


def changed(rows: list[EventRow], at: int, **changes: object) -> list[EventRow]:
    return [*rows[:at], {**rows[at], **changes}, *rows[at + 1 :]]


def _swap_priorities(rows: list[EventRow]) -> list[EventRow]:
    one, other = where(rows, "Enqueued", 2), where(rows, "Enqueued", 3)
    return changed(changed(rows, one, priority=3), other, priority=1)


def _with_config(rows: list[EventRow], **facts: object) -> list[EventRow]:
    """With another config of the queue."""
    at = next(at for at, row in enumerate(rows) if row["kind"] == "TopicCreated" and row["topic"] == "q")
    return changed(rows, at, detail=json.dumps({**json.loads(str(rows[at]["detail"])), **facts}))


def _purged_before(rows: list[EventRow], at: int) -> list[EventRow]:
    return [*rows[:at], {**rows[at], "kind": "Purged", "ordinal": -1, "reason": "below"}, *rows[at:]]


def _later(row: EventRow, ms: int) -> datetime:
    time = row["time"]
    assert isinstance(time, datetime)
    return time + timedelta(milliseconds=ms)


# Of each lie: the rule it breaks, how often, and the seq that the evidence must name.
LIES: dict[str, tuple[Callable[[list[EventRow]], list[EventRow]], str, int]] = {
    "a job is acked twice": (
        lambda rows: inserted(rows, where(rows, "JobAcked", 2), lease=None), "known_jobs", 2,
    ),
    "a job is removed that never came": (
        lambda rows: inserted(rows, where(rows, "JobAcked", 2), kind="JobRemoved", seq=99, reason="expired"),
        "known_jobs", 99,
    ),
    "a job is leased twice": (
        lambda rows: inserted(rows, where(rows, "JobLeased", 2), lease="abc", attempts=2), "one_live_lease", 2,
    ),
    "an ack names another lease": (
        lambda rows: changed(rows, where(rows, "JobAcked", 2), lease="abc"), "ack_without_lease", 2,
    ),
    "an ack names a lease that was given back": (
        lambda rows: inserted(
            rows, where(rows, "JobReturned", 1), kind="JobAcked",
            lease=rows[where(rows, "JobLeased", 1)]["lease"], reason=None, seq=1,
        )[: where(rows, "JobReturned", 1) + 2],
        "ack_without_lease", 1,
    ),
    "an ack comes after its lease": (
        lambda rows: changed(rows, where(rows, "JobLeased", 2), due=rows[where(rows, "JobLeased", 2)]["time"]),
        "ack_without_lease", 2,
    ),
    "a lease of a waiting job is extended": (
        lambda rows: inserted(rows, where(rows, "JobAcked", 2), kind="LeaseExtended", seq=5, lease=None),
        "legal_moves", 5,
    ),
    "a lease expires before its deadline": (
        lambda rows: changed(rows, where(rows, "JobReturned", 1), reason="lease_expired"), "legal_moves", 1,
    ),
    "a seq is skipped": (
        lambda rows: changed(rows, where(rows, "Enqueued", 6), seq=7), "contiguous_seqs", 7,
    ),
    "a record gets the seq of another": (
        lambda rows: changed(rows, where(rows, "RecordsForwarded", 3), seq=5), "contiguous_seqs", 5,
    ),
    "two jobs had each other's priority": (_swap_priorities, "pop_order", 2),
    "a job is leased before it is due": (
        lambda rows: changed(rows, where(rows, "Enqueued", 2), due=rows[-1]["time"]), "pop_order", 2,
    ),
    "an attempt is counted twice": (
        lambda rows: changed(rows, where(rows, "JobLeased", 5), attempts=2), "attempts_limit", 5,
    ),
    "a job is delivered past its limit": (lambda rows: _with_config(rows, max_deliveries=1), "attempts_limit", 1),
    "a job expires that has no expiry": (
        lambda rows: inserted(rows, where(rows, "Enqueued", 6), kind="JobRemoved", reason="expired"),
        "early_expiry", 6,
    ),
    "a job expires before its expiry": (
        lambda rows: changed(
            inserted(rows, where(rows, "Enqueued", 6), kind="JobRemoved", reason="expired"),
            where(rows, "Enqueued", 6), expires=_later(rows[-1], 1),
        ),
        "early_expiry", 6,
    ),
    "a job is evicted without a cap": (
        lambda rows: inserted(rows, where(rows, "Enqueued", 6), kind="JobRemoved", reason="evicted"),
        "eviction_needs_cap", 6,
    ),
    "a job is evicted below the cap": (
        lambda rows: _with_config(
            inserted(rows, where(rows, "Enqueued", 6), kind="JobRemoved", reason="evicted"), cap_records=2,
        ),
        "eviction_needs_cap", 6,
    ),
    "a dead letter is called deleted": (
        lambda rows: changed(rows, where(rows, "JobRemoved", 4), reason="deleted"), "dead_letter_reason", 4,
    ),
    "a job becomes a dead letter before its limit": (
        lambda rows: _with_config(rows, max_deliveries=3), "dead_letter_reason", 4,
    ),
    "a job becomes a dead letter where none are kept": (
        lambda rows: _with_config(rows, dead_letter=None), "dead_letter_reason", 4,
    ),
    "an ack comes before its lease": (
        lambda rows: changed(rows, where(rows, "JobAcked", 2), time=_later(rows[where(rows, "JobLeased", 2)], -1)),
        "ack_before_lease", 2,
    ),
    "an ack by id alone comes before its lease": (
        lambda rows: changed(
            rows, where(rows, "JobAcked", 2), time=_later(rows[where(rows, "JobLeased", 2)], -1), lease=None,
        ),
        "ack_before_lease", 2,
    ),
    "a purge takes more than came": (
        lambda rows: inserted(rows, where(rows, "Enqueued", 6), kind="Purged", seq=99, reason="below"),
        "real_purge", 99,
    ),
    "a purge takes a part of a few jobs": (
        lambda rows: inserted(rows, where(rows, "Enqueued", 6), kind="Purged", seq=6, reason="below"),
        "real_purge", 6,
    ),
    "a purge takes nothing": (
        lambda rows: _purged_before(rows, where(rows, "Enqueued", 1)),
        "real_purge", 1,
    ),
    "a record is copied twice": (
        lambda rows: inserted(rows, where(rows, "RecordsForwarded", 3), seq=4), "router_exactly_once", 4,
    ),
}  # fmt: skip
