"""The table of commands: name, arity, flags, handler. Each module of this package registers its own.

Arity counts the name; negative means "at least". A handler gets the connection and all arguments, and returns the
reply, or None when it arranged for the reply to come later (`Connection.hold`). It may raise `CommandError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection

Handler = Callable[["Connection", list[bytes]], bytes | None]


class Command(NamedTuple):
    name: bytes
    arity: int
    flags: frozenset[str]
    key: int  # which argument names a queue; 0: none
    handler: Handler


COMMANDS: Final[dict[bytes, Command]] = {}

# `no-auth`: works before the password; `no-monitor`: not shown to MONITOR; `always`: works while clients are paused.
FLAGS: Final = frozenset(
    {"write", "readonly", "fast", "admin", "blocking", "denyoom", "no-auth", "no-monitor", "always"}
)


def command(name: bytes, arity: int, *flags: str, key: int = 0) -> Callable[[Handler], Handler]:
    """Registers a handler; stack it for a second name."""
    assert FLAGS.issuperset(flags), f"unknown flag in {flags}"

    def register(handler: Handler) -> Handler:
        assert name not in COMMANDS, f"{name!r} is registered twice"
        COMMANDS[name] = Command(name, arity, frozenset(flags), key, handler)
        return handler

    return register


class Entry:
    """A command as one server runs it: its bounds ready for comparison, its meters beside it."""

    __slots__ = (
        "always", "calls", "command", "failures", "handler", "least", "most", "no_auth", "no_monitor", "ns", "write",
    )  # fmt: skip

    def __init__(self, command: Command) -> None:
        self.command = command
        self.handler = command.handler
        self.least = abs(command.arity)
        self.most = command.arity if command.arity > 0 else 1 << 30
        self.no_auth = "no-auth" in command.flags
        self.no_monitor = "no-monitor" in command.flags
        self.always = "always" in command.flags
        self.write = "write" in command.flags
        self.calls = 0
        self.failures = 0
        self.ns = 0
