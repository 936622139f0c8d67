"""Sending dead letters back where they came from: under the old seq and priority, with deliveries counted from zero.

Served before its younger equals again, a replayed job is as if it had never failed. What a letter says of its origin is
only trusted as far as it can do no harm: meta is the user's to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from esker.engine import commands, events, limits
from esker.engine.commands import NO_DETAILS, Details, NewJob
from esker.engine.ids import message_id, place
from esker.engine.logs import reading
from esker.engine.logs.partition import LogPartition
from esker.engine.meta import stamped
from esker.engine.queues import deadletters, retention
from esker.engine.queues.adding import add_jobs
from esker.engine.queues.deadletters import PREFIX, Origin
from esker.engine.queues.job import Job
from esker.engine.queues.partition import QueuePartition
from esker.engine.replies import Done, Record, Reply
from esker.engine.topic import Topic
from esker.engine.topics import not_found

if TYPE_CHECKING:
    from esker.engine.machine import Machine


def replay(machine: Machine, command: commands.ReplayDeadLetters, now: int) -> Reply:
    grave = machine.names.get(command.topic)
    if grave is None:
        return not_found(command.topic)
    count = min(command.count, limits.LEASE_JOBS_MAX)
    if grave.log is not None:
        return _replay_log(machine, grave.log, command.ids, count, now)
    missed: list[int] = []
    ids = _first_ids(grave, count) if command.ids is None else command.ids
    for job_id in ids:
        found = machine.find(job_id)
        if found is None or found[0].topic is not grave or not _replay_job(machine, *found, now):
            missed.append(job_id)
    return Done(len(ids) - len(missed), missed)


def _first_ids(grave: Topic, count: int) -> list[int]:
    ids: list[int] = []
    for partition in grave.partitions:
        for seq, job in partition.jobs.items():
            if len(ids) >= count:
                return ids
            ids.append(message_id(job.created_ms, grave.number, partition.index, seq))
    return ids


def _replay_job(machine: Machine, partition: QueuePartition, job: Job, now: int) -> bool:
    details = job.details or NO_DETAILS
    origin = deadletters.origin(details.meta)
    if origin is None:
        return False
    payload = machine.payload(partition, job)
    known = origin._replace(priority=job.priority, retry_ms=job.retry_ms)
    if not _raise(machine, partition.topic, known, payload, details, now):
        return False
    number, index = partition.topic.number, partition.index
    machine.record(partition, events.JobRemoved(number, index, job.seq, now, events.RemoveReason.REPLAYED))
    return True


def _replay_log(machine: Machine, log: LogPartition, ids: Sequence[int] | None, count: int, now: int) -> Done:
    number = log.topic.number
    done = 0
    missed: list[int] = []
    if ids is None:
        for letter in _first_letters(machine, log, count, now):
            if _replay_letter(machine, log, letter, now):
                done += 1
            else:
                missed.append(message_id(letter.ts, number, 0, letter.seq))
        return Done(done, missed)
    for record_id in ids:
        created_ms, topic, _, seq = place(record_id)
        found = _letters(machine, log, seq - 1, 1, now) if topic == number and seq else []
        if found and (found[0].seq, found[0].ts) == (seq, created_ms) and _replay_letter(machine, log, found[0], now):
            done += 1
        else:
            missed.append(record_id)
    return Done(done, missed)


def _letters(machine: Machine, log: LogPartition, after: int, count: int, now: int) -> Sequence[Record]:
    command = commands.Read(log.topic.name, after, count, limits.READ_BYTES_MAX)
    return reading.read(machine, log, command, now).records


def _first_letters(machine: Machine, log: LogPartition, count: int, now: int) -> list[Record]:
    letters: list[Record] = []
    while len(letters) < count:
        page = _letters(machine, log, letters[-1].seq if letters else 0, count - len(letters), now)
        if not page:
            break
        letters += page
    return letters


def _replay_letter(machine: Machine, log: LogPartition, letter: Record, now: int) -> bool:
    origin = deadletters.origin(letter.meta)
    if origin is None:
        return False
    details = Details(tag=letter.tag, node=letter.node, meta=letter.meta)
    if not _raise(machine, log.topic, origin, letter.data, details, now):
        return False
    machine.record(log, events.RecordsDeleted(log.topic.number, 0, now, 0, [letter.seq, 1]))
    return True


def _raise(machine: Machine, grave: Topic, origin: Origin, payload: bytes, details: Details, now: int) -> bool:
    """Puts one job back; False when its topic is gone, or has no room: the old seq would be the first to go again."""
    created_ms, number, index, seq = origin.place
    source = machine.topics.get(number) or machine.names.get(origin.topic)
    if source is None or not source.is_queue or source is grave:
        return False
    if not retention.has_room(source, 1, len(payload)):
        return False
    plain = Details(
        max_deliveries=origin.max_deliveries,
        tag=details.tag,
        node=details.node,
        meta=stamped(details.meta, PREFIX, {}),
    )
    kept = None if plain == NO_DETAILS else plain
    priority = origin.priority or 0
    retry_ms = source.config.lease_ms if origin.retry_ms is None else origin.retry_ms
    expires_ms = now + origin.ttl_ms if origin.ttl_ms else 0
    if source.number == number and _is_vacant(source, index, seq):
        machine.record(
            source.partitions[index],
            events.JobReplayed(number, index, seq, now, created_ms, priority, retry_ms, expires_ms, payload, kept),
        )
    else:  # the topic was made anew, so the old seq means nothing there; or the origin is not ours
        home = source.partitions[index % len(source.partitions)]
        add_jobs(machine, home, (NewJob(payload, priority, retry_ms, origin.ttl_ms, kept),), now)
    machine.woken.add(source.name)
    return True


def _is_vacant(source: Topic, index: int, seq: int) -> bool:
    """The seq was given out once, and no job has it now."""
    if index >= len(source.partitions):
        return False
    partition = source.partitions[index]
    return 0 < seq < partition.next_seq and seq not in partition.jobs
