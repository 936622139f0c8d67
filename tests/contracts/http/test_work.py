"""Jobs pushed to workers: at most so many at once, refilled after acks, released when the worker goes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import redis

from tests.contracts.http.api import Api, data, eventually, seqs, whole
from tests.contracts.http.events import Events
from tests.contracts.http.shapes import LEASE, TIME, check
from tests.crash.process import NodeProcess


def _queue(api: Api, name: str, *jobs: object, **config: object) -> None:
    api.put(name, type="queue", **config)
    if jobs:
        api.write(name, *jobs)


def test_a_worker_is_sent_jobs_of_exactly_the_agreed_fields(api: Api, topic: str) -> None:
    api.put(topic, type="queue")
    api.post(topic, {"data": {"x": 1}, "tag": "t", "meta": {"k": "v"}})
    with Events(api, f"/topics/{topic}/work?node=w") as events:
        assert events.response.headers["content-type"].startswith("text/event-stream")
        first = events.any()
        assert first is not None
        assert first.text == "retry: 2000"
        job = events.next("job")
        assert job.id == "1"
        check(
            job.data,
            {
                "topic": topic, "$seq": 1, "lease_id": LEASE, "deadline": TIME, "$ts": TIME, "$tag": "t",
                "deliveries": 1, "data": {"x": 1}, "meta": {"k": "v"},
            },
        )  # fmt: skip


def test_a_worker_holds_no_more_than_it_asked_for_and_is_refilled_after_an_ack(api: Api, topic: str) -> None:
    _queue(api, topic, *range(1, 6))
    with Events(api, f"/topics/{topic}/work?node=w&max=2&lease_ms=60000") as events:
        assert [whole(events.next("job").data, "$seq") for _ in range(2)] == [1, 2]
        assert api.queue(topic) == {"ready": 3, "in_flight": 2, "dead_lettered": 0}
        began = time.monotonic()
        api.ack(topic, "w", 1)
        assert whole(events.next("job").data, "$seq") == 3
        assert time.monotonic() - began < 2
        api.ack(topic, "w", 2, 3)
        assert [whole(events.next("job").data, "$seq") for _ in range(2)] == [4, 5]


def test_a_waiting_worker_is_sent_a_job_as_soon_as_there_is_one(api: Api, topic: str) -> None:
    _queue(api, topic)
    with Events(api, f"/topics/{topic}/work?node=w") as events:
        events.any()
        api.write(topic, "now")
        assert events.next("job").data["data"] == "now"


def test_a_worker_that_goes_releases_its_jobs_at_once(api: Api, topic: str) -> None:
    _queue(api, topic, 1, 2, lease_ms=600_000)
    with Events(api, f"/topics/{topic}/work?node=w&max=2") as events:
        events.next("job")
        events.next("job")
    eventually(lambda: api.queue(topic) == {"ready": 2, "in_flight": 0, "dead_lettered": 0}, 5)
    assert [job["deliveries"] for job in api.claim(topic, "v", 2)] == [2, 2]


def test_a_worker_that_goes_leaves_other_leases_of_its_node_alone(api: Api, topic: str) -> None:
    _queue(api, topic, 1, 2, lease_ms=600_000)
    api.claim(topic, "w")
    with Events(api, f"/topics/{topic}/work?node=w") as events:
        assert events.next("job").id == "2"
    eventually(lambda: api.queue(topic) == {"ready": 1, "in_flight": 1, "dead_lettered": 0}, 5)


def test_an_ack_with_the_lease_of_the_stream_counts(api: Api, topic: str) -> None:
    _queue(api, topic, 1)
    with Events(api, f"/topics/{topic}/work?node=w") as events:
        lease = events.next("job").data["lease_id"]
        assert api.ack(topic, "w", 1, lease_ids=[lease])["acked"] == 1
    assert api.state(topic)["count"] == 0


def test_a_nacked_job_comes_back_to_the_worker(api: Api, topic: str) -> None:
    _queue(api, topic, 1)
    with Events(api, f"/topics/{topic}/work?node=w") as events:
        assert events.next("job").data["deliveries"] == 1
        api.nack(topic, "w", 1)
        assert events.next("job").data["deliveries"] == 2


def test_an_expired_lease_makes_room_for_another_delivery(api: Api, topic: str) -> None:
    _queue(api, topic, 1)
    with Events(api, f"/topics/{topic}/work?node=w&lease_ms=200") as events:
        assert [events.next("job").data["deliveries"] for _ in range(2)] == [1, 2]


def test_workers_and_claimers_of_one_window_share(api: Api, topic: str) -> None:
    _queue(api, topic, claim_jitter_ms=300)
    with Events(api, f"/topics/{topic}/work?node=w&max=10") as events:
        events.any()
        api.write(topic, *range(10))
        claimed = api.claim(topic, "v", 10)
        assert 3 <= len(claimed) <= 7
        sent = [whole(events.next("job").data, "$seq") for _ in range(10 - len(claimed))]
    assert sorted(sent + [whole(job, "$seq") for job in claimed]) == list(range(1, 11))


def test_a_worker_hears_when_its_queue_goes(api: Api, topic: str) -> None:
    _queue(api, topic)
    with Events(api, f"/topics/{topic}/work?node=w") as events:
        events.any()
        api.ask("DELETE", f"/topics/{topic}")
        gone = events.next("error")
        assert gone.data["code"] in (404, 409)
        assert events.ends()


# -- the same queue through the Redis port


class Resp:
    """The Redis port of the same node."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def __call__(self, *words: str | int | bytes) -> object:
        found: object = self._client.execute_command(*words)  # type: ignore[no-untyped-call]
        return found


