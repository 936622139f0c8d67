"""ADDJOB: adding a job to a queue.

The checks come in Disque's order: options, timeout, RETRY 0, DELAY, nodes; then the engine's: MAXLEN, PAUSED, memory.
This node is a cluster of one, so a replication of 1 is met as soon as the job is durable, and no other can be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from esker.engine import limits
from esker.engine.commands import Details, Enqueue, EnqueueAlike, NewJob
from esker.engine.replies import Added, Reply
from esker.errors import InvariantBroken, Refusal
from esker.fronts.resp import arguments as reading
from esker.fronts.resp.commands.table import TOGETHER_MAX, command
from esker.fronts.resp.errors import CommandError, refused, syntax_error
from esker.fronts.resp.rules import WRITES

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection
    from esker.node.interface import Broker

TTL_S: Final = 86_400  # Disque's default
RETRY_S_MAX_DEFAULT: Final = 300  # Disque's default is TTL/10, within 1 and this

TTL_MS: Final = TTL_S * limits.SECOND_MS
RETRY_MS: Final = RETRY_S_MAX_DEFAULT * limits.SECOND_MS


def defaults(broker: Broker, queue: bytes) -> tuple[int, int]:
    """TTL and retry time, in ms, of a job that names none: the config's, or Disque's where the queue has no config."""
    config = broker.given_config(queue)
    return (TTL_MS, RETRY_MS) if config is None else (config.ttl_ms, config.lease_ms)


@dataclass(slots=True)
class _Wanted:
    replicate: int | None = None
    ttl_s: int | None = None
    retry_s: int | None = None
    delay_s: int = 0
    max_len: int = 0
    priority: int = 0


def addjobs(client: Connection, commands: list[list[bytes]], at: int) -> list[bytes]:
    """Plain ADDJOBs to one queue that came together, in one step. When they are refused, each is tried alone."""
    name, queue = commands[at][:2]
    payloads: list[bytes] = []
    for arguments in commands[at : at + TOGETHER_MAX]:
        if len(arguments) != 4 or arguments[1] != queue or arguments[3] != b"0" or arguments[0] != name:
            break
        payloads.append(arguments[2])
    if len(payloads) < 2 or client.server.leaving:
        return []
    ttl_ms, retry_ms = defaults(client.broker, queue)
    reply = client.broker.handle(EnqueueAlike(queue, payloads, retry_ms, ttl_ms))
    if type(reply) is Added:
        return client.ids.added(reply.ids, ttl_ms, retry_ms)
    return [addjob(client, arguments) for arguments in commands[at : at + len(payloads)]]


@command(b"ADDJOB", -4, "write", "denyoom", "fast", key=1, rule=WRITES, together=addjobs)
def addjob(client: Connection, arguments: list[bytes]) -> bytes:
    if client.server.leaving or len(arguments) > 4:
        return _addjob_with_options(client, arguments)
    if arguments[3] != b"0":
        reading.timeout_ms(arguments[3])
    ttl_ms, retry_ms = defaults(client.broker, arguments[1])
    job = NewJob(arguments[2], 0, retry_ms, ttl_ms)
    reply = client.broker.handle(Enqueue(arguments[1], (job,)))
    if type(reply) is Added:
        return b"+" + client.ids.write(reply.ids[0], ttl_ms, retry_ms) + b"\r\n"
    return _refused(reply)


def _addjob_with_options(client: Connection, arguments: list[bytes]) -> bytes:
    wanted = _options(arguments)
    reading.timeout_ms(arguments[3])
    if wanted.retry_s == 0 and (wanted.replicate or 1) > 1:
        raise CommandError("ERR With RETRY set to 0 please explicitly set REPLICATE to 1 (at-most-once delivery)")
    ttl_ms, retry_ms = _times(client.broker, arguments[1], wanted)
    if 0 < ttl_ms <= wanted.delay_s * limits.SECOND_MS:
        raise CommandError("ERR The specified DELAY is greater than TTL. Job refused since would never be delivered")
    if client.server.leaving:
        raise CommandError("NOREPL Not enough reachable nodes: this node is leaving and takes no new jobs")
    if (wanted.replicate or 1) > 1:
        raise CommandError("NOREPL Not enough reachable nodes for the requested replication level")
    details = Details(delay_ms=wanted.delay_s * limits.SECOND_MS) if wanted.delay_s else None
    job = NewJob(arguments[2], wanted.priority, retry_ms, ttl_ms, details)
    reply = client.broker.handle(Enqueue(arguments[1], (job,), wanted.max_len))
    if isinstance(reply, Added):
        return b"+" + client.ids.write(reply.ids[0], ttl_ms, retry_ms) + b"\r\n"
    return _refused(reply)


def _times(broker: Broker, queue: bytes, wanted: _Wanted) -> tuple[int, int]:
    """TTL and retry time in ms. More than ten years means the same as ten."""
    ttl_ms, retry_ms = defaults(broker, queue)
    if wanted.ttl_s is not None:
        ttl_ms = min(wanted.ttl_s * limits.SECOND_MS, limits.TTL_MS_MAX)
        if broker.given_config(queue) is None:
            retry_ms = min(max(wanted.ttl_s // 10, 1), RETRY_S_MAX_DEFAULT) * limits.SECOND_MS
    if wanted.retry_s is not None:
        retry_ms = min(wanted.retry_s * limits.SECOND_MS, limits.DELAY_MS_MAX)
    return ttl_ms, retry_ms


def _options(arguments: list[bytes]) -> _Wanted:
    wanted = _Wanted()
    options = reading.Options(arguments, 4)
    most = reading.INT64_MAX
    while (name := options.next()) is not None:
        if name == b"REPLICATE":
            wanted.replicate = options.integer(1, 65535, "ERR REPLICATE must be between 1 and 65535")
        elif name == b"TTL":
            wanted.ttl_s = options.integer(1, most, "ERR TTL must be a number > 0")
        elif name == b"RETRY":
            wanted.retry_s = options.integer(0, most, "ERR RETRY time must be a non negative number")
        elif name == b"DELAY":
            wanted.delay_s = options.integer(0, most, "ERR DELAY time must be a non negative number")
        elif name == b"MAXLEN":
            wanted.max_len = options.integer(1, most, "ERR MAXLEN must be a positive number")
        elif name == b"PRIORITY":
            wanted.priority = options.integer(reading.INT64_MIN, most, "ERR PRIORITY must be a 64 bit integer")
        elif name != b"ASYNC":  # the reply comes when the job is durable here either way
            raise syntax_error()
    return wanted


def _refused(reply: Reply) -> bytes:
    if isinstance(reply, Refusal):
        return refused(reply)
    raise InvariantBroken(f"Enqueue was answered with {type(reply).__name__}")
