"""Checks a command of a client whose key has limits, before it runs.

Clients without limits never get here. Others are run with care (`Connection.careful`), one command at a time, so this
is on no hot path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from esker.fronts.access import Scope
from esker.fronts.resp import jobids
from esker.fronts.resp.errors import CommandError
from esker.fronts.resp.rules import OPERATES, Reach, Rule

if TYPE_CHECKING:
    from esker.fronts.resp.commands.table import Command
    from esker.fronts.resp.connection import Connection

_FROM: Final = b"FROM"


def no_access() -> CommandError:
    """Redis's words for a key that its user may not touch; they tell nothing of whether it exists."""
    return CommandError("NOPERM No permissions to access a key")


def need(client: Connection, scope: Scope, what: str) -> None:
    if not client.key.may(scope):
        raise CommandError(f"NOPERM User default has no permissions to run the '{what}' command")


def permit(client: Connection, command: Command, arguments: list[bytes]) -> None:
    """Raises CommandError (NOPERM). Ids of jobs that are not the client's are exchanged for the id of no job."""
    rule = rule_of(command, arguments)
    key = client.key
    need(client, rule.needs, called(command, arguments))
    if not key.prefixes:
        return
    if rule.reach is Reach.NODE:
        raise CommandError(f"NOPERM User default has no permissions to run the '{called(command, arguments)}' command")
    if rule.reach is Reach.NAMES and not all(map(key.reaches, names(command, arguments))):
        raise no_access()
    if rule.reach is Reach.JOBS:
        _hide_jobs(client, arguments)


def rule_of(command: Command, arguments: list[bytes]) -> Rule:
    """What is not in the table is an operator's."""
    if isinstance(command.rule, Rule):
        return command.rule
    return command.rule.get(arguments[1].upper() if len(arguments) > 1 else b"", OPERATES)


def names(command: Command, arguments: list[bytes]) -> list[bytes]:
    """The topics that a command names."""
    if command.key > 0:
        return arguments[command.key : command.key + 1]
    upper = [argument.upper() for argument in arguments]
    return arguments[upper.index(_FROM) + 1 :] if _FROM in upper else []


def called(command: Command, arguments: list[bytes]) -> str:
    """As Redis names a command and its subcommand; never more of what the client sent."""
    name = command.name.decode().lower()
    if isinstance(command.rule, Rule) or len(arguments) < 2 or arguments[1].upper() not in command.rule:
        return name
    return f"{name}|{arguments[1].decode().lower()}"


def _hide_jobs(client: Connection, arguments: list[bytes]) -> None:
    for at, argument in enumerate(arguments):
        message_id = jobids.known(argument)
        if message_id is None:
            continue
        topic = client.broker.topic_of(message_id)
        if topic is None or not client.key.reaches(topic):
            arguments[at] = jobids.NO_JOB
