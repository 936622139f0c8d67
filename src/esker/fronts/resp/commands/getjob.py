"""GETJOB: leasing jobs, and waiting for one.

Queues are asked left to right, one job each, round after round, up to COUNT or a round without any; COUNT never makes
anyone wait. A client that found nothing waits (unless NOHANG) and then gets exactly one job, in its turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from esker.engine import limits
from esker.engine.commands import Lease
from esker.engine.replies import Delivery, Leased
from esker.fronts.resp import arguments as reading
from esker.fronts.resp import jobids
from esker.fronts.resp.commands.table import TOGETHER_MAX, command
from esker.fronts.resp.errors import CommandError, expect, syntax_error
from esker.fronts.resp.jobids import digits
from esker.fronts.resp.rules import TAKES

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection


@dataclass(slots=True)
class _Wanted:
    queues: list[bytes]
    count: int = 1
    timeout_ms: int = 0
    nohang: bool = False
    counters: bool = False
    priority: bool = False
    token: bool = False


def getjobs(client: Connection, commands: list[list[bytes]], at: int) -> list[bytes]:
    """Equal GETJOBs of one queue that came together share one lease; the first that finds nothing is run alone."""
    first = commands[at]
    if len(first) != 3 or first[1] != b"FROM":
        return []
    count = 0
    for arguments in commands[at : at + TOGETHER_MAX]:
        if arguments != first:
            break
        count += 1
    if count < 2:
        return []
    wanted = _Wanted(first[2:])
    leased = expect(Leased, client.broker.handle(Lease(first[2], count, taker=client.taker)))
    return [_encode(client, (job,), wanted) for job in leased.deliveries]


@command(b"GETJOBS", -2, "write", "blocking", key=-1, together=getjobs, rule=TAKES)
@command(b"GETJOB", -2, "write", "blocking", key=-1, together=getjobs, rule=TAKES)
def getjob(client: Connection, arguments: list[bytes]) -> bytes | None:
    if arguments[1] == b"FROM" and len(arguments) == 3:
        wanted = _Wanted(arguments[2:])
    else:
        wanted = _options(arguments)
    leased = _lease(client, wanted)
    if leased.deliveries:
        reply = _encode(client, leased.deliveries, wanted)
        if client.broker.lasts(leased):
            client.lasting = reply
        return reply
    if wanted.nohang or client.executing:  # nothing waits inside a transaction
        return client.null_array
    if client.server.leaving:
        raise CommandError("LEAVING this node is leaving the cluster, not allowed to block")
    queues = list(dict.fromkeys(wanted.queues))
    client.wait_for_jobs(queues, wanted.timeout_ms, lambda leased: _encode(client, leased.deliveries, wanted))
    return None


def _options(arguments: list[bytes]) -> _Wanted:
    wanted = _Wanted([])
    options = reading.Options(arguments, 1)
    while (name := options.next()) is not None:
        if name == b"NOHANG":
            wanted.nohang = True
        elif name == b"WITHCOUNTERS":
            wanted.counters = True
        elif name == b"WITHPRIORITY":
            wanted.priority = True
        elif name == b"WITHTOKEN":
            wanted.token = True
        elif name == b"TIMEOUT":
            wanted.timeout_ms = reading.timeout_ms(options.value())
        elif name == b"COUNT":
            wanted.count = options.integer(1, reading.INT64_MAX, "ERR COUNT must be a number greater than zero")
        elif name == b"FROM":
            wanted.queues = options.rest()
        else:
            raise syntax_error()
    if not wanted.queues:
        raise syntax_error()
    return wanted


def _lease(client: Connection, wanted: _Wanted) -> Leased:
    handle = client.broker.handle
    count = min(wanted.count, limits.LEASE_JOBS_MAX)
    if len(wanted.queues) == 1:
        return expect(Leased, handle(Lease(wanted.queues[0], count, taker=client.taker)))
    deliveries: list[Delivery] = []
    queues = wanted.queues
    while queues and len(deliveries) < count:
        fruitful = []  # a queue that gave nothing in one round gives nothing in the next: all happens at one instant
        for queue in queues:
            if len(deliveries) == count:
                break
            found = expect(Leased, handle(Lease(queue, taker=client.taker))).deliveries
            if found:
                deliveries += found
                fruitful.append(queue)
        queues = fruitful
    return Leased(deliveries)


def _encode(client: Connection, deliveries: Sequence[Delivery], wanted: _Wanted) -> bytes:
    """Jobs that come together are much alike: what goes around their ids is made once for those in a row."""
    ids = client.ids
    size = 3 + 4 * wanted.counters + 2 * wanted.priority + 2 * wanted.token
    parts = [b"*%d\r\n" % len(deliveries)]
    queue = head = middle = b""
    alike = (-1, -1, -1)  # what the bytes in the middle depend on
    for job in deliveries:
        if job.topic != queue:
            queue = job.topic
            head = b"*%d\r\n$%d\r\n%b\r\n$48\r\n%b" % (size, len(queue), queue, ids.head)
        payload = job.payload
        if (job.ttl_ms, job.retry_ms, len(payload)) != alike:
            alike = (job.ttl_ms, job.retry_ms, len(payload))
            middle = b"%b\r\n$%d\r\n" % (ids.tail(job.ttl_ms, job.retry_ms), len(payload))
        parts += (head, digits(job.id), middle, payload, b"\r\n")
        if wanted.counters:
            parts.append(b"$5\r\nnacks\r\n:%d\r\n$21\r\nadditional-deliveries\r\n:%d\r\n" % (job.nacks, job.requeues))
        if wanted.priority:
            parts.append(b"$8\r\npriority\r\n:%d\r\n" % job.priority)
        if wanted.token:
            token = jobids.write_token(job.token)
            parts.append(b"$5\r\ntoken\r\n$%d\r\n%b\r\n" % (len(token), token))
    return b"".join(parts)
