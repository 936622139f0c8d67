"""Commands that arrive in one turn of the loop share work, and nobody can tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from esker.fronts.resp import server as server_module
from esker.fronts.resp.connection import Connection
from tests.fronts.resp.scenes import Client, with_clients
from tests.fronts.resp.wire import encoded


def test_chunks_of_one_client_to_several_queues_are_answered_in_order(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        (first, _), (second, heard) = clients
        first.data_received(encoded("ADDJOB", "b", "x", 0))  # so that queue b is known to the turn before queue a
        second.data_received(encoded("ADDJOB", "a", "1", 0))
        second.data_received(encoded("ADDJOB", "b", "2", 0))
        second.data_received(encoded("QLEN", "b") + encoded("ADDJOB", "a", "3", 0) + encoded("QLEN", "a"))
        replies = await heard.wait_for(5)
        assert [reply[:1] for reply in replies] == [b"+", b"+", b":", b"+", b":"]
        assert (replies[2], replies[4]) == (b":2", b":2")
        queues = [int(reply[1 + 10 + 12 : 1 + 10 + 18], 16) for reply in (replies[0], replies[1], replies[3])]
        assert queues[0] == queues[2] != queues[1], "an id names its queue, so replies were not swapped"

    with_clients(tmp_path, 2, scene)


def test_fifty_clients_of_one_turn_get_an_id_each(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        for number, (connection, _) in enumerate(clients):
            connection.data_received(encoded("ADDJOB", "q", f"job {number}", 0))
        ids = {(await heard.wait_for(1))[0] for _, heard in clients}
        assert len(ids) == 50
        connection, heard = clients[0]
        connection.data_received(encoded("QLEN", "q"))
        assert (await heard.wait_for(2))[1] == b":50"

    with_clients(tmp_path, 50, scene)


def test_what_is_refused_together_is_answered_one_by_one(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        (first, heard), (second, also_heard) = clients
        first.data_received(encoded("TOPIC", "CREATE", "q", "max_payload_bytes", 3))
        await heard.wait_for(1)
        first.data_received(encoded("ADDJOB", "q", "tiny"[:3], 0))
        second.data_received(encoded("ADDJOB", "q", "too large", 0) + encoded("ADDJOB", "q", "ok", 0))
        assert (await heard.wait_for(2))[1].startswith(b"+DI")
        refused, added = await also_heard.wait_for(2)
        assert refused.startswith(b"-ERR")
        assert added.startswith(b"+DI")

    with_clients(tmp_path, 2, scene)


def test_jobs_of_clients_that_leave_at_once_are_added_all_the_same(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        ways: list[Callable[[Connection], object]] = [
            lambda client: client.connection_lost(None), Connection.hang_up, Connection.eof_received,
        ]  # fmt: skip
        for (client, _), leave in zip(clients, ways, strict=False):
            client.data_received(encoded("ADDJOB", "q", "x", 0))
            leave(client)
        last, heard = clients[-1]
        last.data_received(encoded("QLEN", "q"))
        assert await heard.wait_for(1) == [b":3"]

    with_clients(tmp_path, 4, scene)


async def _answered_together(clients: list[Client]) -> None:
    for client, _ in clients:
        client.data_received(encoded("ADDJOB", "q", "x", 0))
    for _, heard in clients:
        await heard.wait_for(1)


def test_clients_that_were_answered_together_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "LINGER_S", 3600.0)
    monkeypatch.setattr(server_module, "LINGER_TURNS", 5)

    async def scene(clients: list[Client]) -> None:
        await _answered_together(clients)
        for client, heard in clients:
            assert len(heard.replies) == 1, "nobody is served before the last one has come"
            client.data_received(encoded("ADDJOB", "q", "x", 0))
            for _ in range(10):
                await asyncio.sleep(0)
        ids = {(await heard.wait_for(2))[1] for _, heard in clients}
        assert len(ids) == len(clients)

    with_clients(tmp_path, 5, scene)


def test_nobody_waits_for_a_client_that_does_not_come_back(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        await _answered_together(clients)
        client, heard = clients[0]
        client.data_received(encoded("ADDJOB", "q", "x", 0))
        assert (await heard.wait_for(2))[1].startswith(b"+DI")

    with_clients(tmp_path, 5, scene)


def test_large_commands_do_not_wait_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "LINGER_S", 3600.0)

    async def scene(clients: list[Client]) -> None:
        await _answered_together(clients)
        client, heard = clients[0]
        client.data_received(encoded("ADDJOB", "q", "x" * server_module.LINGER_BYTES, 0))
        assert (await heard.wait_for(2))[1].startswith(b"+DI")

    with_clients(tmp_path, 5, scene)
