"""The commands between MULTI and EXEC: kept, then executed in one go, or not at all.

Nothing of another client comes between them, since nothing on the loop does; and what they change goes to disk in one
batch of the journal, so a crash takes all of it or nothing. As in Redis, a command that fails when it is executed does
not stop the others, and one that could not even be kept (unknown, wrong number of arguments) makes EXEC refuse all.
Only what changes something or is quick is kept: long reads would keep all other clients waiting. What it replies is
bounded, too: payloads may be large, and the same one may be asked for any number of times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from esker.errors import EskerError, InvariantBroken, quoted
from esker.fronts.resp import encoding
from esker.fronts.resp.errors import CommandError, failed
from esker.fronts.resp.permissions import called
from esker.fronts.resp.rules import Rule

if TYPE_CHECKING:
    from esker.fronts.resp.commands.table import Entry
    from esker.fronts.resp.connection import Connection
    from esker.fronts.resp.parser import Arguments

COMMANDS_MAX: Final = 10_000  # of one transaction: they are executed in one turn of the loop, about 10 us each
BYTES_MAX: Final = 64 * 1024 * 1024  # of their arguments, kept for one client
REPLY_BYTES_MAX: Final = 64 * 1024 * 1024  # in memory at once; beyond, what would bring more payloads is not executed
_LIST: Final = b"LIST"
_QUEUED: Final = b"+QUEUED\r\n"


class Transaction:
    __slots__ = ("_commands", "_size", "broken")

    def __init__(self) -> None:
        self._commands: list[tuple[Entry, Arguments]] = []
        self._size = 0
        self.broken = False  # a command could not be kept, so none is executed

    def keep(self, entry: Entry, arguments: Arguments) -> bytes:
        """The reply to a command that waits for EXEC."""
        problem = self._problem(entry, arguments)
        if problem is not None:
            self.broken = True
            self._commands = []
            return encoding.error(f"ERR {problem}")
        if not self.broken:
            self._commands.append((entry, arguments))
        return _QUEUED

    def _problem(self, entry: Entry, arguments: Arguments) -> str | None:
        if entry.no_multi or _lists(entry, arguments):
            return f"{called(entry.command, arguments).upper()} is not allowed in a transaction"
        self._size += sum(map(len, arguments))
        if len(self._commands) >= COMMANDS_MAX or self._size > BYTES_MAX:
            return f"a transaction has at most {COMMANDS_MAX} commands and {BYTES_MAX} bytes"
        return None

    def execute(self, client: Connection) -> bytes:
        """Runs all of it. The reply is an array of theirs."""
        if self.broken:
            raise CommandError("EXECABORT Transaction discarded because of previous errors.")
        replies: list[bytes] = []
        size = 0
        for entry, arguments in self._commands:
            if size > REPLY_BYTES_MAX and entry.reads:
                replies.append(encoding.error(f"ERR the replies of this transaction have {size} bytes already"))
                continue
            replies.append(_run(client, entry, arguments))
            size += len(replies[-1])
        return encoding.array(replies)


def _lists(entry: Entry, arguments: Arguments) -> bool:
    return not isinstance(entry.command.rule, Rule) and len(arguments) > 1 and arguments[1].upper() == _LIST


def _run(client: Connection, entry: Entry, arguments: Arguments) -> bytes:
    entry.calls += 1
    try:
        reply = entry.handler(client, arguments)
    except EskerError as error:
        return failed(entry, error)
    if reply is None:
        raise InvariantBroken(f"{quoted(entry.command.name)} waits inside a transaction")
    return reply
