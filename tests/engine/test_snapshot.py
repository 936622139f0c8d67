"""A snapshot holds every job of a queue exactly as it was at its start, whatever happens while it is gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esker.engine.commands import (
    Command,
    CreateTopic,
    DeleteTopic,
    Details,
    EnqueueAlike,
    Purge,
    ReplayDeadLetters,
    Reprioritise,
)  # fmt: skip
from esker.engine.config import TopicConfig
from esker.engine.machine import Machine
from esker.engine.queues import snapshot
from esker.engine.queues.job import Job, JobState
from esker.engine.queues.snapshot import Piece, QueueView, Selection
from esker.engine.replies import Reply
from esker.store.checkpoint import Checkpoint
from esker.store.cold import ColdStore
from esker.store.memory import MemoryStore
from esker.store.slices import Slice
from tests.engine.audit import audit
from tests.engine.rig import Q, Rig
from tests.properties.traffic import CONFIGS, live

Row = tuple[object, ...]


def row(partition: int, job: Job, payload: bytes, holder: bytes | None) -> Row:
    return (partition, *msgspec.structs.astuple(job)[:-1], payload, holder)


def state(machine: Machine, topic: bytes) -> list[Row]:
    """The slow way: everything at once."""
    return [
        row(partition.index, job, machine.payload(partition, job), partition.holders.get(job.seq))
        for partition in machine.names[topic].partitions
        for job in partition.jobs.values()
    ]


def rows_of(number: int, pieces: Sequence[Piece]) -> list[Row]:
    """What the pieces tell; payloads are looked for only now, as late as can be."""
    rows: list[Row] = []
    for piece in pieces:
        for job in piece.jobs:
            payload = job.payload
            if payload is None:
                pin = piece.pins.get(job.seq, piece.pin)
                assert pin is not None
                (payload,) = pin.payloads(number, piece.partition, [job.seq])
            rows.append(row(piece.partition, job, payload, piece.holders.get(job.seq)))
    return rows


class Gathering:
    """A snapshot under way, and what it has to become."""

    def __init__(self, machine: Machine, topic: bytes) -> None:
        self.number = machine.names[topic].number
        self.wanted = state(machine, topic)
        self.view = QueueView(machine, machine.names[topic])
        self.pieces: list[Piece] = []

    def step(self) -> bool:
        piece = self.view.next()
        if piece is not None:
            self.pieces.append(piece)
        return piece is not None

    def finish(self) -> None:
        while self.step():
            continue
        self.view.finish()
        assert sorted(rows_of(self.number, self.pieces), key=repr) == sorted(self.wanted, key=repr)
        assert self.view.jobs == len(self.wanted)


class Stage(Rig):
    """A machine with a store, whose payloads go cold; `before` may do something before each command."""

    def __init__(self, topic: TopicConfig | None = None, seed: int = 7) -> None:
        super().__init__(seed=seed)
        self.store = MemoryStore()
        self.machine = Machine(Random(seed), ColdStore(self.store))
        self.positions = iter(range(1, 1 << 30))
        if topic is not None:
            self.do(CreateTopic(Q, topic))

    def checkpoint(self) -> Iterator[Slice]:
        """Slice by slice; what is written goes cold."""
        checkpoint = Checkpoint(self.machine, next(self.positions))
        for piece in checkpoint.slices():
            yield self._write(piece)
        yield self._write(checkpoint.last())

    def save(self) -> None:
        for _ in self.checkpoint():
            continue

    def _write(self, piece: Slice) -> Slice:
        self.store.write(piece.puts, piece.deletes, piece.ranges)
        for partition, job in piece.saved:
            if job.payload is not None and partition.jobs.get(job.seq) is job:
                partition.cool(job)
        return piece


class Disturbed(Stage):
    """Between any two commands of its life, snapshots begin and move on, and checkpoints do."""

    def __init__(self, dice: Random) -> None:
        super().__init__(seed=dice.randint(0, 1000))
        self.dice = dice
        self.gatherings: list[Gathering] = []
        self.gathered: list[tuple[bytes, Gathering]] = []
        self.saving: Iterator[Slice] = iter(())
        self.finished = 0

    def do(self, command: Command) -> Reply:
        self._disturb()
        return super().do(command)

    def _disturb(self) -> None:
        dice = self.dice
        topics = [name for name, topic in self.machine.names.items() if topic.is_queue]
        if topics and len(self.gatherings) < 3 and dice.random() < 0.2:
            self.gatherings.append(Gathering(self.machine, dice.choice(topics)))
        self.look()
        for gathering in self.gatherings:
            if dice.random() < 0.3:
                gathering.step()
        if self.gatherings and dice.random() < 0.05:
            self.finish(self.gatherings.pop(dice.randrange(len(self.gatherings))))
        for _ in range(dice.choice((0, 0, 1, 8))):
            if next(self.saving, None) is None:
                self.saving = self.checkpoint()

    def look(self) -> None:
        """Whatever says that it is current is."""
        for topic, gathering in self.gathered:
            if gathering.view.current:
                assert self.machine.names[topic].number == gathering.number
                assert state(self.machine, topic) == gathering.wanted

    def finish(self, gathering: Gathering) -> None:
        gathering.finish()
        self.finished += 1
        topic = self.machine.topics.get(gathering.number)
        if topic is not None:
            self.gathered.append((topic.name, gathering))


@settings(max_examples=60)
@given(
    st.integers(0, 1 << 32),
    st.sampled_from((1, 2, 5)),
    st.sampled_from((0, 2, 1 << 40)),
    st.sampled_from((0, 10_000)),
)
def test_a_snapshot_is_the_queue_at_its_start_whatever_happens_meanwhile(
    seed: int, slice_seqs: int, sparse: int, passed_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(snapshot, "SLICE_SEQS", slice_seqs)
        patched.setattr(snapshot, "SPARSE", sparse)
        patched.setattr(snapshot, "PASSED_MAX", passed_max)
        rig = Disturbed(Random(seed))
        live(rig, rig.dice, 150)
        audit(rig.machine)
        for gathering in rig.gatherings:
            rig.finish(gathering)
        assert rig.finished > 0
        partitions = [partition for topic in rig.machine.topics.values() for partition in topic.partitions]
        rig.look()
        for _, gathering in rig.gathered:
            gathering.view.close()
        assert not any(partition.views for partition in partitions)
    assert set(CONFIGS) & set(rig.machine.names)


def filled(count: int = 10, topic: TopicConfig | None = None) -> Stage:
    rig = Stage(topic or TopicConfig())
    rig.do(EnqueueAlike(Q, [b"work %d" % number for number in range(count)], 30_000, 0))
    return rig


def test_jobs_that_come_later_are_not_in_it() -> None:
    rig = filled()
    gathering = Gathering(rig.machine, Q)
    rig.add_many(b"later", b"later still")
    gathering.finish()


CHANGES: dict[str, Callable[[Stage], object]] = {
    "a new job": lambda rig: rig.add_many(b"new"),
    "a lease": lambda rig: rig.lease(1),
    "a purge": lambda rig: rig.do(Purge(Q)),
    "the end of the topic": lambda rig: rig.do(DeleteTopic(Q)),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_view_that_was_walked_is_current_until_something_changes(how: str) -> None:
    rig = filled()
    early, walked = QueueView(rig.machine, rig.machine.names[Q]), Gathering(rig.machine, Q)
    walked.finish()
    rig.pass_ms(1000)
    rig.save()
    assert [early.current, walked.view.current] == [True, True]
    jobs = rig.machine.names[Q].partitions[0].jobs
    CHANGES[how](rig)
    assert [early.current, walked.view.current] == [False, False]
    early.close()
    walked.view.close()
    if how in ("a purge", "the end of the topic"):
        assert any(buried is jobs for buried in rig.machine.graveyard), "the memory is freed behind them"
    audit(rig.machine)


def test_a_purge_leaves_the_snapshot_whole_and_the_memory_is_freed_behind_it() -> None:
    rig = filled()
    rig.save()
    rig.lease(3, holder=b"w")
    jobs = rig.machine.names[Q].partitions[0].jobs
    first, second = Gathering(rig.machine, Q), Gathering(rig.machine, Q)
    rig.do(Purge(Q))
    rig.save()  # the store forgets them too
    rig.add_many(b"new")
    rig.pass_ms(5000)
    first.finish()
    assert not any(buried is jobs for buried in rig.machine.graveyard)
    second.finish()
    assert any(buried is jobs for buried in rig.machine.graveyard)
    rig.pass_ms(1000)
    assert rig.machine.graveyard == []
    audit(rig.machine)


def test_the_end_of_the_topic_leaves_the_snapshot_whole() -> None:
    rig = filled(topic=TopicConfig(partitions=3))
    rig.save()
    gathering = Gathering(rig.machine, Q)
    rig.do(DeleteTopic(Q))
    rig.save()
    rig.do(CreateTopic(Q, TopicConfig()))
    rig.add_many(b"new")
    gathering.finish()
    rig.pass_ms(1000)
    assert rig.machine.graveyard == []


def test_a_dead_letter_that_comes_back_is_not_in_a_snapshot_that_began_without_it() -> None:
    rig = Stage(TopicConfig(max_deliveries=1, dead_letter=b"grave"))
    rig.do(CreateTopic(b"grave", TopicConfig()))
    rig.add_many(b"one", b"two", b"three")
    for delivery in rig.lease(2):
        rig.nack(delivery)
    rig.pass_ms(1000)
    assert rig.lease(3)[0].payload == b"three"
    before = Gathering(rig.machine, Q)
    graves = Gathering(rig.machine, b"grave")
    rig.do(ReplayDeadLetters(b"grave", None, 10))
    assert len(rig.machine.names[Q].partitions[0].jobs) == 3
    before.finish()
    graves.finish()
    Gathering(rig.machine, Q).finish()


def test_a_cold_payload_that_leaves_the_store_meanwhile_is_still_told() -> None:
    rig = filled()
    rig.save()
    assert all(job.payload is None for job in rig.machine.names[Q].partitions[0].jobs.values())
    gathering = Gathering(rig.machine, Q)
    rig.ack(*rig.lease(10))
    rig.save()
    assert not list(rig.store.scan(b"b", b"c"))
    gathering.finish()


def test_a_payload_that_goes_cold_meanwhile_and_then_leaves_is_still_told() -> None:
    rig = filled()
    gathering = Gathering(rig.machine, Q)
    rig.save()
    rig.ack(*rig.lease(10))
    rig.save()
    gathering.finish()


def test_a_view_that_nobody_reads_gives_up_and_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "WAITING_BYTES_MAX", 2000)
    rig = filled(100)
    view = QueueView(rig.machine, rig.machine.names[Q])
    other = Gathering(rig.machine, Q)
    rig.lease(4)
    gave_up_early = view.gave_up
    while other.step():
        continue
    rig.lease(4)
    assert (gave_up_early, view.gave_up) == (False, True)
    assert view.next() is None
    assert view.waiting_bytes == 0
    assert len(rig.machine.names[Q].partitions[0].views) == 1
    other.finish()


def test_what_waits_is_counted_down_as_it_is_taken() -> None:
    rig = filled(100)
    view = QueueView(rig.machine, rig.machine.names[Q])
    rig.ack(*rig.lease(50))
    assert view.waiting_bytes > 0
    assert view.next() is not None
    assert view.waiting_bytes == 0
    view.close()


@pytest.mark.parametrize(
    ("wanted", "payloads"),
    [
        (Selection(), [b"low", b"high", b"tagged", b"delayed", b"leased"]),
        (Selection(priority_min=1), [b"high"]),
        (Selection(priority_max=-1), [b"low", b"leased"]),
        (Selection(tag_prefix=b"or"), [b"tagged"]),
        (Selection(states=frozenset({int(JobState.LEASED)})), [b"leased"]),
        (Selection(states=frozenset(map(int, JobState)), priority_max=0),
         [b"low", b"tagged", b"delayed", b"leased", b"spent"]),
        (Selection(since_ms=1_700_000_001_000), [b"delayed", b"leased"]),
        (Selection(until_ms=1_700_000_001_000), [b"low", b"high", b"tagged"]),
        (Selection(states=frozenset()), []),
    ],
)  # fmt: skip
def test_a_selection_takes_what_it_says(wanted: Selection, payloads: list[bytes]) -> None:
    rig = Stage(TopicConfig())
    rig.add(b"low", priority=-1)
    rig.add(b"high", priority=5)
    rig.add(b"tagged", details=Details(tag=b"order-1"))
    rig.pass_ms(1000)
    rig.add(b"delayed", details=Details(delay_ms=5000))
    spent = rig.add(b"spent", priority=-9, retry_ms=0)
    leased = rig.add(b"leased", priority=-8)
    assert [each.id for each in rig.lease(2)] == [spent, leased]
    rig.do(Reprioritise([spent], 0))
    view = QueueView(rig.machine, rig.machine.names[Q])
    jobs: list[Job] = []
    while (piece := view.next()) is not None:
        jobs += piece.jobs
    view.close()
    assert sorted(job.payload or b"" for job in wanted.pick(jobs)) == sorted(payloads)
