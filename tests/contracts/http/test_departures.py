"""Clients that wait, leave in the middle, or are woken from afar."""

from __future__ import annotations

import threading
import time

import httpx
import pytest

from tests.contracts.http.api import Api, data, eventually, part, whole
from tests.contracts.http.events import Events


def test_a_waiting_diff_of_a_router_destination_is_woken_by_a_write_to_its_source(api: Api, topic: str) -> None:
    source, dest = f"{topic}.a", f"{topic}.b"
    api.router(topic, source, dest)
    with Api(api.port) as other:
        writer = threading.Timer(0.1, lambda: other.write(source, "woken"))
        writer.start()
        began = time.monotonic()
        assert data(api.diff(dest, wait_ms=20_000)) == ["woken"]
        assert time.monotonic() - began < 10
        writer.join()


def test_a_stalled_router_goes_on_by_itself_when_its_destination_has_room(api: Api, topic: str) -> None:
    source, dest = f"{topic}.a", f"{topic}.b"
    api.put(dest, cap_records=1, discard="reject")
    api.router(topic, source, dest)
    api.write(source, 1)
    api.write(source, 2)
    wid = api.ask("POST", "/watch", {"topics": {dest: {"from_seq": 1}}})["wid"]
    with Events(api, f"/watch/{wid}") as events:
        events.next("caught-up")
        api.put(dest, 200, cap_records=5, discard="reject")
        assert data(events.next("record").data) == [2]


def test_a_claimer_that_leaves_its_window_gets_no_jobs(one: Api, topic: str) -> None:
    one.put(topic, type="queue", claim_jitter_ms=600, lease_ms=600_000)
    one.write(topic, *range(6))

    def leave_early() -> None:
        with pytest.raises(httpx.ReadTimeout), httpx.Client(verify=False, timeout=0.15) as client:
            client.post(f"{one.http.base_url}topics/{topic}/claim", json={"node": "ghost", "max": 6})

    ghost = threading.Thread(target=leave_early)
    ghost.start()
    claimed = one.claim(topic, "w", 6)
    ghost.join()
    rest = one.claim(topic, "w", 6)
    assert len(claimed) + len(rest) == 6
    assert one.queue(topic)["in_flight"] == 6


def test_a_diff_that_waits_ends_when_its_topic_is_deleted(api: Api, topic: str) -> None:
    api.put(topic)
    with Api(api.port) as other:
        ending = threading.Timer(0.1, lambda: other.ask("DELETE", f"/topics/{topic}"))
        ending.start()
        began = time.monotonic()
        response = api.http.post(f"/topics/{topic}/diff", json={"wait_ms": 3000})
        assert response.status_code in (200, 404)
        assert time.monotonic() - began < 6
        ending.join()


def test_a_watcher_of_a_topic_that_is_made_again_is_told_of_its_end(api: Api, topic: str) -> None:
    api.write(topic, 1, 2, status=201)
    wid = api.ask("POST", "/watch", {"topics": {topic: {}}})["wid"]
    with Events(api, f"/watch/{wid}") as events:
        assert events.records(2) == [1, 2]
        events.next("caught-up")
        api.ask("DELETE", f"/topics/{topic}")
        api.write(topic, "new", status=201)
        assert events.next("topic-deleted").data["topic"] == topic
        assert events.ends()


def test_records_are_seen_in_one_order_by_all_readers(api: Api, topic: str) -> None:
    """Four writers and a watcher: what the watcher is given is what a later diff gives, and nothing is missing."""
    api.put(topic)
    wid = api.ask("POST", "/watch", {"topics": {topic: {}}, "limit": 7})["wid"]
    with Events(api, f"/watch/{wid}") as events:
        writers = [threading.Thread(target=_write_some, args=(api, topic, name)) for name in "abcd"]
        for writer in writers:
            writer.start()
        seen: list[object] = []
        while len(seen) < 80:
            frame = events.any()
            assert frame is not None
            if frame.kind == "record":
                seen += data(frame.data)
        for writer in writers:
            writer.join()
    assert seen == data(api.diff(topic))
    for name in "abcd":
        assert [one for one in seen if str(one).startswith(name)] == [f"{name}{number}" for number in range(20)]


def _write_some(api: Api, topic: str, name: str) -> None:
    with Api(api.port, http2=api.http2) as own:
        for number in range(20):
            own.write(topic, f"{name}{number}")


def test_the_counters_of_a_busy_queue_add_up(api: Api, topic: str) -> None:
    api.put(topic, type="queue", lease_ms=300)
    done: set[int] = set()
    twice: list[int] = []
    lock = threading.Lock()

    def work(node: str) -> None:
        with Api(api.port, http2=api.http2) as own:
            while len(done) < 60:
                jobs = own.claim(topic, node, 4)
                for turn, job in enumerate(jobs):
                    seq = whole(job, "$seq")
                    if turn == 3 and job["deliveries"] == 1:
                        own.nack(topic, node, seq)
                        continue
                    if own.ack(topic, node, seq, lease_ids=[job["lease_id"]])["acked"] == 1:
                        with lock:
                            twice.extend({seq} & done)
                            done.add(seq)

    workers = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(4)]
    for worker in workers:
        worker.start()
    for start in range(0, 60, 10):
        api.write(topic, *range(start, start + 10))
    for worker in workers:
        worker.join(30)
    assert done == set(range(1, 61))
    assert not twice
    eventually(lambda: api.queue(topic) == {"ready": 0, "in_flight": 0, "dead_lettered": 0})
    assert part(api.state(topic), "config")["type"] == "queue"
    assert api.state(topic)["count"] == 0
