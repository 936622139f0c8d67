"""Commands on queues by name: length, a look inside, statistics, pausing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from esker.engine.commands import Length, PauseTopic, Peek, Stats
from esker.engine.config import Pause
from esker.engine.limits import SECOND_MS
from esker.engine.replies import Count, Jobs, JobView, Paused, TopicView
from esker.errors import Code, Refusal
from esker.fronts.resp import arguments as reading
from esker.fronts.resp import encoding
from esker.fronts.resp.commands.table import command
from esker.fronts.resp.errors import expect, syntax_error
from esker.fronts.resp.rules import MANAGES, READS

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection

PAUSE_WORDS: Final = {Pause.NONE: b"none", Pause.IN: b"in", Pause.OUT: b"out", Pause.ALL: b"all"}
_PAUSES: Final = {word.upper(): pause for pause, word in PAUSE_WORDS.items()}


@command(b"QLEN", 2, "readonly", "fast", key=1, rule=READS)
def qlen(client: Connection, arguments: list[bytes]) -> bytes:
    return encoding.integer(expect(Count, client.broker.handle(Length(arguments[1]))).count)


@command(b"QPEEK", 3, "readonly", key=1, rule=READS)
def qpeek(client: Connection, arguments: list[bytes]) -> bytes:
    count = reading.integer(
        arguments[2], reading.INT64_MIN, reading.INT64_MAX, "ERR value is not an integer or out of range"
    )
    if count == 0:
        return encoding.EMPTY_ARRAY
    reply = expect(Jobs, client.broker.handle(Peek(arguments[1], abs(count), newest=count < 0)))
    return encoding.array([_triple(client, job) for job in reply.jobs])


def _triple(client: Connection, job: JobView) -> bytes:
    ttl_ms = job.expires_ms - job.created_ms if job.expires_ms else 0
    return encoding.bulks([job.topic, client.ids.write(job.id, ttl_ms, job.retry_ms), job.payload])


@command(b"QSTAT", 2, "readonly", key=1, rule=READS)
def qstat(client: Connection, arguments: list[bytes]) -> bytes:
    name = arguments[1]
    reply = client.broker.handle(Stats(name))
    blocked = client.broker.blocked_on(name)
    if isinstance(reply, Refusal) and reply.code == Code.TOPIC_NOT_FOUND:
        # A queue that someone waits for exists for Disque's users, even before its first job.
        return _statistics(name, 0, 0, 0, blocked, 0, 0, Pause.NONE) if blocked else client.null_array
    topic = expect(TopicView, reply)
    now = client.broker.now_ms()
    age, idle = max(now - topic.created_ms, 0), max(now - (topic.active_ms or topic.created_ms), 0)
    return _statistics(name, topic.ready, age, idle, blocked, topic.jobs_in, topic.jobs_out, topic.pause)


def _statistics(
    name: bytes, length: int, age_ms: int, idle_ms: int, blocked: int, jobs_in: int, jobs_out: int, pause: Pause
) -> bytes:
    integer, bulk = encoding.integer, encoding.bulk
    fields: list[tuple[bytes, bytes]] = [
        (b"name", bulk(name)),
        (b"len", integer(length)),
        (b"age", integer(age_ms // SECOND_MS)),
        (b"idle", integer(idle_ms // SECOND_MS)),
        (b"blocked", integer(blocked)),
        (b"import-from", encoding.EMPTY_ARRAY),
        (b"import-rate", integer(0)),
        (b"jobs-in", integer(jobs_in)),
        (b"jobs-out", integer(jobs_out)),
        (b"pause", bulk(PAUSE_WORDS[pause])),
    ]
    return encoding.array([part for field, value in fields for part in (bulk(field), value)])


@command(b"PAUSE", -3, "write", "fast", key=1, rule=MANAGES)
def pause(client: Connection, arguments: list[bytes]) -> bytes:
    """The words of one call add up and replace the old state; `state` only reads; `bcast` has nobody to tell here."""
    wanted: Pause | None = None
    for word in (argument.upper() for argument in arguments[2:]):
        if word in _PAUSES:
            chosen = _PAUSES[word]
            wanted = Pause.NONE if chosen is Pause.NONE else Pause((wanted or Pause.NONE) | chosen)
        elif word not in (b"STATE", b"BCAST"):
            raise syntax_error()
    reply = expect(Paused, client.broker.handle(PauseTopic(arguments[1], wanted)))
    return encoding.simple(PAUSE_WORDS[reply.pause])
