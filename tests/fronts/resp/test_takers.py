"""Whose a lease is: a worker that was too slow cannot touch the lease of its successor, named or not."""

from __future__ import annotations

import httpx
import pytest

from esker.testing.broker import Broker
from tests.fronts.resp.wire import Failure, Reply, Wire, encoded, job_id


def prefix(reply: object) -> str:
    assert isinstance(reply, Failure), reply
    return reply.split()[0]


def leased(wire: Wire, queue: bytes) -> tuple[bytes, bytes]:
    """Takes the next job: its id, and the token of the lease."""
    got = wire("GETJOB", "NOHANG", "WITHTOKEN", "FROM", queue)
    assert isinstance(got, list)
    (job,) = got
    assert isinstance(job, list)
    _, taken, _, word, token = job
    assert word == b"token"
    assert isinstance(taken, bytes)
    assert isinstance(token, bytes)
    return taken, token


def renewed(wire: Wire, other: Wire, queue: bytes) -> tuple[bytes, bytes, bytes]:
    """A job that `wire` held too long, and that `other` holds now: its id, the stale token, the live one."""
    wire("ADDJOB", queue, "body", 0, "RETRY", 100)
    taken, stale = leased(wire, queue)
    assert wire("ENQUEUE", taken) == 1  # what the end of the lease does
    again, live = leased(other, queue)
    assert (again, stale != live) == (taken, True)
    return taken, stale, live


def test_a_stale_worker_cannot_touch_the_lease_of_its_successor(wire: Wire, other: Wire, queue: bytes) -> None:
    taken, _, _ = renewed(wire, other, queue)
    assert wire("NACK", taken) == 0
    assert prefix(wire("WORKING", taken)) == "STALETOKEN"
    assert wire("JOB", "EXTEND", 1000, taken) == 0
    assert wire("QLEN", queue) == 0
    assert other("WORKING", taken) == 100
    assert other("JOB", "EXTEND", 1000, taken) == 1
    assert other("NACK", taken) == 1


def test_a_worker_that_names_its_lease_is_fenced_by_it(wire: Wire, other: Wire, queue: bytes) -> None:
    taken, stale, live = renewed(wire, other, queue)
    for client in (wire, other):  # whatever connection it comes by
        assert client("NACK", taken, "TOKEN", stale) == 0
        assert client("ACKJOB", taken, "token", stale) == 0
        assert client("FASTACK", taken, "TOKEN", stale) == 0
        assert client("JOB", "EXTEND", 1000, taken, "TOKEN", stale) == 0
        assert prefix(client("WORKING", taken, "TOKEN", stale)) == "STALETOKEN"
    assert wire("WORKING", taken, "TOKEN", live) == 100
    assert wire("JOB", "EXTEND", 1000, taken, "TOKEN", live) == 1
    assert wire("NACK", taken, "TOKEN", live) == 1
    taken, live = leased(other, queue)
    assert wire("ACKJOB", taken, "TOKEN", live) == 1


def test_several_jobs_may_be_named_with_and_without_their_leases(wire: Wire, queue: bytes) -> None:
    for body in ("a", "b", "c"):
        wire("ADDJOB", queue, body, 0)
    (one, first), (two, second), (three, _) = (leased(wire, queue) for _ in range(3))
    assert wire("NACK", one, "TOKEN", first, two, "TOKEN", first, three) == 2
    assert wire("ACKJOB", two, "TOKEN", second, two, one) == 2


def test_an_ack_without_a_token_is_heeded_from_anybody(wire: Wire, other: Wire, queue: bytes) -> None:
    taken, _, _ = renewed(wire, other, queue)
    assert wire("ACKJOB", taken) == 1


@pytest.mark.parametrize("command", [["NACK"], ["ACKJOB"], ["FASTACK"], ["WORKING"], ["JOB", "EXTEND", 1000]])
@pytest.mark.parametrize("bad", [["TOKEN"], ["TOKEN", "x"], ["TOKEN", ""], ["TOKEN", "-1"], ["TOKEN", "f" * 17]])
def test_a_token_that_is_none_is_refused(wire: Wire, queue: bytes, command: list[str | int], bad: list[str]) -> None:
    wire("ADDJOB", queue, "body", 0)
    taken, _ = leased(wire, queue)
    assert prefix(wire(*command, taken, *bad)) == "ERR"
    assert wire("NACK", taken) == 1


def test_a_lease_of_a_connection_that_has_ended_is_anybodys(
    wire: Wire, other: Wire, shared_broker: Broker, queue: bytes
) -> None:
    """A worker that connects anew still works on what it took before."""
    ids = []
    with Wire(shared_broker.resp_port) as gone:
        number = gone("CLIENT", "ID")
        for body in "abcd":
            gone("ADDJOB", queue, body, 0)
            ids.append(leased(gone, queue)[0])
        assert wire("NACK", *ids) == 0
    while is_open(wire, number):
        continue
    mine = job_id(other("ADDJOB", queue, "mine", 0))
    leased(other, queue)
    assert wire("WORKING", ids[0]) == 300
    assert wire("JOB", "EXTEND", 1000, ids[0], mine) == 1
    assert wire("NACK", ids[0], mine, *ids[1:]) == 4
    assert other("NACK", mine) == 1


def is_open(wire: Wire, number: Reply) -> bool:
    listed = wire("CLIENT", "LIST", "ID", str(number))
    assert isinstance(listed, bytes)
    return listed != b""


def test_connections_of_one_name_are_one_worker(wire: Wire, other: Wire, shared_broker: Broker, queue: bytes) -> None:
    name = queue + b"-worker"
    wire("CLIENT", "SETNAME", name)
    other("HELLO", 2, "SETNAME", name)
    taken, _, _ = renewed(wire, other, queue)
    with Wire(shared_broker.resp_port) as third:
        assert third("NACK", taken) == 0
    assert wire("WORKING", taken) == 100
    assert wire("NACK", taken) == 1
    leased(other, queue)
    wire("CLIENT", "SETNAME", "")
    assert wire("NACK", taken) == 0


def test_a_job_that_a_blocked_getjob_got_is_its_own(wire: Wire, other: Wire, queue: bytes) -> None:
    wire.send(encoded("GETJOB", "WITHTOKEN", "FROM", queue + b"-none", queue))
    added = job_id(other("ADDJOB", queue, "body", 0))
    got = wire.reply()
    assert isinstance(got, list)
    assert other("NACK", added) == 0
    assert wire("NACK", added) == 1


def test_getjobs_that_came_together_are_of_the_connection_that_sent_them(wire: Wire, other: Wire, queue: bytes) -> None:
    ids = [job_id(wire("ADDJOB", queue, body, 0)) for body in "ab"]
    wire.send(encoded("GETJOB", "FROM", queue) * 2)
    assert len(wire.replies(2)) == 2
    assert other("NACK", *ids) == 0
    assert wire("NACK", *ids) == 2


def test_a_lease_that_was_taken_without_a_connection_is_anybodys(
    wire: Wire, shared_broker: Broker, queue: bytes
) -> None:
    added = job_id(wire("ADDJOB", queue, "body", 0))
    claimed = httpx.post(f"{shared_broker.http_url}/v0/topics/{queue.decode()}/claim", json={"node": "w"})
    assert claimed.json()["count"] == 1
    assert wire("WORKING", added) == 300
    assert wire("NACK", added) == 1
