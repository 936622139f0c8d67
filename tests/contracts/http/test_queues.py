"""Lease queues: claims, acks, nacks, extensions, fences, order, dead letters, fair shares."""

from __future__ import annotations

import threading
import time

import pytest

from tests.contracts.http.api import Api, data, eventually, part, rows, seqs, whole
from tests.contracts.http.shapes import INT, LEASE, PERFORMANCE, TIME, check, record

QUEUE_CALLS: dict[str, dict[str, object]] = {
    "claim": {"node": "w"},
    "ack": {"node": "w", "seqs": [1]},
    "nack": {"node": "w", "seqs": [1]},
    "extend": {"node": "w", "seqs": [1], "lease_ms": 1000},
}


def _queue(api: Api, name: str, *jobs: object, **config: object) -> None:
    api.put(name, type="queue", **config)
    if jobs:
        api.write(name, *jobs)


def _job(seq: int, value: object, deliveries: int = 1, /, **more: object) -> dict[str, object]:
    return {
        "$seq": seq, "lease_id": LEASE, "deadline": TIME, "$ts": TIME, "deliveries": deliveries, "data": value, **more
    }  # fmt: skip


def test_a_claim_answers_exactly_the_agreed_fields(api: Api, topic: str) -> None:
    api.put(topic, type="queue")
    api.post(topic, {"data": "a", "tag": "t", "meta": {"k": "v"}, "node": "producer"}, {"data": "b"}, {"data": "c"})
    before = int(time.time() * 1000)
    answer = api.ask("POST", f"/topics/{topic}/claim", {"node": "w", "max": 2, "lease_ms": 5000})
    jobs = [_job(1, "a", meta={"k": "v"}, **{"$tag": "t"}), _job(2, "b")]
    check(answer, {"topic": topic, "claimed": jobs, "count": 2, "ready": 1, "performance": PERFORMANCE})
    deadline = whole(rows(answer, "claimed")[0], "deadline")
    assert before + 4900 <= deadline <= before + 15_000
    assert api.queue(topic) == {"ready": 1, "in_flight": 2, "dead_lettered": 0}


def test_a_claim_takes_one_job_by_default_and_no_more_than_there_are(api: Api, topic: str) -> None:
    _queue(api, topic, 1, 2, 3)
    assert seqs(api.ask("POST", f"/topics/{topic}/claim", {"node": "w"}), "claimed") == [1]
    assert seqs(api.ask("POST", f"/topics/{topic}/claim", {"node": "w", "max": 0}), "claimed") == [2]
    assert seqs(api.ask("POST", f"/topics/{topic}/claim", {"node": "w", "max": 100_000}), "claimed") == [3]
    check(
        api.ask("POST", f"/topics/{topic}/claim", {"node": "w"}),
        {"topic": topic, "claimed": [], "count": 0, "ready": 0, "performance": PERFORMANCE},
    )


def test_a_claim_is_clamped_to_a_thousand_jobs(api: Api, topic: str) -> None:
    _queue(api, topic, *range(1005))
    claimed = api.claim(topic, "w", 5000)
    assert [whole(job, "$seq") for job in claimed] == list(range(1, 1001))
    assert api.queue(topic)["ready"] == 5


def test_an_ack_removes_its_jobs_and_skips_what_is_not_held(api: Api, topic: str) -> None:
    _queue(api, topic, "a", "b", "c")
    api.claim(topic, "w", 2)
    wanted = {
        "topic": topic, "acked": 1, "skipped": [3, 99], "ready": 1, "in_flight": 1, "performance": PERFORMANCE
    }  # fmt: skip
    check(api.ack(topic, "w", 1, 3, 99), wanted)
    check(api.ack(topic, "w", 1), {**wanted, "acked": 0, "skipped": [1]})
    check(api.ack(topic, "other", 2), {**wanted, "acked": 0, "skipped": [2]})
    check(api.ack(topic, "w"), {**wanted, "acked": 0, "skipped": []})
    assert data(api.diff(topic)) == ["b", "c"]
    assert api.diff(topic)["tombstone"] is None


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_an_ack_tells_of_a_wait_for_the_disk_only_in_the_fsync_class(api: Api, topic: str, durability: str) -> None:
    _queue(api, topic, 1, durability=durability)
    api.claim(topic, "w")
    performance = part(api.ack(topic, "w", 1), "performance")
    assert ("fsync_ms" in performance) == (durability == "fsync")


