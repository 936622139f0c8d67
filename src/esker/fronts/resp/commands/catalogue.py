"""COMMAND: the table of commands, as Redis describes its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from esker.fronts.resp import arguments as reading
from esker.fronts.resp import encoding
from esker.fronts.resp.commands.table import COMMANDS, Command, command
from esker.fronts.resp.errors import CommandError
from esker.fronts.resp.rules import FREE

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection

# Our own flags in Redis's words, where it has one; those of no client's concern.
_WORDS = {"no-auth": "no_auth", "no-monitor": "skip_monitor", "always": "loading"}
_UNTOLD = frozenset({"blind", "at-once", "no-multi"})


@command(b"COMMAND", -1, "readonly", rule=FREE)
def command_(client: Connection, arguments: list[bytes]) -> bytes:
    if len(arguments) == 1:
        return encoding.array([_description(entry, client.proto) for entry in COMMANDS.values()])
    subcommand = arguments[1].upper()
    if subcommand == b"COUNT" and len(arguments) == 2:
        return encoding.integer(len(COMMANDS))
    if subcommand == b"LIST" and len(arguments) == 2:
        return encoding.bulks(name.lower() for name in COMMANDS)
    if subcommand == b"INFO":
        found = [COMMANDS.get(name.upper()) for name in arguments[2:]] or list(COMMANDS.values())
        return encoding.array(
            [client.null_bulk if entry is None else _description(entry, client.proto) for entry in found]
        )
    if subcommand == b"DOCS":
        asked = [name.upper() for name in arguments[2:]] or list(COMMANDS)
        names = [name for name in asked if name in COMMANDS]
        pairs = {name.decode().lower(): _documentation(COMMANDS[name], client.proto) for name in names}
        return encoding.mapping(pairs, client.proto)
    raise CommandError(f"ERR Unknown subcommand or wrong number of arguments for '{reading.shown(arguments[1])}'")


def _description(entry: Command, proto: int) -> bytes:
    """Six fields, as clients of Disque know them; those of RESP3 expect four more, which have nothing to say here.

    As in Disque no command has keys (first, last, step): a node serves every queue, so there is nothing to route by.
    """
    flags = sorted(_WORDS.get(flag, flag) for flag in entry.flags - _UNTOLD)
    parts = [
        encoding.bulk(entry.name.lower()),
        encoding.integer(entry.arity),
        encoding.array([encoding.simple(flag.encode()) for flag in flags]),
        *[encoding.integer(0)] * 3,
        *([encoding.EMPTY_ARRAY] * 4 if proto == 3 else ()),
    ]
    return encoding.array(parts)


def _documentation(entry: Command, proto: int) -> bytes:
    docstring = (entry.handler.__doc__ or f"The command {entry.name.decode()}.").strip().splitlines()[0]
    return encoding.mapping({"summary": encoding.text(docstring), "group": encoding.text("queue")}, proto)
