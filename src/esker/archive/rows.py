"""Events as rows: one for each event, or for each record or job where an event tells of many.

Every row has a `kind`, which is the name of its event. What an event does not tell is null. Ids of jobs are known where
the event, or an earlier one of the same segment, tells when the job was made; topic number, partition and seq name the
job in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from esker.engine import events
from esker.engine.ids import message_id, to_ulid


class Row(NamedTuple):
    kind: str
    topic: int | None = None  # its number
    partition: int | None = None
    seq: int | None = None
    created_ms: int | None = None  # of a job, which makes its id
    priority: int | None = None
    attempts: int | None = None
    node: bytes = b""
    tag: bytes = b""
    lease: int | None = None
    reason: str | None = None


class Names:
    """What numbers in events stand for, as far as it is known: from what is there now, and from the history itself."""

    def __init__(self) -> None:
        self._topics: dict[int, bytes] = {}
        self._routers: dict[int, tuple[bytes, int]] = {}  # name, and the number of its destination

    def topic_is(self, number: int, name: bytes) -> None:
        self._topics[number] = name

    def router_is(self, number: int, name: bytes, dest: int) -> None:
        self._routers[number] = name, dest

    def learn(self, event: events.Event) -> None:
        if isinstance(event, events.TopicCreated):
            self.topic_is(event.topic, event.name)
        elif isinstance(event, events.RouterPut):
            self.router_is(event.router, event.name, event.dest)

    def topic(self, number: int | None) -> str | None:
        """A name; the number where the name is not known."""
        if number is None:
            return None
        name = self._topics.get(number)
        return str(number) if name is None else text(name)

    def router(self, number: int) -> str:
        known = self._routers.get(number)
        return str(number) if known is None else text(known[0])

    def dest(self, router: int) -> int | None:
        known = self._routers.get(router)
        return None if known is None else known[1]


def text(value: bytes) -> str:
    """Names may be any bytes; those that are no text are shown by their codes."""
    return value.decode("utf-8", "backslashreplace")


class Births:
    """When the jobs of a segment were made."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int, int], int] = {}

    def ulid(self, row: Row) -> str | None:
        if row.topic is None or row.partition is None or row.seq is None or row.kind not in _JOB_KINDS:
            return None
        place = row.topic, row.partition, row.seq
        if row.created_ms is not None:
            self._made[place] = row.created_ms
        made = self._made.get(place)
        return None if made is None else to_ulid(message_id(made, *place))


def rows_of(event: events.Event, names: Names) -> Iterator[Row]:
    return _ROWS.get(type(event), _plain)(event, names)


def _plain(event: events.Event, names: Names) -> Iterator[Row]:
    """An event that says no more than where it happened."""
    kind = type(event).__name__
    yield Row(kind, getattr(event, "topic", None), getattr(event, "partition", None), getattr(event, "seq", None))


def _reserved(event: events.SeqReserved, names: Names) -> Iterator[Row]:
    yield Row("SeqReserved", event.topic, event.partition, event.ceiling)


def _purged(event: events.Purged, names: Names) -> Iterator[Row]:
    yield Row("Purged", event.topic, event.partition, event.below, reason="below")


def _enqueued(event: events.Enqueued | events.JobReplayed, names: Names) -> Iterator[Row]:
    details = event.details
    created_ms = event.ts if isinstance(event, events.Enqueued) else event.created_ms
    yield Row(
        type(event).__name__, event.topic, event.partition, event.seq, created_ms, event.priority,
        node=b"" if details is None else details.node, tag=b"" if details is None else details.tag,
    )  # fmt: skip


def _enqueued_alike(event: events.JobsEnqueued, names: Names) -> Iterator[Row]:
    for offset in range(len(event.payloads)):
        yield Row("JobsEnqueued", event.topic, event.partition, event.seq + offset, event.ts, 0)


