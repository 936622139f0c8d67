"""Dead letters: a job that failed too often moves to another topic instead of being delivered again, and can come back.

The move is one batch: gone here, added there. The copy keeps payload, tag, node and meta, and its meta says where it
came from, under `$dead_letter_*` keys with strings for values. It goes to a log or to a queue, whichever the topic is;
in a queue it has the priority it had. A topic that is missing is made as a log of the source's class.
A replay (replays.py) puts the job back under its old seq and priority.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from esker.engine import events, limits, topics
from esker.engine.commands import NO_DETAILS, Details, NewJob
from esker.engine.ids import Place, from_ulid, message_id, place, to_ulid
from esker.engine.logs import append as log_append
from esker.engine.logs.partition import LogPartition
from esker.engine.meta import meta_values, stamped
from esker.engine.queues import retention
from esker.engine.queues.adding import add_jobs
from esker.engine.queues.job import Job
from esker.engine.queues.partition import QueuePartition
from esker.engine.topic import Topic

if TYPE_CHECKING:
    from esker.engine.machine import Machine

PREFIX = "$dead_letter_"
_FROM = PREFIX + "from"
_FROM_HEX = PREFIX + "from_hex"  # only where the name is no UTF-8: `from` shows what can be shown of it
_DELIVERIES = PREFIX + "deliveries"
_SOURCE_SEQ = PREFIX + "src_seq"
_ID = PREFIX + "id"
# What a replay needs, where it is not what every job has.
_TTL = PREFIX + "ttl_ms"
_MOST = PREFIX + "max_deliveries"
_PRIORITY = PREFIX + "priority"
_RETRY = PREFIX + "retry_ms"

_decode_text = msgspec.json.Decoder(str).decode


def is_due(topic: Topic, job: Job) -> bool:
    """The next delivery would be one too many."""
    config = topic.config
    if config.dead_letter is None:
        return False
    most = config.max_deliveries
    if job.details is not None and job.details.max_deliveries is not None:
        most = job.details.max_deliveries
    return 0 < most <= job.attempts


def bury(machine: Machine, partition: QueuePartition, job: Job, now: int) -> bool:
    """False: the dead-letter topic takes nothing, so the job is better delivered once more than lost."""
    source = partition.topic
    name = source.config.dead_letter
    assert name is not None
    grave = machine.names.get(name)
    if grave is None:
        config = msgspec.structs.replace(machine.log_config, durability=source.config.durability)
        if topics.create_problem(machine, name, config) is not None:
            return False
        grave = topics.make(machine, name, config, now, lazy=False)
    if grave.log is not None:
        buried = _bury_in_log(machine, partition, job, grave.log, now)
    else:
        buried = grave.is_queue and _bury_in_queue(machine, partition, job, grave, now)
    if buried:
        machine.record(
            partition,
            events.JobRemoved(source.number, partition.index, job.seq, now, events.RemoveReason.DEAD_LETTERED),
        )
    return buried


def _bury_in_log(machine: Machine, partition: QueuePartition, job: Job, log: LogPartition, now: int) -> bool:
    details = job.details or NO_DETAILS
    body = events.RecordBody(
        machine.payload(partition, job), details.tag, details.node, _letter_meta(partition, job, in_log=True)
    )
    if log_append.bodies_problem(machine, log, log.topic.config, [body], now) is not None:
        return False
    log_append.append_bodies(machine, log, [body], now)
    return True


def _bury_in_queue(machine: Machine, partition: QueuePartition, job: Job, grave: Topic, now: int) -> bool:
    if retention.cap_problem(machine, grave, grave.config, 1, job.size, now) is not None:
        return False
    details = job.details or NO_DETAILS
    target = grave.partitions[partition.index % len(grave.partitions)]
    letter = NewJob(
        machine.payload(partition, job),
        job.priority,
        retry_ms=job.retry_ms or partition.topic.config.lease_ms,
        details=Details(tag=details.tag, node=details.node, meta=_letter_meta(partition, job, in_log=False)),
    )
    add_jobs(machine, target, (letter,), now)
    retention.enforce_caps(machine, grave, now)
    return True


# -- what a letter says


class Provenance(NamedTuple):
    """What a dead letter tells people: the topic it came from, and how often it was delivered there."""

    topic: bytes
    deliveries: int


class Origin(NamedTuple):
    """What a replay needs to know. `priority` and `retry_ms` None: the letter itself has them, or they are usual."""

    place: Place
    topic: bytes
    ttl_ms: int
    max_deliveries: int | None
    priority: int | None
    retry_ms: int | None


def _letter_meta(partition: QueuePartition, job: Job, in_log: bool) -> bytes:
    """What the job carried, and where it came from. A log's records have no priority and no retry time of their own."""
    source, details = partition.topic, job.details or NO_DETAILS
    stamps = {
        **_name_stamps(source.name),
        _DELIVERIES: str(job.attempts),
        _SOURCE_SEQ: str(job.seq),
        _ID: to_ulid(message_id(job.created_ms, source.number, partition.index, job.seq)),
    }
    if job.expires_ms:
        stamps[_TTL] = str(job.expires_ms - job.created_ms)
    if details.max_deliveries is not None:
        stamps[_MOST] = str(details.max_deliveries)
    if in_log and job.priority:
        stamps[_PRIORITY] = str(job.priority)
    if in_log and job.retry_ms != source.config.lease_ms:
        stamps[_RETRY] = str(job.retry_ms)
    return stamped(details.meta, PREFIX, stamps)


def _name_stamps(name: bytes) -> dict[str, str]:
    try:
        return {_FROM: name.decode()}
    except UnicodeDecodeError:
        return {_FROM: name.decode("utf-8", "backslashreplace"), _FROM_HEX: name.hex()}


def provenance(meta: bytes) -> Provenance:
    """Meta is the user's to write, so it may tell nothing: an empty name and 0 then."""
    stamps = _stamps(meta)
    try:
        return Provenance(_name(stamps), max(0, int(stamps.get(_DELIVERIES, "0"))))
    except ValueError:
        return Provenance(b"", 0)


def origin(meta: bytes) -> Origin | None:
    """Where a dead letter came from; None when its meta does not tell, or tells nonsense."""
    stamps = _stamps(meta)
    try:
        ttl_ms = int(stamps.get(_TTL, "0"))
        most, priority, retry_ms = (int(stamps[key]) if key in stamps else None for key in (_MOST, _PRIORITY, _RETRY))
        found = Origin(place(from_ulid(stamps[_ID])), _name(stamps), ttl_ms, most, priority, retry_ms)
    except (KeyError, ValueError):
        return None
    sound = (
        0 <= ttl_ms <= limits.TTL_MS_MAX
        and 0 <= (most or 0) <= limits.DELIVERIES_MAX
        and limits.PRIORITY_MIN <= (priority or 0) <= limits.PRIORITY_MAX
        and 0 <= (retry_ms or 0) <= limits.DELAY_MS_MAX
    )
    return found if sound else None


def _stamps(meta: bytes) -> dict[str, str]:
    """Those values of ours that are strings, as ours are."""
    stamps: dict[str, str] = {}
    for key, value in (meta_values(meta) or {}).items():
        if key.startswith(PREFIX):
            try:
                stamps[key] = _decode_text(value)
            except msgspec.DecodeError:
                continue
    return stamps


def _name(stamps: dict[str, str]) -> bytes:
    if _FROM_HEX in stamps:
        return bytes.fromhex(stamps[_FROM_HEX])
    return stamps.get(_FROM, "").encode()
