"""No client holds up another: what it sends is executed in shares, in order, and others come in between."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from esker.engine.commands import Length
from esker.engine.replies import Count, Reply
from esker.fronts.resp.turns import (
    GATHERED_JOBS_MAX,
    GATHERED_JOBS_PER_CLIENT_MAX,
    PARSED_LATER_BYTES,
    WAITING_BYTES_MAX,
)
from tests.fronts.resp.scenes import Client, Recorder, with_clients
from tests.fronts.resp.wire import encoded

_MANY = 20_000  # far more than a turn can execute


def _one_command_per_share(clients: list[Client]) -> None:
    clients[0][0].server.turns.turn_ns = 0


def test_a_long_pipeline_does_not_hold_up_another_client(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        (greedy, flooded), (modest, heard) = clients
        greedy.data_received(encoded("QLEN", "q") * _MANY)
        modest.data_received(encoded("PING"))
        await heard.wait_for(1)
        assert len(flooded.replies) < _MANY
        assert await flooded.wait_for(_MANY) == [b":0"] * _MANY

    with_clients(tmp_path, 2, scene)


def test_many_plain_jobs_do_not_hold_up_another_client(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        (greedy, flooded), (modest, heard) = clients
        for _ in range(8):
            greedy.data_received(encoded("ADDJOB", "q", "x", 0) * (_MANY // 8))
        modest.data_received(encoded("PING"))
        lengths: list[Reply] = []
        heard.on_write = lambda: lengths.append(greedy.broker.handle(Length(b"q")))
        await heard.wait_for(1)
        [length] = lengths
        assert isinstance(length, Count)
        assert length.count < _MANY
        added = await flooded.wait_for(_MANY)
        assert sorted(added) == added, "ids rise, so jobs were added and answered in order"

    with_clients(tmp_path, 2, scene)


def test_clients_are_served_in_a_circle(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        _one_command_per_share(clients)
        order: list[int] = []
        for number, (_, recorder) in enumerate(clients):
            recorder.on_write = lambda number=number: order.append(number)
        for connection, _ in clients[:3]:
            connection.data_received(encoded("PING") * 3)
        for _, recorder in clients[:3]:
            await recorder.wait_for(3)
        assert sorted(order[:3]) == [0, 1, 2]
        assert order.count(0) == order.count(1) == order.count(2) == 3
        places = [[at for at, who in enumerate(order) if who == number] for number in range(3)]
        assert all(later - earlier >= 3 for at in places for earlier, later in pairwise(at)), order

    with_clients(tmp_path, 3, scene)


def test_a_client_that_sends_little_goes_before_those_that_had_a_share(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        _one_command_per_share(clients)
        *greedy, (modest, heard) = clients
        for connection, _ in greedy:
            connection.data_received(encoded("PING") * 10)
        await greedy[0][1].wait_for(1)
        modest.data_received(encoded("PING"))
        await heard.wait_for(1)
        assert sum(len(recorder.replies) for _, recorder in greedy) <= len(greedy) + 6
        for _, recorder in greedy:
            await recorder.wait_for(10)

    with_clients(tmp_path, 20, scene)


def test_commands_of_one_client_keep_their_order_over_many_turns(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        _one_command_per_share(clients)
        [(connection, heard)] = clients
        expected: list[bytes] = []
        for length in range(1, 31):
            data = encoded("ADDJOB", "q", "x" * length, 0) + encoded("QLEN", "q") + encoded("PING", str(length))
            connection.data_received(data[:-3])
            connection.data_received(data[-3:])
            expected += [b"+", b":%d" % length, b"$%d" % len(str(length)), str(length).encode()]
        replies = await heard.wait_for(len(expected))
        assert [b"+" if reply.startswith(b"+") else reply for reply in replies] == expected

    with_clients(tmp_path, 1, scene)


def test_what_comes_behind_a_blocking_command_waits_for_it(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        _one_command_per_share(clients)
        (worker, heard), (producer, added) = clients
        worker.data_received(encoded("PING", "1") + encoded("GETJOB", "FROM", "q") + encoded("PING", "2"))
        worker.data_received(encoded("PING", "3") * 2)
        await heard.wait_for(2)
        producer.data_received(encoded("ADDJOB", "q", "job", 0))
        await added.wait_for(1)
        replies = await heard.wait_for(2 + 8 + 6)
        assert replies[:2] + replies[9:] == [b"$1", b"1", b"job", b"$1", b"2", b"$1", b"3", b"$1", b"3"]

    with_clients(tmp_path, 2, scene)


def test_the_socket_is_not_read_while_much_waits(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        [(connection, heard)] = clients
        ping = encoded("PING")
        chunk = ping * (PARSED_LATER_BYTES // len(ping))
        sent = 0
        while heard.reading and sent < 2 * WAITING_BYTES_MAX:
            connection.data_received(chunk)
            connection.server.take_arrived()
            sent += len(chunk)
        assert WAITING_BYTES_MAX < sent <= WAITING_BYTES_MAX + 2 * len(chunk)
        await heard.wait_for(sent // len(ping))
        assert heard.reading

    with_clients(tmp_path, 1, scene)


def _reads(client: Recorder) -> bool:
    return client.reading


def test_a_large_chunk_is_the_last_that_is_read_before_others_have_a_turn(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        [(connection, heard)] = clients
        large = encoded("ADDJOB", "q", "x" * PARSED_LATER_BYTES, 0)
        connection.data_received(large)
        assert not _reads(heard)
        await heard.wait_for(1)
        assert _reads(heard)
        connection.data_received(large[:-10])  # a part of a command: the rest must be able to come
        connection.server.run_turn()
        assert _reads(heard)
        connection.data_received(large[-10:])
        await heard.wait_for(2)

    with_clients(tmp_path, 1, scene)


def test_jobs_are_gathered_across_clients_up_to_the_bound_of_a_turn(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        _one_command_per_share(clients)
        server = clients[0][0].server
        chunk = encoded("ADDJOB", "q", "x", 0) * GATHERED_JOBS_PER_CLIENT_MAX
        for connection, _ in clients:
            connection.data_received(chunk)
        server.take_arrived()
        waiting = [connection.queued for connection, _ in clients]
        assert waiting == [False] * (GATHERED_JOBS_MAX // GATHERED_JOBS_PER_CLIENT_MAX) + [True] * 2
        for _, recorder in clients:
            await recorder.wait_for(GATHERED_JOBS_PER_CLIENT_MAX)

    with_clients(tmp_path, GATHERED_JOBS_MAX // GATHERED_JOBS_PER_CLIENT_MAX + 2, scene)


def test_a_client_that_has_ended_its_input_gets_every_reply(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        _one_command_per_share(clients)
        [(connection, heard)] = clients
        connection.data_received(encoded("PING") * 50)
        assert connection.eof_received()
        assert await heard.wait_for(50) == [b"+PONG"] * 50
        await heard.ended()

    with_clients(tmp_path, 1, scene)


def test_jobs_that_came_together_are_refused_one_by_one(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        [(connection, heard)] = clients
        connection.data_received(encoded("PAUSE", "q", "in"))
        await heard.wait_for(1)
        connection.data_received(encoded("PING") + encoded("ADDJOB", "q", "x", 0) * 3 + encoded("PING"))
        replies = await heard.wait_for(6)
        assert [reply[:7] for reply in replies[1:]] == [b"+PONG", *[b"-PAUSED"] * 3, b"+PONG"]

    with_clients(tmp_path, 1, scene)


def test_a_client_that_left_waits_for_no_job(tmp_path: Path) -> None:
    """Else the next job would be given to it, and its connection would stay for good."""

    async def scene(clients: list[Client]) -> None:
        (left, heard), (producer, added) = clients
        left.data_received(encoded("PING") + encoded("GETJOB", "FROM", "q"))
        assert left.eof_received()  # before any of it was executed
        assert await heard.wait_for(1) == [b"+PONG"]
        await heard.ended()
        producer.data_received(encoded("ADDJOB", "q", "job", 0) + encoded("QLEN", "q"))
        assert (await added.wait_for(2))[1] == b":1"

    with_clients(tmp_path, 2, scene)


def test_a_client_that_waits_is_read_on_so_that_it_is_seen_to_leave(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        [(connection, heard)] = clients
        connection.data_received(encoded("GETJOB", "FROM", "q"))
        connection.server.run_turn()
        connection.data_received(encoded("ADDJOB", "q", "x" * PARSED_LATER_BYTES, 0))
        connection.server.run_turn()
        assert connection.held
        assert heard.reading

    with_clients(tmp_path, 1, scene)


def test_a_client_that_has_ended_its_input_is_told_that_its_login_failed(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        [(connection, heard)] = clients
        connection.server.keys.set_password("secret")
        connection.data_received(encoded("AUTH", "wrong") + encoded("PING"))
        assert connection.eof_received()
        replies = await heard.wait_for(2)
        assert [reply[:10] for reply in replies] == [b"-WRONGPASS", b"+PONG"]
        await heard.ended()

    with_clients(tmp_path, 1, scene)


def test_jobs_in_a_pipeline_take_their_times_from_the_config_of_the_queue(tmp_path: Path) -> None:
    async def scene(clients: list[Client]) -> None:
        [(connection, heard)] = clients
        connection.data_received(encoded("TOPIC", "CREATE", "q", "ttl_ms", 7_200_000))
        await heard.wait_for(1)
        add = encoded("ADDJOB", "q", "x", 0)
        connection.data_received(add)  # gathered
        connection.data_received(add * 3)  # behind that: in its own share
        replies = await heard.wait_for(5)
        assert [reply[-6:] for reply in replies[1:]] == [b"0079SQ"] * 4, "120 minutes"

    with_clients(tmp_path, 1, scene)