def test_a_nack_brings_a_job_back_before_fresh_ones(api: Api, topic: str) -> None:
    _queue(api, topic, "a", "b", "c")
    api.claim(topic, "w", 2)
    wanted = {"topic": topic, "nacked": 1, "skipped": [3], "ready": 2, "in_flight": 1, "performance": PERFORMANCE}
    check(api.nack(topic, "w", 2, 3), wanted)
    (again,) = api.claim(topic, "v")
    check(again, _job(2, "b", 2))
    assert [job["data"] for job in api.claim(topic, "v")] == ["c"]


def test_a_delayed_nack_counts_nowhere_until_it_is_due(api: Api, topic: str) -> None:
    _queue(api, topic, "a")
    api.claim(topic, "w")
    answer = api.nack(topic, "w", 1, delay_ms=300)
    assert (answer["nacked"], answer["ready"], answer["in_flight"]) == (1, 0, 0)
    assert api.claim(topic, "w") == []
    assert api.queue(topic) == {"ready": 0, "in_flight": 0, "dead_lettered": 0}
    eventually(lambda: api.queue(topic)["ready"] == 1)
    assert [job["deliveries"] for job in api.claim(topic, "w")] == [2]


def test_an_expired_lease_makes_its_job_claimable_before_fresh_ones(api: Api, topic: str) -> None:
    _queue(api, topic, "a", "b")
    api.claim(topic, "slow", lease_ms=100)
    eventually(lambda: api.queue(topic) == {"ready": 2, "in_flight": 0, "dead_lettered": 0})
    (again,) = api.claim(topic, "quick")
    check(again, _job(1, "a", 2))
    late = api.ack(topic, "slow", 1)
    assert (late["acked"], late["skipped"]) == (0, [1])


def test_an_extension_sets_the_deadline_and_leaves_the_deliveries(api: Api, topic: str) -> None:
    _queue(api, topic, "a", "b")
    first = api.claim(topic, "w", 1, lease_ms=60_000)[0]
    before = int(time.time() * 1000)
    answer = api.extend(topic, "w", 1, 2, lease_ms=5000)
    check(
        answer,
        {"topic": topic, "extended": 1, "skipped": [2], "deadlines": {"1": TIME}, "performance": PERFORMANCE},
    )
    deadline = whole(part(answer, "deadlines"), "1")
    assert before + 4900 <= deadline < whole(first, "deadline")
    api.nack(topic, "w", 1)
    assert api.claim(topic, "w")[0]["deliveries"] == 2


def test_an_extension_keeps_a_lease_alive_beyond_its_first_deadline(api: Api, topic: str) -> None:
    _queue(api, topic, "a")
    api.claim(topic, "w", lease_ms=300)
    api.extend(topic, "w", 1, lease_ms=10_000)
    time.sleep(0.5)  # beyond the first deadline
    assert api.queue(topic)["in_flight"] == 1
    assert api.ack(topic, "w", 1)["acked"] == 1


@pytest.mark.parametrize("call", ["ack", "nack", "extend"])
def test_a_stale_lease_id_is_fenced_off(api: Api, topic: str, call: str) -> None:
    _queue(api, topic, "a", "b")
    stale = api.claim(topic, "w")[0]["lease_id"]
    api.nack(topic, "w", 1)
    fresh = api.claim(topic, "w")[0]["lease_id"]
    assert fresh != stale
    more = {"lease_ms": 1000} if call == "extend" else {}
    body = {"node": "w", "seqs": [1], "lease_ids": [stale], **more}
    answer = api.ask("POST", f"/topics/{topic}/{call}", body)
    assert (answer[f"{call}ed"], answer["skipped"]) == (0, [1])
    body["lease_ids"] = [fresh]
    answer = api.ask("POST", f"/topics/{topic}/{call}", body)
    assert (answer[f"{call}ed"], answer["skipped"]) == (1, [])


