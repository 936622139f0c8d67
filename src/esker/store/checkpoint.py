"""Checkpoints: bringing the store up to date while the shard goes on, and loading it again.

A checkpoint begins at a journal position: the headers of topics and partitions are taken as they are then, and the sets
of changed jobs are set aside. The jobs themselves are written later, in slices, as they are when their slice comes. So
the store may be ahead of the position it names; recovery folds the events behind that position again, which changes
nothing where they are known already (engine/events.py). Logs and routers are taken as they are at the position
(logs.py, routers.py), because copies are made again from them. Rules that make it safe:

* A slice is written only when every event it reflects is on disk (the caller waits between `slices` and `write`).
* The position is written last and made durable together with all slices before it. A crash in between leaves the old
  position, from which folding is just as good.
* Topics that were deleted leave with that last write, not before: copies of their records may have to be made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from esker.engine.logs.partition import LogPartition
from esker.engine.machine import Machine
from esker.engine.queues.partition import QueuePartition
from esker.engine.topic import Topic
from esker.errors import DataDirectoryError
from esker.store import keys
from esker.store.interface import WRITE_KEYS, Store, StoreView
from esker.store.jobs import JobShare, load_jobs
from esker.store.loads import LoadShare, load_marks
from esker.store.logs import LogShare, load_log
from esker.store.routers import RouterShare, load_routers
from esker.store.slices import Share, Slice, batched

_encode = msgspec.msgpack.Encoder().encode
_decode_meta = msgspec.msgpack.Decoder(keys.Meta).decode
_decode_topic = msgspec.msgpack.Decoder(keys.TopicHeader).decode


class Checkpoint:
    """Takes the changes since the last checkpoint off `machine`. All of its events must have positions by now."""

    def __init__(self, machine: Machine, position: int) -> None:
        self.position = position
        self._meta = _encode(keys.Meta(keys.FORMAT, position, machine.next_number, machine.last_ms))
        self._deleted = machine.deleted_topics
        machine.deleted_topics = []
        # In order of their keys: the store likes it, and the same history makes the same writes.
        topics = sorted(machine.dirty_topics, key=lambda topic: topic.number)
        self._topics = [_topic_put(topic) for topic in topics if topic.number in machine.topics]
        machine.dirty_topics = set()
        partitions = sorted(machine.touched, key=lambda partition: (partition.topic.number, partition.index))
        known = [partition for partition in partitions if partition.topic.number in machine.topics]
        self._shares: list[Share] = [
            LogShare(partition) if isinstance(partition, LogPartition) else JobShare(partition) for partition in known
        ]
        self._routers = RouterShare(machine.routers)
        self._loads = LoadShare(machine.loads)
        # Logs of which the next checkpoint can remove something that this one must not.
        machine.touched = {each for each in known if isinstance(each, LogPartition) and each.unsaved.rests}
        machine.totals.unsaved_bytes = 0

    def slices(self) -> Iterator[Slice]:
        """Each slice is made when asked for, from the state as it is then."""
        ranges = (pair for share in self._shares for pair in share.ranges())
        for batch in batched(ranges, WRITE_KEYS):
            yield Slice([], [], batch, [])
        for headers in batched(self._topics, WRITE_KEYS):  # before their jobs, so that a load finds every job there is
            yield Slice(headers, [], [], [])
        for share in self._shares:
            yield from share.slices()

    def last(self) -> Slice:
        """The partition headers, routers, marks of loads and the position: what turns slices into a checkpoint.

        They go in one write, because the counters in a header are the only state that must not be folded twice.
        """
        headers = [share.header for share in self._shares]
        ranges = [pair for number in self._deleted for pair in keys.topic_ranges(number)]
        puts = [*headers, *self._routers.puts, *self._loads.puts, (keys.META, self._meta)]
        marks = [mark for share in self._shares if isinstance(share, LogShare) for mark in share.marks]
        return Slice(puts, [*self._routers.deletes, *self._loads.deletes], ranges, [], [], marks)


def _topic_put(topic: Topic) -> tuple[bytes, bytes]:
    header = keys.TopicHeader(topic.number, topic.name, topic.config, topic.created_ms, topic.lazy, topic.pause)
    return keys.topic_key(topic.number), _encode(header)


class Loaded(NamedTuple):
    """The position behind which events must be folded, and the jobs that are ahead of it.

    A checkpoint that a crash cut short leaves jobs that its position does not know. Folding brings the state right;
    `settle` then makes sure that the next checkpoint rewrites or removes exactly those. It also cleans up the `logs`.
    """

    position: int
    ahead: list[tuple[QueuePartition, int]]
    logs: list[LogPartition]

    def settle(self, machine: Machine) -> None:
        for partition, seq in self.ahead:
            partition.dirty.add(seq)
            machine.touched.add(partition)
        machine.touched.update(self.logs)


def stored_meta(store: StoreView) -> keys.Meta | None:
    """None when no checkpoint was ever completed. Raises DataDirectoryError when a newer Esker wrote it."""
    stored = store.get(keys.META)
    if stored is None:
        return None
    version = msgspec.msgpack.decode(msgspec.msgpack.decode(stored, type=list[msgspec.Raw])[0], type=int)
    if version > keys.FORMAT:
        raise DataDirectoryError(
            f"the store has format {version}, this version of Esker knows up to {keys.FORMAT}; nothing was changed"
        )
    return _decode_meta(stored)


def load(store: Store, machine: Machine) -> Loaded:
    """Fills an empty machine with what the store holds."""
    position = 0
    meta = stored_meta(store)
    if meta is not None:
        position = meta.position
        machine.next_number = meta.next_number
        machine.last_ms = meta.last_ms
    ahead: list[tuple[QueuePartition, int]] = []
    logs: list[LogPartition] = []
    for _, value in store.scan(b"t", b"u"):
        header = _decode_topic(value)
        topic = machine.new_topic(header.number, header.name, header.config, header.created_ms, header.lazy)
        topic.pause = header.pause
        for partition in topic.partitions:
            ahead += [(partition, seq) for seq in load_jobs(store, partition)]
        if topic.log is not None and load_log(store, topic.log):
            logs.append(topic.log)
    load_routers(store, machine)
    load_marks(store, machine.loads)
    return Loaded(position, ahead, logs)
