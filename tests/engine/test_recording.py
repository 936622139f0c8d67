"""Events are recorded in one way: `Machine.record` evolves, marks the partition, decides about journal and sync."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import esker.engine
from esker.engine import events
from esker.engine.config import Durability, TopicConfig
from tests.engine.rig import Q, Rig

_WRITES = re.compile(r"\.outbox(\.append|\.extend|\s*\+?=)|\.must_sync\s*\|?=")


def test_only_the_machine_writes_to_its_outbox() -> None:
    root = Path(esker.engine.__file__).parent
    writers = {path.relative_to(root).as_posix() for path in root.rglob("*.py") if _WRITES.search(path.read_text())}
    assert writers == {"machine.py"}


@pytest.mark.parametrize("durability", list(Durability))
@pytest.mark.parametrize("sync", [True, False])
def test_the_class_of_the_topic_decides_about_journal_and_sync(durability: Durability, sync: bool) -> None:
    rig = Rig(TopicConfig(durability=durability))
    machine = rig.machine
    partition = machine.names[Q].partitions[0]
    machine.touched.clear()
    added = events.Enqueued(1, 0, 1, rig.now, 0, 1000, 0, 0, b"work", None)
    machine.record(partition, [added], sync=sync)
    assert machine.touched == {partition}
    assert machine.outbox == ([] if durability is Durability.EPHEMERAL else [added])
    assert machine.must_sync == (sync and durability is Durability.FSYNC)
    assert partition.jobs[1].payload == b"work"


@pytest.mark.parametrize("sync", [True, False])
def test_an_event_of_the_shard_is_journalled_whatever_the_class(sync: bool) -> None:
    machine = Rig(TopicConfig(durability=Durability.EPHEMERAL)).machine
    reserved = events.SeqReserved(1, 0, 50)
    machine.record(None, reserved, sync=sync)
    assert (machine.outbox, machine.must_sync) == ([reserved], sync)
    assert machine.names[Q].partitions[0].ceiling == 50