def test_an_empty_lease_id_falls_back_to_the_node(api: Api, topic: str) -> None:
    _queue(api, topic, "a", "b")
    leases = [job["lease_id"] for job in api.claim(topic, "w", 2)]
    answer = api.ack(topic, "w", 1, 2, lease_ids=["", leases[1]])
    assert (answer["acked"], answer["skipped"]) == (2, [])


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("claim", {}),
        ("claim", {"node": ""}),
        ("claim", {"node": "x" * 129}),
        ("claim", {"node": 5}),
        ("claim", {"node": "w", "max": "all"}),
        ("claim", {"node": "w", "max": -1}),
        ("ack", {"node": "w"}),
        ("ack", {"seqs": [1]}),
        ("ack", {"node": "", "seqs": [1]}),
        ("ack", {"node": "w", "seqs": 1}),
        ("ack", {"node": "w", "seqs": ["1"]}),
        ("ack", {"node": "w", "seqs": [1], "lease_ids": []}),
        ("ack", {"node": "w", "seqs": [1], "lease_ids": ["lease_1", "lease_2"]}),
        ("ack", {"node": "w", "seqs": [1], "lease_ids": ["nonsense"]}),
        ("ack", {"node": "w", "seqs": [1], "lease_ids": ["lease_xyz"]}),
        ("nack", {"node": "w", "seqs": [1], "delay_ms": -1}),
        ("nack", {"node": "w"}),
        ("extend", {"node": "w", "seqs": [1]}),
        ("extend", {"node": "w", "lease_ms": 1000}),
        ("extend", {"node": "w", "seqs": [1], "lease_ms": "long"}),
    ],
)
def test_a_bad_queue_call_is_refused(api: Api, topic: str, call: str, body: dict[str, object]) -> None:
    _queue(api, topic, "a")
    api.refused("POST", f"/topics/{topic}/{call}", body, status=400, code="invalid_request")
    assert api.queue(topic)["ready"] == 1


