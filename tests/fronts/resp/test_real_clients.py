"""Clients that others wrote, used as their users use them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pydisque.client
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from esker.testing.broker import Broker


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def client(request: pytest.FixtureRequest, shared_broker: Broker) -> Iterator[redis.Redis]:
    with redis.Redis(port=shared_broker.resp_port, protocol=request.param) as connected:
        yield connected


def run(client: redis.Redis, *arguments: bytes | str | int) -> object:
    reply: object = client.execute_command(*arguments)  # type: ignore[no-untyped-call]
    return reply


def test_redis_py_runs_jobs_and_administration(client: redis.Redis, queue: bytes) -> None:
    assert client.ping() is True
    added = run(client, "ADDJOB", queue, "body", 0)
    assert isinstance(added, bytes)
    assert run(client, "GETJOB", "FROM", queue) == [[queue, added, b"body"]]
    assert run(client, "ACKJOB", added) == 1
    assert run(client, "GETJOB", "NOHANG", "FROM", queue) is None
    assert client.info()["disque_version"] == "1.0-rc1"
    assert client.config_get("maxclients") == {"maxclients": "10000"}
    assert client.client_setname("tester") is True
    assert client.client_getname() in ("tester", b"tester")
    assert any(entry["name"] == "tester" for entry in client.client_list())
    assert client.client_id() > 0
    assert len(client.time()) == 2
    assert client.slowlog_len() >= 0
    assert isinstance(client.slowlog_get(), list)
    assert "getjob" in client.command()
    assert client.echo("hi") == b"hi"


def test_redis_py_pipelines(client: redis.Redis, queue: bytes) -> None:
    with client.pipeline(transaction=False) as pipeline:
        for n in range(100):
            run(pipeline, "ADDJOB", queue, n, 0)
        ids = pipeline.execute()
    assert len(set(ids)) == 100
    assert run(client, "QLEN", queue) == 100


def test_redis_py_sees_errors_as_errors(client: redis.Redis) -> None:
    with pytest.raises(redis.ResponseError, match="BADID"):
        run(client, "ACKJOB", "nonsense")
    with pytest.raises(redis.ResponseError, match="unknown command"):
        run(client, "NONSENSE")


def test_redis_py_logs_in_by_its_handshake() -> None:
    at_once = Retry(NoBackoff(), 0)
    with Broker(password="secret") as broker:
        for protocol in (2, 3):
            with redis.Redis(port=broker.resp_port, password="secret", protocol=protocol) as inside:
                assert inside.ping() is True
            outside = redis.Redis(port=broker.resp_port, password="wrong", protocol=protocol, retry=at_once)
            with outside, pytest.raises(redis.AuthenticationError):
                outside.ping()
        with redis.Redis(port=broker.resp_port, retry=at_once) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()


def test_pydisque_runs_every_call_it_has(shared_broker: Broker, queue: bytes) -> None:
    client = pydisque.client.Client([f"127.0.0.1:{shared_broker.resp_port}"])
    client.connect()
    name = queue.decode()
    try:
        assert client.hello()[0] == 1
        assert client.info()["registered_queues"] >= 0
        added = client.add_job(name, "body", timeout=200, retry=5, ttl=60, maxlen=10, replicate=1, asynchronous=True)
        assert client.qlen(name) == 1
        assert client.qpeek(name, 1) == [[queue, added, b"body"]]
        assert client.get_job([name]) == [(queue, added, b"body")]
        assert client.working(added) == 5
        client.nack_job(added)
        assert client.get_job([name], withcounters=True) == [(queue, added, b"body", 1, 0)]
        assert client.enqueue(added) == 1
        assert client.dequeue(added) == 1
        assert client.show(added, return_dict=True)[b"state"] == b"active"
        assert client.show("DI" + "0" * 44 + "SQ") is None
        assert client.qstat(name, return_dict=True)[b"jobs-in"] == 1
        assert client.pause(name, kw_in=True) == b"in"
        assert client.pause(name, kw_none=True) == b"none"
        assert queue in client.qscan(busyloop=True)[1]
        assert client.jscan(queue=name, busyloop=True, state=["active"])[1] == [added]
        assert client.jscan(queue=name, reply="all")[1][0][1] == added
        client.ack_job(added)
        assert client.get_job([name], timeout=50) == []
        assert client.get_job([name], nohang=True) == []
        second = client.add_job(name, "again")
        client.fast_ack(second)
        assert client.del_job(second) == 0
    finally:
        client.get_connection().close()


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="redis-cli is not installed")
def test_redis_cli_talks_and_shows_the_lists(shared_broker: Broker, queue: bytes) -> None:
    def cli(*arguments: str, given: str | None = None) -> str:
        port = str(shared_broker.resp_port)
        done = subprocess.run(
            ["redis-cli", "-p", port, *arguments], input=given, capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout

    name = queue.decode()
    added = cli("ADDJOB", name, "body", "0").strip()
    assert added.startswith("DI")
    assert cli("GETJOB", "FROM", name).split() == [name, added, "body"]
    assert cli("-3", "QLEN", name).strip() == "0"
    assert cli(given=f"PING\nQLEN {name}\nNONSENSE\n").splitlines()[:2] == ["PONG", "0"]
    assert "# Server" in cli("INFO")
