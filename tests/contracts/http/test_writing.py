"""Writes: what they answer, what they refuse, what a second one with the same key does."""

from __future__ import annotations

import threading

import pytest

from tests.contracts.http.api import Api, data, part, rows, seqs, timed, whole
from tests.contracts.http.shapes import INT, PERFORMANCE, check, record

MIB = 1024 * 1024


def _wrote(topic: str, *numbers: int, **changed: object) -> dict[str, object]:
    return {
        "topic": topic, "first_seq": numbers[0], "last_seq": numbers[-1], "seqs": list(numbers),
        "head_seq": numbers[-1], "count": len(numbers), "created": False, "deduped": False,
        "performance": PERFORMANCE, **changed,
    }  # fmt: skip


def test_a_write_answers_201_when_it_made_the_topic_and_200_after_that(api: Api, topic: str) -> None:
    check(api.write(topic, "a", "b", status=201), _wrote(topic, 1, 2, created=True))
    check(api.write(topic, "c"), _wrote(topic, 3))


def test_seqs_are_left_out_on_request(api: Api, topic: str) -> None:
    api.put(topic)
    body = {"records": [{"data": 1}, {"data": 2}]}
    short = _wrote(topic, 1, 2)
    del short["seqs"]
    check(api.ask("POST", f"/topics/{topic}?return_seqs=false", body), short)
    check(api.ask("POST", f"/topics/{topic}?return_seqs=1", body), _wrote(topic, 3, 4))
    check(api.ask("POST", f"/topics/{topic}?return_seqs=maybe", body), _wrote(topic, 5, 6))


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_only_the_fsync_class_waits_for_the_disk(api: Api, topic: str, durability: str) -> None:
    answer = api.write(topic, 1, status=201, config={"durability": durability})
    check(answer, _wrote(topic, 1, created=True))
    waited = part(answer, "performance").get("fsync_ms", 0)
    assert isinstance(waited, int | float)
    assert (waited > 0) == (durability == "fsync")


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -1, 1.5, "", "ünï \"q\" \\ \n \u2028", [], {}, [1, [2, {"a": None}]], {"b": 1, "a": {"$seq": 5}},
     12345678901234567890, 1e300],
)  # fmt: skip
def test_data_of_any_kind_comes_back_unchanged(api: Api, topic: str, value: object) -> None:
    api.write(topic, value, status=201)
    check(rows(api.diff(topic), "records"), [record(1, value)])


def test_data_comes_back_as_the_very_text_that_was_sent(api: Api, topic: str) -> None:
    text = '{"z":1.0,"a":10000000000000000000000001,"e":1E5,"s":"\\u00e9"}'
    sent = f'{{"records":[{{"data":{text}}}]}}'
    response = api.http.post(f"/topics/{topic}", content=sent, headers={"content-type": "application/json"})
    assert response.status_code == 201
    assert text in api.http.post(f"/topics/{topic}/diff").text


def test_fields_of_a_record_come_back_under_their_names_and_are_left_out_when_absent(api: Api, topic: str) -> None:
    api.post(
        topic, {"data": 1}, {"data": 2, "node": "n", "tag": "t", "meta": {"k": "v"}}, {"data": 3, "meta": {}},
        status=201,
    )  # fmt: skip
    found = rows(api.diff(topic, include_tags=True), "records")
    check(found[:2], [record(1, 1), record(2, 2, node="n", tag="t", meta={"k": "v"})])
    assert found[2]["data"] == 3


def test_the_node_of_the_write_is_that_of_records_without_one(api: Api, topic: str) -> None:
    api.post(topic, {"data": 1}, {"data": 2, "node": "own"}, status=201, node="batch")
    check(rows(api.diff(topic), "records"), [record(1, 1, node="batch"), record(2, 2, node="own")])


