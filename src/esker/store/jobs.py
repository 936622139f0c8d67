"""The jobs of a queue's partition in the store: what a checkpoint writes of them, and how they are loaded again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from esker.engine.queues.job import Job, decode_jobs, encode_job
from esker.engine.queues.partition import QueuePartition
from esker.errors import InvariantBroken
from esker.store import keys
from esker.store.idempotency import KeyShare, load_keys
from esker.store.interface import WRITE_BYTES, WRITE_KEYS, Store, StoreView
from esker.store.slices import NOTHING, Range, Slice, batched

_LOOK = 4096
_RUN = 16  # jobs in a row from which on their payloads are read in one go

_encode = msgspec.msgpack.Encoder().encode
_decode_partition = msgspec.msgpack.Decoder(keys.PartitionHeader).decode


class JobShare:
    """What one partition had to save when the checkpoint began."""

    def __init__(self, partition: QueuePartition) -> None:
        """Takes the changes off the partition."""
        header = keys.PartitionHeader(
            partition.next_seq, partition.ceiling, partition.active_ms, partition.counters, partition.cap_floor,
            partition.ttl_floor, partition.head_seq,
        )  # fmt: skip
        journaled = partition.topic.journaled
        self._partition = partition
        self._place = partition.topic.number, partition.index
        self._header = _encode(header)
        # Of an ephemeral queue only what has gone: it may have been stored while the class was another.
        self._dirty = partition.dirty if journaled else {seq for seq in partition.dirty if seq not in partition.jobs}
        # Jobs that the store has never seen, if they still are.
        self._fresh = range(partition.stored_below, partition.next_seq if journaled else partition.stored_below)
        self._restored = partition.restored
        self._purged_below = partition.purged_below
        self._keys = KeyShare(self._place, partition.dedup, journaled)
        partition.dirty = set()
        partition.restored = set()
        partition.stored_below = partition.next_seq
        partition.purged_below = 0

    @property
    def header(self) -> tuple[bytes, bytes]:
        return keys.partition_key(*self._place), self._header

    def ranges(self) -> list[Range]:
        return keys.jobs_below(*self._place, self._purged_below) if self._purged_below else []

    def slices(self) -> Iterator[Slice]:
        yield from self._job_slices()
        yield from self._keys.slices()

    def _job_slices(self) -> Iterator[Slice]:
        jobs = self._partition.jobs
        for seqs in batched(self._dirty, WRITE_KEYS // 2):
            gone = [seq for seq in seqs if seq not in jobs]
            deletes = [key(*self._place, seq) for seq in gone for key in (keys.job_key, keys.body_key)]
            yield Slice([], deletes, [], [])
            yield from self._put_slices([job for seq in seqs if (job := jobs.get(seq)) is not None])
        # Many of the fresh ones may have come and gone: a look at some thousands takes well under a millisecond.
        for start in range(self._fresh.start, self._fresh.stop, _LOOK):
            some = range(start, min(start + _LOOK, self._fresh.stop))
            yield from self._put_slices([job for seq in some if (job := jobs.get(seq)) is not None])
            yield NOTHING

    def _put_slices(self, jobs: list[Job]) -> Iterator[Slice]:
        """Bounded in keys and in bytes."""
        partition, fresh_from, restored = self._partition, self._fresh.start, self._restored
        number, index = self._place
        alive, holders = partition.jobs, partition.holders
        piece = Slice([], [], [], [])
        size = 0
        for job in jobs:
            seq, payload = job.seq, job.payload
            if alive.get(seq) is not job:
                continue  # gone since the last slice; if it was ever stored, the next checkpoint removes it
            piece.puts.append((keys.job_key(number, index, seq), encode_job(job, holders.get(seq, b""))))
            if payload is not None and (seq >= fresh_from or seq in restored):
                piece.puts.append((keys.body_key(number, index, seq), payload))
                piece.saved.append((partition, job))
                size += job.size
            if len(piece.puts) >= WRITE_KEYS or size >= WRITE_BYTES:
                yield piece
                piece = Slice([], [], [], [])
                size = 0
        yield piece


def load_jobs(store: Store, partition: QueuePartition) -> list[int]:
    """Returns the seqs of jobs that the header does not know: not loaded, since their events are yet to be folded."""
    number, index = partition.topic.number, partition.index
    stored = store.get(keys.partition_key(number, index))
    if stored is not None:
        header = _decode_partition(stored)
        partition.next_seq = header.next_seq
        partition.ceiling = header.ceiling
        partition.active_ms = header.active_ms
        partition.counters = header.counters
        partition.cap_floor, partition.ttl_floor = header.cap_floor, header.ttl_floor
        partition.head_seq = header.next_seq - 1 if header.head_seq is None else header.head_seq
    ahead: list[int] = []
    if partition.topic.journaled:
        jobs = decode_jobs(value for _, value in store.scan(*keys.partition_range(b"j", number, index)))
        while jobs and jobs[-1].seq >= partition.next_seq:
            ahead.append(jobs.pop().seq)
        partition.load(jobs)
    load_keys(store, (number, index), partition.dedup)
    partition.stored_below = partition.next_seq
    return ahead


def cold_payload(store: StoreView, number: int, index: int, seq: int) -> bytes:
    body = store.get(keys.body_key(number, index, seq))
    if body is None:
        raise InvariantBroken(f"the payload of job {number}/{index}/{seq} is not in the store")
    return body


def cold_payloads(store: StoreView, number: int, index: int, seqs: Sequence[int]) -> list[bytes]:
    """Of some jobs, in that order. Where one follows the other, the store is read on: a look-up costs twice that."""
    found: list[bytes] = []
    start = 0
    while start < len(seqs):
        stop = _end_of_run(seqs, start)
        if stop - start < _RUN:
            found += [cold_payload(store, number, index, seq) for seq in seqs[start:stop]]
        else:
            found += _run_of_payloads(store, number, index, seqs[start], seqs[stop - 1])
        start = stop
    return found


def _end_of_run(seqs: Sequence[int], start: int) -> int:
    """The first place behind `start` whose seq does not follow the one before it."""
    distance = seqs[start] - start
    if seqs[-1] - (len(seqs) - 1) == distance:  # they rise, so none is missing up to the last
        return len(seqs)
    for place in range(start + 1, len(seqs)):
        if seqs[place] - place != distance:
            return place
    return len(seqs)


def _run_of_payloads(store: StoreView, number: int, index: int, first: int, last: int) -> list[bytes]:
    found = [
        value for _, value in store.scan(keys.body_key(number, index, first), keys.body_key(number, index, last + 1))
    ]
    if len(found) <= last - first:  # there are no more keys than seqs, so as many as these are all of them
        return [cold_payload(store, number, index, seq) for seq in range(first, last + 1)]  # says which is missing
    return found
