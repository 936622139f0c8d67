"""Blocking GETJOB: who waits is served in turn, keeps its order, and costs nobody else."""

from __future__ import annotations

import time
from contextlib import ExitStack

from esker.testing.broker import Broker
from tests.fronts.resp.wire import NULL_ARRAY, Failure, Simple, Wire, encoded, job_id, pairs


def wait_until_blocked(wire: Wire, queue: bytes, count: int) -> None:
    """A blocked call has no reply to wait for, so ask the server until it knows of `count`."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        stat = wire("QSTAT", queue)
        if (pairs(stat)["blocked"] if isinstance(stat, list) else 0) == count:
            return
        time.sleep(0.002)
    raise AssertionError(f"never {count} blocked on {queue!r}")


def test_a_waiting_client_gets_the_job_when_it_comes(wire: Wire, other: Wire, queue: bytes) -> None:
    other.send(encoded("GETJOB", "FROM", queue + b"-empty", queue))
    wait_until_blocked(wire, queue, 1)
    added = job_id(wire("ADDJOB", queue, "a", 0)).encode()
    assert other.reply() == [[queue, added, b"a"]]
    assert wire("QLEN", queue) == 0
    wait_until_blocked(wire, queue + b"-empty", 0)


def test_who_came_first_is_served_first_with_one_job_each(shared_broker: Broker, wire: Wire, queue: bytes) -> None:
    with ExitStack() as stack:
        waiting = [stack.enter_context(Wire(shared_broker.resp_port)) for _ in range(5)]
        for count, client in enumerate(waiting, 1):
            client.send(encoded("GETJOB", "COUNT", 3, "WITHCOUNTERS", "FROM", queue))
            wait_until_blocked(wire, queue, count)
        wire.send(b"".join(encoded("ADDJOB", queue, n, 0) for n in range(6)))
        ids = [job_id(reply).encode() for reply in wire.replies(6)]
        for n, client in enumerate(waiting):
            assert client.reply() == [[queue, ids[n], b"%d" % n, b"nacks", 0, b"additional-deliveries", 0]]
        assert wire("QLEN", queue) == 1


def test_commands_behind_a_blocked_one_wait_for_it(wire: Wire, other: Wire, queue: bytes) -> None:
    other.send(encoded("GETJOB", "FROM", queue) + encoded("PING") + encoded("ADDJOB", queue + b"-2", "x", 0))
    wait_until_blocked(wire, queue, 1)
    other.send(encoded("PING", "later"))
    assert other.silent()
    assert wire("QLEN", queue + b"-2") == 0
    added = job_id(wire("ADDJOB", queue, "a", 0)).encode()
    assert other.reply() == [[queue, added, b"a"]]
    assert other.reply() == Simple("PONG")
    assert isinstance(other.reply(), Simple)
    assert other.reply() == b"later"


def test_a_client_may_send_megabytes_behind_a_blocked_command(wire: Wire, other: Wire, queue: bytes) -> None:
    body = b"x" * 100_000
    other.socket.settimeout(0.5)
    other.send(encoded("GETJOB", "FROM", queue))
    wait_until_blocked(wire, queue, 1)
    sent = 0
    try:
        for _ in range(200):  # 20 MB: the server stops reading long before
            other.send(encoded("PING", body))
            sent += 1
    except TimeoutError:
        assert sent < 200
    else:
        raise AssertionError("the server took 20 MB of a client that is blocked")
    wire("ADDJOB", queue, "a", 0)
    other.socket.settimeout(20)
    assert isinstance(other.reply(), list)
    assert [other.reply() for _ in range(sent)] == [body] * sent


def test_a_wait_ends_at_its_timeout(wire: Wire, queue: bytes) -> None:
    began = time.monotonic()
    assert wire("GETJOB", "TIMEOUT", 200, "FROM", queue) is NULL_ARRAY
    assert 0.15 < time.monotonic() - began < 5
    assert wire("PING") == Simple("PONG")


def test_a_client_that_left_takes_no_job(shared_broker: Broker, wire: Wire, queue: bytes) -> None:
    leaver = Wire(shared_broker.resp_port)
    leaver.send(encoded("GETJOB", "FROM", queue))
    wait_until_blocked(wire, queue, 1)
    leaver.close()
    wait_until_blocked(wire, queue, 0)
    wire("ADDJOB", queue, "a", 0)
    assert wire("QLEN", queue) == 1


def test_a_wait_can_be_ended_by_another_client(wire: Wire, other: Wire, queue: bytes) -> None:
    who = other("CLIENT", "ID")
    assert isinstance(who, int)
    for how, expected in (("TIMEOUT", NULL_ARRAY), ("ERROR", Failure("UNBLOCKED client unblocked via CLIENT UNBLOCK"))):
        other.send(encoded("GETJOB", "FROM", queue))
        wait_until_blocked(wire, queue, 1)
        assert wire("CLIENT", "UNBLOCK", who, how) == 1
        reply = other.reply()
        assert reply is expected or reply == expected
    assert wire("CLIENT", "UNBLOCK", who) == 0


def test_a_flush_and_a_leaving_node_end_every_wait(broker: Broker) -> None:
    with Wire(broker.resp_port) as wire, Wire(broker.resp_port) as other:
        wire("ADDJOB", "q", "a", 0)
        other.send(encoded("GETJOB", "FROM", "empty"))
        wait_until_blocked(wire, b"empty", 1)
        assert wire("DEBUG", "FLUSHALL") == Simple("OK")
        assert other.reply() is NULL_ARRAY
        assert wire("QLEN", "q") == 0

        other.send(encoded("GETJOB", "FROM", "empty"))
        wait_until_blocked(wire, b"empty", 1)
        assert wire("CLUSTER", "LEAVING") == Simple("no")
        assert wire("CLUSTER", "LEAVING", "yes") == Simple("OK")
        assert str(other.reply()).startswith("LEAVING ")
        assert str(other("GETJOB", "FROM", "empty")).startswith("LEAVING ")
        assert other("GETJOB", "NOHANG", "FROM", "empty") is NULL_ARRAY
        assert str(wire("ADDJOB", "q", "a", 0)).startswith("NOREPL ")
        hello = wire("HELLO")
        assert isinstance(hello, list)
        assert isinstance(hello[2], list)
        assert hello[2][3] == b"100"
        assert wire("CLUSTER", "LEAVING", "no") == Simple("OK")
        assert isinstance(wire("ADDJOB", "q", "a", 0), Simple)


def test_debug_sleep_delays_only_its_own_connection(wire: Wire, other: Wire) -> None:
    other.send(encoded("DEBUG", "SLEEP", "0.4") + encoded("PING"))
    began = time.monotonic()
    assert wire("PING") == Simple("PONG")
    assert time.monotonic() - began < 0.3
    assert other.replies(2) == [Simple("OK"), Simple("PONG")]
    assert time.monotonic() - began >= 0.3
