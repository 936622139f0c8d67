"""DLQ: looking at dead letters and sending them back.

    DLQ LIST topic [COUNT n]            each as [id, body, topic it came from, deliveries]
    DLQ REPLAY topic [COUNT n | id...]  how many went back; without COUNT or ids, all up to the bound of one command

`topic` is a dead-letter topic, or one that has one: `DLQ LIST orders` shows what orders buried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from esker.engine.commands import ReplayDeadLetters, ScanJobs, Stats
from esker.engine.limits import SCAN_STEP_MAX
from esker.engine.replies import Done, Jobs, JobView, TopicView
from esker.fronts.resp import arguments as reading
from esker.fronts.resp import encoding, jobids
from esker.fronts.resp.commands.table import command
from esker.fronts.resp.errors import CommandError, expect, syntax_error

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection

_LIST_COUNT = 100


@command(b"DLQ", -3, "write", "admin", key=2)
def dlq(client: Connection, arguments: list[bytes]) -> bytes:
    subcommand = arguments[1].upper()
    if subcommand == b"LIST":
        count = _count(arguments, _LIST_COUNT)
        page = expect(Jobs, client.broker.handle(ScanJobs(0, count, _grave(client, arguments[2]))))
        return encoding.array([_letter(client, job) for job in page.jobs])
    if subcommand == b"REPLAY":
        return encoding.integer(expect(Done, client.broker.handle(_replay(client, arguments))).count)
    raise CommandError(f"ERR unknown DLQ subcommand '{reading.shown(arguments[1])}'; there are LIST, REPLAY")


def _replay(client: Connection, arguments: list[bytes]) -> ReplayDeadLetters:
    if len(arguments) > 3 and arguments[3].upper() != b"COUNT":
        ids = jobids.read_all(arguments[3:])
        return ReplayDeadLetters(_grave(client, arguments[2]), ids)
    count = _count(arguments, SCAN_STEP_MAX)
    return ReplayDeadLetters(_grave(client, arguments[2]), None, count)


def _count(arguments: list[bytes], default: int) -> int:
    if len(arguments) == 3:
        return default
    if len(arguments) != 5 or arguments[3].upper() != b"COUNT":
        raise syntax_error()
    return reading.integer(arguments[4], 1, SCAN_STEP_MAX, f"ERR COUNT must be 1 to {SCAN_STEP_MAX}")


def _grave(client: Connection, name: bytes) -> bytes:
    view = expect(TopicView, client.broker.handle(Stats(name)))
    return view.config.dead_letter or name


def _letter(client: Connection, job: JobView) -> bytes:
    meta = dict(job.details.meta) if job.details is not None else {}
    ttl_ms = job.expires_ms - job.created_ms if job.expires_ms else 0
    return encoding.array(
        [
            encoding.bulk(client.ids.write(job.id, ttl_ms, job.retry_ms)),
            encoding.bulk(job.payload),
            encoding.bulk(meta.get(b"$dead_letter_from", b"")),
            encoding.integer(int(meta.get(b"$dead_letter_deliveries", b"0"))),
        ]
    )
