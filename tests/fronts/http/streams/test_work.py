"""Jobs pushed to workers: never more than asked for, the next at once, and nothing lost when a worker goes."""

from __future__ import annotations

import time

import redis

from esker.testing.broker import Broker
from tests.fronts.http.streams.conftest import Opener
from tests.fronts.http.streams.wire import Api, Events, Frame, eventually, work_path


def job_seq(frame: Frame) -> int:
    seq = frame.data["$seq"]
    assert isinstance(seq, int)
    assert frame.id == str(seq)
    return seq


def in_flight(api: Api, queue: str) -> object:
    counts = api.state(queue)["queue"]
    assert isinstance(counts, dict)
    return counts["in_flight"]


def test_a_job_looks_like_a_claimed_one(api: Api, topic: str, work: Opener) -> None:
    api.put(topic, type="queue")
    body = {"records": [{"data": {"url": "x"}, "tag": "t", "meta": {"a": "b"}, "node": "producer"}]}
    api("POST", f"/v0/topics/{topic}", body)
    stream = work(topic, "w1", lease_ms=60_000)
    first = stream.frame()
    assert first is not None
    assert first.text == "retry: 2000"
    job = stream.next("job")
    assert job_seq(job) == 1
    data = dict(job.data)
    assert str(data.pop("lease_id")).startswith("lease_")
    deadline, ts = data.pop("deadline"), data.pop("$ts")
    assert isinstance(deadline, int)
    assert isinstance(ts, int)
    assert 50_000 < deadline - time.time() * 1000 <= 61_000
    assert data == {
        "topic": topic, "$seq": 1, "$tag": "t", "deliveries": 1, "data": {"url": "x"}, "meta": {"a": "b"},
    }  # fmt: skip


def test_no_more_than_max_are_outstanding_and_an_ack_brings_the_next_at_once(
    api: Api, topic: str, work: Opener
) -> None:
    api.put(topic, type="queue")
    api.write(topic, *range(6))
    stream = work(topic, "w1", max=2)
    assert [job_seq(stream.next("job")) for _ in range(2)] == [1, 2]
    assert stream.silent()
    began = time.monotonic()
    for seq in (1, 2, 3, 4):
        api.ack(topic, "w1", seq)
        assert job_seq(stream.next("job")) == seq + 2
    assert time.monotonic() - began < 0.8, "no polling: the shard tells"
    assert in_flight(api, topic) == 2


def test_a_nack_of_one_brings_another_at_once(api: Api, topic: str, work: Opener) -> None:
    api.put(topic, type="queue")
    api.write(topic, 1, 2)
    stream = work(topic, "w1")
    assert job_seq(stream.next("job")) == 1
    api("POST", f"/v0/topics/{topic}/nack", {"node": "w1", "seqs": [1], "delay_ms": 60_000})
    assert job_seq(stream.next("job")) == 2


def test_jobs_that_come_later_are_pushed(api: Api, topic: str, work: Opener) -> None:
    api.put(topic, type="queue")
    stream = work(topic, "w1", max=3)
    for number in range(1, 4):
        api.write(topic, number)
        assert job_seq(stream.next("job")) == number
    api.write(topic, 4)
    assert stream.silent(), "three are outstanding"


def test_a_lease_that_ran_out_makes_room(api: Api, topic: str, work: Opener) -> None:
    api.put(topic, type="queue")
    api.write(topic, 1)
    stream = work(topic, "w1", lease_ms=100)
    assert stream.next("job").data["deliveries"] == 1
    again = stream.next("job")
    assert (job_seq(again), again.data["deliveries"]) == (1, 2)


def test_jobs_go_to_the_workers_in_turn(api: Api, topic: str, work: Opener) -> None:
    api.put(topic, type="queue")
    streams = [work(topic, f"w{number}") for number in range(3)]
    for stream in streams:
        stream.frame()
    api.write(topic, 1, 2, 3)
    assert sorted(job_seq(stream.next("job")) for stream in streams) == [1, 2, 3]


def test_hanging_up_gives_the_jobs_back_at_once(api: Api, topic: str, work: Opener) -> None:
    api.put(topic, type="queue")
    api.write(topic, 1, 2, 3)
    stream = work(topic, "w1", max=2)
    assert [job_seq(stream.next("job")) for _ in range(2)] == [1, 2]
    api.ack(topic, "w1", 1)
    assert job_seq(stream.next("job")) == 3
    other = work(topic, "w2", max=5)
    other.frame()
    stream.close()
    assert sorted(job_seq(other.next("job")) for _ in range(2)) == [2, 3]
    eventually(lambda: in_flight(api, topic) == 2)


