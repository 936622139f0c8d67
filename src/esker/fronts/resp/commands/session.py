"""How a client begins and ends: PING, AUTH, HELLO, QUIT.

HELLO has two meanings. Alone it is Disque's: who is this node, and which others are there. With a protocol version it
is Redis's handshake, which current Redis clients open with; after `HELLO 3` nulls and maps are RESP3, all else is the
same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from esker.fronts.access import DEFAULT_USER
from esker.fronts.guesses import Place, penalty_s
from esker.fronts.resp import arguments as reading
from esker.fronts.resp import encoding
from esker.fronts.resp.commands.table import command
from esker.fronts.resp.errors import CommandError, syntax_error
from esker.fronts.resp.rules import FREE

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection

# What feature tests of Redis clients read; the protocol spoken here is that of these versions.
REDIS_VERSION: Final = "7.4.0"
DISQUE_VERSION: Final = "1.0-rc1"
HELLO_FORMAT: Final = 1
_WRONG_PASSWORD: Final = "WRONGPASS invalid username-password pair or user is disabled."
_TOO_MANY: Final = "ERR too many logins from this address have failed; try again in some seconds"
_HELLO_FIRST: Final = (
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> "
    "option can be used to authenticate the client and select the RESP protocol version at the same time"
)


@command(b"PING", -1, "fast", "readonly", "blind", rule=FREE)
def ping(client: Connection, arguments: list[bytes]) -> bytes:
    if len(arguments) == 1:
        return encoding.PONG
    if len(arguments) == 2:
        return encoding.bulk(arguments[1])
    raise CommandError("ERR wrong number of arguments for 'ping' command")


@command(b"ECHO", 2, "fast", "readonly", "blind", rule=FREE)
def echo(client: Connection, arguments: list[bytes]) -> bytes:
    return encoding.bulk(arguments[1])


@command(b"SELECT", 2, "fast", "readonly", rule=FREE)
def select(client: Connection, arguments: list[bytes]) -> bytes:
    """There is one database; Redis clients that name it are welcome."""
    index = reading.integer(arguments[1], 0, reading.INT64_MAX, "ERR value is not an integer or out of range")
    if index:
        raise CommandError("ERR DB index is out of range")
    return encoding.OK


@command(b"QUIT", -1, "fast", "no-auth", "always", "at-once", rule=FREE)
def quit_(client: Connection, arguments: list[bytes]) -> bytes:
    client.close_after_replies()
    return encoding.OK


@command(b"AUTH", -2, "fast", "no-auth", "no-monitor", "always", "no-multi", rule=FREE)
def auth(client: Connection, arguments: list[bytes]) -> bytes | None:
    """The secret is the password, or an API key, whose scopes and prefixes then hold for this connection."""
    if len(arguments) > 3:
        raise syntax_error()
    if len(arguments) == 3:
        return _log_in(client, arguments[1], arguments[2], lambda: encoding.OK)
    if not client.server.keys.required:
        raise CommandError(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your "
            "configuration is correct?"
        )
    return _log_in(client, DEFAULT_USER, arguments[1], lambda: encoding.OK)


def _log_in(client: Connection, user: bytes, secret: bytes, done: Callable[[], bytes]) -> bytes | None:
    """The reply, or None when it comes later: secrets that are wrong are tried slowly (guesses.py)."""
    if not client.server.keys.required:
        # As in Redis: without a password the default user is let in whatever it says.
        if user != DEFAULT_USER:
            raise CommandError(_WRONG_PASSWORD)
        return done()
    place = client.server.keys.guesses.place(client.address)
    if place is None:
        raise CommandError(_TOO_MANY)
    return Login(client, place, user, secret, done).begin()


class Login:
    """An attempt to log in. Its client is held from when it has to wait to its reply."""

    __slots__ = ("_client", "_done", "_looked", "_place", "_secret", "_timer", "_user")

    def __init__(self, client: Connection, place: Place, user: bytes, secret: bytes, done: Callable[[], bytes]) -> None:
        self._client = client
        self._place = place
        self._user = user
        self._secret = secret
        self._done = done
        self._looked = False  # at the secret
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> bytes | None:
        if not self._place.wait_s:
            reply = self._look()
            if reply is not None:
                return reply
        else:
            self._timer = self._client.server.loop.call_later(self._place.wait_s, self._go_on)
        self._client.hold(self)
        return None

    def _look(self) -> bytes | None:
        """The reply, or None when it was wrong, which is told later."""
        client = self._client
        self._looked = True
        key = client.server.keys.find(self._secret)
        if key is not None and self._user == DEFAULT_USER:
            self._place.cancel()
            client.log_in(key)
            return self._done()
        client.failed_logins += 1
        late_s = penalty_s(client.failed_logins)
        self._timer = client.server.loop.call_later(late_s, client.release, encoding.error(_WRONG_PASSWORD))
        return None

    def _go_on(self) -> None:
        reply = self._look()
        if reply is not None:
            self._client.release(reply)

    def cancel(self) -> None:
        """The client has left. What was not looked at was no guess."""
        if not self._looked:
            self._place.cancel()
        if self._timer is not None:
            self._timer.cancel()


@command(b"HELLO", -1, "fast", "no-auth", "no-monitor", "always", "no-multi", rule=FREE)
def hello(client: Connection, arguments: list[bytes]) -> bytes | None:
    if len(arguments) == 1:
        if not client.authenticated:
            raise CommandError(_HELLO_FIRST)
        return _hello_of_disque(client)
    version = reading.number(arguments[1])
    if version is None:
        raise CommandError("ERR Protocol version is not an integer or out of range")
    if version not in (2, 3):
        raise CommandError("NOPROTO unsupported protocol version")
    name, credentials = _hello_options(arguments)

    def greet() -> bytes:
        if name is not None:
            client.rename(name)
        client.proto = version
        client.null_bulk = encoding.NULL if version == 3 else encoding.NULL_BULK
        client.null_array = encoding.NULL if version == 3 else encoding.NULL_ARRAY
        return _hello_of_redis(client)

    if credentials is not None:
        return _log_in(client, *credentials, greet)
    if not client.authenticated:
        raise CommandError(_HELLO_FIRST)
    return greet()


def _hello_options(arguments: list[bytes]) -> tuple[bytes | None, tuple[bytes, bytes] | None]:
    """As in Redis an option without its values is answered as one that is unknown, in the client's spelling."""
    name: bytes | None = None
    credentials: tuple[bytes, bytes] | None = None
    at = 2
    while at < len(arguments):
        option, left = arguments[at].upper(), len(arguments) - at - 1
        if option == b"AUTH" and left >= 2:
            credentials = (arguments[at + 1], arguments[at + 2])
            at += 3
        elif option == b"SETNAME" and left:
            name = valid_name(arguments[at + 1])
            at += 2
        else:
            raise CommandError(f"ERR Syntax error in HELLO option '{reading.shown(arguments[at])}'")
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
