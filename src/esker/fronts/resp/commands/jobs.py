"""Commands on jobs by id. Every id is checked before anything is done; the count in the reply is of jobs changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from esker.engine.commands import Ack, Delete, Extend, Nack, Reprioritise, Requeue, Show, Withdraw, Working
from esker.engine.limits import DELAY_MS_MAX, SECOND_MS
from esker.engine.queues.job import JobState
from esker.engine.replies import Done, Extended, Jobs, JobView, StillWorking
from esker.errors import Code, Refusal
from esker.fronts.resp import arguments as reading
from esker.fronts.resp import encoding, jobids
from esker.fronts.resp.commands.table import TOGETHER_MAX, command
from esker.fronts.resp.errors import CommandError, expect, syntax_error
from esker.fronts.resp.rules import DELETES_JOBS, OPERATES, READS_JOBS, WRITES_JOBS

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection

# Disque has fewer states: a job is in the queue, or it is not.
STATES = {
    JobState.READY: b"queued",
    JobState.DELAYED: b"active",
    JobState.LEASED: b"active",
    JobState.WITHDRAWN: b"active",
    JobState.SPENT: b"active",
}

_ById = type[Requeue] | type[Withdraw] | type[Delete]


def _change(client: Connection, kind: _ById, job_ids: list[bytes]) -> bytes:
    ids = jobids.read_all(job_ids)
    if not ids:
        return b":0\r\n"
    return encoding.integer(expect(Done, client.broker.handle(kind(ids))).count)


def _ack(client: Connection, words: list[bytes]) -> bytes:
    """Without a token from anybody: a job that is done is done."""
    ids, tokens = jobids.read_named(words)
    if not ids:
        return b":0\r\n"
    return encoding.integer(expect(Done, client.broker.handle(Ack(ids, tokens))).count)


def ackjobs(client: Connection, commands: list[list[bytes]], at: int) -> list[bytes]:
    """ACKJOBs of one id each that came together, in one step."""
    name = commands[at][0]
    ids: dict[int, None] = {}
    for arguments in commands[at : at + TOGETHER_MAX]:
        if len(arguments) != 2 or arguments[0] != name or len(arguments[1]) != 48:
            break
        try:
            message_id = jobids.read(arguments[1])
        except CommandError:
            break  # it is answered when its turn comes, alone
        if message_id in ids:
            break  # its second ack has to find it gone
        ids[message_id] = None
    if len(ids) < 2:
        return []
    missed = set(expect(Done, client.broker.handle(Ack(list(ids)))).missed)
    return [b":0\r\n" if message_id in missed else b":1\r\n" for message_id in ids]


@command(b"ACKJOB", -1, "write", "fast", together=ackjobs, rule=WRITES_JOBS)
def ackjob(client: Connection, arguments: list[bytes]) -> bytes:
    return _ack(client, arguments[1:])


@command(b"FASTACK", -1, "write", "fast", rule=WRITES_JOBS)
def fastack(client: Connection, arguments: list[bytes]) -> bytes:
    return _ack(client, arguments[1:])


@command(b"NACK", -1, "write", "denyoom", "fast", rule=WRITES_JOBS)
def nack(client: Connection, arguments: list[bytes]) -> bytes:
    ids, tokens = jobids.read_named(arguments[1:])
    done = expect(Done, client.broker.handle(Nack(ids, tokens, takers=[client.taker])))
    count = done.count
    if ended := client.server.takers.ended(done.takers):
        ids, tokens = _those(done.missed, ids, tokens)
        count += expect(Done, client.broker.handle(Nack(ids, tokens, takers=[client.taker, *ended]))).count
    return encoding.integer(count)


def _those(
    missed: Sequence[int], ids: list[int], tokens: list[int | None] | None
) -> tuple[list[int], list[int | None] | None]:
    """The ids that were missed, and their tokens: some of them may be of clients that have left."""
    if tokens is None:
        return list(missed), None
    of_id = dict(zip(ids, tokens, strict=True))
    return list(missed), [of_id[each] for each in missed]


@command(b"QUEUE", -1, "write", "denyoom", "fast", rule=WRITES_JOBS)
@command(b"ENQUEUE", -1, "write", "denyoom", "fast", rule=WRITES_JOBS)
def enqueue(client: Connection, arguments: list[bytes]) -> bytes:
    return _change(client, Requeue, arguments[1:])


@command(b"DEQUEUE", -1, "write", "fast", rule=WRITES_JOBS)
def dequeue(client: Connection, arguments: list[bytes]) -> bytes:
    return _change(client, Withdraw, arguments[1:])


@command(b"DELJOB", -1, "write", "fast", rule=DELETES_JOBS)
def deljob(client: Connection, arguments: list[bytes]) -> bytes:
    """BCAST and FORCE reach for other nodes; a cluster of one has none."""
    at = 1
    while at < len(arguments) and arguments[at].upper() in (b"BCAST", b"FORCE"):
        at += 1
    return _change(client, Delete, arguments[at:])


@command(b"WORKING", -2, "write", "fast", rule=WRITES_JOBS)
def working(client: Connection, arguments: list[bytes]) -> bytes:
    message_id, token = jobids.read(arguments[1]), None
    if len(arguments) > 2:
        if arguments[2].upper() != jobids.TOKEN:
            raise syntax_error()
        token = jobids.read_token(arguments[3:])
    reply = client.broker.handle(Working(message_id, token, [client.taker]))
    if isinstance(reply, Refusal) and isinstance(taker := reply.detail.get("taker"), int):
        takers = [client.taker, *client.server.takers.ended([taker])]
        reply = client.broker.handle(Working(message_id, token, takers))
    if isinstance(reply, Refusal) and reply.code == Code.JOB_NOT_FOUND:
        raise CommandError("NOJOB Job not known in the context of this node.")
    return encoding.integer(expect(StillWorking, reply).retry_ms // SECOND_MS)


@command(b"SHOW", 2, "readonly", "fast", rule=READS_JOBS)
def show(client: Connection, arguments: list[bytes]) -> bytes:
    reply = client.broker.handle(Show(jobids.read(arguments[1])))
    if isinstance(reply, Refusal) and reply.code == Code.JOB_NOT_FOUND:
        return client.null_bulk
    return description(client, expect(Jobs, reply).jobs[0])


def description(client: Connection, job: JobView) -> bytes:
    """The fifteen pairs of SHOW. Times are what is left, rounded up so that a living job has some."""
    now = client.broker.now_ms()
    ttl_ms = job.expires_ms - job.created_ms if job.expires_ms else 0
    left_ms = max(job.expires_ms - now, 0)
    due_in = max(job.due_ms - now, 0) if job.due_ms else None
    awake_in = min(due_in, left_ms) if due_in is not None and job.expires_ms else due_in or left_ms
    integer, bulk = encoding.integer, encoding.bulk
    delay_ms = job.details.delay_ms if job.details is not None else 0
    fields: list[tuple[bytes, bytes]] = [
        (b"id", bulk(client.ids.write(job.id, ttl_ms, job.retry_ms))),
        (b"queue", bulk(job.topic)),
        (b"state", bulk(STATES[job.state])),
        (b"repl", integer(1)),
        (b"ttl", integer(-(-left_ms // SECOND_MS))),
        (b"ctime", integer(job.created_ms * 1_000_000)),
        (b"delay", integer(delay_ms // SECOND_MS)),
        (b"retry", integer(job.retry_ms // SECOND_MS)),
        (b"nacks", integer(job.nacks)),
        (b"additional-deliveries", integer(job.requeues)),
        (b"nodes-delivered", encoding.bulks([client.broker.node_id.encode()])),
        (b"nodes-confirmed", encoding.EMPTY_ARRAY),
        (b"next-requeue-within", _requeue_within(client, job, due_in)),
        (b"next-awake-within", integer(awake_in)),
        (b"body", bulk(job.payload)),
    ]
    return encoding.array([part for name, value in fields for part in (bulk(name), value)])


def _requeue_within(client: Connection, job: JobView, due_in: int | None) -> bytes:
    """An integer, unless the job does not come back by itself: Disque's clients read it as one, of queued jobs too.

    Disque's timer begins when a job is queued, ours when it is delivered: a queued job has all of its retry time left.
    """
    if due_in is None and job.state == JobState.READY and job.retry_ms:
        due_in = job.retry_ms
    return client.null_bulk if due_in is None else encoding.integer(due_in)


@command(b"LOADJOB", 2, "write", "admin", rule=OPERATES)
def loadjob(client: Connection, arguments: list[bytes]) -> bytes:
    raise CommandError("ERR LOADJOB is a command of append only files and cannot be sent by clients")


@command(b"JOB", -4, "write", rule=WRITES_JOBS)
def job(client: Connection, arguments: list[bytes]) -> bytes:
    """JOB PRIORITY n id… and JOB EXTEND ms id…, for which Disque has no words. Replies with how many jobs changed."""
    subcommand = arguments[1].upper()
    if subcommand == b"PRIORITY":
        priority = reading.integer(
            arguments[2], reading.INT64_MIN, reading.INT64_MAX, "ERR PRIORITY must be a 64 bit integer"
        )
        ids = jobids.read_all(arguments[3:])
        return encoding.integer(expect(Done, client.broker.handle(Reprioritise(ids, priority))).count)
    if subcommand == b"EXTEND":
        lease_ms = reading.integer(arguments[2], 1, DELAY_MS_MAX, "ERR EXTEND takes milliseconds, greater than zero")
        ids, tokens = jobids.read_named(arguments[3:])
        extended = expect(Extended, client.broker.handle(Extend(ids, lease_ms, tokens, [client.taker])))
        count = len(extended.deadlines_ms)
        if ended := client.server.takers.ended(extended.takers):
            ids, tokens = _those(extended.missed, ids, tokens)
            takers = [client.taker, *ended]
            count += len(expect(Extended, client.broker.handle(Extend(ids, lease_ms, tokens, takers))).deadlines_ms)
        return encoding.integer(count)
    raise syntax_error()
