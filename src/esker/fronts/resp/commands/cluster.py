"""CLUSTER, truthfully for a node that is a cluster of one: nobody can be met, nobody forgotten, all is reachable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from esker.engine.commands import DeleteAllTopics
from esker.engine.replies import Done
from esker.fronts.access import Scope
from esker.fronts.resp import arguments as reading
from esker.fronts.resp import encoding
from esker.fronts.resp.commands.table import command
from esker.fronts.resp.errors import CommandError, expect, syntax_error
from esker.fronts.resp.rules import FREE, OPERATES, Reach, Rule

if TYPE_CHECKING:
    from esker.fronts.resp.connection import Connection


_RULES: Final = {
    b"MYID": FREE, b"NODES": FREE, b"INFO": FREE, b"MEET": OPERATES, b"LEAVING": OPERATES,
    b"RESET": Rule(Reach.NODE, Scope.ADMIN | Scope.DELETE), b"FORGET": OPERATES, b"SAVECONFIG": OPERATES,
}  # fmt: skip


@command(b"CLUSTER", -2, "admin", rule=_RULES)
def cluster(client: Connection, arguments: list[bytes]) -> bytes:
    subcommand = _SUBCOMMANDS.get(arguments[1].upper())
    if subcommand is None:
        raise CommandError("ERR Wrong CLUSTER subcommand or number of arguments")
    run, least, most = subcommand
    if not least <= len(arguments) <= most:
        raise CommandError("ERR Wrong CLUSTER subcommand or number of arguments")
    return run(client, arguments)


def _myid(client: Connection, arguments: list[bytes]) -> bytes:
    return encoding.text(client.broker.node_id)


def _nodes(client: Connection, arguments: list[bytes]) -> bytes:
    flags = "myself,leaving" if client.server.leaving else "myself"
    return encoding.text(f"{client.broker.node_id} :{client.server.port} {flags} 0 0 connected\n")


def _info(client: Connection, arguments: list[bytes]) -> bytes:
    facts = {
        "cluster_state": "ok",
        "cluster_known_nodes": 1,
        "cluster_reachable_nodes": 0,  # others than this one
        "cluster_size": 1,
        "cluster_stats_messages_sent": 0,
        "cluster_stats_messages_received": 0,
    }
    return encoding.text("".join(f"{name}:{value}\r\n" for name, value in facts.items()))


def _meet(client: Connection, arguments: list[bytes]) -> bytes:
    port = reading.number(arguments[3])
    if port is None or not 0 < port <= 55535:
        raise CommandError(
            f"ERR Invalid node address specified: {reading.shown(arguments[2])}:{reading.shown(arguments[3])}"
        )
    if port == client.server.port and arguments[2] in (b"127.0.0.1", b"::1", b"localhost", client.server.host.encode()):
        return encoding.OK  # it knows itself
    raise CommandError("ERR this node was started alone and cannot join a cluster")


def _leaving(client: Connection, arguments: list[bytes]) -> bytes:
    """A leaving node takes no new jobs and lets no consumer block; what it has it still gives out."""
    server = client.server
    if len(arguments) == 2:
        return encoding.simple(b"yes" if server.leaving else b"no")
    word = arguments[2].upper()
    if word not in (b"YES", b"NO"):
        raise syntax_error()
    server.leaving = word == b"YES"
    if server.leaving:
        for other in list(server.clients.values()):
            if other.waits_for_jobs:
                other.unblock(b"-LEAVING this node is leaving the cluster, not allowed to block\r\n")
    return encoding.OK


def _reset(client: Connection, arguments: list[bytes]) -> bytes:
    if len(arguments) == 3:
        how = arguments[2].upper()
        if how not in (b"HARD", b"SOFT"):
            raise syntax_error()
        if how == b"HARD":
            raise CommandError(
                "ERR the id of this node is part of its job ids and cannot change; use CLUSTER RESET SOFT"
            )
    flush(client)
    return encoding.OK


def flush(client: Connection) -> None:
    """Drops all jobs and queues; whoever waits for a job hears that there is none."""
    expect(Done, client.broker.handle(DeleteAllTopics()))
    for other in list(client.server.clients.values()):
        if other.waits_for_jobs:
            other.unblock(other.null_array)


def _forget(client: Connection, arguments: list[bytes]) -> bytes:
    if arguments[2].decode("latin-1") == client.broker.node_id:
        raise CommandError("ERR I tried hard but I can't forget myself...")
    raise CommandError(f"ERR Unknown node {reading.shown(arguments[2])}")


def _saveconfig(client: Connection, arguments: list[bytes]) -> bytes:
    return encoding.OK  # the id was saved when it was made, and there is nothing else to save


_SUBCOMMANDS: dict[bytes, tuple[Callable[[Connection, list[bytes]], bytes], int, int]] = {
    b"MYID": (_myid, 2, 2),
    b"NODES": (_nodes, 2, 2),
    b"INFO": (_info, 2, 2),
    b"MEET": (_meet, 4, 4),
    b"LEAVING": (_leaving, 2, 3),
    b"RESET": (_reset, 2, 3),
    b"FORGET": (_forget, 3, 3),
    b"SAVECONFIG": (_saveconfig, 2, 2),
}
