"""MULTI, EXEC, DISCARD: several commands in one go. There are no keys here whose change could be watched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from esker.fronts.resp import encoding
from esker.fronts.resp.commands.table import command
from esker.fronts.resp.errors import CommandError
from esker.fronts.resp.rules import FREE
from esker.fronts.resp.transactions import Transaction

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection


@command(b"MULTI", 1, "fast", "at-once", rule=FREE)
def multi(client: Connection, arguments: list[bytes]) -> bytes:
    if client.transaction is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    client.transaction = Transaction()
    client.refresh_care()
    return encoding.OK


@command(b"EXEC", 1, "write", "at-once", rule=FREE)
def exec_(client: Connection, arguments: list[bytes]) -> bytes:
    transaction = client.transaction
    if transaction is None:
        raise CommandError("ERR EXEC without MULTI")
    client.executing = True
    try:
        return transaction.execute(client)
    finally:
        client.executing = False
        client.transaction = None


@command(b"DISCARD", 1, "fast", "at-once", rule=FREE)
def discard(client: Connection, arguments: list[bytes]) -> bytes:
    if client.transaction is None:
        raise CommandError("ERR DISCARD without MULTI")
    client.transaction = None
    return encoding.OK


@command(b"WATCH", -2, "fast", "at-once", rule=FREE)
def watch(client: Connection, arguments: list[bytes]) -> bytes:
    raise CommandError("ERR WATCH is not supported: there are no keys here; MULTI and EXEC work without it")


@command(b"UNWATCH", 1, "fast", rule=FREE)
def unwatch(client: Connection, arguments: list[bytes]) -> bytes:
    """What nothing watches may be let go of."""
    return encoding.OK
