"""The commands between MULTI and EXEC: kept, then executed in one go, or not at all.

Nothing of another client comes between them, since nothing on the loop does; and what they change goes to disk in one
batch of the journal, so a crash takes all of it or nothing. As in Redis, a command that fails when it is executed does
not stop the others, and one that could not even be kept (unknown, wrong number of arguments) makes EXEC refuse all.
Only what changes something or is quick is kept: long reads would keep all other clients waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from esker.errors import EskerError, InvariantBroken
from esker.fronts.resp import encoding
from esker.fronts.resp.errors import CommandError, failed

if TYPE_CHECKING:
    from esker.fronts.resp.commands.table import Entry
    from esker.fronts.resp.connection import Connection
    from esker.fronts.resp.parser import Arguments

COMMANDS_MAX: Final = 10_000  # of one transaction: they are executed in one turn of the loop, about 10 us each
BYTES_MAX: Final = 64 * 1024 * 1024  # of their arguments, kept for one client
_QUEUED: Final = b"+QUEUED\r\n"


class Transaction:
    __slots__ = ("_commands", "_size", "broken")

    def __init__(self) -> None:
        self._commands: list[tuple[Entry, Arguments]] = []
        self._size = 0
        self.broken = False  # a command could not be kept, so none is executed

    def keep(self, entry: Entry, arguments: Arguments) -> bytes:
        """The reply to a command that waits for EXEC."""
        problem = self._problem(entry, sum(map(len, arguments)))
        if problem is not None:
            self.broken = True
            self._commands = []
            return encoding.error(f"ERR {problem}")
        if not self.broken:
            self._commands.append((entry, arguments))
        return _QUEUED

    def _problem(self, entry: Entry, size: int) -> str | None:
        if entry.no_multi:
            return f"{entry.command.name.decode()} is not allowed in a transaction"
        self._size += size
        if len(self._commands) >= COMMANDS_MAX or self._size > BYTES_MAX:
            return f"a transaction has at most {COMMANDS_MAX} commands and {BYTES_MAX} bytes"
        return None

    def execute(self, client: Connection) -> bytes:
        """Runs all of it. The reply is an array of theirs."""
        if self.broken:
            raise CommandError("EXECABORT Transaction discarded because of previous errors.")
        return encoding.array([_run(client, entry, arguments) for entry, arguments in self._commands])


def _run(client: Connection, entry: Entry, arguments: Arguments) -> bytes:
    entry.calls += 1
    try:
        reply = entry.handler(client, arguments)
    except EskerError as error:
        return failed(entry, error)
    if reply is None:
        raise InvariantBroken(f"{entry.command.name!r} waits inside a transaction")
    return reply
