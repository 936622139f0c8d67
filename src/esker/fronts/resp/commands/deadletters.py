"""DLQ: looking at dead letters and sending them back.

    DLQ LIST topic [COUNT n]            each as [id, body, topic it came from, deliveries]
    DLQ REPLAY topic [COUNT n | id...]  how many went back; without COUNT or ids, all up to the bound of one command

`topic` is a dead-letter topic, or one that has one: `DLQ LIST orders` shows what orders buried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from esker.engine.commands import Read, ReplayDeadLetters, ScanJobs, Stats
from esker.engine.config import TopicType
from esker.engine.ids import message_id
from esker.engine.limits import READ_BYTES_MAX, SCAN_STEP_MAX
from esker.engine.queues.deadletters import provenance
from esker.engine.replies import Done, Jobs, Record, Records, TopicView
from esker.fronts.resp import arguments as reading
from esker.fronts.resp import encoding, jobids
from esker.fronts.resp.commands.table import command
from esker.fronts.resp.errors import CommandError, expect, syntax_error
from esker.fronts.resp.rules import OPERATES, READS

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection

_LIST_COUNT = 100
_RULES: Final = {b"LIST": READS, b"REPLAY": OPERATES}  # letters go to the topics they came from, whatever these are


@command(b"DLQ", -3, "write", "admin", key=2, rule=_RULES)
def dlq(client: Connection, arguments: list[bytes]) -> bytes:
    subcommand = arguments[1].upper()
    if subcommand == b"LIST":
        return encoding.array(_letters(client, _grave(client, arguments[2]), _count(arguments, _LIST_COUNT)))
    if subcommand == b"REPLAY":
        return encoding.integer(expect(Done, client.broker.handle(_replay(client, arguments))).count)
    raise CommandError(f"ERR unknown DLQ subcommand '{reading.shown(arguments[1])}'; there are LIST, REPLAY")


def _replay(client: Connection, arguments: list[bytes]) -> ReplayDeadLetters:
    if len(arguments) > 3 and arguments[3].upper() != b"COUNT":
        ids = jobids.read_all(arguments[3:])
        return ReplayDeadLetters(_grave(client, arguments[2]).name, ids)
    count = _count(arguments, SCAN_STEP_MAX)
    return ReplayDeadLetters(_grave(client, arguments[2]).name, None, count)


def _count(arguments: list[bytes], default: int) -> int:
    if len(arguments) == 3:
        return default
    if len(arguments) != 5 or arguments[3].upper() != b"COUNT":
        raise syntax_error()
    return reading.integer(arguments[4], 1, SCAN_STEP_MAX, f"ERR COUNT must be 1 to {SCAN_STEP_MAX}")


def _grave(client: Connection, name: bytes) -> TopicView:
    view = expect(TopicView, client.broker.handle(Stats(name)))
    if view.config.dead_letter is None:
        return view
    client.reach(view.config.dead_letter)
    return expect(TopicView, client.broker.handle(Stats(view.config.dead_letter)))


def _letters(client: Connection, grave: TopicView, count: int) -> list[bytes]:
    if grave.config.type == TopicType.LOG:
        return [
            _letter(client, message_id(record.ts, grave.number, 0, record.seq), 0, 1, record.data, record.meta)
            for record in _records(client, grave.name, count)
        ]
    page = expect(Jobs, client.broker.handle(ScanJobs(0, count, grave.name)))
    return [
        _letter(
            client,
            job.id,
            job.expires_ms - job.created_ms if job.expires_ms else 0,
            job.retry_ms,
            job.payload,
            b"" if job.details is None else job.details.meta,
        )
        for job in page.jobs
    ]


def _records(client: Connection, name: bytes, count: int) -> list[Record]:
    """The first of a log, as many replies as it takes."""
    found: list[Record] = []
    after, more = 0, True
    while more and len(found) < count:
        page = expect(Records, client.broker.handle(Read(name, after, count - len(found), READ_BYTES_MAX)))
        found += page.records
        more = after < page.next_from_seq < page.head_seq
        after = page.next_from_seq
    return found


def _letter(client: Connection, letter: int, ttl_ms: int, retry_ms: int, body: bytes, meta: bytes) -> bytes:
    origin = provenance(meta)
    return encoding.array(
        [
            encoding.bulk(client.ids.write(letter, ttl_ms, retry_ms)),
            encoding.bulk(body),
            encoding.bulk(origin.topic),
            encoding.integer(origin.deliveries),
        ]
    )