def test_an_empty_claim_body_is_refused(api: Api, topic: str) -> None:
    _queue(api, topic, "a")
    response = api.http.post(f"/topics/{topic}/claim", headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("call", ["ack", "nack", "extend"])
def test_at_most_a_thousand_seqs_are_settled_at_once(api: Api, topic: str, call: str) -> None:
    _queue(api, topic)
    body = {**QUEUE_CALLS[call], "seqs": list(range(1, 1002))}
    detail = api.refused("POST", f"/topics/{topic}/{call}", body, status=400, code="batch_too_large")
    check(detail, {"seqs": 1001, "max": 1000})
    body["seqs"] = list(range(1, 1001))
    assert len(api.ask("POST", f"/topics/{topic}/{call}", body)["skipped"]) == 1000  # type: ignore[arg-type]


@pytest.mark.parametrize("call", QUEUE_CALLS)
def test_queue_calls_need_a_queue(api: Api, topic: str, call: str) -> None:
    path = f"/topics/{topic}/{call}"
    api.refused("POST", path, QUEUE_CALLS[call], status=404, code="topic_not_found", detail={"topic": topic})
    api.put(topic)
    api.refused("POST", path, QUEUE_CALLS[call], status=409, code="not_a_queue", detail={"topic": topic})


def test_work_needs_a_queue_and_a_node(api: Api, topic: str) -> None:
    path = f"/topics/{topic}/work?node=w"
    api.refused("GET", path, status=404, code="topic_not_found", detail={"topic": topic})
    api.put(topic)
    api.refused("GET", path, status=409, code="not_a_queue", detail={"topic": topic})
    _queue(api, f"{topic}.q")
    for query in ("", "?node=", f"?node={'x' * 129}"):
        api.refused("GET", f"/topics/{topic}.q/work{query}", status=400, code="invalid_request")


def test_a_job_delivered_too_often_moves_to_the_dead_letters_with_its_provenance(api: Api, topic: str) -> None:
    dead = f"{topic}.dead"
    api.put(topic, type="queue", max_deliveries=2, dead_letter=dead)
    api.post(topic, {"data": {"x": 1}, "tag": "t", "node": "n", "meta": {"k": "v"}}, {"data": "good"})
    for _ in range(2):
        api.claim(topic, "w")
        api.nack(topic, "w", 1)
    claimed = api.claim(topic, "w", 10)
    assert [job["data"] for job in claimed] in ([], ["good"])
    (letter,) = rows(api.diff(dead, include_tags=True), "records")
    meta = part(letter, "meta")
    check(letter, record(1, {"x": 1}, tag="t", node="n", meta=meta))
    origin = {"$dead_letter_from": topic, "$dead_letter_deliveries": "2", "$dead_letter_src_seq": "1"}
    assert {"k": "v", **origin}.items() <= meta.items()
    assert all(isinstance(value, str) for value in meta.values())
    assert api.queue(topic)["dead_lettered"] == 1
    assert seqs(api.diff(topic)) == [2]
    assert part(api.state(topic), "queue").keys() == {"ready", "in_flight", "dead_lettered"}


def test_without_a_dead_letter_topic_a_job_comes_back_for_ever(api: Api, topic: str) -> None:
    _queue(api, topic, "a", max_deliveries=1)
    for turn in range(4):
        assert [job["deliveries"] for job in api.claim(topic, "w")] == [turn + 1]
        api.nack(topic, "w", 1)


def test_a_queue_cannot_be_its_own_dead_letter_topic(api: Api, topic: str) -> None:
    for name in (topic, "-bad"):
        body = {"type": "queue", "dead_letter": name}
        api.refused("PUT", f"/topics/{topic}", body, status=400, code="invalid_request")
    api.refused("GET", f"/topics/{topic}", status=404, code="topic_not_found")


def test_claimers_of_one_window_share_evenly(api: Api, topic: str) -> None:
    _queue(api, topic, *range(50), claim_jitter_ms=400)
    shares: list[list[int]] = []
    gate = threading.Barrier(10)

    def claim(name: str) -> None:
        with Api(api.port, http2=api.http2) as own:
            gate.wait()
            shares.append([whole(job, "$seq") for job in own.claim(topic, name, 10)])

    threads = [threading.Thread(target=claim, args=(f"w{number}",)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seq for share in shares for seq in share) == list(range(1, 51))
    assert {len(share) for share in shares} <= {4, 5, 6}, [len(share) for share in shares]
    assert all(share == sorted(share) for share in shares)


def test_a_full_reject_queue_refuses_jobs_until_some_are_acked(api: Api, topic: str) -> None:
    _queue(api, topic, 1, 2, cap_records=2, discard="reject")
    body = {"records": [{"data": 3}]}
    api.refused("POST", f"/topics/{topic}", body, status=422, code="topic_full")
    api.claim(topic, "w")
    api.ack(topic, "w", 1)
    assert api.write(topic, 3)["seqs"] == [3]


def test_reads_and_deletes_of_a_queue_leave_leases_alone(api: Api, topic: str) -> None:
    _queue(api, topic, "a", "b", "c")
    api.claim(topic, "w")
    assert data(api.diff(topic)) == ["a", "b", "c"]
    check(api.delete(topic, before_seq=3)["deleted"], 2)
    assert api.queue(topic) == {"ready": 1, "in_flight": 0, "dead_lettered": 0}
    assert api.ack(topic, "w", 1)["skipped"] == [1]
    check(api.state(topic)["bytes"], INT)


def test_expired_jobs_are_never_handed_out(api: Api, topic: str) -> None:
    _queue(api, topic, "a", ttl_ms=100)
    eventually(lambda: api.state(topic)["count"] == 0)
    assert api.claim(topic, "w") == []
    assert part(api.diff(topic), "tombstone")["reason"] == "ttl"
