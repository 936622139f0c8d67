"""Records over HTTP: written all or none, read on from a seq, deleted for good."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.fronts.http.web import Web, listed, number, part


def test_a_write_makes_the_topic_and_tells_its_seqs(web: Web, topic: str) -> None:
    answer = web.write(topic, 1, 2, 3, status=201)
    del answer["performance"]
    assert answer == {
        "topic": topic, "first_seq": 1, "last_seq": 3, "seqs": [1, 2, 3], "head_seq": 3, "count": 3, "created": True,
        "deduped": False,
    }  # fmt: skip
    assert web.write(topic, 4)["seqs"] == [4]


def test_seqs_can_be_left_out(web: Web, topic: str) -> None:
    body = {"records": [{"data": 1}]}
    assert "seqs" not in web.ask("POST", f"/v0/topics/{topic}?return_seqs=false", body, 201)
    assert "seqs" not in web.ask("POST", f"/v0/topics/{topic}?return_seqs=0", body)
    assert "seqs" in web.ask("POST", f"/v0/topics/{topic}?return_seqs=no", body)


@pytest.mark.parametrize(
    "data",
    [
        None, True, 0, -1.5e300, 123456789012345678901234567890, "", "tä\u0000\n\u2028\U0001f600", [], {}, [[[]]],
        {"a": {"b": [1, None, "c"]}, "$seq": 7, "data": 1},
    ],
)  # fmt: skip
def test_data_comes_back_as_it_was_sent(web: Web, topic: str, data: object) -> None:
    web.write(topic, data, status=201)
    (record,) = listed(web.diff(topic), "records")
    assert record["data"] == data
    assert record.keys() == {"$seq", "$ts", "data"}, "what is absent is left out"


def test_the_very_text_of_a_number_survives(one: Web, topic: str) -> None:
    one.client.post(
        f"/v0/topics/{topic}",
        content=b'{"records":[{"data":{"pi":3.14159265358979323846264,"big":1E400,"a":1,"a":2}}]}',
        headers={"content-type": "application/json; charset=utf-8"},
    ).raise_for_status()
    told = one.client.post(f"/v0/topics/{topic}/diff").content
    assert b'"data":{"pi":3.14159265358979323846264,"big":1E400,"a":1,"a":2}' in told


def test_data_over_many_lines_is_told_on_one(one: Web, topic: str) -> None:
    one.client.post(
        f"/v0/topics/{topic}",
        content=b'{"records":[{"data":{"a":\n  [1,\r\n 2]},"meta":{\n"k":"v"}}]}',
        headers={"content-type": "application/json"},
    ).raise_for_status()
    told = one.client.post(f"/v0/topics/{topic}/diff").content
    assert b"\n" not in told
    assert b'"data":{"a":[1,2]}' in told


def test_node_tag_and_meta_come_back_with_their_sigils(web: Web, topic: str) -> None:
    records = [{"data": 1, "tag": "t", "node": "own", "meta": {"k": "v", "n": 1}}, {"data": 2}]
    web.ask("POST", f"/v0/topics/{topic}", {"records": records, "node": "batch"}, 201)
    first, second = listed(web.diff(topic, include_tags=True), "records")
    assert (first["$node"], first["$tag"], first["meta"]) == ("own", "t", {"k": "v", "n": 1})
    assert second["$node"] == "batch"
    assert second.keys() == {"$seq", "$ts", "$node", "data"}
    bare, _ = listed(web.diff(topic, include_meta=False), "records")
    assert bare.keys() == {"$seq", "$ts", "$node", "data"}, "tags are shown when asked for"


def test_a_repeated_write_is_answered_like_the_first(web: Web, topic: str) -> None:
    first = web.write(topic, 1, 2, status=201, idempotency_key="k")
    web.write(topic, 3)
    again = web.write(topic, 1, 2, idempotency_key="k")
    for name in ("first_seq", "last_seq", "seqs", "head_seq", "count"):
        assert again[name] == first[name]
    assert (again["deduped"], again["created"]) == (True, False)
    header = web.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}]}, Idempotency_Key="k")
    assert header["deduped"] is True
    body = web.ask(
        "POST", f"/v0/topics/{topic}", {"records": [{"data": 1}], "idempotency_key": "other"}, Idempotency_Key="k"
    )
    assert body["deduped"] is False, "the body wins"


def test_of_many_writes_with_one_key_one_appends(one: Web, topic: str) -> None:
    one.put(topic)
    url = f"{one.client.base_url}/v0/topics/{topic}"

    def write(_: int) -> bool:
        answer = httpx.post(url, json={"records": [{"data": 1}], "idempotency_key": "k"}).json()
        assert answer["seqs"] == [1]
        return bool(answer["deduped"])

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(write, range(16))) == [False] + [True] * 15
    assert one.state(topic)["head_seq"] == 1


def test_a_write_that_may_not_create_does_not(web: Web, topic: str) -> None:
    for fields in ({"create": False}, {"config": {"auto_create": False}}):
        body = {"records": [{"data": 1}], **fields}
        refused = web.refused("POST", f"/v0/topics/{topic}", body, status=404)
        assert (refused.code, refused.detail) == ("topic_not_found", {"topic": topic})


def test_the_config_of_a_write_counts_only_if_it_creates(web: Web, topic: str) -> None:
    web.write(topic, 1, status=201, config={"type": "queue", "ttl_ms": 60_000})
    assert web.state(topic)["type"] == "queue"
    web.write(topic, 2, config={"type": "log", "ttl_ms": 1})
    assert part(web.state(topic), "config")["ttl_ms"] == 60_000


def test_only_fsync_waits_for_the_disk_and_says_how_long(web: Web, topic: str) -> None:
    assert number(web.write(topic, 1, status=201), "performance", "fsync_ms") == 0, "class disk, even as it is made"
    web.put(f"{topic}.safe", durable=True)
    assert number(web.write(f"{topic}.safe", 1), "performance", "fsync_ms") > 0


# -- diff


def test_a_diff_goes_on_from_a_seq(web: Web, topic: str) -> None:
    web.write(topic, *range(10), status=201)
    answer = web.diff(topic, from_seq=2, limit=3)
    assert [record["$seq"] for record in listed(answer, "records")] == [3, 4, 5]
    assert (answer["next_from_seq"], answer["head_seq"], answer["earliest_seq"]) == (5, 10, 1)
    assert (answer["caught_up"], answer["lag"], answer["tombstone"]) == (False, 5, None)
    end = web.diff(topic, from_seq=5)
    assert (end["caught_up"], end["lag"], end["next_from_seq"]) == (True, 0, 10)


def test_limits_of_a_diff_are_brought_into_bounds(one: Web, topic: str) -> None:
    one.write(topic, *range(1200), status=201)
    for asked, given in ((0, 256), (1001, 1000), (10**18, 1000), (1, 1)):
        assert len(listed(one.diff(topic, limit=asked), "records")) == given
    one.write(f"{topic}.big", *["x" * 400_000] * 4, status=201)
    assert len(listed(one.diff(f"{topic}.big"), "records")) == 2, "1 MiB"
    assert len(listed(one.diff(f"{topic}.big", max_batch_bytes=1), "records")) == 1
    assert len(listed(one.diff(f"{topic}.big", max_batch_bytes=10**12), "records")) == 4


def test_a_reader_does_not_hear_itself(web: Web, topic: str) -> None:
    records = [{"data": 1, "node": "a"}, {"data": 2, "node": "b"}, {"data": 3}, {"data": 4, "node": "a"}]
    web.ask("POST", f"/v0/topics/{topic}", {"records": records}, 201)
    answer = web.diff(topic, node="a")
    assert [record["data"] for record in listed(answer, "records")] == [2, 3]
    assert (answer["next_from_seq"], answer["caught_up"]) == (4, True)
    assert [record["data"] for record in listed(web.diff(topic, node=["a", "b"]), "records")] == [3]
    web.put(topic, status=200, dedupe_node=False)
    assert len(listed(web.diff(topic, node="a"), "records")) == 4


def test_a_gap_that_nobody_asked_for_is_told(web: Web, topic: str) -> None:
    web.put(topic, cap_records=3)
    web.write(topic, *range(10))
    answer = web.diff(topic, from_seq=1)
    assert [record["$seq"] for record in listed(answer, "records")] == [8, 9, 10]
    assert answer["tombstone"] == {
        "gap_from": 2, "gap_to": 7, "reason": "cap", "missed_estimate": 6, "earliest_seq": 8, "head_seq": 10,
    }  # fmt: skip


def test_a_reader_from_the_future_is_told_that_the_topic_is_another(web: Web, topic: str) -> None:
    web.write(topic, 1, 2, status=201)
    answer = web.diff(topic, from_seq=(1 << 64) - 1)
    tombstone = part(answer, "tombstone")
    assert (tombstone["reason"], tombstone["gap_from"], tombstone["gap_to"]) == ("recreated", 1, 2)
    assert [record["$seq"] for record in listed(answer, "records")] == [1, 2]


def test_a_waiting_diff_is_answered_when_something_is_written(web: Web, topic: str) -> None:
    web.put(topic)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(web.diff, topic, wait_ms=20_000)
        with httpx.Client(base_url=web.client.base_url) as other:
            while not waiting.running():
                time.sleep(0.001)  # the thread has not begun to ask
            time.sleep(0.2)  # it waits in the server, which shows this nowhere
            other.post(f"/v0/topics/{topic}", json={"records": [{"data": "now"}]})
        answer = waiting.result(timeout=10)
    assert [record["data"] for record in listed(answer, "records")] == ["now"]


def test_a_diff_waits_only_for_its_time_and_only_when_there_is_nothing(web: Web, topic: str) -> None:
    web.write(topic, 1, status=201)
    began = time.monotonic()
    assert web.diff(topic, from_seq=0, wait_ms=20_000)["caught_up"] is True
    assert time.monotonic() - began < 5
    answer = web.diff(topic, from_seq=1, wait_ms=150)
    assert listed(answer, "records") == []
    assert 0.1 < time.monotonic() - began < 10


def test_a_thousand_records_cost_the_server_little(one: Web, topic: str) -> None:
    one.write(topic, *[{"payload": "x" * 180, "n": n} for n in range(1000)], status=201)
    quickest = min(number(one.diff(topic, limit=1000), "performance", "server_total_ms") for _ in range(10))
    assert quickest < 10, "far above what it takes, for a busy machine"


# -- delete


def test_deletion_by_seq_and_by_tag(web: Web, topic: str) -> None:
    records = [{"data": n, "tag": tag} for n, tag in enumerate(["a", "a:1", "a:2", "b", "a"], 1)] + [{"data": 6}]
    web.ask("POST", f"/v0/topics/{topic}", {"records": records}, 201)
    path = f"/v0/topics/{topic}/delete"
    answer = web.ask("POST", path, {"match": ["tag", "Eq", "a"], "before_seq": 5})
    assert (answer["deleted"], answer["earliest_seq"], answer["head_seq"], answer["count"]) == (1, 2, 6, 5)
    assert web.ask("POST", path, {"match": ["tag", "Glob", "a:*"]})["deleted"] == 2
    assert web.ask("POST", path, {"match": "b"})["deleted"] == 1
    assert web.ask("POST", path, {"match": "a*"})["deleted"] == 1, "a star at the end of a bare text: a prefix"
    assert web.ask("POST", path, {"before_seq": 100})["deleted"] == 1
    answer = web.diff(topic)
    assert (answer["records"], answer["tombstone"], answer["next_from_seq"]) == ([], None, 6)


@pytest.mark.parametrize(
    "body",
    [
        {}, {"match": ["tag", "Glob", "a"]}, {"match": ["tag", "Glob", "*a*"]}, {"match": ["tag", "Like", "a"]},
        {"match": ["tag", "Glob", ""]},
        {"match": ["node", "Eq", "a"]}, {"match": ["tag", "Eq"]}, {"match": 5}, {"match": ["tag", "Eq", 5]},
        {"before_seq": -1}, {"before_seq": "1"}, {"match": "x" * 257},
    ],
)  # fmt: skip
def test_a_deletion_that_selects_nothing_sensible_is_refused(one: Web, topic: str, body: dict[str, object]) -> None:
    one.write(topic, 1, status=201)
    assert one.refused("POST", f"/v0/topics/{topic}/delete", body, status=400).code == "invalid_request"
    assert one.state(topic)["count"] == 1