def _leased(event: events.JobLeased, names: Names) -> Iterator[Row]:
    yield Row(
        "JobLeased", event.topic, event.partition, event.seq, attempts=event.attempts, node=event.holder,
        lease=event.token,
    )  # fmt: skip


def _left(event: events.JobReturned | events.JobRemoved, names: Names) -> Iterator[Row]:
    reason = event.reason.name.lower()
    yield Row(type(event).__name__, event.topic, event.partition, event.seq, reason=reason)


def _reprioritised(event: events.JobReprioritised, names: Names) -> Iterator[Row]:
    yield Row("JobReprioritised", event.topic, event.partition, event.seq, priority=event.priority)


def _appended(event: events.RecordsAppended, names: Names) -> Iterator[Row]:
    for offset, body in enumerate(event.records):
        yield Row("RecordsAppended", event.topic, event.partition, event.seq + offset, node=body.node, tag=body.tag)


def _trimmed(event: events.LogTrimmed | events.QueueTrimmed, names: Names) -> Iterator[Row]:
    reason = "ttl" if event.ttl_floor > event.cap_floor else "cap"
    yield Row(
        type(event).__name__, event.topic, event.partition, max(event.cap_floor, event.ttl_floor), reason=reason
    )  # fmt: skip


def _deleted(event: events.RecordsDeleted, names: Names) -> Iterator[Row]:
    if event.below or not event.runs:
        yield Row("RecordsDeleted", event.topic, event.partition, event.below, reason="below")
    for seq in _seqs(event.runs):
        yield Row("RecordsDeleted", event.topic, event.partition, seq, reason="match")


def _lost(event: events.SeqsLost, names: Names) -> Iterator[Row]:
    yield Row("SeqsLost", event.topic, event.partition, event.first, reason=event.reason)


def _archived(event: events.LogArchived, names: Names) -> Iterator[Row]:
    yield Row("LogArchived", event.topic, event.partition, event.last, reason=event.file)


def _router_put(event: events.RouterPut, names: Names) -> Iterator[Row]:
    yield Row("RouterPut", event.source, reason=text(event.name))


def _router_dropped(event: events.RouterDropped, names: Names) -> Iterator[Row]:
    yield Row("RouterDropped", reason=names.router(event.router))


def _forwarded(event: events.RecordsForwarded, names: Names) -> Iterator[Row]:
    """Copies that have events of their own are not told again: then one row says that the router went on."""
    dest, router = names.dest(event.router), names.router(event.router)
    if not event.derived or not event.runs:
        yield Row("RecordsForwarded", dest, reason=router)
        return
    for offset in range(sum(event.runs[1::2])):
        yield Row("RecordsForwarded", dest, 0, event.dest_seq + offset, reason=router)


def _seqs(runs: list[int]) -> Iterator[int]:
    for first, count in zip(runs[::2], runs[1::2], strict=True):
        yield from range(first, first + count)


_ROWS: dict[type, Callable[..., Iterator[Row]]] = {
    events.SeqReserved: _reserved,
    events.Purged: _purged,
    events.Enqueued: _enqueued,
    events.JobReplayed: _enqueued,
    events.JobsEnqueued: _enqueued_alike,
    events.JobLeased: _leased,
    events.JobReturned: _left,
    events.JobRemoved: _left,
    events.JobReprioritised: _reprioritised,
    events.RecordsAppended: _appended,
    events.LogTrimmed: _trimmed,
    events.QueueTrimmed: _trimmed,
    events.RecordsDeleted: _deleted,
    events.SeqsLost: _lost,
    events.LogArchived: _archived,
    events.RouterPut: _router_put,
    events.RouterDropped: _router_dropped,
    events.RecordsForwarded: _forwarded,
}
_JOB_KINDS = frozenset(
    each.__name__
    for each in (
        events.Enqueued, events.JobsEnqueued, events.JobReplayed, events.JobLeased, events.JobAcked,
        events.JobReturned, events.LeaseExtended, events.JobWithdrawn, events.JobReprioritised, events.JobRemoved,
    )
)  # fmt: skip
