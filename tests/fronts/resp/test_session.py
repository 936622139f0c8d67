"""How connections begin and end: passwords, handshakes, broken protocol, limits."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from esker.fronts.resp.options import RespOptions
from esker.testing.broker import Broker
from tests.fronts.resp.wire import Failure, Simple, Wire, encoded

NOAUTH = Failure("NOAUTH Authentication required.")
WRONGPASS = Failure("WRONGPASS invalid username-password pair or user is disabled.")


@pytest.fixture(scope="module")
def locked() -> Iterator[Broker]:
    with Broker(password="secret") as running:
        yield running


def test_nothing_but_a_login_works_before_the_password(locked: Broker) -> None:
    with Wire(locked.resp_port) as wire:
        assert wire("PING") == NOAUTH
        assert wire("ADDJOB", "q", "a", 0) == NOAUTH
        assert str(wire("HELLO")).startswith("NOAUTH HELLO must be called with the client already authenticated")
        assert wire("NONSENSE") == Failure("ERR unknown command 'NONSENSE'")
        assert wire("QLEN") == Failure("ERR wrong number of arguments for 'qlen' command")
        assert wire("AUTH", "wrong") == WRONGPASS
        assert wire("AUTH", "someone", "secret") == WRONGPASS
        assert wire("AUTH", "a", "b", "c") == Failure("ERR syntax error")
        assert wire("AUTH") == Failure("ERR wrong number of arguments for 'auth' command")
        assert wire("PING") == NOAUTH
        assert wire("AUTH", "secret") == Simple("OK")
        assert wire("PING") == Simple("PONG")
        assert wire("AUTH", "wrong") == WRONGPASS
        assert wire("PING") == Simple("PONG"), "who is inside stays inside"


def test_a_login_and_what_follows_may_come_in_one_piece(locked: Broker) -> None:
    with Wire(locked.resp_port) as wire:
        wire.send(encoded("AUTH", "default", "secret") + encoded("ADDJOB", "q", "x" * 50_000, 0) + encoded("QLEN", "q"))
        logged_in, added, length = wire.replies(3)
        assert logged_in == Simple("OK")
        assert isinstance(added, Simple)
        assert length == 1


def test_hello_can_log_in(locked: Broker) -> None:
    with Wire(locked.resp_port) as wire:
        assert str(wire("HELLO", 3)).startswith("NOAUTH HELLO must be called")
        assert str(wire("HELLO", 3, "AUTH", "default", "wrong")).startswith("WRONGPASS ")
        greeting = wire("HELLO", 3, "AUTH", "default", "secret", "SETNAME", "worker-1")
        assert isinstance(greeting, dict)
        assert (greeting[b"proto"], greeting[b"role"]) == (3, b"master")
        assert wire("CLIENT", "GETNAME") == b"worker-1"


def test_the_password_can_change_while_it_runs() -> None:
    with Broker() as broker, Wire(broker.resp_port) as wire:
        assert wire("AUTH", "x") == Failure(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your "
            "configuration is correct?"
        )
        assert wire("AUTH", "default", "x") == Simple("OK")
        assert wire("AUTH", "someone", "x") == WRONGPASS
        assert isinstance(wire("HELLO", 2, "AUTH", "default", "x"), list)
        assert wire("CONFIG", "SET", "requirepass", "new") == Simple("OK")
        assert wire("PING") == Simple("PONG")  # who is inside stays inside
        with Wire(broker.resp_port) as later:
            assert later("PING") == NOAUTH
            assert later("AUTH", "new") == Simple("OK")


def test_hello_alone_is_disques(wire: Wire, shared_broker: Broker) -> None:
    node = wire("CLUSTER", "MYID")
    assert wire("HELLO") == [1, node, [node, b"", b"%d" % shared_broker.resp_port, b"1"]]


def test_hello_with_a_version_is_redis_s(wire: Wire) -> None:
    flat = wire("HELLO", 2)
    assert isinstance(flat, list)
    assert flat[:2] == [b"server", b"esker"]
    assert wire("HELLO", 4) == Failure("NOPROTO unsupported protocol version")
    assert wire("HELLO", 1) == Failure("NOPROTO unsupported protocol version")
    assert wire("HELLO", "x") == Failure("ERR Protocol version is not an integer or out of range")
    assert wire("HELLO", 2, "aUth", "default") == Failure("ERR Syntax error in HELLO option 'aUth'")
    assert wire("HELLO", 2, "SETNAME") == Failure("ERR Syntax error in HELLO option 'SETNAME'")
    assert wire("HELLO", 2, "nonsense", "x") == Failure("ERR Syntax error in HELLO option 'nonsense'")
    assert wire("HELLO", 2, "SETNAME", "a b") == Failure(
        "ERR Client names cannot contain spaces, newlines or special characters."
    )
    assert wire("SHOW", "DI" + "0" * 44 + "SQ") is None


def test_after_hello_3_a_null_is_the_one_of_resp3(wire: Wire, queue: bytes) -> None:
    wire("HELLO", 3)
    wire.send(encoded("GETJOB", "NOHANG", "FROM", queue))
    assert wire.socket.recv(100) == b"_\r\n"
    assert isinstance(wire("CONFIG", "GET", "maxclients"), dict)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"*x\r\n", "ERR Protocol error: invalid multibulk length"),
        (b"*1\r\n+PING\r\n", "ERR Protocol error: expected '$', got '+'"),
        (b'PING "\r\n', "ERR Protocol error: unbalanced quotes in request"),
    ],
)
def test_a_broken_stream_gets_its_replies_then_the_error_then_the_end(
    wire: Wire, queue: bytes, data: bytes, text: str
) -> None:
    wire.send(encoded("ADDJOB", queue, "a", 0) + data + encoded("PING"))
    assert isinstance(wire.reply(), Simple)
    assert wire.reply() == Failure(text)
    assert wire.ended()


def test_inline_commands_work(wire: Wire, queue: bytes) -> None:
    wire.send(b'\r\nADDJOB %b "a b" 0\r\nqlen %b\n' % (queue, queue))
    assert isinstance(wire.reply(), Simple)
    assert wire.reply() == 1


def test_quit_answers_and_ends(wire: Wire, queue: bytes) -> None:
    wire.send(encoded("ADDJOB", queue, "a", 0) + encoded("QUIT") + encoded("PING"))
    assert isinstance(wire.reply(), Simple)
    assert wire.reply() == Simple("OK")
    assert wire.ended()


def test_who_closes_after_sending_still_gets_the_replies(wire: Wire, queue: bytes) -> None:
    wire.send(b"".join(encoded("ADDJOB", queue, n, 0) for n in range(20)) + encoded("GETJOB", "FROM", queue + b"-none"))
    wire.socket.shutdown(socket.SHUT_WR)
    assert all(isinstance(reply, Simple) for reply in wire.replies(20))
    assert wire.ended()


def test_an_unknown_command_or_arity_goes_on(wire: Wire) -> None:
    assert wire("FOO", "bar") == Failure("ERR unknown command 'FOO'")
    assert wire("ping", "a", "b") == Failure("ERR wrong number of arguments for 'ping' command")
    assert wire("AddJob", "q") == Failure("ERR wrong number of arguments for 'addjob' command")
    assert wire("pInG") == Simple("PONG")


def test_one_client_too_many_is_told_and_sent_away() -> None:
    with (
        Broker(options=RespOptions(clients_max=2)) as broker,
        Wire(broker.resp_port) as one,
        Wire(broker.resp_port) as two,
    ):
        assert (one("PING"), two("PING")) == (Simple("PONG"), Simple("PONG"))
        with Wire(broker.resp_port) as three:
            assert three.reply() == Failure("ERR max number of clients reached")
            assert three.ended()
        assert "rejected_connections:1" in str(one("INFO", "stats"))


def test_a_client_that_does_not_read_is_cut_and_others_go_on() -> None:
    options = RespOptions(output_bytes_max=4 << 20, output_soft_bytes=1 << 20)
    with Broker(options=options) as broker, Wire(broker.resp_port) as other:
        with Wire(broker.resp_port) as slow:
            flood = encoded("PING", b"x" * 100_000) * 2000
            with pytest.raises(ConnectionError):
                slow.send(flood)
        assert other("PING") == Simple("PONG")
        assert b"slow_readers_cut:1" in _bytes(other("INFO", "stats"))


def test_an_idle_client_is_closed_when_asked_for() -> None:
    with Broker(options=RespOptions(idle_timeout_s=1)) as broker, Wire(broker.resp_port) as idle:
        assert idle("PING") == Simple("PONG")
        assert idle.ended()


def _bytes(reply: object) -> bytes:
    assert isinstance(reply, bytes)
    return reply


def test_no_secret_is_in_the_slow_log() -> None:
    with Broker(password="secret-7") as broker, Wire(broker.resp_port) as wire:
        assert wire("AUTH", "secret-7") == Simple("OK")
        wire("CONFIG", "SET", "slowlog-log-slower-than", 0)
        wire("AUTH", "secret-7")
        wire("HELLO", 2, "AUTH", "default", "secret-7")
        wire("PING")
        logged = str(wire("SLOWLOG", "GET", 100))
        assert "PING" in logged
        assert "secret-7" not in logged
