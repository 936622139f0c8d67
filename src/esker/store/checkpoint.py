"""Checkpoints: bringing the store up to date while the shard goes on, and loading it again.

A checkpoint begins at a journal position: the headers of topics and partitions are taken as they are then, and the sets
of changed jobs are set aside. The jobs themselves are written later, in slices, as they are when their slice comes. So
the store may be ahead of the position it names; recovery folds the events behind that position again, which changes
nothing where they are known already (engine/events.py). Two rules make it safe:

* A slice is written only when every event it reflects is on disk (the caller waits between `slices` and `write`).
* The position is written last and made durable together with all slices before it. A crash in between leaves the old
  position, from which folding is just as good.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from esker.engine.dedup import Remembered
from esker.engine.machine import Machine
from esker.engine.queues.job import Job, decode_job, encode_job
from esker.engine.queues.partition import QueuePartition
from esker.engine.topic import Topic
from esker.errors import DataDirectoryError, InvariantBroken
from esker.store import keys
from esker.store.interface import WRITE_BYTES, WRITE_KEYS, Store

_Item = TypeVar("_Item")

_encode = msgspec.msgpack.Encoder().encode
_decode_meta = msgspec.msgpack.Decoder(keys.Meta).decode
_decode_topic = msgspec.msgpack.Decoder(keys.TopicHeader).decode
_decode_partition = msgspec.msgpack.Decoder(keys.PartitionHeader).decode
_decode_key = msgspec.msgpack.Decoder(keys.StoredKey).decode


class Slice(NamedTuple):
    """One write, and the jobs whose payloads it saves."""

    puts: list[tuple[bytes, bytes]]
    deletes: list[bytes]
    ranges: list[tuple[bytes, bytes]]
    saved: list[tuple[QueuePartition, Job]]


NOTHING = Slice([], [], [], [])
"""A pause between slices: nothing to write, but a chance for others to run."""

_LOOK = 4096


class _Share(NamedTuple):
    """What one partition had to save when the checkpoint began."""

    partition: QueuePartition
    header: bytes
    dirty: set[int]
    fresh: range  # jobs that the store has never seen, if they still are
    restored: set[int]
    purged_below: int
    added: set[bytes]
    dropped: set[bytes]


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
        self._shares = [_share(partition) for partition in partitions if partition.topic.number in machine.topics]
        machine.touched = set()
        machine.totals.unsaved_bytes = 0

    def slices(self) -> Iterator[Slice]:
        """Each slice is made when asked for, from the state as it is then."""
        ranges = [pair for number in self._deleted for pair in keys.topic_ranges(number)]
        for share in self._shares:
            if share.purged_below:
                ranges += keys.jobs_below(share.partition.topic.number, share.partition.index, share.purged_below)
        for batch in _batched(ranges, WRITE_KEYS):
            yield Slice([], [], batch, [])
        for headers in _batched(self._topics, WRITE_KEYS):  # before their jobs, so that a load finds every job there is
            yield Slice(headers, [], [], [])
        for share in self._shares:
            yield from _job_slices(share)
            yield from _dedup_slices(share)

    def last(self) -> Slice:
        """The partition headers and the position: what turns the slices before it into a checkpoint.

        They go in one write, because the counters in a header are the only state that must not be folded twice.
        """
        puts = [
            (keys.partition_key(share.partition.topic.number, share.partition.index), share.header)
            for share in self._shares
        ]
        puts.append((keys.META, self._meta))
        return Slice(puts, [], [], [])


def _topic_put(topic: Topic) -> tuple[bytes, bytes]:
    header = keys.TopicHeader(topic.number, topic.name, topic.config, topic.created_ms, topic.lazy, topic.pause)
    return keys.topic_key(topic.number), _encode(header)


def _share(partition: QueuePartition) -> _Share:
    header = keys.PartitionHeader(partition.next_seq, partition.ceiling, partition.active_ms, partition.counters)
    dedup = partition.dedup
    journaled = partition.topic.journaled
    share = _Share(
        partition=partition,
        header=_encode(header),
        dirty=partition.dirty if journaled else set(),
        fresh=range(partition.stored_below, partition.next_seq if journaled else partition.stored_below),
        restored=partition.restored,
        purged_below=partition.purged_below,
        added=dedup.added if journaled else set(),  # what a restart forgets must not be called a duplicate after it
        dropped=dedup.dropped,
    )
    partition.dirty = set()
    partition.restored = set()
    partition.stored_below = partition.next_seq
    partition.purged_below = 0
    dedup.added, dedup.dropped = set(), set()
    return share


def _job_slices(share: _Share) -> Iterator[Slice]:
    partition = share.partition
    number, index, jobs = partition.topic.number, partition.index, partition.jobs
    for seqs in _batched(share.dirty, WRITE_KEYS // 2):
        gone = [seq for seq in seqs if seq not in jobs]
        yield Slice([], [key(number, index, seq) for seq in gone for key in (keys.job_key, keys.body_key)], [], [])
        yield from _put_slices(share, [job for seq in seqs if (job := jobs.get(seq)) is not None])
    # Many of the fresh ones may have come and gone: a look at some thousands takes well under a millisecond.
    for start in range(share.fresh.start, share.fresh.stop, _LOOK):
        some = range(start, min(start + _LOOK, share.fresh.stop))
        yield from _put_slices(share, [job for seq in some if (job := jobs.get(seq)) is not None])
        yield NOTHING


def _put_slices(share: _Share, jobs: list[Job]) -> Iterator[Slice]:
    """Bounded in keys and in bytes."""
    partition, fresh_from, restored = share.partition, share.fresh.start, share.restored
    number, index, alive = partition.topic.number, partition.index, partition.jobs
    piece = Slice([], [], [], [])
    size = 0
    for job in jobs:
        seq, payload = job.seq, job.payload
        if alive.get(seq) is not job:
            continue  # gone since the last slice; if it was ever stored, the next checkpoint removes it
        piece.puts.append((keys.job_key(number, index, seq), encode_job(job)))
        if payload is not None and (seq >= fresh_from or seq in restored):
            piece.puts.append((keys.body_key(number, index, seq), payload))
            piece.saved.append((partition, job))
            size += job.size
        if len(piece.puts) >= WRITE_KEYS or size >= WRITE_BYTES:
            yield piece
            piece = Slice([], [], [], [])
            size = 0
    yield piece


def _dedup_slices(share: _Share) -> Iterator[Slice]:
    partition = share.partition
    number, index = partition.topic.number, partition.index
    entries = partition.dedup.entries
    for batch in _batched(share.dropped, WRITE_KEYS):
        yield Slice([], [keys.dedup_key(number, index, key) for key in batch if key not in entries], [], [])
    for batch in _batched(share.added, WRITE_KEYS):
        puts = [
            (keys.dedup_key(number, index, key), _encode(keys.StoredKey(*entries[key])))
            for key in batch
            if key in entries
        ]
        yield Slice(puts, [], [], [])


def _batched(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


class Loaded(NamedTuple):
    """The position behind which events must be folded, and the jobs that are ahead of it.

    A checkpoint that a crash cut short leaves jobs that its position does not know. Folding brings the state right;
    `settle` then makes sure that the next checkpoint rewrites or removes exactly those.
    """

    position: int
    ahead: list[tuple[QueuePartition, int]]

    def settle(self, machine: Machine) -> None:
        for partition, seq in self.ahead:
            partition.dirty.add(seq)
            machine.touched.add(partition)


def load(store: Store, machine: Machine) -> Loaded:
    """Fills an empty machine with what the store holds."""
    position = 0
    stored = store.get(keys.META)
    if stored is not None:
        version = msgspec.msgpack.decode(msgspec.msgpack.decode(stored, type=list[msgspec.Raw])[0], type=int)
        if version > keys.FORMAT:
            raise DataDirectoryError(
                f"the store has format {version}, this version of Esker knows up to {keys.FORMAT}; nothing was changed"
            )
        meta = _decode_meta(stored)
        position = meta.position
        machine.next_number = meta.next_number
        machine.last_ms = meta.last_ms
    ahead: list[tuple[QueuePartition, int]] = []
    for _, value in store.scan(b"t", b"u"):
        header = _decode_topic(value)
        topic = Topic(
            header.number, header.name, header.config, header.created_ms, header.lazy, machine.totals, machine.wakes
        )
        topic.pause = header.pause
        machine.add_topic(topic)
        for partition in topic.partitions:
            ahead += [(partition, seq) for seq in _load_partition(store, partition)]
    return Loaded(position, ahead)


def _load_partition(store: Store, partition: QueuePartition) -> list[int]:
    """Returns the seqs of jobs that the header does not know: not loaded, since their events are yet to be folded."""
    number, index = partition.topic.number, partition.index
    stored = store.get(keys.partition_key(number, index))
    if stored is not None:
        header = _decode_partition(stored)
        partition.next_seq = header.next_seq
        partition.ceiling = header.ceiling
        partition.active_ms = header.active_ms
        partition.counters = header.counters
    ahead: list[int] = []
    if partition.topic.journaled:
        jobs = [decode_job(value) for _, value in store.scan(*keys.partition_range(b"j", number, index))]
        while jobs and jobs[-1].seq >= partition.next_seq:
            ahead.append(jobs.pop().seq)
        partition.load(jobs)
    start, end = keys.partition_range(b"d", number, index)
    found = [(key[len(start) :], _decode_key(value)) for key, value in store.scan(start, end)]
    found.sort(key=lambda entry: entry[1].created_ms)
    partition.dedup.entries = {key: Remembered(entry.created_ms, entry.seq) for key, entry in found}
    partition.stored_below = partition.next_seq
    return ahead


def cold_payload(store: Store, number: int, index: int, seq: int) -> bytes:
    body = store.get(keys.body_key(number, index, seq))
    if body is None:
        raise InvariantBroken(f"the payload of job {number}/{index}/{seq} is not in the store")
    return body
