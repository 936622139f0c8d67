"""MULTI and EXEC: all commands in one go, or none of them."""

from __future__ import annotations

import pytest
import redis

from esker.fronts.resp.transactions import BYTES_MAX, COMMANDS_MAX, REPLY_BYTES_MAX
from esker.testing.broker import Broker
from tests.fronts.resp.wire import NULL_ARRAY, Failure, Simple, Wire, encoded, job_id

QUEUED = Simple("QUEUED")


def test_the_default_pipeline_of_redis_py_adds_each_job_once(shared_broker: Broker, queue: bytes) -> None:
    with redis.Redis(port=shared_broker.resp_port) as client:
        with client.pipeline() as pipeline:
            for number in range(50):
                pipeline.execute_command("ADDJOB", queue, number, 0)
            pipeline.execute_command("QLEN", queue)
            *ids, length = pipeline.execute()
        assert (len(set(ids)), length) == (50, 50)
        assert client.execute_command("QLEN", queue) == 50


def test_a_pipeline_of_redis_py_that_raises_has_done_nothing(shared_broker: Broker, queue: bytes) -> None:
    with redis.Redis(port=shared_broker.resp_port) as client:
        with client.pipeline() as pipeline:
            pipeline.execute_command("ADDJOB", queue, "body", 0)
            pipeline.execute_command("NOSUCH", queue)
            with pytest.raises(redis.ResponseError, match="unknown command"):
                pipeline.execute()
        assert client.execute_command("QLEN", queue) == 0
        with client.pipeline() as pipeline, pytest.raises(redis.ResponseError, match="WATCH is not supported"):
            pipeline.watch("key")


@pytest.mark.parametrize("at_once", [True, False])
def test_commands_wait_for_exec_and_their_replies_come_as_an_array(
    wire: Wire, other: Wire, queue: bytes, at_once: bool
) -> None:
    commands = [
        encoded("MULTI"),
        *[encoded("ADDJOB", queue, body, 0) for body in "ab"],
        encoded("GETJOB", "FROM", queue),
    ]
    commands += [encoded("ACKJOB", "nonsense"), encoded("GETJOB", "NOHANG", "COUNT", 5, "FROM", queue)]
    replies = []
    if at_once:
        wire.send(b"".join(commands))
        replies = wire.replies(6)
    else:
        for each in commands:
            wire.send(each)
            replies.append(wire.reply())
    assert replies == [Simple("OK"), *[QUEUED] * 5]
    assert other("QLEN", queue) == 0
    done = wire("EXEC")
    assert isinstance(done, list)
    first, second, one, bad, rest = done
    assert one == [[queue, job_id(first).encode(), b"a"]]
    assert isinstance(bad, Failure)
    assert rest == [[queue, job_id(second).encode(), b"b"]]
    assert wire("QLEN", queue) == 0
    assert wire("ACKJOB", job_id(first), job_id(second)) == 2


def test_nothing_waits_inside_a_transaction(wire: Wire, queue: bytes) -> None:
    wire("MULTI")
    assert wire("GETJOB", "FROM", queue) == QUEUED
    assert wire("EXEC") == [NULL_ARRAY]


def test_discard_forgets_and_exec_without_multi_is_an_error(wire: Wire, queue: bytes) -> None:
    wire("MULTI")
    wire("ADDJOB", queue, "body", 0)
    assert wire("DISCARD") == "OK"
    assert wire("QLEN", queue) == 0
    assert wire("EXEC") == Failure("ERR EXEC without MULTI")
    assert wire("DISCARD") == Failure("ERR DISCARD without MULTI")
    assert wire("UNWATCH") == "OK"


def test_multi_does_not_nest_and_that_alone_breaks_nothing(wire: Wire, queue: bytes) -> None:
    wire("MULTI")
    assert wire("MULTI") == Failure("ERR MULTI calls can not be nested")
    wire("ADDJOB", queue, "body", 0)
    assert isinstance(wire("EXEC"), list)
    assert wire("QLEN", queue) == 1


@pytest.mark.parametrize(
    "bad",
    [
        ["NOSUCH"],
        ["ADDJOB", "q"],
        ["DEBUG", "SLEEP", "0"],
        ["QPEEK", "q", "1"],
        ["HELLO", "3"],
        ["MONITOR"],
        ["TOPIC", "LIST"],
        ["DLQ", "LIST", "q"],
    ],
)
def test_a_command_that_could_not_be_kept_makes_exec_refuse_all(wire: Wire, queue: bytes, bad: list[str]) -> None:
    wire("MULTI")
    wire("ADDJOB", queue, "body", 0)
    assert isinstance(wire(*bad), Failure)
    assert wire("ADDJOB", queue, "body", 0) == QUEUED
    assert wire("EXEC") == Failure("EXECABORT Transaction discarded because of previous errors.")
    assert wire("QLEN", queue) == 0
    assert isinstance(wire("ADDJOB", queue, "body", 0), Simple)


def test_what_one_client_may_keep_has_bounds(wire: Wire, queue: bytes) -> None:
    wire.send(encoded("MULTI") + encoded("PING") * (COMMANDS_MAX + 1) + encoded("EXEC"))
    *kept, last, done = wire.replies(COMMANDS_MAX + 3)
    assert set(kept[1:]) == {QUEUED}
    assert isinstance(last, Failure)
    assert str(done).startswith("EXECABORT")
    wire("MULTI")
    replies = [wire("ADDJOB", queue, b"x" * (1 << 24), 0) for _ in range((BYTES_MAX >> 24) + 1)]
    assert replies[0] == QUEUED
    assert isinstance(replies[-1], Failure)
    assert str(wire("EXEC")).startswith("EXECABORT")


def test_payloads_that_are_asked_for_again_and_again_do_not_fill_the_memory(wire: Wire, queue: bytes) -> None:
    size = REPLY_BYTES_MAX // 5
    added = job_id(wire("ADDJOB", queue, b"x" * size, 0))
    wire.send(encoded("MULTI") + encoded("SHOW", added) * 8 + encoded("ACKJOB", added) + encoded("EXEC"))
    done = wire.replies(11)[-1]
    assert isinstance(done, list)
    assert [isinstance(reply, Failure) for reply in done[:-1]] == [False] * 5 + [True] * 3
    assert done[-1] == 1, "what changes something is executed all the same"


def test_a_client_that_leaves_before_exec_has_done_nothing(wire: Wire, shared_broker: Broker, queue: bytes) -> None:
    with Wire(shared_broker.resp_port) as leaving:
        leaving("MULTI")
        leaving("ADDJOB", queue, "body", 0)
        assert leaving("QUIT") == "OK"
        assert leaving.ended()
    assert wire("QLEN", queue) == 0
