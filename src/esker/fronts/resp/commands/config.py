"""CONFIG: Disque's directives, each mapped to the setting of Esker that does its work.

A directive without such a setting answers with what is true here, and can only be "set" to that. What changes, changes
the running server; the file or flags it was started with stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, NamedTuple

from esker.engine.config import Durability
from esker.errors import SettingsError
from esker.fronts.resp import arguments as reading
from esker.fronts.resp import encoding
from esker.fronts.resp.commands.table import command
from esker.fronts.resp.errors import CommandError
from esker.fronts.resp.rules import OPERATES

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection
    from esker.fronts.resp.server import RespServer


class Directive(NamedTuple):
    get: Callable[[RespServer], str]
    set: Callable[[RespServer, str], None] | None = None


def _fixed(value: str) -> Directive:
    return Directive(lambda server: value)


def _number(text: str, least: int = 0) -> int:
    value = reading.number(text.encode("utf-8", "surrogateescape"))
    if value is None or value < least:
        raise SettingsError(f"expected a number of {least} or more, not '{text[:64]}'")
    return value


def _set_password(server: RespServer, text: str) -> None:
    server.broker.reconfigure("password", text)
    server.keys.set_password(text)


def _set_maxmemory(server: RespServer, text: str) -> None:
    server.broker.reconfigure("memory_limit", text)


def _set_maxclients(server: RespServer, text: str) -> None:
    server.broker.reconfigure("clients_max", text)
    server.options.clients_max = _number(text, 1)


def _set_clock_jump(server: RespServer, text: str) -> None:
    server.broker.reconfigure("clock_jump_max_s", text)


def _set_timeout(server: RespServer, text: str) -> None:
    server.broker.reconfigure("idle_timeout_s", text)
    server.options.idle_timeout_s = _number(text)


def _set_keepalive(server: RespServer, text: str) -> None:
    server.options.tcp_keepalive_s = _number(text)


def _set_slower_than(server: RespServer, text: str) -> None:
    server.options.slowlog_slower_than_us = _number(text, -1)
    server.set_thresholds()


def _set_slowlog_length(server: RespServer, text: str) -> None:
    server.options.slowlog_entries_max = _number(text)
    server.set_thresholds()


def _set_latency_threshold(server: RespServer, text: str) -> None:
    server.options.latency_threshold_ms = _number(text)
    server.set_thresholds()


def _output_limit(server: RespServer) -> str:
    options = server.options
    return f"normal {options.output_bytes_max} {options.output_soft_bytes} {options.output_soft_s}"


def _set_output_limit(server: RespServer, text: str) -> None:
    words = text.split()
    if len(words) != 4 or words[0].lower() != "normal":
        raise SettingsError("expected: normal <hard bytes> <soft bytes> <soft seconds>")
    hard, soft, seconds = _number(words[1], 1), _number(words[2], 1), _number(words[3])
    options = server.options
    options.output_bytes_max, options.output_soft_bytes, options.output_soft_s = hard, soft, seconds


# Redis's words for the durability of a queue that was made without a config.
_APPENDFSYNC = {
    Durability.FSYNC: "always",
    Durability.DISK: "everysec",
    Durability.MEMORY: "no",
    Durability.EPHEMERAL: "no",
}

_PASSWORD: Final = "requirepass"

DIRECTIVES: dict[str, Directive] = {
    "port": Directive(lambda server: str(server.port)),
    "bind": Directive(lambda server: server.host),
    "unixsocket": _fixed(""),
    "unixsocketperm": _fixed("0"),
    "tcp-backlog": Directive(lambda server: str(server.options.accept_backlog)),
    "clock-jump-max": Directive(lambda server: str(server.broker.settings.clock_jump_max_s), _set_clock_jump),
    "timeout": Directive(lambda server: str(server.options.idle_timeout_s), _set_timeout),
    "tcp-keepalive": Directive(lambda server: str(server.options.tcp_keepalive_s), _set_keepalive),
    "maxclients": Directive(lambda server: str(server.options.clients_max), _set_maxclients),
    _PASSWORD: Directive(lambda server: server.keys.shown_password, _set_password),
    "dir": Directive(lambda server: server.broker.settings.data),
    "logfile": _fixed(""),  # diagnostics go to standard error
    "loglevel": _fixed("notice"),
    "syslog-enabled": _fixed("no"),
    "pidfile": _fixed(""),
    "daemonize": _fixed("no"),
    "hz": _fixed("10"),
    "slowlog-log-slower-than": Directive(lambda server: str(server.options.slowlog_slower_than_us), _set_slower_than),
    "slowlog-max-len": Directive(lambda server: str(server.options.slowlog_entries_max), _set_slowlog_length),
    "latency-monitor-threshold": Directive(
        lambda server: str(server.options.latency_threshold_ms), _set_latency_threshold
    ),
    "proto-max-bulk-len": Directive(lambda server: str(server.options.bulk_bytes_max)),
    "client-output-buffer-limit": Directive(_output_limit, _set_output_limit),
    "maxmemory": Directive(lambda server: str(server.broker.settings.memory_limit_bytes), _set_maxmemory),
    "maxmemory-policy": _fixed("acks"),
    "maxmemory-samples": _fixed("5"),
    "save": _fixed(""),  # of Redis, whose benchmark asks for it
    "appendonly": _fixed("yes"),  # the journal is always on; a topic chooses its class
    "appendfilename": _fixed("journal"),
    "appendfsync": Directive(lambda server: _APPENDFSYNC[server.broker.settings.queue_durability]),
    "no-appendfsync-on-rewrite": _fixed("no"),
    "auto-aof-rewrite-percentage": _fixed("100"),
    "auto-aof-rewrite-min-size": _fixed("67108864"),
    "aof-load-truncated": _fixed("yes"),  # a torn tail is cut when the journal is opened
    "aof-enqueue-jobs-once": _fixed("no"),  # queues survive a restart as they are
    "cluster-config-file": _fixed(""),
    "cluster-node-timeout": _fixed("15000"),
}


@command(b"CONFIG", -2, "admin", rule=OPERATES)
def config(client: Connection, arguments: list[bytes]) -> bytes:
    subcommand = arguments[1].upper()
    if subcommand == b"GET" and len(arguments) >= 3:
        return _get(client, arguments[2:])
    if subcommand == b"SET" and len(arguments) >= 4 and len(arguments) % 2 == 0:
        for name, value in zip(arguments[2::2], arguments[3::2], strict=True):
            _set(client, name.decode("latin-1").lower(), value.decode("utf-8", "surrogateescape"))
        return encoding.OK
    if subcommand == b"RESETSTAT" and len(arguments) == 2:
        client.server.reset_stats()
        return encoding.OK
    if subcommand == b"REWRITE" and len(arguments) == 2:
        raise CommandError(
            "ERR The server is running without a config file that it could rewrite. To keep a change, put it into "
            "esker.toml (`esker settings` lists the names) or start the node with --set NAME=VALUE"
        )
    raise CommandError("ERR Unknown CONFIG subcommand or wrong number of arguments. Try GET, SET, RESETSTAT, REWRITE.")


def _get(client: Connection, patterns: list[bytes]) -> bytes:
    globs = [pattern.decode("latin-1").lower() for pattern in patterns]
    found = {
        name: encoding.text(directive.get(client.server) if _may(client, name) else "")
        for name, directive in DIRECTIVES.items()
        if any(fnmatchcase(name, glob) for glob in globs)
    }
    return encoding.mapping(found, client.proto)


def _may(client: Connection, name: str) -> bool:
    """The password opens everything, so it is for those who may do everything."""
    return name != _PASSWORD or client.key.unlimited


def _set(client: Connection, name: str, value: str) -> None:
    server = client.server
    if not _may(client, name):
        raise CommandError(f"NOPERM User default has no permissions to set '{name}'")
    directive = DIRECTIVES.get(name)
    if directive is None:
        raise CommandError(f"ERR Unsupported CONFIG parameter: {name[:64]}")
    if directive.set is None:
        if directive.get(server) != value:
            raise CommandError(f"ERR CONFIG parameter {name} is always '{directive.get(server)}' here")
        return
    try:
        directive.set(server, value)
    except SettingsError as problem:
        raise CommandError(f"ERR Invalid argument '{value[:64]}' for CONFIG SET '{name}' - {problem}") from None