def test_hanging_up_leaves_what_the_same_worker_holds_elsewhere(api: Api, topic: str, work: Opener) -> None:
    api.put(topic, type="queue")
    api.write(topic, 1, 2)
    stream = work(topic, "w1")
    assert job_seq(stream.next("job")) == 1
    claimed = api("POST", f"/v0/topics/{topic}/claim", {"node": "w1"})
    assert claimed["count"] == 1
    stream.close()
    eventually(lambda: in_flight(api, topic) == 1)
    assert api.ack(topic, "w1", 2)["acked"] == 1


def test_the_end_of_the_queue_is_told(api: Api, topic: str, work: Opener) -> None:
    api.put(topic, type="queue")
    api.write(topic, 1)
    stream = work(topic, "w1")
    stream.next("job")
    api("DELETE", f"/v0/topics/{topic}")
    assert stream.next("error").data["code"] == 409
    assert stream.ended()


def test_workers_share_evenly_within_the_window(api: Api, topic: str, work: Opener) -> None:
    api.put(topic, type="queue", claim_jitter_ms=150)
    streams = [work(topic, f"w{number}", max=10) for number in range(4)]
    for stream in streams:
        stream.frame()
    time.sleep(0.4)  # the windows of their first claims, which found nothing, are over
    api.write(topic, *range(20))
    for stream in streams:
        assert len([stream.next("job") for _ in range(5)]) == 5
    assert all(stream.silent(0.3) for stream in streams)


def test_what_is_wrong_with_a_request_is_said(api: Api, topic: str) -> None:
    api.write(topic, 1)
    api.put(f"{topic}.q", type="queue")
    for path, status, code in (
        (work_path(f"{topic}.q"), 400, "invalid_request"),
        (work_path(f"{topic}.q", node=""), 400, "invalid_request"),
        (work_path(f"{topic}.q", node="n" * 129), 400, "invalid_request"),
        (work_path(f"{topic}.q", node="w", max="many"), 400, "invalid_request"),
        (work_path(f"{topic}.none", node="w"), 404, "topic_not_found"),
        (work_path(topic, node="w"), 409, "not_a_queue"),
    ):
        error = api("GET", path, status=status)["error"]
        assert isinstance(error, dict)
        assert error["code"] == code, path
    response = api._client.get(work_path(f"{topic}.q", node="w"), headers={"accept": "application/json"})
    assert response.status_code == 406


def test_a_worker_that_reads_slowly_is_not_given_more_than_it_may_have(api: Api, topic: str) -> None:
    api.put(topic, type="queue")
    api.write(topic, *["x" * 10_000] * 50)
    with Events(api.port, work_path(topic, node="slow", max=7), receive_bytes=4096):
        eventually(lambda: in_flight(api, topic) == 7)
        time.sleep(0.3)
        assert in_flight(api, topic) == 7
    eventually(lambda: in_flight(api, topic) == 0)


def test_leases_of_every_partition_count_as_outstanding_and_are_given_back(
    api: Api, shared_node: Broker, topic: str, work: Opener
) -> None:
    with redis.Redis(port=shared_node.resp_port, protocol=2) as client:
        client.execute_command("TOPIC", "CREATE", topic, "partitions", 4, "lease_ms", 60_000)
        for number in range(8):
            client.execute_command("ADDJOB", topic, number, 0)
    stream = work(topic, "w1", max=4)
    jobs = [stream.next("job") for _ in range(4)]
    assert [job.data["data"] for job in jobs] == [0, 1, 2, 3]
    assert {job.id for job in jobs} == {f"{job.data['$partition']}-{job.data['$seq']}" for job in jobs}
    assert stream.silent(), "four are outstanding, wherever they are"
    for number, job in enumerate(jobs, 4):
        api("POST", f"/v0/topics/{topic}/ack", {"node": "w1", "lease_ids": [job.data["lease_id"]]})
        assert stream.next("job").data["data"] == number
    assert in_flight(api, topic) == 4
    stream.close()
    eventually(lambda: in_flight(api, topic) == 0)
