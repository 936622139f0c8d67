"""A reply over HTTP leaves only after what it tells of is on disk, and never when the disk has failed."""

from __future__ import annotations

import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaiting
from pathlib import Path

import pytest

from esker.journal.pace import Pace
from esker.testing.broker import Broker
from esker.testing.faults import FaultyDisk
from tests.fronts.http.web import Web, listed
from tests.fronts.resp.wire import Wire


def test_writes_reads_and_refusals_wait_for_the_disk() -> None:
    disk = FaultyDisk()
    with Broker(disk=disk) as broker, Web(broker.http_url) as web, Web(broker.http_url, http2=True) as other:
        web.put("safe", durable=True)
        with ThreadPoolExecutor(4) as pool:
            with disk.hold_syncs(of=".segment") as held:
                writing = pool.submit(web.write, "safe", "x")
                held.wait_begun()
                reading = pool.submit(other.diff, "safe")
                refused = pool.submit(other.refused, "GET", "/v0/topics/absent", status=404)
                for waiting in (writing, reading, refused):
                    with pytest.raises(StillWaiting):
                        waiting.result(timeout=0.2)
                held.release()
            assert writing.result(10)["seqs"] == [1]
            assert [record["data"] for record in listed(reading.result(10), "records")] == ["x"]
            assert refused.result(10).code == "topic_not_found"


def test_a_failed_disk_is_an_internal_error_that_says_so(tmp_path: Path) -> None:
    disk = FaultyDisk()
    broker = Broker(data=str(tmp_path / "data"), disk=disk).start()
    with Web(broker.http_url) as web:
        web.put("safe", durable=True)
        disk.fail_sync(of=".segment")
        refused = web.refused("POST", "/v0/topics/safe", {"records": [{"data": 1}]}, status=500)
        assert refused.code == "internal"
        assert "durable" in str(refused.message)
        assert web.refused("GET", "/v0/topics/safe", status=500).code == "internal"
        assert web.client.get("/v0/health").status_code == 200
    broker.stop()
    with Broker(data=broker.data) as again, Web(again.http_url) as web:
        assert web.state("safe")["head_seq"] in (0, 1), "it may or may not have reached the disk"


def test_a_node_that_is_asked_to_stop_while_its_journal_waits_for_a_segment_stops(tmp_path: Path) -> None:
    disk = FaultyDisk()
    broker = Broker(data=str(tmp_path / "data"), disk=disk, segment_size="64kb").start()
    with Web(broker.http_url) as web, ThreadPoolExecutor(1) as pool:
        web.put("log", durable=True)
        web.write("log", "x" * 40_000)
        disk.deny_descriptors()
        waiting = pool.submit(web.refused, "POST", "/v0/topics/log", {"records": [{"data": "y" * 40_000}]}, status=500)
        with Web(broker.http_url) as other:
            deadline = time.monotonic() + 30
            while other.client.get("/readyz").status_code == 200:
                assert time.monotonic() < deadline
        broker.stop()
        assert "not made durable" in str(waiting.result(10).message)
    disk.deny_descriptors(denied=False)
    with Broker(data=broker.data) as again, Web(again.http_url) as web:
        assert [len(str(record["data"])) for record in listed(web.diff("log"), "records")] == [40_000]


def test_what_was_acknowledged_is_there_after_a_restart() -> None:
    with Broker() as broker:
        with Web(broker.http_url) as web:
            web.put("q", type="queue", durable=True)
            web.write("q", 1, 2, 3)
            web.claim("q", "w", max=2)
            web.ask("POST", "/v0/topics/q/ack", {"node": "w", "seqs": [1]})
            web.ask("PUT", "/v0/routers/a->b", {"source": "a", "dest": "b"}, 201)
        broker.restart()
        with Web(broker.http_url) as web:
            assert [record["$seq"] for record in listed(web.diff("q"), "records")] == [2, 3]
            assert [job["$seq"] for job in web.claim("q", "v", max=5)] == [2, 3], "leases are not kept unless asked for"
            assert web.ask("GET", "/v0/routers/a->b")["source"] == "a"


def test_a_claim_of_jobs_on_disk_does_not_wait_for_what_others_write(slow_disk: FaultyDisk) -> None:
    with Broker(disk=slow_disk) as broker, Web(broker.http_url) as web, Web(broker.http_url, http2=True) as other:
        web.put("q", type="queue", durable=True)
        web.write("q", 1, 2)
        time.sleep(0.002)
        web.put("later", durable=True)  # what is known to be on disk with it is all from a millisecond before
        with ThreadPoolExecutor(4) as pool:
            with slow_disk.hold_syncs(of=".segment") as held:
                writing = pool.submit(web.write, "q", 3)
                held.wait_begun()
                assert [job["$seq"] for job in other.claim("q", "w", max=1)] == [1]
                with Web(broker.http_url) as third:
                    assert [job["$seq"] for job in third.claim("q", "w", max=1)] == [2]
                unsynced = pool.submit(other.claim, "q", "w", max=1)
                for waiting in (writing, unsynced):
                    with pytest.raises(StillWaiting):
                        waiting.result(timeout=0.2)
                held.release()
            assert writing.result(10)["seqs"] == [3]
            assert [job["$seq"] for job in unsynced.result(10)] == [3], "it was not on disk when it was claimed"


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    """One that is left to the journal's thread, so that the loop goes on while it waits."""
    monkeypatch.setattr(Pace, "quick", lambda pace, now: False)
    return FaultyDisk()


def test_after_a_failed_disk_every_request_is_answered(slow_disk: FaultyDisk, tmp_path: Path) -> None:
    """Also those that were behind others on their connection, or were decided while the batch was on its way."""
    broker = Broker(data=str(tmp_path / "data"), disk=slow_disk).start()
    with Web(broker.http_url) as web:
        web.put("safe", durable=True)
        with (
            slow_disk.hold_syncs(of=".segment") as held,
            socket.create_connection(("127.0.0.1", broker.http_port)) as one,
        ):
            one.settimeout(10)
            one.sendall(_write("safe"))
            held.wait_begun()
            with socket.create_connection(("127.0.0.1", broker.http_port)) as two:
                two.settimeout(10)
                two.sendall(_write("safe") * 3)
                with Wire(broker.resp_port) as wire:
                    wire("PING")  # which waits for no disk; by now the others were read, too
                slow_disk.fail_sync(of=".segment")
                held.release()
                assert _statuses(one, 1) == [200], "its sync had begun before"
                assert _statuses(two, 3) == [500] * 3
        assert web.refused("GET", "/v0/topics/safe", status=500).code == "internal"
    broker.stop()


def _write(topic: str) -> bytes:
    body = b'{"records":[{"data":1}]}'
    line = b"POST /v0/topics/%b HTTP/1.1\r\nHost: localhost\r\n"
    head = line + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (topic.encode(), len(body)) + body


def _statuses(connection: socket.socket, count: int) -> list[int]:
    text = b""
    while len(found := re.findall(rb"HTTP/1.1 (\d+)", text)) < count:
        text += connection.recv(65536)
    return list(map(int, found))
