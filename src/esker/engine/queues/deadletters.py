"""Dead letters: a job that failed too often moves to another topic instead of being delivered again, and can come back.

The move is one batch: gone here, added there. The copy keeps payload, priority, tag, node and meta, and its meta says
where it came from, under `$dead_letter_*` keys. A replay puts the job back under its old seq and priority, so it is
served before its younger equals, with its deliveries counted from zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from esker.engine import commands, events, limits
from esker.engine.commands import NO_DETAILS, Details
from esker.engine.config import TopicConfig
from esker.engine.ids import Place, from_ulid, message_id, place, to_ulid
from esker.engine.queues.job import Job
from esker.engine.queues.partition import QueuePartition
from esker.engine.replies import Done, Reply
from esker.engine.topic import Topic
from esker.engine.topics import make, not_found

if TYPE_CHECKING:
    from esker.engine.machine import Machine

_PREFIX = b"$dead_letter_"
_FROM = _PREFIX + b"from"
_DELIVERIES = _PREFIX + b"deliveries"
_SOURCE_SEQ = _PREFIX + b"src_seq"
_ID = _PREFIX + b"id"
_TTL = _PREFIX + b"ttl_ms"
_MOST = _PREFIX + b"max_deliveries"


def is_due(topic: Topic, job: Job) -> bool:
    """The next delivery would be one too many."""
    config = topic.config
    if config.dead_letter is None:
        return False
    most = config.max_deliveries
    if job.details is not None and job.details.max_deliveries is not None:
        most = job.details.max_deliveries
    return 0 < most <= job.attempts


def bury(machine: Machine, partition: QueuePartition, job: Job, now: int) -> None:
    source = partition.topic
    name = source.config.dead_letter
    assert name is not None
    grave = machine.names.get(name)
    if grave is None:
        config = TopicConfig(durability=source.config.durability, mode=source.config.mode)
        grave = make(machine, name, config, now, lazy=False)
    old = job.details or NO_DETAILS
    old_id = message_id(job.created_ms, source.number, partition.index, job.seq)
    meta = {
        **dict(old.meta),
        _FROM: source.name,
        _DELIVERIES: b"%d" % job.attempts,
        _SOURCE_SEQ: b"%d" % job.seq,
        _ID: to_ulid(old_id).encode(),
        _TTL: b"%d" % (job.expires_ms - job.created_ms if job.expires_ms else 0),
    }
    if old.max_deliveries is not None:
        meta[_MOST] = b"%d" % old.max_deliveries
    details = msgspec.structs.replace(
        old, meta=tuple(meta.items()), delay_ms=0, max_deliveries=None, key=b"", producer=b"", epoch=0, sequence=0
    )
    target = grave.partitions[partition.index % len(grave.partitions)]
    machine.reserve(target, 1)
    ttl_ms = grave.config.ttl_ms
    machine.record(
        target,
        events.Enqueued(
            grave.number,
            target.index,
            target.next_seq,
            now,
            job.priority,
            job.retry_ms or source.config.lease_ms,
            now + ttl_ms if ttl_ms else 0,
            0,
            machine.payload(partition, job),
            details,
        ),
    )
    machine.woken.add(grave.name)
    machine.record(
        partition,
        events.JobRemoved(source.number, partition.index, job.seq, now, events.RemoveReason.DEAD_LETTERED),
    )


def replay(machine: Machine, command: commands.ReplayDeadLetters, now: int) -> Reply:
    grave = machine.names.get(command.topic)
    if grave is None:
        return not_found(command.topic)
    missed: list[int] = []
    count = 0
    ids = _first_ids(grave, command.count) if command.ids is None else command.ids
    for job_id in ids:
        found = machine.find(job_id)
        if found is not None and found[0].topic is grave and _raise(machine, *found, now):
            count += 1
        else:
            missed.append(job_id)
    return Done(count, missed)


def _first_ids(grave: Topic, count: int) -> list[int]:
    ids: list[int] = []
    count = min(count, limits.LEASE_JOBS_MAX)
    for partition in grave.partitions:
        for seq, job in partition.jobs.items():
            if len(ids) >= count:
                return ids
            ids.append(message_id(job.created_ms, grave.number, partition.index, seq))
    return ids


class _Origin(NamedTuple):
    place: Place
    topic: bytes
    ttl_ms: int
    max_deliveries: int | None


def _origin(details: Details) -> _Origin | None:
    """Where a dead letter came from. Meta is the user's to write, so it may be nonsense: None then."""
    meta = dict(details.meta)
    try:
        most = int(meta[_MOST]) if _MOST in meta else None
        origin = _Origin(place(from_ulid(meta[_ID].decode())), meta[_FROM], int(meta[_TTL]), most)
    except (KeyError, ValueError):
        return None
    return origin if 0 <= origin.ttl_ms <= limits.TTL_MS_MAX and (origin.max_deliveries or 0) >= 0 else None


def _is_vacant(source: Topic, index: int, seq: int) -> bool:
    """The seq was given out once, and no job has it now."""
    if index >= len(source.partitions):
        return False
    partition = source.partitions[index]
    return 0 < seq < partition.next_seq and seq not in partition.jobs


def _raise(machine: Machine, partition: QueuePartition, job: Job, now: int) -> bool:
    """Puts one dead letter back; False when it is none, or its topic is gone."""
    details = job.details or NO_DETAILS
    origin = _origin(details)
    if origin is None:
        return False
    created_ms, number, index, seq = origin.place
    source = machine.topics.get(number) or machine.names.get(origin.topic)
    if source is None or not source.is_queue or source is partition.topic:
        return False
    plain = msgspec.structs.replace(
        details,
        meta=tuple((key, value) for key, value in details.meta if not key.startswith(_PREFIX)),
        max_deliveries=origin.max_deliveries,
    )
    payload = machine.payload(partition, job)
    expires_ms = now + origin.ttl_ms if origin.ttl_ms else 0
    kept: Details | None = None if plain == NO_DETAILS else plain
    if source.number == number and _is_vacant(source, index, seq):
        home = source.partitions[index]
        machine.record(
            home,
            events.JobReplayed(
                number, index, seq, now, created_ms, job.priority, job.retry_ms, expires_ms, payload, kept
            ),
        )
    else:  # the topic was made anew, so the old seq means nothing there; or the origin is not ours
        home = source.partitions[index % len(source.partitions)]
        machine.reserve(home, 1)
        machine.record(
            home,
            events.Enqueued(
                source.number, home.index, home.next_seq, now, job.priority, job.retry_ms, expires_ms, 0, payload, kept
            ),
        )
    machine.woken.add(source.name)
    grave = partition.topic
    machine.record(
        partition, events.JobRemoved(grave.number, partition.index, job.seq, now, events.RemoveReason.REPLAYED)
    )
    return True
