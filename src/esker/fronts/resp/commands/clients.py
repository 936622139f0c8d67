"""CLIENT: the connections of this server, and how they behave."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from esker.fronts.access import Scope
from esker.fronts.resp import arguments as reading
from esker.fronts.resp import encoding
from esker.fronts.resp.commands.session import valid_name
from esker.fronts.resp.commands.table import command
from esker.fronts.resp.errors import CommandError, syntax_error
from esker.fronts.resp.rules import FREE, OPERATES, OWN_CLIENTS

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection

_TYPES = frozenset({b"NORMAL", b"MASTER", b"REPLICA", b"SLAVE", b"PUBSUB"})
_Filter = Callable[["Connection"], bool]


# A key that is no operator's neither sees nor ends clients of other keys.
_RULES: Final = {
    b"LIST": OWN_CLIENTS, b"INFO": FREE, b"ID": FREE, b"SETNAME": FREE, b"GETNAME": FREE, b"SETINFO": FREE,
    b"KILL": OWN_CLIENTS, b"PAUSE": OPERATES, b"UNPAUSE": OPERATES, b"UNBLOCK": OWN_CLIENTS, b"REPLY": FREE,
    b"NO-EVICT": FREE, b"NO-TOUCH": FREE,
}  # fmt: skip


def _seen(client: Connection) -> list[Connection]:
    """The clients that this one may know of."""
    everyone = list(client.server.clients.values())
    key = client.key
    if not key.prefixes and key.may(Scope.ADMIN):
        return everyone
    return [other for other in everyone if other.authenticated and other.key.digest == key.digest]


@command(b"CLIENT", -2, "admin", "always", rule=_RULES)
def client_(client: Connection, arguments: list[bytes]) -> bytes:
    subcommand = _SUBCOMMANDS.get(arguments[1].upper())
    if subcommand is None:
        raise CommandError(f"ERR Unknown subcommand or wrong number of arguments for '{reading.shown(arguments[1])}'")
    return subcommand(client, arguments)


def describe(client: Connection) -> str:
    """One line of CLIENT LIST."""
    now = client.server.loop.time()
    flags = ("O" if client.monitoring else "") + ("b" if client.held else "")
    fields = {
        "id": client.id,
        "addr": client.peer,
        "laddr": client.local,
        "fd": client.descriptor,
        "name": client.name.decode("latin-1"),
        "age": int(now - client.connected_at),
        "idle": int(now - client.seen_at),
        "flags": flags or "N",
        "db": 0,
        "qbuf": client.unparsed_bytes,
        "omem": client.unread_bytes,
        "cmd": "NULL" if client.last_entry is None else client.last_entry.command.name.decode().lower(),
        "user": "default",
        "lib-name": client.library[b"LIB-NAME"].decode("latin-1"),
        "lib-ver": client.library[b"LIB-VER"].decode("latin-1"),
        "resp": client.proto,
    }
    return " ".join(f"{name}={value}" for name, value in fields.items())


def _list(client: Connection, arguments: list[bytes]) -> bytes:
    options = reading.Options(arguments, 2)
    chosen = _seen(client)
    while (option := options.next()) is not None:
        if option == b"TYPE":
            kind = _type(options.value())
            chosen = [other for other in chosen if kind == b"NORMAL"]
        elif option == b"ID":
            ids = {reading.integer(value, 1, reading.INT64_MAX, "ERR Invalid client ID") for value in options.rest()}
            chosen = [other for other in chosen if other.id in ids]
        else:
            raise syntax_error()
    return encoding.text("".join(f"{describe(other)}\n" for other in chosen))


def _type(value: bytes) -> bytes:
    kind = value.upper()
    if kind not in _TYPES:
        raise CommandError(f"ERR Unknown client type '{reading.shown(value)}'")
    return kind


def _info(client: Connection, arguments: list[bytes]) -> bytes:
    return encoding.text(f"{describe(client)}\n")


def _id(client: Connection, arguments: list[bytes]) -> bytes:
    return encoding.integer(client.id)


def _setname(client: Connection, arguments: list[bytes]) -> bytes:
    client.rename(valid_name(_only(arguments, "setname")))
    return encoding.OK


def _getname(client: Connection, arguments: list[bytes]) -> bytes:
    return encoding.bulk(client.name) if client.name else client.null_bulk


def _setinfo(client: Connection, arguments: list[bytes]) -> bytes:
    if len(arguments) != 4:
        raise CommandError("ERR wrong number of arguments for 'client|setinfo' command")
    option = arguments[2].upper()
    if option not in client.library:
        raise CommandError(f"ERR Unrecognized option '{reading.shown(arguments[2])}'")
    client.library[option] = valid_name(arguments[3])
    return encoding.OK


def _kill(client: Connection, arguments: list[bytes]) -> bytes:
    """`CLIENT KILL addr` replies +OK or an error; the form with filters replies with how many were ended."""
    if len(arguments) == 3:
        address = arguments[2].decode("latin-1")
        if not _kill_all(client, [lambda other: other.peer == address], skip_me=False):
            raise CommandError("ERR No such client")
        return encoding.OK
    filters: list[_Filter] = []
    skip_me = True
    options = reading.Options(arguments, 2)
    while (option := options.next()) is not None:
        value = options.value()
        if option == b"SKIPME":
            skip_me = _yes(value)
        else:
            filters.append(_kill_filter(option, value))
    if not filters:
        raise syntax_error()
    return encoding.integer(_kill_all(client, filters, skip_me))


def _kill_filter(option: bytes, value: bytes) -> _Filter:
    text = value.decode("latin-1")
    if option == b"ID":
        wanted = reading.integer(value, 1, reading.INT64_MAX, "ERR client-id should be greater than 0")
        return lambda other: other.id == wanted
    if option == b"ADDR":
        return lambda other: other.peer == text
    if option == b"LADDR":
        return lambda other: other.local == text
    if option == b"TYPE":
        normal = _type(value) == b"NORMAL"
        return lambda other: normal
    if option == b"USER":
        return lambda other: value == b"default"
    if option == b"MAXAGE":
        age = reading.integer(value, 1, reading.INT64_MAX, "ERR maxage is not an integer or out of range")
        return lambda other: other.server.loop.time() - other.connected_at >= age
    raise syntax_error()


def _kill_all(client: Connection, filters: list[_Filter], skip_me: bool) -> int:
    killed = 0
    for other in _seen(client):
        if all(fits(other) for fits in filters) and not (skip_me and other is client):
            killed += 1
            if other is client:
                client.close_after_replies()  # it still hears that it killed itself
            else:
                other.kill()
    return killed


def _pause(client: Connection, arguments: list[bytes]) -> bytes:
    if len(arguments) not in (3, 4):
        raise CommandError("ERR wrong number of arguments for 'client|pause' command")
    mode = arguments[3].upper() if len(arguments) == 4 else b"ALL"
    if mode not in (b"ALL", b"WRITE"):
        raise syntax_error()
    client.server.pause_clients(reading.timeout_ms(arguments[2]) / 1000, writes_only=mode == b"WRITE")
    return encoding.OK


def _unpause(client: Connection, arguments: list[bytes]) -> bytes:
    client.server.unpause_clients()
    return encoding.OK


def _unblock(client: Connection, arguments: list[bytes]) -> bytes:
    if len(arguments) not in (3, 4):
        raise CommandError("ERR wrong number of arguments for 'client|unblock' command")
    wanted = reading.integer(arguments[2], 0, reading.INT64_MAX, "ERR value is not an integer or out of range")
    how = arguments[3].upper() if len(arguments) == 4 else b"TIMEOUT"
    if how not in (b"TIMEOUT", b"ERROR"):
        raise CommandError("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
    other = client.server.clients.get(wanted)
    if other is None or other not in _seen(client) or not other.waits_for_jobs:
        return encoding.integer(0)
    error = b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"
    other.unblock(other.null_array if how == b"TIMEOUT" else error)
    return encoding.integer(1)


def _reply(client: Connection, arguments: list[bytes]) -> bytes:
    """Empty bytes mean "no reply": OFF and SKIP are not answered themselves."""
    mode = _only(arguments, "reply").upper()
    if mode == b"ON":
        client.muted = client.skip_next = False
        reply = encoding.OK
    elif mode == b"OFF":
        client.muted = True
        reply = b""
    elif mode == b"SKIP":
        client.skip_next = not client.muted
        reply = b""
    else:
        raise syntax_error()
    client.refresh_care()
    return reply


def _flag(client: Connection, arguments: list[bytes]) -> bytes:
    """NO-EVICT and NO-TOUCH: accepted, since nothing here evicts clients or touches keys."""
    _yes(_only(arguments, arguments[1].decode("latin-1").lower()), b"ON", b"OFF")
    return encoding.OK


def _only(arguments: list[bytes], name: str) -> bytes:
    if len(arguments) != 3:
        raise CommandError(f"ERR wrong number of arguments for 'client|{name}' command")
    return arguments[2]


def _yes(value: bytes, yes: bytes = b"YES", no: bytes = b"NO") -> bool:
    if value.upper() not in (yes, no):
        raise syntax_error()
    return value.upper() == yes


_SUBCOMMANDS: dict[bytes, Callable[[Connection, list[bytes]], bytes]] = {
    b"LIST": _list,
    b"INFO": _info,
    b"ID": _id,
    b"SETNAME": _setname,
    b"GETNAME": _getname,
    b"SETINFO": _setinfo,
    b"KILL": _kill,
    b"PAUSE": _pause,
    b"UNPAUSE": _unpause,
    b"UNBLOCK": _unblock,
    b"REPLY": _reply,
    b"NO-EVICT": _flag,
    b"NO-TOUCH": _flag,
}
