"""What an orderly restart keeps of topics, deletes, routers, keys and jobs; and how a crash shows to readers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.http.api import Api, data, part, rows, seqs, timed, whole
from tests.contracts.http.events import Events
from tests.contracts.http.shapes import check
from tests.crash.process import NodeProcess


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    process = NodeProcess(tmp_path / "data")
    with process:
        yield process


def test_an_orderly_restart_keeps_everything_but_ephemeral_records_and_leases(node: NodeProcess) -> None:
    with Api(node.http_port) as api:
        for durability in ("ephemeral", "memory", "disk", "fsync"):
            api.put(durability, durability=durability, cap_records=50)
            api.post(durability, *({"data": n, "tag": f"t{n}", "meta": {"k": "v"}} for n in range(1, 6)))
            api.delete(durability, match="t2")
            api.delete(durability, before_seq=2)
        api.router("r", "fsync", "copies", guarantee="exactly_once")
        api.write("fsync", "routed", idempotency_key="k")
        api.put("q", type="queue", durable=True)
        api.put("held", type="queue", durable=True, leases_durable=True, lease_ms=600_000)
        for queue in ("q", "held"):
            api.write(queue, "a", "b", "c")
            api.claim(queue, "w", 2)
            api.ack(queue, "w", 1)
        before = {name: timed(api.state(name)) for name in ("memory", "disk", "fsync", "copies")}
        read = {name: api.diff(name, include_tags=True)["records"] for name in before}
    assert node.stop() == 0
    node.start()
    with Api(node.http_port) as api:
        for name, state in before.items():
            now = timed(api.state(name))
            for field in ("head_seq", "earliest_seq", "next_seq", "count", "bytes", "config", "last_write_ts"):
                check(now[field], state[field], f"{name}.{field}")
            check(api.diff(name, include_tags=True)["records"], read[name])
            assert api.diff(name)["tombstone"] is None
        state = api.state("ephemeral")
        assert (state["count"], part(state, "config")["durability"]) == (0, "ephemeral")
        assert whole(api.write("ephemeral", "new"), "first_seq") == 6
        assert api.write("fsync", "routed", idempotency_key="k")["deduped"] is True
        assert api.ask("GET", "/routers/r")["forwarded_total"] == 1
        api.write("fsync", "again")
        assert data(api.diff("copies")) == ["routed", "again"]
        assert api.queue("q") == {"ready": 2, "in_flight": 0, "dead_lettered": 0}
        assert api.queue("held") == {"ready": 1, "in_flight": 1, "dead_lettered": 0}
        assert api.ack("held", "w", 2)["acked"] == 1
        assert [job["data"] for job in api.claim("q", "w", 5)] == ["b", "c"]


def test_a_stale_cursor_hears_of_what_a_restart_took_for_a_reason_that_clients_know(node: NodeProcess) -> None:
    with Api(node.http_port) as api:
        api.put("ephemeral", durability="ephemeral")
        api.write("ephemeral", 1, 2, 3)
    assert node.stop() == 0
    node.start()
    with Api(node.http_port) as api:
        first = whole(api.write("ephemeral", "new"), "first_seq")
        assert first == 4
        page = api.diff("ephemeral", 1)
        assert seqs(page) == [4]
        gap = part(page, "tombstone")
        assert (gap["gap_from"], gap["gap_to"]) == (2, 3)
        assert gap["reason"] in ("cap", "ttl", "mixed", "recreated", "source_trim")


def test_the_next_seq_that_is_told_after_a_crash_is_the_one_given_out(node: NodeProcess) -> None:
    with Api(node.http_port) as api:
        api.put("disk")
        api.write("disk", 1, 2, 3)
    node.kill()
    node.start()
    with Api(node.http_port) as api:
        told = whole(api.state("disk"), "next_seq")
        assert whole(api.write("disk", "new"), "first_seq") == told
        assert [row["data"] for row in rows(api.diff("disk", told - 1), "records")] == ["new"]


def test_streams_are_told_when_the_node_stops(node: NodeProcess) -> None:
    with Api(node.http_port) as api:
        api.put("log")
        api.put("queue", type="queue")
        wid = api.ask("POST", "/watch", {"topics": {"log": {}}})["wid"]
        with Events(api, f"/watch/{wid}") as watch, Events(api, "/topics/queue/work?node=w") as work:
            watch.next("caught-up")
            work.any()
            stopping = threading.Thread(target=node.stop)
            stopping.start()
            for stream in (watch, work):
                assert stream.next("error").data["code"] == "server_shutting_down"
                assert stream.ends()
            stopping.join()
