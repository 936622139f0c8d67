"""Replies and events as scenarios show them: short, stable, without what only machines need.

A job is `q#3`: topic and seq, and `q/1#3` where the topic has several partitions. A moment is `@30s`: so long after the
start. Fields that have their usual value are left out, and so are tokens and message ids, which are random or long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, IntEnum

import msgspec

from esker.engine import events
from esker.engine.commands import Details, NewRecord
from esker.engine.config import RouterOptions, TopicConfig
from esker.engine.ids import place
from esker.engine.replies import (
    Added,
    CohortLeased,
    Count,
    Deleted,
    Delivery,
    Done,
    Extended,
    Jobs,
    JobView,
    Leased,
    Paused,
    Record,
    Records,
    Reply,
    RouterPage,
    RouterView,
    SlotsDone,
    StillWorking,
    TopicDropped,
    TopicPage,
    TopicPut,
    TopicStatus,
    TopicView,
    Written,
)
from esker.errors import Refusal
from tests.scenarios.stage import START_MS, Batch

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_USUAL_RETRY_MS = TopicConfig().lease_ms


def duration(ms: int) -> str:
    """In the largest unit that needs no fraction: 90s, 5m, 250ms."""
    name, unit = next((name, unit) for name, unit in _UNITS if ms % unit == 0)
    return f"{ms // unit}{name}" if ms else "0s"


def milliseconds(text: str) -> int:
    """The other way: 30s, 5m, 250ms, 0."""
    for name, unit in reversed(_UNITS):
        if text.endswith(name):
            return int(text.removesuffix(name)) * unit
    if text == "0":
        return 0
    raise ValueError(f"{text!r} is no time; say 250ms, 30s, 5m, 2h or 1d")


def moment(ms: int) -> str:
    return f"@{duration(ms - START_MS)}" if ms >= START_MS else f"@-{duration(START_MS - ms)}"


class Shown:
    """Knows topics and routers by number, from the events that made them, and jobs by their labels."""

    def __init__(self) -> None:
        self._topics: dict[int, tuple[str, int]] = {}  # name, partitions
        self._routers: dict[int, str] = {}
        self.ids: dict[str, int] = {}  # of every job that was shown

    # -- names

    def learn(self, batch: Iterable[events.Event]) -> None:
        for event in batch:
            if isinstance(event, events.TopicCreated):
                self._topics[event.topic] = (event.name.decode(), event.config.partitions)
            elif isinstance(event, events.RouterPut):
                self._routers[event.router] = event.name.decode()

    def label(self, job_id: int) -> str:
        at = place(job_id)
        label = self._label(at.topic, at.partition, at.seq)
        self.ids[label] = job_id
        return label

    def _label(self, topic: int, partition: int, seq: int | None) -> str:
        name, partitions = self._topics.get(topic, (f"topic {topic}", 1))
        where = f"{name}/{partition}" if partitions > 1 else name
        return where if seq is None else f"{where}#{seq}"

    def labels(self, ids: Iterable[int]) -> str:
        return " ".join(self.label(each) for each in ids)

    # -- replies

    def reply(self, reply: Reply) -> list[str]:
        if reply is None:
            return ["ok"]
        return _REPLIES[type(reply)](self, reply)

    def refused(self, reply: Refusal) -> list[str]:
        return [f"error {reply.code}: {reply.message}"]

    def added(self, reply: Added) -> list[str]:
        known = set(reply.duplicates)
        return [
            f"{self.label(each)} known already" if position in known else self.label(each)
            for position, each in enumerate(reply.ids)
        ] or ["nothing"]

    def delivery(self, job: Delivery) -> str:
        until = moment(job.deadline_ms) if job.deadline_ms else "never"
        fields = {"priority": job.priority, "attempt": job.attempts, "nacks": job.nacks, "requeues": job.requeues}
        return _line(self.label(job.id), job.payload.decode(), fields, {"until": until}, _details(job.details))

    def leased(self, reply: Leased) -> list[str]:
        return [self.delivery(each) for each in reply.deliveries] or ["nothing"]

    def cohort(self, reply: CohortLeased) -> list[str]:
        return [self.labels(each.id for each in share.deliveries) or "nothing" for share in reply.shares]

    def done(self, reply: Done) -> list[str]:
        missed = f"missed {self.labels(reply.missed)}" if reply.missed else ""
        return [_line(str(reply.count), missed, {"taken_by": ",".join(map(str, reply.takers))})]

    def extended(self, reply: Extended) -> list[str]:
        lines = [f"{self.label(each)} until={moment(until)}" for each, until in reply.deadlines_ms.items()]
        return lines + ([f"missed {self.labels(reply.missed)}"] if reply.missed else [])

    def slots(self, reply: SlotsDone) -> list[str]:
        skipped = f"skipped {' '.join(f'#{slot}' for slot in reply.skipped)}" if reply.skipped else ""
        lines = [_line(str(reply.count), skipped, {"ready": reply.ready, "in_flight": reply.in_flight})]
        return lines + [f"#{slot} until={moment(until)}" for slot, until in reply.deadlines_ms.items()]

    def working(self, reply: StillWorking) -> list[str]:
        return [f"again in {duration(reply.retry_ms)}"]

    def job(self, job: JobView) -> str:
        fields = {
            "priority": job.priority, "attempts": job.attempts, "nacks": job.nacks, "requeues": job.requeues,
            "holder": job.holder.decode(), "due": job.due_ms and moment(job.due_ms),
            "expires": job.expires_ms and moment(job.expires_ms),
        }  # fmt: skip
        return _line(self.label(job.id), job.payload.decode(), job.state.name.lower(), fields, _details(job.details))

    def jobs(self, reply: Jobs) -> list[str]:
        return [self.job(each) for each in reply.jobs] or ["nothing"]

    def count(self, reply: Count) -> list[str]:
        return [str(reply.count)]

    def paused(self, reply: Paused) -> list[str]:
        return [f"paused {reply.pause.name.lower()}"]

    def view(self, reply: TopicView) -> list[str]:
        names = (
            "ready", "delayed", "leased", "withdrawn", "spent", "jobs_in", "jobs_out", "acked", "nacked",
            "lease_timeouts", "expired", "dead_lettered",
        )  # fmt: skip
        return [_line("queue", {name: getattr(reply, name) for name in names}) if reply.jobs_in else "empty"]

    def written(self, reply: Written) -> list[str]:
        seqs = f"#{reply.first_seq}" if reply.first_seq == reply.last_seq else f"#{reply.first_seq}..{reply.last_seq}"
        return [
            _line(
                seqs if reply.last_seq else "nothing",
                {"head": reply.head_seq, "partition": reply.partition},
                "created" if reply.created else "",
                "known already" if reply.deduped else "",
            )
        ]

    def records(self, reply: Records) -> list[str]:
        lines = []
        if (gap := reply.tombstone) is not None:
            lines.append(f"gap {gap.gap_from}..{gap.gap_to} {gap.reason}")
        lines += [_record(each) for each in reply.records]
        return [*lines, f"next={reply.next_from_seq} head={reply.head_seq} earliest={reply.earliest_seq}"]

    def deleted(self, reply: Deleted) -> list[str]:
        return [f"{reply.deleted} deleted: earliest={reply.earliest_seq} head={reply.head_seq} count={reply.count}"]

    def status(self, reply: TopicStatus) -> list[str]:
        fields = {
            "head": str(reply.head_seq), "earliest": reply.earliest_seq, "next": reply.next_seq,
            "count": str(reply.count), "bytes": reply.bytes, "ready": reply.ready, "in_flight": reply.in_flight,
            "dead_lettered": reply.dead_lettered,
        }  # fmt: skip
        return [_line(reply.name.decode(), fields)]

    def put(self, reply: TopicPut) -> list[str]:
        return [f"{'made' if reply.created else 'kept'} {self.status(reply.status)[0]}"]

    def dropped(self, reply: TopicDropped) -> list[str]:
        routers = b" ".join(reply.routers_removed).decode()
        return [_line(f"dropped at head {reply.head_seq}", {"routers": routers}) if reply.deleted else "nothing"]

    def page(self, reply: TopicPage) -> list[str]:
        return [self.status(each)[0] for each in reply.topics] or ["nothing"]

    def router(self, reply: RouterView) -> list[str]:
        way = f"{reply.name.decode()}: {reply.source.decode()} -> {reply.dest.decode()}"
        return [_line(way, _config(reply.options), {"forwarded": str(reply.forwarded)})]

    def router_page(self, reply: RouterPage) -> list[str]:
        return [self.router(each)[0] for each in reply.routers] or ["nothing"]

    # -- events

    def batch(self, batch: Batch) -> list[str]:
        self.learn(batch.events)
        notes = ["must sync"] if batch.sync else []
        notes += [f"wakes {b' '.join(batch.woken).decode()}"] if batch.woken else []
        head = f"{batch.verb}: {', '.join(notes)}" if notes else f"{batch.verb}:"
        return [head, *(f"  {self.event(each)}" for each in batch.events)]

    def event(self, event: events.Event) -> str:
        values: dict[str, object] = {name: getattr(event, name) for name in event.__struct_fields__}
        subject = ""
        topic, partition, seq, name = (values.pop(each, None) for each in ("topic", "partition", "seq", "name"))
        if isinstance(topic, int):
            subject = self._label(
                topic, partition if isinstance(partition, int) else 0, seq if isinstance(seq, int) else None
            )
        for number in ("source", "dest"):
            if isinstance(value := values.get(number), int):
                values[number] = self._label(value, 0, None)
        if isinstance(router := values.pop("router", None), int):
            subject = self._routers.get(router, "")
        order = sorted(values.keys() - _UNSHOWN, key=lambda each: (each not in _FIRST, [*values].index(each)))
        texts = [_field(each, values[each]) for each in order]
        return _line(type(event).__name__, subject or (name.decode() if isinstance(name, bytes) else ""), *texts)


_UNSHOWN = frozenset({"ts", "token", "tokens", "lazy"})
_FIRST = ("payload", "payloads", "records", "seqs", "runs")


def _field(name: str, value: object) -> str:
    """One field of an event; empty where it has its usual value."""
    if name in ("payload", "payloads") or (name == "records" and isinstance(value, list)):
        parts = value if isinstance(value, list) else [value]
        return " ".join(_body(each) for each in parts)
    if name == "runs" and isinstance(value, list):
        pairs = zip(value[::2], value[1::2], strict=True)
        return " ".join(f"#{first}" if count == 1 else f"#{first}..{first + count - 1}" for first, count in pairs)
    if name == "seqs" and isinstance(value, list):
        return " ".join(f"#{seq}" for seq in value)
    if isinstance(value, TopicConfig | RouterOptions):
        return _config(value)
    if isinstance(value, Details):
        return _details(value)
    if isinstance(value, IntEnum):
        return f"{name}={value.name.lower()}"
    if name.endswith("_ms") and isinstance(value, int):
        usual = value == 0 or (name == "retry_ms" and value == _USUAL_RETRY_MS)
        text = moment(value) if value > START_MS // 2 else duration(value)
        return "" if usual else f"{name.removesuffix('_ms')}={text}"
    return "" if not value else f"{name}={_text(value)}"


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return {True: "yes", False: "no"}.get(value, "") if isinstance(value, bool) else str(value)


def _body(value: object) -> str:
    if isinstance(value, NewRecord):
        return _line(value.data.decode(), {"tag": value.tag.decode(), "node": value.node.decode()}, _meta(value.meta))
    return value.decode() if isinstance(value, bytes) else str(value)


def _record(record: Record) -> str:
    labels = {"tag": record.tag.decode(), "node": record.node.decode(), "at": moment(record.ts)}
    return _line(f"#{record.seq}", record.data.decode(), labels, _meta(record.meta))


def _meta(meta: bytes) -> str:
    """Without the message id that a dead letter carries."""
    values = msgspec.json.decode(meta, type=dict[str, object]) if meta else {}
    return " ".join(f"{key}={value}" for key, value in values.items() if key != "$dead_letter_id")


def _details(details: Details | None) -> str:
    if details is None:
        return ""
    values: dict[str, object] = {name: getattr(details, name) for name in details.__struct_fields__ if name != "meta"}
    return _line(*(_field(name, value) for name, value in values.items()), _meta(details.meta))


def _config(config: TopicConfig | RouterOptions) -> str:
    """What differs from the default."""
    usual = type(config)()
    names = (name for name in config.__struct_fields__ if getattr(config, name) != getattr(usual, name))
    return " ".join(_option(name, getattr(config, name)) for name in names)


def _option(name: str, value: object) -> str:
    if name.endswith("_ms") and isinstance(value, int):
        return f"{name.removesuffix('_ms')}={duration(value)}"
    if isinstance(value, msgspec.Struct):
        inner = {each: getattr(value, each) for each in value.__struct_fields__}
        return " ".join(_option(f"{name}.{each}", inside) for each, inside in inner.items())
    return f"{name}={_text(value)}"


def _line(*parts: str | Mapping[str, object]) -> str:
    """Words and fields in a row, without those that are empty, zero or None."""
    words: list[str] = []
    for part in parts:
        if isinstance(part, str):
            words += [part] if part else []
        else:
            words += [f"{name}={value}" for name, value in part.items() if value or value == "0"]
    return " ".join(words)


_REPLIES: Mapping[type, Callable[..., list[str]]] = {
    Refusal: Shown.refused,
    Added: Shown.added,
    Leased: Shown.leased,
    CohortLeased: Shown.cohort,
    Done: Shown.done,
    Extended: Shown.extended,
    SlotsDone: Shown.slots,
    StillWorking: Shown.working,
    Jobs: Shown.jobs,
    Count: Shown.count,
    Paused: Shown.paused,
    TopicView: Shown.view,
    Written: Shown.written,
    Records: Shown.records,
    Deleted: Shown.deleted,
    TopicStatus: Shown.status,
    TopicPut: Shown.put,
    TopicDropped: Shown.dropped,
    TopicPage: Shown.page,
    RouterView: Shown.router,
    RouterPage: Shown.router_page,
}
