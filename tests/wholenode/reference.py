"""The whole history folded into a machine that has neither checkpoints nor a store: what every recovery must come to.

It shares the folding with the node, and nothing else: no checkpoint, no cooling, no archive, no journal file.
"""

from __future__ import annotations

from random import Random

from esker.engine.events import decode_batch
from esker.engine.logs.block import offsets
from esker.engine.logs.partition import LogPartition
from esker.engine.machine import Machine
from tests.engine.dump import dump_job


class Reference:
    def __init__(self) -> None:
        self._batches: list[bytes] = []  # at position 1, 2, ...
        self._began: list[int] = []  # where a node had recovered

    def appended(self, position: int, batch: bytes) -> None:
        assert position == len(self._batches) + 1, "the journal gave a position twice"
        self._batches.append(batch)

    def began(self, position: int) -> None:
        """A node has recovered to this position. What lay behind it is lost."""
        del self._batches[position:]
        self._began = [began for began in self._began if began <= position]
        self._began.append(position)

    def machine(self) -> Machine:
        machine = Machine(Random(0))
        marks = iter([*self._began, len(self._batches) + 1])
        at = next(marks)
        for position, batch in enumerate([b"", *self._batches]):
            if position:
                for event in decode_batch(batch):
                    machine.fold(event)
                    machine.last_ms = max(machine.last_ms, getattr(event, "ts", 0))
            while at == position:
                machine.settle()
                at = next(marks)
        return machine


def assert_same(ours: Machine, its: Machine, now: int, leave_out: set[int]) -> None:
    """`leave_out`: topics of which no event tells everything. `ours` is the reference."""
    assert list(ours.topics) == list(its.topics), "not the same topics"
    assert ours.next_number == its.next_number
    assert {name: topic.number for name, topic in ours.names.items()} == {
        name: topic.number for name, topic in its.names.items()
    }
    for number, topic in ours.topics.items():
        other = its.topics[number]
        assert (topic.name, topic.config, topic.pause, topic.lazy) == (
            other.name, other.config, other.pause, other.lazy,
        )  # fmt: skip
        if number in leave_out:
            continue
        if topic.log is not None and other.log is not None:
            assert log_facts(topic.log) == log_facts(other.log), topic.name
            assert records_of(topic.log, other.log) == records_of(other.log, other.log), topic.name
        for mine, theirs in zip(topic.partitions, other.partitions, strict=True):
            assert (mine.next_seq, mine.head_seq, mine.cap_floor, mine.ttl_floor) == (
                theirs.next_seq, theirs.head_seq, theirs.cap_floor, theirs.ttl_floor,
            ), topic.name  # fmt: skip
            wanted = {seq: dump_job(ours, mine, job, now)._replace(holder=b"") for seq, job in mine.jobs.items()}
            found = {seq: dump_job(its, theirs, job, now)._replace(holder=b"") for seq, job in theirs.jobs.items()}
            differ = [seq for seq in wanted.keys() | found.keys() if wanted.get(seq) != found.get(seq)]
            assert not differ, [(topic.name, seq, wanted.get(seq), found.get(seq)) for seq in differ[:2]]
    routers, others = ours.routers.numbers, its.routers.numbers
    assert {number: (each.name, each.source, each.dest, each.options) for number, each in routers.items()} == {
        number: (each.name, each.source, each.dest, each.options) for number, each in others.items()
    }
    kept = {number for number, each in routers.items() if not {each.source, each.dest} & leave_out}
    assert {number: (routers[number].cursor, routers[number].forwarded) for number in kept} == {
        number: (others[number].cursor, others[number].forwarded) for number in kept
    }
    assert ours.loads.marks == its.loads.marks


def log_facts(log: LogPartition) -> tuple[object, ...]:
    return (
        log.next_seq, log.head_seq, log.cap_floor, log.ttl_floor, log.gaps.all, log.count, log.bytes,
        [(file.first, file.last, file.path) for file in log.files.all],
        [(block.first_seq, block.count, block.gone) for block in log.blocks],
    )  # fmt: skip


def records_of(log: LogPartition, reader: LogPartition) -> list[tuple[object, ...]]:
    """Those that live and that `reader` has at hand: what is in the archive is read by those who may wait."""
    far = {block.first_seq for block in reader.blocks if reader.in_archive(block)}
    found: list[tuple[object, ...]] = []
    for block in log.blocks:
        if block.first_seq not in far:
            content = log.content(block)
            found += [(block.first_seq + at, content.ts(at), content.bodies[at]) for at in offsets(block.live)]
        else:
            found += [(block.first_seq + at, None, None) for at in offsets(block.live)]
    return found