def test_unknown_fields_are_ignored(api: Api, topic: str) -> None:
    api.post(topic, {"data": 1, "weight": 3}, status=201, disable_backpressure=True, colour="red")
    assert data(api.diff(topic, colour="red")) == [1]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"records": []},
        {"records": None},
        {"records": {}},
        {"records": [1]},
        {"records": [{}]},
        {"records": [{"tag": "no data"}]},
        {"records": [{"data": 1, "tag": "x" * 257}]},
        {"records": [{"data": 1, "tag": 5}]},
        {"records": [{"data": 1, "node": "x" * 129}]},
        {"records": [{"data": 1, "meta": []}]},
        {"records": [{"data": 1, "meta": {str(number): "v" for number in range(65)}}]},
        {"records": [{"data": 1, "meta": {"k": "v" * 16_400}}]},
        {"records": [{"data": 1}], "node": "x" * 129},
        {"records": [{"data": 1}], "idempotency_key": "x" * 257},
        {"records": [{"data": 1}], "config": {"durability": "granite"}},
        {"records": [{"data": 1}], "config": {"ttl_ms": -1}},
        [],
        "text",
    ],
)
def test_a_bad_write_is_refused_before_it_makes_the_topic(api: Api, topic: str, body: object) -> None:
    api.refused("POST", f"/topics/{topic}", body, status=400, code="invalid_request")
    api.refused("GET", f"/topics/{topic}", status=404, code="topic_not_found")


def test_limits_are_inclusive(api: Api, topic: str) -> None:
    api.post(
        topic,
        {"data": 1, "tag": "t" * 256, "node": "n" * 128, "meta": {str(number): "v" for number in range(64)}},
        status=201,
        idempotency_key="k" * 256,
    )
    api.write(topic, "x" * (MIB - 2))
    api.write(topic, *[None] * 10_000)
    assert api.state(topic)["count"] == 10_002


def test_too_large_records_and_batches_have_codes_of_their_own(api: Api, topic: str) -> None:
    large = {"records": [{"data": "x" * MIB}]}
    api.refused("POST", f"/topics/{topic}", large, status=400, code="record_too_large")
    just = {"records": [{"data": "x" * (MIB - 20), "meta": {"k": "v" * 40}}]}
    api.refused("POST", f"/topics/{topic}", just, status=400, code="record_too_large")
    many = {"records": [{"data": None}] * 10_001}
    api.refused("POST", f"/topics/{topic}", many, status=400, code="batch_too_large")
    api.refused("GET", f"/topics/{topic}", status=404, code="topic_not_found")


@pytest.mark.parametrize("name", ["-a", ".a", "a b", "ä", "a>b", "a" * 256, "_x", "a*"])
def test_bad_names_are_refused(api: Api, name: str) -> None:
    api.refused("PUT", f"/topics/{name}", {}, status=400, code="invalid_request")
    api.refused("POST", f"/topics/{name}", {"records": [{"data": 1}]}, status=400, code="invalid_request")


@pytest.mark.parametrize("name", ["a", "9", "A.b_c:d-e", "z" * 255])
def test_good_names_are_taken_byte_for_byte(api: Api, name: str) -> None:
    assert api.write(name, 1, status=201)["topic"] == name
    api.ask("DELETE", f"/topics/{name}")


def test_a_write_that_may_not_create_finds_no_topic(api: Api, topic: str) -> None:
    body: dict[str, object] = {"records": [{"data": 1}], "create": False}
    detail = {"topic": topic}
    api.refused("POST", f"/topics/{topic}", body, status=404, code="topic_not_found", detail=detail)
    by_config = {"records": [{"data": 1}], "config": {"auto_create": False}}
    api.refused("POST", f"/topics/{topic}", by_config, status=404, code="topic_not_found", detail=detail)
    api.post(topic, {"data": 1}, status=201, create=True, config={"auto_create": False})
    api.ask("POST", f"/topics/{topic}", body, 200)


def test_an_inline_config_counts_only_for_the_write_that_creates(api: Api, topic: str) -> None:
    api.write(topic, 1, status=201, config={"cap_records": 5})
    api.write(topic, 2, config={"cap_records": 1})
    assert part(api.state(topic), "config")["cap_records"] == 5
    assert data(api.diff(topic)) == [1, 2]


