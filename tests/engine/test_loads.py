"""Bulk loads in the engine: a chunk's rows and its mark are there together or not at all, and never twice."""

from __future__ import annotations

from random import Random

import pytest

from esker.engine import limits
from esker.engine.commands import (
    Append,
    CreateTopic,
    Details,
    Enqueue,
    EnqueueAlike,
    NewJob,
    NewRecord,
    PauseTopic,
    Publish,
)
from esker.engine.config import Durability, Pause, TopicConfig, TopicType
from esker.engine.events import JobsEnqueued, LoadAdvanced, decode_batch
from esker.engine.loads import Mark
from esker.engine.machine import Machine
from esker.engine.replies import Published
from esker.errors import Code, Refusal
from esker.store.checkpoint import Checkpoint, load
from esker.store.memory import MemoryStore
from esker.testing.engine import Engine
from tests.engine.rig import Q, Rig, expect, fold

Work = Enqueue | EnqueueAlike | Append | None


def _publish(chunk: int, *payloads: bytes, batch: int = 0, load: bytes = b"nightly", last: bool = False) -> Publish:
    work = EnqueueAlike(Q, payloads, 1000, 0) if payloads else None
    return Publish(load, batch, chunk, chunk + len(payloads), last, work)


def _done(rig: Rig, command: Publish) -> bool:
    """Whether it was new."""
    return not expect(Published, rig.do(command)).duplicate


def test_a_chunk_is_published_once_however_often_it_comes() -> None:
    rig = Rig(TopicConfig())
    assert _done(rig, _publish(0, b"a", b"b"))
    assert not _done(rig, _publish(0, b"a", b"b"))
    assert not _done(rig, _publish(0, b"other"))
    assert rig.last == []
    assert _done(rig, _publish(1, b"c"))
    assert not _done(rig, _publish(0, b"a", b"b"))
    assert rig.drain() == [b"a", b"b", b"c"]


def test_the_rows_and_the_mark_are_events_of_one_command() -> None:
    rig = Rig(TopicConfig())
    rig.do(_publish(0, b"a", b"b"))
    assert [type(event) for event in rig.last] == [JobsEnqueued, LoadAdvanced]
    assert rig.synced


@pytest.mark.parametrize(
    ("durability", "journalled", "synced"),
    [
        (Durability.FSYNC, True, True),
        (Durability.DISK, True, False),
        (Durability.MEMORY, True, False),
        (Durability.EPHEMERAL, False, False),
    ],
)
def test_the_class_of_the_topic_decides_about_the_disk_and_the_mark_is_always_journalled(
    durability: Durability, journalled: bool, synced: bool
) -> None:
    rig = Rig(TopicConfig(durability=durability))
    rig.do(_publish(0, b"a"))  # which may reserve seqs, and that is always synced
    rig.do(_publish(1, b"b"))
    assert rig.synced is synced
    assert isinstance(rig.last[-1], LoadAdvanced)
    assert any(isinstance(event, JobsEnqueued) for event in rig.last) is journalled


def test_a_batch_that_is_done_or_passed_by_is_known_for_good() -> None:
    rig = Rig(TopicConfig())
    assert _done(rig, _publish(0, b"a", batch=7))
    assert _done(rig, _publish(1, batch=7, last=True))
    assert not _done(rig, _publish(2, b"late", batch=7))
    assert not _done(rig, _publish(0, b"old", batch=6))
    assert _done(rig, _publish(0, b"b", batch=8))
    assert not _done(rig, _publish(0, b"a", batch=7))
    assert _done(rig, _publish(0, b"c", batch=6, load=b"another"))
    assert rig.drain() == [b"a", b"b", b"c"]


def test_what_is_refused_leaves_no_mark_and_may_come_again() -> None:
    rig = Rig(TopicConfig())
    rig.do(PauseTopic(Q, Pause.IN))
    assert rig.code(_publish(0, b"a")) == Code.PAUSED
    assert rig.last == []
    assert rig.machine.loads.marks == {}
    rig.do(PauseTopic(Q, Pause.NONE))
    assert _done(rig, _publish(0, b"a"))
    assert rig.drain() == [b"a"]


def test_a_chunk_out_of_order_is_refused() -> None:
    rig = Rig(TopicConfig())
    assert rig.code(_publish(1, b"b")) == Code.BAD_REQUEST
    rig.do(_publish(0, b"a"))
    assert "2 of batch 0 of load 'nightly' came, 1 was expected" in rig.refused(_publish(2, b"c")).message
    assert rig.code(_publish(3, b"c", batch=1)) == Code.BAD_REQUEST
    assert rig.drain() == [b"a"]


@pytest.mark.parametrize("name", [b"", b"x" * (limits.LOAD_KEY_BYTES_MAX + 1)])
def test_a_load_without_a_proper_name_is_refused(name: bytes) -> None:
    assert Rig(TopicConfig()).code(_publish(0, b"a", load=name)) == Code.BAD_REQUEST


