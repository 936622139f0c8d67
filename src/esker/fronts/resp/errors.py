"""How refusals look in RESP: one table from the engine's codes to the prefixes that clients of Disque and Redis know.

The words behind the prefix are for people. Where Disque has its own for what was refused, it is its prefix that counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from esker.engine.replies import Reply
from esker.errors import Code, EskerError, InvariantBroken, Refusal
from esker.fronts.resp import encoding

if TYPE_CHECKING:
    from esker.fronts.resp.commands.table import Entry

PREFIXES: Final[dict[Code, str]] = {
    Code.BAD_REQUEST: "ERR",
    Code.TOPIC_NOT_FOUND: "NOTOPIC",
    Code.TOPIC_EXISTS: "TOPICEXISTS",
    Code.NOT_A_QUEUE: "WRONGTYPE",
    Code.JOB_NOT_FOUND: "NOJOB",
    Code.STALE_TOKEN: "STALETOKEN",
    Code.TOO_LATE: "TOOLATE",
    Code.QUEUE_FULL: "MAXLEN",
    Code.PAUSED: "PAUSED",
    Code.PAYLOAD_TOO_LARGE: "ERR",
    Code.TOO_MANY_IN_FLIGHT: "INFLIGHT",
    Code.OUT_OF_MEMORY: "OOM",
    Code.DISK_FULL: "MISCONF",
    Code.NO_REPLICAS: "NOREPL",
    Code.LIMIT_REACHED: "ERR",
    Code.RECORD_TOO_LARGE: "ERR",
    Code.BATCH_TOO_LARGE: "ERR",
    Code.TOPIC_FULL: "MAXLEN",  # what Disque says of a queue that holds enough
    Code.TOPIC_NOT_EMPTY: "ERR",
    Code.TOPIC_INCOMPATIBLE: "ERR",
    Code.ROUTER_NOT_FOUND: "ERR",
    Code.ROUTER_CYCLE: "ERR",
}

R = TypeVar("R")


class CommandError(EskerError):
    """A command is answered with an error; the connection goes on. `message` begins with the prefix."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.reply = encoding.error(message)


def refused(refusal: Refusal) -> bytes:
    return encoding.error(f"{PREFIXES[refusal.code]} {refusal.message}")


def expect(kind: type[R], reply: Reply) -> R:
    """The reply as the kind its command is answered with; a refusal becomes a `CommandError`."""
    if isinstance(reply, kind):
        return reply
    if isinstance(reply, Refusal):
        raise CommandError(f"{PREFIXES[reply.code]} {reply.message}")
    raise InvariantBroken(f"the engine answered {type(reply).__name__} where {kind.__name__} was promised")


def syntax_error() -> CommandError:
    return CommandError("ERR syntax error")


def failed(entry: Entry, error: EskerError) -> bytes:
    """The reply of a command that raised. Anything but our own errors is a bug, and ends the connection loudly."""
    entry.failures += 1
    if isinstance(error, CommandError):
        return error.reply
    return encoding.error(f"MISCONF {error}")  # the shard serves no more


def undurable(cause: BaseException) -> bytes:
    """What a client hears instead of a reply whose events could not be made durable."""
    return encoding.error(f"MISCONF the write was not made durable and may be lost: {cause}")
