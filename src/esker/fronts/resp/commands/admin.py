"""Operating the server: TIME, MONITOR, DEBUG, BGREWRITEAOF, SHUTDOWN."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Final

from esker.engine import limits
from esker.fronts.access import Scope
from esker.fronts.resp import arguments as reading
from esker.fronts.resp import encoding
from esker.fronts.resp.commands.cluster import flush
from esker.fronts.resp.commands.table import command
from esker.fronts.resp.errors import CommandError, syntax_error
from esker.fronts.resp.rules import FREE, OPERATES, Reach, Rule

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection

SLEEP_S_MAX: Final = 3600.0


@command(b"TIME", 1, "readonly", "fast", "blind", rule=FREE)
def time_(client: Connection, arguments: list[bytes]) -> bytes:
    microseconds = time.time_ns() // 1000
    return encoding.bulks([b"%d" % (microseconds // 1_000_000), b"%d" % (microseconds % 1_000_000)])


@command(b"MONITOR", 1, "admin", "no-monitor", "no-multi", rule=Rule(Reach.NODE, Scope.ADMIN | Scope.READ))
def monitor(client: Connection, arguments: list[bytes]) -> bytes:
    """From now on this client is shown every command. One that does not keep up is cut."""
    client.monitoring = True
    client.server.monitors.add(client)
    client.server.refresh_care()
    return encoding.OK


@command(b"DEBUG", -2, "admin", "no-monitor", "no-multi", rule=Rule(Reach.NODE, Scope.ADMIN | Scope.DELETE))
def debug(client: Connection, arguments: list[bytes]) -> bytes | None:
    subcommand = arguments[1].upper()
    if subcommand == b"FLUSHALL":
        flush(client)
        return encoding.OK
    if subcommand == b"SLEEP" and len(arguments) == 3:
        client.hold(client.server.loop.call_later(_seconds(arguments[2]), client.release, encoding.OK))
        return None
    if subcommand == b"ERROR" and len(arguments) == 3:
        raise CommandError(reading.shown(arguments[2]))
    if subcommand == b"STRUCTSIZE" and len(arguments) == 2:
        return encoding.text(_sizes())
    raise CommandError(
        f"ERR DEBUG {reading.shown(arguments[1])} is not supported here; "
        "there are FLUSHALL, SLEEP seconds, ERROR text, STRUCTSIZE"
    )


def _sizes() -> str:
    """Disque's names. What a job and an empty queue count for in memory, and a string beyond its bytes (`sdshdr`)."""
    queue = limits.TOPIC_MEMORY_BYTES + limits.QUEUE_PARTITION_MEMORY_BYTES
    bits = 64 if sys.maxsize > 1 << 32 else 32
    return f"bits:{bits} job:{limits.JOB_MEMORY_BYTES} queue:{queue} sdshdr:{sys.getsizeof(b'')}"


def _seconds(value: bytes) -> float:
    """DEBUG SLEEP delays only its own connection: others share this server and did not ask for it."""
    try:
        seconds = float(value)
    except ValueError:
        raise CommandError("ERR value is not a valid float") from None
    if not math.isfinite(seconds) or not 0 <= seconds <= SLEEP_S_MAX:
        raise CommandError(f"ERR SLEEP takes 0 to {SLEEP_S_MAX:.0f} seconds")
    return seconds


@command(b"BGREWRITEAOF", 1, "admin", rule=OPERATES)
def bgrewriteaof(client: Connection, arguments: list[bytes]) -> bytes:
    """The journal's rewrite is a checkpoint: state goes to the store, and older segments may retire."""
    client.broker.checkpoint()
    return encoding.simple(b"Background append only file rewriting started")


@command(b"SHUTDOWN", -1, "admin", "no-monitor", "no-multi", rule=OPERATES)
def shutdown(client: Connection, arguments: list[bytes]) -> bytes:
    """As in Redis there is no reply: the connection ends. Every option means the same, a stop that loses nothing."""
    if any(option.upper() not in (b"REWRITE-AOF", b"SAVE", b"NOSAVE", b"NOW", b"FORCE") for option in arguments[1:]):
        raise syntax_error()
    client.broker.shutdown()
    client.close_after_replies()
    return b""
