"""A reply over HTTP leaves only after what it tells of is on disk, and never when the disk has failed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaiting
from pathlib import Path

import pytest

from esker.testing.broker import Broker
from esker.testing.faults import FaultyDisk
from tests.fronts.http.web import Web, listed


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
