"""What each kind of event tells: its columns, for many events of the kind at once.

A maker gets the events of one kind in order and returns the columns that the kind has; all others are null. A column is
a list with a value for each row, or one value that all rows share (`Same`); `node` and `tag` are lists of bytes. Most
events are one row; `SIZES` tells of the others how many they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import NamedTuple, TypeVar

import msgspec

from esker.columns.eventnames import Names, text
from esker.columns.jobids import JobIds
from esker.engine import events
from esker.engine.commands import Details
from esker.engine.config import Pause, TopicConfig


class Same(NamedTuple):
    value: str | int


Values = Sequence[int | None] | Sequence[str | None] | Sequence[bytes | None] | Same
Columns = dict[str, Values]
Maker = Callable[..., Columns]  # of the events of one kind, the names and the ids that are known

E = TypeVar("E", bound=events.Event)
_json = msgspec.json.Encoder().encode


def _detail(**facts: object) -> str:
    return _json(facts).decode()


def _all(happened: Sequence[events.Event], field: str) -> list[int]:
    return list(map(attrgetter(field), happened))


def _or_null(numbers: Iterable[int]) -> list[int | None]:
    """0 stands for none in events."""
    return [number or None for number in numbers]


def _or_none(values: Iterable[bytes]) -> list[bytes | None]:
    return [value or None for value in values]


def _dated(happened: Sequence[events.Event]) -> Columns:
    return {"time": _all(happened, "ts")}


def _of_topic(happened: Sequence[events.Event]) -> Columns:
    return {"time": _all(happened, "ts"), "topic_number": _all(happened, "topic")}


def _of_partition(happened: Sequence[events.Event]) -> Columns:
    return {**_of_topic(happened), "partition": _all(happened, "partition")}


def _of_job(happened: Sequence[events.JobEvent], ids: JobIds | None) -> Columns:
    columns = {**_of_partition(happened), "seq": _all(happened, "seq")}
    if ids is not None:
        columns["message_id"] = ids.of(map(attrgetter("topic", "partition", "seq"), happened))
    return columns


def _of_jobs(
    happened: Sequence[events.JobsLeased] | Sequence[events.JobsAcked], sizes: Sequence[int], ids: JobIds | None
) -> Columns:
    """What `_of_job` tells, of events that tell of many."""
    topics, partitions = _spread(_all(happened, "topic"), sizes), _spread(_all(happened, "partition"), sizes)
    seqs = list(chain.from_iterable(event.seqs for event in happened))
    columns: Columns = {
        "time": _spread(_all(happened, "ts"), sizes),
        "topic_number": topics,
        "partition": partitions,
        "seq": seqs,
    }
    if ids is not None:
        columns["message_id"] = ids.of(zip(topics, partitions, seqs, strict=True))
    return columns


# -- topics and the node


def _config_facts(config: TopicConfig) -> dict[str, object]:
    return {
        "type": config.type,
        "mode": config.mode,
        "durability": config.durability,
        "partitions": config.partitions,
        "max_deliveries": config.max_deliveries,
        "dead_letter": None if config.dead_letter is None else text(config.dead_letter),
        "leases_durable": config.leases_durable,
        "lease_ms": config.lease_ms,
        "max_in_flight": config.max_in_flight,
        "ttl_ms": config.ttl_ms,
        "cap_records": config.cap_records,
        "cap_bytes": config.cap_bytes,
        "discard": config.discard,
    }


def _topic_created(happened: Sequence[events.TopicCreated], names: Names, ids: JobIds | None) -> Columns:
    detail = [_detail(**_config_facts(event.config), lazy=event.lazy) for event in happened]
    return {**_of_topic(happened), "detail": detail}


def _topic_configured(happened: Sequence[events.TopicConfigured], names: Names, ids: JobIds | None) -> Columns:
    return {**_of_topic(happened), "detail": [_detail(**_config_facts(event.config), lazy=False) for event in happened]}


def _topic_deleted(happened: Sequence[events.TopicDeleted], names: Names, ids: JobIds | None) -> Columns:
    return _of_topic(happened)


def _topic_paused(happened: Sequence[events.TopicPaused], names: Names, ids: JobIds | None) -> Columns:
    return {**_of_topic(happened), "reason": [Pause(event.pause).name.lower() for event in happened]}


def _seq_reserved(happened: Sequence[events.SeqReserved], names: Names, ids: JobIds | None) -> Columns:
    return {
        "topic_number": _all(happened, "topic"),
        "partition": _all(happened, "partition"),
        "seq": _all(happened, "ceiling"),
    }


def _purged(happened: Sequence[events.Purged], names: Names, ids: JobIds | None) -> Columns:
    return {**_of_partition(happened), "seq": _all(happened, "below"), "reason": Same("below")}


def _node_started(happened: Sequence[events.NodeStarted], names: Names, ids: JobIds | None) -> Columns:
    return _dated(happened)


# -- jobs


def _job_detail(retry_ms: int, details: Details | None) -> str | None:
    if details is not None and details.max_deliveries is not None:
        most = details.max_deliveries
        return _detail(max_deliveries=most) if retry_ms else _detail(retry_ms=0, max_deliveries=most)
    return None if retry_ms else _AT_MOST_ONCE


_AT_MOST_ONCE = _detail(retry_ms=0)


def _new_jobs(happened: Sequence[events.Enqueued] | Sequence[events.JobReplayed], ids: JobIds | None) -> Columns:
    details = [event.details for event in happened]
    return {
        **_of_job(happened, ids),
        "priority": _all(happened, "priority"),
        "node": [each.node or None if each is not None else None for each in details],
        "tag": [each.tag or None if each is not None else None for each in details],
        "expires": _or_null(_all(happened, "expires_ms")),
        "detail": [
            None if event.retry_ms and event.details is None else _job_detail(event.retry_ms, event.details)
            for event in happened
        ],
    }


def _enqueued(happened: Sequence[events.Enqueued], names: Names, ids: JobIds | None) -> Columns:
    return {**_new_jobs(happened, ids), "due": _or_null(_all(happened, "due_ms"))}


def _job_replayed(happened: Sequence[events.JobReplayed], names: Names, ids: JobIds | None) -> Columns:
    return _new_jobs(happened, ids)


def _jobs_enqueued(happened: Sequence[events.JobsEnqueued], names: Names, ids: JobIds | None) -> Columns:
    sizes = [len(event.payloads) for event in happened]
    columns: Columns = {
        "time": _spread(_all(happened, "ts"), sizes),
        "topic_number": _spread(_all(happened, "topic"), sizes),
        "partition": _spread(_all(happened, "partition"), sizes),
        "seq": _ranges(_all(happened, "seq"), sizes),
        "priority": Same(0),
        "expires": _spread(_or_null(_all(happened, "expires_ms")), sizes),
        "detail": _spread([_job_detail(event.retry_ms, None) for event in happened], sizes),
    }
    if ids is not None:
        runs = zip(happened, sizes, strict=True)
        made = [ids.run(event.topic, event.partition, event.seq, event.ts, count) for event, count in runs]
        columns["message_id"] = list(chain.from_iterable(made))
    return columns


def _job_leased(happened: Sequence[events.JobLeased], names: Names, ids: JobIds | None) -> Columns:
    return {
        **_of_job(happened, ids),
        "attempts": _all(happened, "attempts"),
        "node": _or_none([event.holder for event in happened]),
        "lease": [f"{event.token:x}" for event in happened],
        "due": _or_null(_all(happened, "deadline_ms")),
        "reason": ["no_dead_letter" if event.excused else None for event in happened],
    }


def _job_acked(happened: Sequence[events.JobAcked], names: Names, ids: JobIds | None) -> Columns:
    tokens = [f"{event.token:x}" if event.token else None for event in happened]
    return {**_of_job(happened, ids), "lease": tokens}


def _jobs_leased(happened: Sequence[events.JobsLeased], names: Names, ids: JobIds | None) -> Columns:
    """The rows that `_job_leased` makes of the same leases, had they been told one by one."""
    sizes = [len(event.seqs) for event in happened]
    tokens = chain.from_iterable(range(event.token, event.token + len(event.seqs)) for event in happened)
    return {
        **_of_jobs(happened, sizes, ids),
        "attempts": list(chain.from_iterable(event.attempts for event in happened)),
        "node": _spread(_or_none([event.holder for event in happened]), sizes),
        "lease": [f"{token:x}" for token in tokens],
        "due": _spread(_or_null(_all(happened, "deadline_ms")), sizes),
    }


def _jobs_acked(happened: Sequence[events.JobsAcked], names: Names, ids: JobIds | None) -> Columns:
    """The rows that `_job_acked` makes of the same acks, had they been told one by one."""
    sizes = [len(event.seqs) for event in happened]
    tokens = chain.from_iterable(event.tokens or repeat(0, len(event.seqs)) for event in happened)
    return {**_of_jobs(happened, sizes, ids), "lease": [f"{token:x}" if token else None for token in tokens]}


def _job_returned(happened: Sequence[events.JobReturned], names: Names, ids: JobIds | None) -> Columns:
    return {
        **_of_job(happened, ids),
        "due": _or_null(_all(happened, "due_ms")),
        "reason": [_RETURNS[event.reason] for event in happened],
    }


def _lease_extended(happened: Sequence[events.LeaseExtended], names: Names, ids: JobIds | None) -> Columns:
    return {**_of_job(happened, ids), "due": _or_null(_all(happened, "deadline_ms"))}


def _job_withdrawn(happened: Sequence[events.JobWithdrawn], names: Names, ids: JobIds | None) -> Columns:
    return {**_of_job(happened, ids), "due": _or_null(_all(happened, "due_ms"))}


def _job_reprioritised(happened: Sequence[events.JobReprioritised], names: Names, ids: JobIds | None) -> Columns:
    return {**_of_job(happened, ids), "priority": _all(happened, "priority")}


def _job_removed(happened: Sequence[events.JobRemoved], names: Names, ids: JobIds | None) -> Columns:
    return {**_of_job(happened, ids), "reason": [_REMOVALS[event.reason] for event in happened]}


_RETURNS = {reason: reason.name.lower() for reason in events.ReturnReason}
_REMOVALS = {reason: reason.name.lower() for reason in events.RemoveReason}


# -- what queues and logs share


def _key_remembered(happened: Sequence[events.KeyRemembered], names: Names, ids: JobIds | None) -> Columns:
    detail = [_detail(count=event.count) for event in happened]
    return {**_of_partition(happened), "seq": _all(happened, "seq"), "detail": detail}


def _trimmed(
    happened: Sequence[events.LogTrimmed] | Sequence[events.QueueTrimmed], names: Names, ids: JobIds
) -> Columns:
    return {
        **_of_partition(happened),
        "seq": [max(event.cap_floor, event.ttl_floor) for event in happened],
        "reason": ["ttl" if event.ttl_floor > event.cap_floor else "cap" for event in happened],
        "detail": [_detail(cap_floor=event.cap_floor, ttl_floor=event.ttl_floor) for event in happened],
    }


# -- logs


def _records_appended(happened: Sequence[events.RecordsAppended], names: Names, ids: JobIds | None) -> Columns:
    sizes = [len(event.records) for event in happened]
    bodies = list(chain.from_iterable(event.records for event in happened))
    return {
        "time": _spread(_all(happened, "ts"), sizes),
        "topic_number": _spread(_all(happened, "topic"), sizes),
        "partition": _spread(_all(happened, "partition"), sizes),
        "seq": _ranges(_all(happened, "seq"), sizes),
        "node": _or_none([body.node for body in bodies]),
        "tag": _or_none([body.tag for body in bodies]),
    }


def _records_deleted(happened: Sequence[events.RecordsDeleted], names: Names, ids: JobIds | None) -> Columns:
    """One row for all below a seq, and one for each run of records that matched: a match may be of millions."""
    sizes = [deleted_rows(event) for event in happened]
    seqs: list[int] = []
    reasons: list[str | None] = []
    detail: list[str | None] = []
    for event in happened:
        if event.below or not event.runs:
            seqs.append(event.below)
            reasons.append("below")
            detail.append(None)
        for first, count in zip(event.runs[::2], event.runs[1::2], strict=True):
            seqs.append(first)
            reasons.append("match")
            detail.append(_detail(last=first + count - 1))
    return {
        "time": _spread(_all(happened, "ts"), sizes),
        "topic_number": _spread(_all(happened, "topic"), sizes),
        "partition": _spread(_all(happened, "partition"), sizes),
        "seq": seqs,
        "reason": reasons,
        "detail": detail,
    }


def _seqs_lost(happened: Sequence[events.SeqsLost], names: Names, ids: JobIds | None) -> Columns:
    return {
        **_of_partition(happened),
        "seq": _all(happened, "first"),
        "reason": [event.reason for event in happened],
        "detail": [_detail(last=event.last) for event in happened],
    }


def _log_archived(happened: Sequence[events.LogArchived], names: Names, ids: JobIds | None) -> Columns:
    return {
        **_of_partition(happened),
        "seq": _all(happened, "last"),
        "reason": [event.file for event in happened],
        "detail": [_detail(first=event.first) for event in happened],
    }


# -- routers and loads


def _router_put(happened: Sequence[events.RouterPut], names: Names, ids: JobIds | None) -> Columns:
    detail = []
    for event in happened:
        options = event.options
        detail.append(
            _detail(
                source=names.topic(event.source),
                source_number=event.source,
                dest=names.topic(event.dest),
                dest_number=event.dest,
                guarantee=options.guarantee,
                filter_tag=None if options.filter_tag is None else text(options.filter_tag),
                filter_prefix=options.filter_prefix,
                allow_cycle=options.allow_cycle,
                cursor=event.cursor,
            )
        )
    return {
        **_dated(happened),
        "topic_number": _all(happened, "source"),
        "router": _all(happened, "router"),
        "reason": [text(event.name) for event in happened],
        "detail": detail,
    }


def _router_dropped(happened: Sequence[events.RouterDropped], names: Names, ids: JobIds | None) -> Columns:
    return {
        **_dated(happened),
        "router": _all(happened, "router"),
        "reason": [names.router(event.router) for event in happened],
    }


def _records_forwarded(happened: Sequence[events.RecordsForwarded], names: Names, ids: JobIds | None) -> Columns:
    """A row for each copy; one without a seq where a router only went on."""
    sizes = [forwarded_rows(event) for event in happened]
    seqs: list[int | None] = []
    sources: list[int | None] = []
    detail: list[str | None] = []
    for event, count in zip(happened, sizes, strict=True):
        if event.runs:
            seqs += range(event.dest_seq, event.dest_seq + count)
            sources += _seqs(event.runs)
            detail += [None if event.derived else _NOT_DERIVED] * (count - 1)
        else:
            seqs.append(None)
            sources.append(None)
        facts = {"upto": event.upto, "forwarded": event.forwarded}
        detail.append(_detail(**facts) if event.derived or not event.runs else _detail(derived=False, **facts))
    return {
        "time": _spread(_all(happened, "ts"), sizes),
        "topic_number": _spread([names.dest(event.router) for event in happened], sizes),
        "partition": Same(0),
        "seq": seqs,
        "source_seq": sources,
        "router": _spread(_all(happened, "router"), sizes),
        "reason": _spread([names.router(event.router) for event in happened], sizes),
        "detail": detail,
    }


_NOT_DERIVED = _detail(derived=False)


def _load_advanced(happened: Sequence[events.LoadAdvanced], names: Names, ids: JobIds | None) -> Columns:
    return {
        **_dated(happened),
        "reason": [text(event.load) for event in happened],
        "detail": [
            _detail(batch=event.batch, chunk=event.chunk, rows=event.rows, last=event.last) for event in happened
        ],
    }


# -- what events tell about others


def learn(kind: type, happened: Sequence[events.Event], names: Names, ids: JobIds | None) -> None:
    """Of events of one kind: what numbers stand for, and when jobs were made. To be told before columns are made."""
    if kind is events.TopicCreated or kind is events.RouterPut:
        names.learn(happened)
    elif ids is None:
        return
    elif kind is events.Enqueued:
        _made_in_runs(happened, ids)
    elif kind is events.JobsEnqueued:
        for topic, partition, seq, ms, payloads in map(_ALIKE, happened):
            ids.made(topic, partition, seq, ms, len(payloads))
    elif kind is events.JobReplayed:
        for topic, partition, seq, ms in map(attrgetter("topic", "partition", "seq", "created_ms"), happened):
            ids.made(topic, partition, seq, ms)


_ALIKE = attrgetter("topic", "partition", "seq", "ts", "payloads")
_SINGLE = attrgetter("topic", "partition", "ts", "seq")


def _made_in_runs(happened: Sequence[events.Event], ids: JobIds) -> None:
    """Jobs of one command follow each other: they are told together."""
    owner, first, following = (0, 0, 0), 0, 0
    for topic, partition, ms, seq in map(_SINGLE, happened):
        if seq == following and (topic, partition, ms) == owner:
            following += 1
            continue
        if following:
            ids.made(owner[0], owner[1], first, owner[2], following - first)
        owner, first, following = (topic, partition, ms), seq, seq + 1
    if following:
        ids.made(owner[0], owner[1], first, owner[2], following - first)


# -- many rows of one event


V = TypeVar("V")


def _spread(values: Sequence[V], sizes: Sequence[int]) -> list[V]:
    """Each value as often as its event has rows."""
    return list(chain.from_iterable(map(repeat, values, sizes)))


def _ranges(firsts: Sequence[int], sizes: Sequence[int]) -> list[int]:
    return list(chain.from_iterable(range(first, first + size) for first, size in zip(firsts, sizes, strict=True)))


def _seqs(runs: Sequence[int]) -> list[int]:
    return _ranges(runs[::2], runs[1::2])


def deleted_rows(event: events.RecordsDeleted) -> int:
    return len(event.runs) // 2 + (event.below > 0 or not event.runs)


def forwarded_rows(event: events.RecordsForwarded) -> int:
    return sum(event.runs[1::2]) or 1


SIZES: Mapping[type, Callable[..., int]] = {
    events.JobsEnqueued: lambda event: len(event.payloads),
    events.JobsLeased: lambda event: len(event.seqs),
    events.JobsAcked: lambda event: len(event.seqs),
    events.RecordsAppended: lambda event: len(event.records),
    events.RecordsDeleted: deleted_rows,
    events.RecordsForwarded: forwarded_rows,
}

MAKERS: Mapping[type, Maker] = {
    events.TopicCreated: _topic_created,
    events.RouterPut: _router_put,
    events.Enqueued: _enqueued,
    events.JobsEnqueued: _jobs_enqueued,
    events.JobReplayed: _job_replayed,
    events.TopicConfigured: _topic_configured,
    events.TopicDeleted: _topic_deleted,
    events.TopicPaused: _topic_paused,
    events.SeqReserved: _seq_reserved,
    events.Purged: _purged,
    events.NodeStarted: _node_started,
    events.JobLeased: _job_leased,
    events.JobAcked: _job_acked,
    events.JobsLeased: _jobs_leased,
    events.JobsAcked: _jobs_acked,
    events.JobReturned: _job_returned,
    events.LeaseExtended: _lease_extended,
    events.JobWithdrawn: _job_withdrawn,
    events.JobReprioritised: _job_reprioritised,
    events.JobRemoved: _job_removed,
    events.KeyRemembered: _key_remembered,
    events.QueueTrimmed: _trimmed,
    events.RecordsAppended: _records_appended,
    events.LogTrimmed: _trimmed,
    events.RecordsDeleted: _records_deleted,
    events.SeqsLost: _seqs_lost,
    events.LogArchived: _log_archived,
    events.RouterDropped: _router_dropped,
    events.RecordsForwarded: _records_forwarded,
    events.LoadAdvanced: _load_advanced,
}