@pytest.fixture
def resp(http_node: NodeProcess) -> Iterator[Resp]:
    with http_node.client() as client:
        yield Resp(client)


def test_a_job_added_over_redis_is_claimed_and_acked_over_http(api: Api, topic: str, resp: Resp) -> None:
    job_id = resp("ADDJOB", topic, '{"n": 1}', 0)
    assert isinstance(job_id, bytes)
    assert api.state(topic)["type"] == "queue"
    (job,) = api.claim(topic, "w")
    assert job["$seq"] == 1
    assert job["data"] in ({"n": 1}, '{"n": 1}')
    assert seqs(api.diff(topic)) == [1]
    answer = api.ack(topic, "w", 1, lease_ids=[job["lease_id"]])
    assert (answer["acked"], answer["in_flight"]) == (1, 0)
    assert resp("SHOW", job_id) is None
    assert resp("QLEN", topic) == 0


def test_text_that_is_not_json_is_claimed_over_http_as_text(api: Api, topic: str, resp: Resp) -> None:
    resp("ADDJOB", topic, "plain words", 0)
    assert [job["data"] for job in api.claim(topic, "w")] == ["plain words"]


def test_a_record_posted_over_http_is_taken_and_acked_over_redis(api: Api, topic: str, resp: Resp) -> None:
    _queue(api, topic, {"n": 1}, "text")
    jobs = resp("GETJOB", "NOHANG", "COUNT", 5, "FROM", topic)
    assert isinstance(jobs, list)
    assert [body for _, _, body in jobs] in ([b'{"n":1}', b'"text"'], [b'{"n":1}', b"text"])
    assert api.queue(topic) == {"ready": 0, "in_flight": 2, "dead_lettered": 0}
    assert resp("ACKJOB", *(job_id for _, job_id, _ in jobs)) == 2
    assert api.state(topic)["count"] == 0
    assert data(api.diff(topic)) == []


def test_jobs_of_both_doors_keep_one_order(api: Api, topic: str, resp: Resp) -> None:
    _queue(api, topic, 1)
    resp("ADDJOB", topic, "2", 0)
    api.write(topic, 3)
    assert [whole(job, "$seq") for job in api.claim(topic, "w", 10)] == [1, 2, 3]