# -- keys


def test_a_retry_gets_the_original_seqs_and_the_head_of_that_time(api: Api, topic: str) -> None:
    api.put(topic)
    check(api.write(topic, 1, 2, idempotency_key="k"), _wrote(topic, 1, 2))
    api.write(topic, 3)
    check(api.write(topic, 1, 2, idempotency_key="k"), _wrote(topic, 1, 2, deduped=True))
    assert data(api.diff(topic)) == [1, 2, 3]


def test_the_key_of_the_body_wins_over_that_of_the_header(api: Api, topic: str) -> None:
    api.put(topic)
    headers = {"idempotency-key": "header"}

    def write(key: str | None) -> bool:
        body: dict[str, object] = {"records": [{"data": key}]}
        if key is not None:
            body["idempotency_key"] = key
        return api.ask("POST", f"/topics/{topic}", body, 200, headers)["deduped"] is True

    assert [write("body"), write(None), write("body"), write(None)] == [False, False, True, True]
    assert data(api.diff(topic)) == ["body", None]


def test_keys_are_scoped_to_the_topic_and_its_life(api: Api, topic: str) -> None:
    api.write(topic, 1, status=201, idempotency_key="k")
    assert api.write(f"{topic}.other", 1, status=201, idempotency_key="k")["deduped"] is False
    api.ask("DELETE", f"/topics/{topic}")
    assert timed(api.write(topic, 2, status=201, idempotency_key="k"))["deduped"] is False


def test_a_key_is_forgotten_after_its_window(api: Api, topic: str) -> None:
    api.put(topic, idempotency_window_ms=50)
    api.write(topic, 1, idempotency_key="k")
    assert api.write(topic, 1, idempotency_key="k")["deduped"] is True
    threading.Event().wait(0.15)
    assert api.write(topic, 1, idempotency_key="k")["deduped"] is False
    assert seqs(api.diff(topic)) == [1, 2]


def test_concurrent_writes_with_one_key_append_once(api: Api, topic: str) -> None:
    api.put(topic, durability="fsync")
    answers: list[dict[str, object]] = []

    def write() -> None:
        with Api(api.port, http2=api.http2) as own:  # one client's HTTP/2 is not for several threads
            answers.append(own.write(topic, "x", "y", idempotency_key="same"))

    threads = [threading.Thread(target=write) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer["seqs"] for answer in answers] == [[1, 2]] * 12
    assert sorted(answer["deduped"] is True for answer in answers) == [False] + [True] * 11
    assert seqs(api.diff(topic)) == [1, 2]


# -- full topics


def test_a_reject_topic_refuses_what_does_not_fit_and_appends_nothing(api: Api, topic: str) -> None:
    api.put(topic, cap_records=3, discard="reject")
    api.write(topic, 1, 2)
    detail = {"cap_records": 3, "cap_bytes": 0, "head_seq": 2, "earliest_seq": 1}
    body = {"records": [{"data": 3}, {"data": 4}]}
    api.refused("POST", f"/topics/{topic}", body, status=422, code="topic_full", detail=detail)
    assert api.write(topic, 3)["seqs"] == [3]
    api.delete(topic, before_seq=3)
    assert api.write(topic, 4, 5)["seqs"] == [4, 5]


def test_a_write_that_can_never_fit_is_refused_for_good(api: Api, topic: str) -> None:
    api.put(topic, cap_records=3, discard="reject")
    body = {"records": [{"data": 1}] * 4}
    api.refused("POST", f"/topics/{topic}", body, status=400, code="record_too_large")
    api.put(f"{topic}.b", cap_bytes=100, discard="reject")
    api.refused("POST", f"/topics/{topic}.b", {"records": [{"data": "x" * 200}]}, status=400, code="record_too_large")
    check(api.state(f"{topic}.b")["bytes"], INT)
    assert whole(api.state(f"{topic}.b"), "head_seq") == 0