@pytest.mark.parametrize(
    "work",
    [
        Enqueue(b"t", [NewJob(b"1", priority=3)], create=False),
        EnqueueAlike(b"t", [b"1"], 1000, 0),
        Append(b"t", [NewRecord(b"1", tag=b"x")], create=False),
    ],
)
def test_every_kind_of_work_is_published(work: Work) -> None:
    rig = Rig()
    kind = TopicType.LOG if isinstance(work, Append) else TopicType.QUEUE
    rig.do(CreateTopic(b"t", TopicConfig(type=kind)))
    assert _done(rig, Publish(b"l", 0, 0, 1, False, work))
    topic = rig.machine.names[b"t"]
    assert (topic.jobs if topic.log is None else topic.log.next_seq - 1) == 1
    assert rig.machine.loads.marks[b"l"] == Mark(0, 0, 1, False, rig.now)


def test_folding_again_changes_nothing() -> None:
    rig = Rig(TopicConfig())
    rig.do(_publish(0, b"a"))
    rig.do(_publish(1, b"b"))
    rig.do(_publish(2, last=True))
    rig.do(_publish(0, b"c", batch=1))
    once = fold(rig.batches)
    assert once.loads.marks == rig.machine.loads.marks == {b"nightly": Mark(1, 0, 1, False, rig.now)}
    twice = fold(rig.batches, fold(rig.batches))
    assert twice.loads.marks == once.loads.marks
    assert twice.totals.jobs == once.totals.jobs == 3


def test_a_crash_takes_the_mark_with_the_rows() -> None:
    """The last batch of the journal is lost: the chunk in it is published again, and only that one."""
    rig = Rig(TopicConfig(durability=Durability.DISK))
    rig.do(_publish(0, b"a"))
    rig.do(_publish(1, b"b"))
    recovered = fold(rig.batches[:-1])
    recovered.settle()
    assert expect(Published, recovered.handle(_publish(0, b"a"), rig.now)).duplicate
    assert not expect(Published, recovered.handle(_publish(1, b"b"), rig.now)).duplicate
    assert recovered.totals.jobs == 2


def test_marks_are_in_the_checkpoint_and_outlive_the_journal() -> None:
    engine = Engine()
    engine.handle(CreateTopic(Q, TopicConfig()))
    engine.handle(_publish(0, b"a"))
    engine.handle(_publish(1, last=True))
    engine.handle(_publish(0, b"x", load=b"other", batch=3))
    engine.checkpoint()
    engine.handle(_publish(1, b"y", load=b"other", batch=3))
    marks = dict(engine.machine.loads.marks)
    engine.crash()
    assert engine.machine.loads.marks == marks
    assert expect(Published, engine.handle(_publish(0, b"a"))).duplicate
    assert expect(Published, engine.handle(_publish(1, b"y", load=b"other", batch=3))).duplicate
    assert engine.machine.totals.jobs == 3


def test_the_loads_that_were_idle_for_longest_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOADS_MAX", 3)
    rig = Rig(TopicConfig())
    store = MemoryStore()
    for number, name in enumerate((b"half", b"a", b"b")):
        rig.now += 1
        rig.do(_publish(0, b"x", load=name))
        if name != b"half":
            rig.do(_publish(1, load=name, last=True))
        assert len(rig.machine.loads.marks) == number + 1
    rig.now += 1
    rig.do(_publish(0, b"x", load=b"a", batch=1))
    _save(rig.machine, store)
    rig.do(_publish(0, b"x", load=b"c"))
    assert set(rig.machine.loads.marks) == {b"half", b"a", b"c"}, "what is not done stays; of the others b was idle"
    _save(rig.machine, store)
    loaded = Machine(Random(1))
    load(store, loaded)
    assert list(loaded.loads.marks.items()) == sorted(rig.machine.loads.marks.items(), key=lambda item: item[1].ts)


def test_a_forgotten_load_that_goes_on_is_refused_rather_than_published_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOADS_MAX", 1)
    rig = Rig(TopicConfig())
    rig.do(_publish(0, b"a", load=b"old"))
    rig.do(_publish(0, b"b", load=b"new"))
    assert isinstance(rig.do(_publish(1, b"c", load=b"old")), Refusal)
    assert rig.drain() == [b"a", b"b"]


def test_rows_that_are_known_by_their_key_still_move_the_mark() -> None:
    rig = Rig(TopicConfig())
    job = NewJob(b"a", details=Details(key=b"k"))
    assert _done(rig, Publish(b"l", 0, 0, 1, False, Enqueue(Q, [job])))
    assert _done(rig, Publish(b"l", 0, 1, 2, False, Enqueue(Q, [job])))
    assert [type(event) for event in rig.last] == [LoadAdvanced]
    assert rig.drain() == [b"a"]


def test_the_event_is_for_ever() -> None:
    rig = Rig(TopicConfig())
    rig.do(_publish(0, b"a", load=b"l", batch=5))
    assert decode_batch(rig.batches[-1])[-1] == LoadAdvanced(b"l", rig.now, 5, 0, 1, False)


def _save(machine: Machine, store: MemoryStore) -> None:
    machine.outbox.clear()
    checkpoint = Checkpoint(machine, 1)
    for piece in [*checkpoint.slices(), checkpoint.last()]:
        assert store.write(piece.puts, piece.deletes, piece.ranges)
