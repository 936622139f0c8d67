"""The table of commands: name, arity, flags, handler. Each module of this package registers its own.

Arity counts the name; negative means "at least". A handler gets the connection and all arguments, and returns the
reply, or None when it arranged for the reply to come later (`Connection.hold`). It may raise `CommandError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from esker.fronts.resp.rules import Rule

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection

Handler = Callable[["Connection", list[bytes]], bytes | None]
H = TypeVar("H", bound=Handler)
# Runs several commands of a pipeline as one step: from the given place, as many as it likes. It returns the replies of
# those it has run; none when this place is nothing for it. It must do exactly what running each alone would do.
Together = Callable[["Connection", list[list[bytes]], int], list[bytes]]

# Commands of one step: bounds the work between two looks at the clock, and the engine's command.
TOGETHER_MAX: Final = 1000


class Command(NamedTuple):
    name: bytes
    arity: int
    flags: frozenset[str]
    key: int  # which argument names a queue; 0: none
    handler: Handler
    together: Together | None
    rule: Rule | Mapping[bytes, Rule]  # who may run it; by subcommand, where it has some


COMMANDS: Final[dict[bytes, Command]] = {}

# `no-auth`: works before the password; `no-monitor`: not shown to MONITOR; `always`: works while clients are paused;
# `at-once`: is executed between MULTI and EXEC, too, instead of being kept; `no-multi`: is refused there, as
# is what neither writes nor is fast;
# `blind`: its reply tells nothing of any job, or counts at most, so it need not wait until the disk has what others
# were promised.
FLAGS: Final = frozenset({
    "write", "readonly", "fast", "admin", "blocking", "denyoom", "no-auth", "no-monitor", "always", "blind", "at-once",
    "no-multi",
})  # fmt: skip


def command(
    name: bytes,
    arity: int,
    *flags: str,
    rule: Rule | Mapping[bytes, Rule],
    key: int = 0,
    together: Together | None = None,
) -> Callable[[H], H]:
    """Registers a handler; stack it for a second name."""
    assert FLAGS.issuperset(flags), f"unknown flag in {flags}"

    def register(handler: H) -> H:
        assert name not in COMMANDS, f"{name!r} is registered twice"
        COMMANDS[name] = Command(name, arity, frozenset(flags), key, handler, together, rule)
        return handler

    return register


class Entry:
    """A command as one server runs it: its bounds ready for comparison, its meters beside it."""

    __slots__ = (
        "always", "at_once", "blind", "calls", "command", "failures", "handler", "least", "most", "no_auth",
        "no_monitor", "no_multi", "ns", "reads", "together", "write",
    )  # fmt: skip

    def __init__(self, command: Command) -> None:
        self.command = command
        self.handler = command.handler
        self.together = command.together
        self.least = abs(command.arity)
        self.most = command.arity if command.arity > 0 else 1 << 30
        self.no_auth = "no-auth" in command.flags
        self.no_monitor = "no-monitor" in command.flags
        self.always = "always" in command.flags
        self.blind = "blind" in command.flags
        self.at_once = "at-once" in command.flags
        self.no_multi = "no-multi" in command.flags or command.flags.isdisjoint(("write", "fast"))
        self.reads = not command.flags.isdisjoint(("readonly", "blocking"))  # its reply may hold payloads
        self.write = "write" in command.flags
        self.calls = 0
        self.failures = 0
        self.ns = 0
