"""How a client begins and ends: PING, AUTH, HELLO, QUIT.

HELLO has two meanings. Alone it is Disque's: who is this node, and which others are there. With a protocol version it
is Redis's handshake, which current Redis clients open with; after `HELLO 3` nulls and maps are RESP3, all else is the
same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from esker.fronts.access import DEFAULT_USER
from esker.fronts.resp import arguments as reading
from esker.fronts.resp import encoding
from esker.fronts.resp.commands.table import command
from esker.fronts.resp.errors import CommandError

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection

# What feature tests of Redis clients read; the protocol spoken here is that of these versions.
REDIS_VERSION: Final = "7.4.0"
DISQUE_VERSION: Final = "1.0-rc1"
HELLO_FORMAT: Final = 1
_WRONG_PASSWORD: Final = "WRONGPASS invalid username-password pair or user is disabled."


@command(b"PING", -1, "fast", "readonly", "blind")
def ping(client: Connection, arguments: list[bytes]) -> bytes:
    if len(arguments) == 1:
        return encoding.PONG
    if len(arguments) == 2:
        return encoding.bulk(arguments[1])
    raise CommandError("ERR wrong number of arguments for 'ping' command")


@command(b"ECHO", 2, "fast", "readonly", "blind")
def echo(client: Connection, arguments: list[bytes]) -> bytes:
    return encoding.bulk(arguments[1])


@command(b"SELECT", 2, "fast", "readonly")
def select(client: Connection, arguments: list[bytes]) -> bytes:
    """There is one database; Redis clients that name it are welcome."""
    index = reading.integer(arguments[1], 0, reading.INT64_MAX, "ERR value is not an integer or out of range")
    if index:
        raise CommandError("ERR DB index is out of range")
    return encoding.OK


@command(b"QUIT", -1, "fast", "no-auth", "always", "at-once")
def quit_(client: Connection, arguments: list[bytes]) -> bytes:
    client.close_after_replies()
    return encoding.OK


@command(b"AUTH", -2, "fast", "no-auth", "no-monitor", "always", "no-multi")
def auth(client: Connection, arguments: list[bytes]) -> bytes:
    if len(arguments) > 3:
        raise CommandError("ERR syntax error")
    if not client.server.access.required:
        raise CommandError("ERR Client sent AUTH, but no password is set")
    if len(arguments) == 3:
        _log_in(client, arguments[1], arguments[2])
    elif not client.server.access.admits(arguments[1]):
        client.authenticated = False
        client.refresh_care()
        raise CommandError("ERR invalid password")
    client.authenticated = True
    client.refresh_care()
    return encoding.OK


def _log_in(client: Connection, user: bytes, password: bytes) -> None:
    access = client.server.access
    # As in Redis: without a password the default user is let in whatever it says.
    admitted = access.admits(password, user) if access.required else user == DEFAULT_USER
    if not admitted:
        raise CommandError(_WRONG_PASSWORD)


@command(b"HELLO", -1, "fast", "no-auth", "no-monitor", "always", "no-multi")
def hello(client: Connection, arguments: list[bytes]) -> bytes:
    if len(arguments) == 1:
        if not client.authenticated:
            raise CommandError("NOAUTH Authentication required.")
        return _hello_of_disque(client)
    version = reading.number(arguments[1])
    if version is None:
        raise CommandError("ERR Protocol version is not an integer or out of range")
    if version not in (2, 3):
        raise CommandError("NOPROTO unsupported protocol version")
    name, credentials = _hello_options(arguments)
    if credentials is not None:
        _log_in(client, *credentials)
        client.authenticated = True
        client.refresh_care()
    if not client.authenticated:
        raise CommandError(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH "
            "<user> <pass> option can be used to authenticate the client and select the RESP protocol version at the "
            "same time"
        )
    if name is not None:
        client.rename(name)
    client.proto = version
    client.null_bulk = encoding.NULL if version == 3 else encoding.NULL_BULK
    client.null_array = encoding.NULL if version == 3 else encoding.NULL_ARRAY
    return _hello_of_redis(client)


def _hello_options(arguments: list[bytes]) -> tuple[bytes | None, tuple[bytes, bytes] | None]:
    name: bytes | None = None
    credentials: tuple[bytes, bytes] | None = None
    options = reading.Options(arguments, 2)
    while (option := options.next()) is not None:
        if option == b"AUTH":
            credentials = (options.value(), options.value())
        elif option == b"SETNAME":
            name = valid_name(options.value())
        else:
            raise CommandError(f"ERR Syntax error in HELLO option '{reading.shown(option)}'")
    return name, credentials


def valid_name(name: bytes) -> bytes:
    if any(byte < 33 or byte > 126 for byte in name):
        raise CommandError("ERR Client names cannot contain spaces, newlines or special characters.")
    return name


def _hello_of_disque(client: Connection) -> bytes:
    node = client.broker.node_id
    priority = 100 if client.server.leaving else 1
    itself = encoding.bulks([node.encode(), b"", b"%d" % client.server.port, b"%d" % priority])
    return encoding.array([encoding.integer(HELLO_FORMAT), encoding.text(node), itself])


def _hello_of_redis(client: Connection) -> bytes:
    fields = {
        "server": encoding.text("esker"),
        "version": encoding.text(REDIS_VERSION),
        "proto": encoding.integer(client.proto),
        "id": encoding.integer(client.id),
        "mode": encoding.text("standalone"),
        "role": encoding.text("master"),
        "modules": encoding.EMPTY_ARRAY,
    }
    return encoding.mapping(fields, client.proto)
