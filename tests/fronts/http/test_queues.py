"""Lease queues over HTTP: claim, ack, nack, extend, fencing, dead letters."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import redis

from esker.testing.broker import Broker
from tests.fronts.http.web import Web, listed, part


@pytest.fixture
def queue(one: Web, topic: str) -> str:
    one.put(topic, type="queue")
    return topic


def _do(web: Web, queue: str, verb: str, node: str, seqs: list[int], **fields: object) -> dict[str, object]:
    return web.ask("POST", f"/v0/topics/{queue}/{verb}", {"node": node, "seqs": seqs, **fields})


def test_a_claim_leases_jobs_in_order(web: Web, queue: str) -> None:
    web.ask("POST", f"/v0/topics/{queue}", {"records": [{"data": {"n": 1}, "tag": "t", "meta": {"k": "v"}}]})
    web.write(queue, 2, 3)
    before = int(time.time() * 1000)
    answer = web.ask("POST", f"/v0/topics/{queue}/claim", {"node": "w", "max": 2, "lease_ms": 60_000})
    assert (answer["topic"], answer["count"], answer["ready"]) == (queue, 2, 1)
    first, second = listed(answer, "claimed")
    assert first.keys() == {"$seq", "lease_id", "deadline", "$ts", "$tag", "deliveries", "data", "meta"}
    assert (first["$seq"], first["$tag"], first["data"], first["meta"]) == (1, "t", {"n": 1}, {"k": "v"})
    assert second.keys() == {"$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}
    assert (first["deliveries"], second["$seq"]) == (1, 2)
    assert re.fullmatch(r"lease_[0-9a-f]+", str(first["lease_id"]))
    assert isinstance(first["deadline"], int)
    assert before + 59_000 < first["deadline"] < before + 70_000


def test_an_ack_is_for_good_and_only_for_the_holder(web: Web, queue: str) -> None:
    web.write(queue, 1, 2, 3)
    web.claim(queue, "w", max=2)
    assert _do(web, queue, "ack", "thief", [1])["skipped"] == [1]
    answer = _do(web, queue, "ack", "w", [1, 2, 3, 99])
    assert (answer["acked"], answer["skipped"], answer["ready"], answer["in_flight"]) == (2, [3, 99], 1, 0)
    assert _do(web, queue, "ack", "w", [1])["skipped"] == [1]
    nothing = _do(web, queue, "ack", "w", [])
    assert (nothing["acked"], nothing["skipped"]) == (0, [])
    assert web.state(queue)["count"] == 1


def test_a_lease_id_fences(web: Web, queue: str) -> None:
    web.write(queue, 1)
    (job,) = web.claim(queue, "w")
    stale = f"{job['lease_id']}0"
    assert _do(web, queue, "ack", "w", [1], lease_ids=[stale])["skipped"] == [1]
    assert _do(web, queue, "extend", "w", [1], lease_ids=[stale], lease_ms=1000)["skipped"] == [1]
    assert _do(web, queue, "nack", "w", [1], lease_ids=[job["lease_id"]])["nacked"] == 1
    (again,) = web.claim(queue, "w")
    assert again["lease_id"] != job["lease_id"]
    assert again["deliveries"] == 2
    assert _do(web, queue, "ack", "w", [1], lease_ids=[job["lease_id"]])["skipped"] == [1]
    assert _do(web, queue, "ack", "w", [1], lease_ids=[""])["acked"] == 1, "an empty one asks for no token"


@pytest.mark.parametrize("lease_ids", [[], ["lease_1", "lease_2"], ["nonsense"], ["lease_xyz"], ["lease_"], [5]])
def test_bad_lease_ids_are_refused(one: Web, queue: str, lease_ids: list[object]) -> None:
    for verb in ("ack", "nack", "extend"):
        body = {"node": "w", "seqs": [1], "lease_ids": lease_ids, "lease_ms": 1000}
        assert one.refused("POST", f"/v0/topics/{queue}/{verb}", body, status=400).code == "invalid_request"


def test_a_nacked_job_comes_back_first_or_when_it_is_due(web: Web, queue: str) -> None:
    web.write(queue, 1, 2)
    web.claim(queue, "w")
    answer = _do(web, queue, "nack", "w", [1, 7])
    assert (answer["nacked"], answer["skipped"], answer["ready"], answer["in_flight"]) == (1, [7], 2, 0)
    assert [job["$seq"] for job in web.claim(queue, "w")] == [1]
    late = _do(web, queue, "nack", "w", [1], delay_ms=60_000)
    assert (late["ready"], late["in_flight"]) == (1, 0), "neither ready nor in flight until it is due"
    assert [job["$seq"] for job in web.claim(queue, "w", max=5)] == [2]


def test_extend_sets_the_deadline(web: Web, queue: str) -> None:
    web.write(queue, 1)
    (job,) = web.claim(queue, "w", lease_ms=1000)
    now = int(time.time() * 1000)
    answer = _do(web, queue, "extend", "w", [1, 2], lease_ms=10**12)
    assert (answer["extended"], answer["skipped"]) == (1, [2])
    deadline = part(answer, "deadlines")["1"]
    assert isinstance(deadline, int)
    assert deadline == pytest.approx(now + 86_400_000, abs=20_000)
    assert _do(web, queue, "ack", "w", [1], lease_ids=[job["lease_id"]])["acked"] == 1, "the lease is the same"


def test_a_lease_that_ran_out_frees_its_job(one: Web, queue: str) -> None:
    one.write(queue, 1)
    one.claim(queue, "w", lease_ms=1)  # 100 is the least
    found: list[dict[str, object]] = []
    deadline = time.monotonic() + 10
    while not found and time.monotonic() < deadline:
        time.sleep(0.01)  # real time must pass: it is what runs out
        found = one.claim(queue, "v")
    assert [(job["$seq"], job["deliveries"]) for job in found] == [(1, 2)]
    assert _do(one, queue, "ack", "w", [1])["skipped"] == [1]


def test_a_poison_job_goes_to_the_dead_letters(web: Web, topic: str) -> None:
    web.put(topic, type="queue", max_deliveries=1, dead_letter=f"{topic}.dead")
    web.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": "bad", "tag": "t", "meta": {"k": 1}}]})
    web.claim(topic, "w")
    _do(web, topic, "nack", "w", [1])
    assert web.claim(topic, "w") == []
    assert part(web.state(topic), "queue")["dead_lettered"] == 1
    (letter,) = listed(web.diff(f"{topic}.dead", include_tags=True), "records")
    assert (letter["data"], letter["$tag"]) == ("bad", "t")
    told = {"k": 1, "$dead_letter_from": topic, "$dead_letter_deliveries": "1", "$dead_letter_src_seq": "1"}
    assert part(letter, "meta").items() >= told.items()


def test_claims_within_the_jitter_share_evenly(one: Web, topic: str) -> None:
    one.put(topic, type="queue", claim_jitter_ms=1000)
    one.write(topic, *range(50))
    url = f"{one.client.base_url}/v0/topics/{topic}/claim"

    def claim(worker: int) -> int:
        return int(httpx.post(url, json={"node": f"w{worker}", "max": 10}, timeout=20).json()["count"])

    with ThreadPoolExecutor(10) as pool:
        counts = list(pool.map(claim, range(10)))
    assert sum(counts) == 50
    assert max(counts) <= 6


def test_a_claimer_that_hangs_up_gets_nothing(one: Web, shared_broker: Broker, topic: str) -> None:
    one.put(topic, type="queue", claim_jitter_ms=1500)
    one.write(topic, 1)
    with httpx.Client(base_url=shared_broker.http_url, timeout=0.3) as client, pytest.raises(httpx.ReadTimeout):
        client.post(f"/v0/topics/{topic}/claim", json={"node": "gone"})
    assert [job["deliveries"] for job in one.claim(topic, "here")] == [1]


@pytest.mark.parametrize("verb", ["claim", "ack", "nack", "extend"])
def test_only_queues_have_leases(web: Web, topic: str, verb: str) -> None:
    body = {"node": "w", "seqs": [1], "lease_ms": 1000}
    missing = web.refused("POST", f"/v0/topics/{topic}/{verb}", body, status=404)
    assert (missing.code, missing.detail) == ("topic_not_found", {"topic": topic})
    web.put(topic)
    refused = web.refused("POST", f"/v0/topics/{topic}/{verb}", body, status=409)
    assert (refused.code, refused.detail) == ("not_a_queue", {"topic": topic})


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("claim", {}), ("claim", {"node": ""}), ("claim", {"node": "x" * 129}), ("claim", {"node": "w", "max": -1}),
        ("claim", {"node": "w", "lease_ms": "1"}), ("ack", {"node": "w"}), ("ack", {"seqs": [1]}),
        ("ack", {"node": "w", "seqs": 1}), ("ack", {"node": "w", "seqs": ["1"]}),
        ("extend", {"node": "w", "seqs": [1]}), ("nack", {"node": "w", "seqs": [1], "delay_ms": -1}),
    ],
)  # fmt: skip
def test_bad_lease_bodies_are_refused(one: Web, queue: str, verb: str, body: dict[str, object]) -> None:
    assert one.refused("POST", f"/v0/topics/{queue}/{verb}", body, status=400).code == "invalid_request"


def test_an_empty_claim_body_is_refused(one: Web, queue: str) -> None:
    assert one.refused("POST", f"/v0/topics/{queue}/claim", status=400).code == "invalid_request"


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_too_many_seqs_are_refused(one: Web, queue: str, verb: str) -> None:
    body = {"node": "w", "seqs": list(range(1, 1002)), "lease_ms": 1000}
    refused = one.refused("POST", f"/v0/topics/{queue}/{verb}", body, status=400)
    assert (refused.code, refused.detail) == ("batch_too_large", {"seqs": 1001, "max": 1000})


def test_jobs_of_redis_clients_can_be_read_whatever_they_are(one: Web, shared_broker: Broker, topic: str) -> None:
    with redis.Redis(port=shared_broker.resp_port, protocol=2) as client:
        for body in (b'{"a":1}', b"plain text", b"\xff\xfe"):
            client.execute_command("ADDJOB", topic, body, 0)
    expected = [{"a": 1}, "plain text", {"$base64": "//4="}]
    assert [record["data"] for record in listed(one.diff(topic), "records")] == expected
    assert [job["data"] for job in one.claim(topic, "w", max=3)] == expected


# -- order, and queues of several partitions


@pytest.fixture
def resp(shared_broker: Broker) -> Iterator[redis.Redis]:
    with redis.Redis(port=shared_broker.resp_port, protocol=2) as client:
        yield client


def _run(client: redis.Redis, *arguments: str | int) -> None:
    client.execute_command(*arguments)  # type: ignore[no-untyped-call]


@pytest.fixture
def wide(resp: redis.Redis, topic: str) -> str:
    """A queue of four partitions, which only the Redis front can make."""
    _run(resp, "TOPIC", "CREATE", topic, "partitions", 4, "lease_ms", 60_000)
    return topic


def test_a_claim_of_several_lists_the_best_first(web: Web, resp: redis.Redis, topic: str) -> None:
    for body, priority in (("low", 9), ("high", -9), ("middle", 0)):
        _run(resp, "ADDJOB", topic, body, 0, "PRIORITY", priority)
    assert [job["data"] for job in web.claim(topic, "w", max=3)] == ["high", "middle", "low"]


def _lease_ids(jobs: list[dict[str, object]]) -> list[str]:
    return [str(job["lease_id"]) for job in jobs]


def test_what_a_claim_of_many_partitions_leases_can_be_settled_by_its_lease_ids(
    web: Web, resp: redis.Redis, wide: str
) -> None:
    for number in range(12):
        _run(resp, "ADDJOB", wide, number, 0)
    jobs = web.claim(wide, "w", max=12)
    assert [job["data"] for job in jobs] == list(range(12))
    assert {job["$partition"] for job in jobs} == set(range(4))
    acked = web.ask("POST", f"/v0/topics/{wide}/ack", {"node": "w", "lease_ids": _lease_ids(jobs[:4])})
    assert (acked["acked"], acked["skipped"], acked["skipped_lease_ids"]) == (4, [], [])
    assert (acked["ready"], acked["in_flight"]) == (0, 8)
    seqs = [int(str(job["$seq"])) for job in jobs[4:8]]
    nacked = _do(web, wide, "nack", "w", seqs, lease_ids=_lease_ids(jobs[4:8]))
    assert (nacked["nacked"], nacked["ready"], nacked["in_flight"]) == (4, 4, 4)
    body = {"node": "w", "lease_ids": _lease_ids(jobs[7:]), "lease_ms": 5000}
    extended = web.ask("POST", f"/v0/topics/{wide}/extend", body)
    assert (extended["extended"], extended["skipped"]) == (4, [jobs[7]["$seq"]])
    assert extended["skipped_lease_ids"] == _lease_ids(jobs[7:8])
    assert part(extended, "deadlines").keys() == set(_lease_ids(jobs[8:]))
    thief = web.ask("POST", f"/v0/topics/{wide}/ack", {"node": "thief", "lease_ids": _lease_ids(jobs[8:])})
    assert (thief["acked"], thief["skipped_lease_ids"]) == (0, _lease_ids(jobs[8:]))
    assert [job["data"] for job in web.claim(wide, "w", max=9)] == [4, 5, 6, 7]


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_jobs_of_many_partitions_are_never_named_by_seq_alone(one: Web, wide: str, verb: str) -> None:
    one.write(wide, 1)
    (job,) = one.claim(wide, "w")
    (lease,) = _lease_ids([job])
    for fields in (
        {"seqs": [1]},
        {"seqs": [1], "lease_ids": [""]},
        {"seqs": [2], "lease_ids": [lease]},
        {"seqs": [1, 1], "lease_ids": [lease]},
        {"lease_ids": ["lease_1"]},
        {"lease_ids": ["lease_4-1-1"]},
        {"lease_ids": ["lease_3ff-ffffffffffff-1"]},
        {"lease_ids": [lease, lease + "0"]},
        {},
    ):
        body = {"node": "w", "lease_ms": 1000, **fields}
        refused = one.refused("POST", f"/v0/topics/{wide}/{verb}", body, status=400)
        assert refused.code == "invalid_request", fields
    assert one.ask("POST", f"/v0/topics/{wide}/ack", {"node": "w", "lease_ids": [lease, lease]})["acked"] == 1


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_seqs_are_needed_where_there_is_one_partition(one: Web, queue: str, verb: str) -> None:
    body = {"node": "w", "lease_ids": ["lease_1"], "lease_ms": 1000}
    assert "seqs" in one.refused("POST", f"/v0/topics/{queue}/{verb}", body, status=400).message


def test_a_repeated_write_to_many_partitions_is_known(one: Web, wide: str) -> None:
    first = one.write(wide, 1, 2, idempotency_key="k")
    for _ in range(4):
        again = one.write(wide, 1, 2, idempotency_key="k")
        assert again["deduped"]
        assert [again[name] for name in ("first_seq", "last_seq", "$partition")] == [
            first[name] for name in ("first_seq", "last_seq", "$partition")
        ]
    assert one.state(wide)["count"] == 2


def test_records_of_many_partitions_have_no_one_order_and_say_so(one: Web, wide: str) -> None:
    refused = one.refused("POST", f"/v0/topics/{wide}/diff", {}, status=400)
    assert "4 partitions" in str(refused.message)
