"""Reads: pages, bounds, filters, waiting; and the tombstones that tell of what is lost."""

from __future__ import annotations

import threading
import time

import pytest

from tests.contracts.http.api import Api, data, eventually, part, rows, seqs, whole
from tests.contracts.http.shapes import INT, PERFORMANCE, check, record


def _page(topic: str, records: list[dict[str, object]], head: int, **changed: object) -> dict[str, object]:
    return {
        "topic": topic, "records": records, "next_from_seq": head, "head_seq": head, "earliest_seq": 1,
        "caught_up": True, "tombstone": None, "lag": 0, "performance": PERFORMANCE, **changed,
    }  # fmt: skip


def test_a_diff_answers_exactly_the_agreed_fields(api: Api, topic: str) -> None:
    api.write(topic, "a", "b", "c", status=201)
    check(api.diff(topic), _page(topic, [record(1, "a"), record(2, "b"), record(3, "c")], 3))
    check(
        api.diff(topic, limit=2),
        _page(topic, [record(1, "a"), record(2, "b")], 3, next_from_seq=2, caught_up=False, lag=1),
    )
    check(api.diff(topic, 2), _page(topic, [record(3, "c")], 3))
    check(api.diff(topic, 3), _page(topic, [], 3))


def test_an_empty_body_reads_from_the_start_and_needs_no_content_type(api: Api, topic: str) -> None:
    api.write(topic, 1, status=201)
    check(api.ask("POST", f"/topics/{topic}/diff"), _page(topic, [record(1, 1)], 1))


def test_a_diff_of_an_empty_topic(api: Api, topic: str) -> None:
    api.put(topic)
    check(api.diff(topic), _page(topic, [], 0))


def test_a_diff_of_an_absent_topic_is_not_found(api: Api, topic: str) -> None:
    api.refused("POST", f"/topics/{topic}/diff", {}, status=404, code="topic_not_found", detail={"topic": topic})


def test_limits_are_defaulted_and_clamped(api: Api, topic: str) -> None:
    api.write(topic, *range(1100), status=201)
    sizes = [len(seqs(api.diff(topic, **asked))) for asked in ({}, {"limit": 0}, {"limit": 9999}, {"limit": 1})]
    assert sizes == [256, 256, 1000, 1]


@pytest.mark.parametrize(
    "body",
    [{"from_seq": -1}, {"from_seq": "1"}, {"limit": "many"}, {"node": 5}, {"node": [5]}, {"wait_ms": -1},
     {"include_tags": "yes"}, [], 7],
)  # fmt: skip
def test_a_bad_diff_is_refused(api: Api, topic: str, body: object) -> None:
    api.write(topic, 1, status=201)
    api.refused("POST", f"/topics/{topic}/diff", body, status=400, code="invalid_request")


def test_tags_come_on_request_and_meta_unless_declined(api: Api, topic: str) -> None:
    api.post(topic, {"data": 1, "tag": "t", "meta": {"k": "v"}}, status=201)
    check(rows(api.diff(topic), "records"), [record(1, 1, meta={"k": "v"})])
    check(rows(api.diff(topic, include_tags=True, include_meta=False), "records"), [record(1, 1, tag="t")])


def test_a_page_is_bounded_by_bytes_and_always_holds_a_record(api: Api, topic: str) -> None:
    api.write(topic, *["x" * 1000] * 10, status=201)
    assert seqs(api.diff(topic, max_batch_bytes=1)) == [1]
    few = seqs(api.diff(topic, max_batch_bytes=3500))
    assert 1 < len(few) < 5
    assert len(seqs(api.diff(topic, max_batch_bytes=0))) == 10


def test_own_records_are_left_out_silently_and_the_cursor_moves_on(api: Api, topic: str) -> None:
    api.post(
        topic, {"data": 1, "node": "a"}, {"data": 2, "node": "b"}, {"data": 3}, {"data": 4, "node": "a"}, status=201
    )
    check(api.diff(topic, node="a"), _page(topic, [record(2, 2, node="b"), record(3, 3)], 4))
    assert data(api.diff(topic, node=["a", "b"])) == [3]
    assert data(api.diff(topic, node="A")) == [1, 2, 3, 4]
    check(api.diff(topic, 3, node="a"), _page(topic, [], 4))
    api.put(topic, 200, dedupe_node=False)
    assert data(api.diff(topic, node="a")) == [1, 2, 3, 4]


def test_a_filtered_page_may_be_short_but_moves_on(api: Api, topic: str) -> None:
    api.post(topic, *({"data": number, "node": "a" if number < 20 else "b"} for number in range(25)), status=201)
    found: list[object] = []
    cursor = 0
    for _ in range(25):
        answer = api.diff(topic, cursor, node="a", limit=5)
        assert whole(answer, "next_from_seq") > cursor
        cursor = whole(answer, "next_from_seq")
        found += data(answer)
        if answer["caught_up"]:
            break
    assert found == [20, 21, 22, 23, 24]


def test_a_waiting_diff_is_woken_by_a_write_and_ends_by_itself(api: Api, topic: str) -> None:
    api.put(topic)
    began = time.monotonic()
    check(api.diff(topic, wait_ms=150), _page(topic, [], 0))
    assert 0.14 <= time.monotonic() - began < 5
    writer = threading.Timer(0.1, lambda: api.write(topic, "live"))
    writer.start()
    began = time.monotonic()
    check(api.diff(topic, wait_ms=20_000), _page(topic, [record(1, "live")], 1))
    assert time.monotonic() - began < 10
    writer.join()


def test_a_waiting_diff_with_something_to_say_does_not_wait(api: Api, topic: str) -> None:
    api.put(topic, cap_records=1)
    api.write(topic, 1, 2, 3)
    began = time.monotonic()
    assert seqs(api.diff(topic, 2, wait_ms=20_000)) == [3]
    assert part(api.diff(topic, 99, wait_ms=20_000), "tombstone")["reason"] == "recreated"
    assert time.monotonic() - began < 5


def test_the_last_read_is_told(api: Api, topic: str) -> None:
    api.put(topic)
    api.diff(topic)
    assert api.state(topic)["last_read_ts"] is not None


# -- tombstones


def _gap(first: int, last: int, reason: str, head: int, **changed: object) -> dict[str, object]:
    return {
        "gap_from": first, "gap_to": last, "reason": reason, "missed_estimate": INT, "earliest_seq": last + 1,
        "head_seq": head, **changed,
    }  # fmt: skip


def test_eviction_by_records_is_told_as_cap(api: Api, topic: str) -> None:
    api.put(topic, cap_records=3)
    api.write(topic, *range(1, 11))
    records = [record(seq, seq) for seq in (8, 9, 10)]
    check(api.diff(topic), _page(topic, records, 10, earliest_seq=8, tombstone=_gap(1, 7, "cap", 10)))
    check(api.diff(topic, 5), _page(topic, records, 10, earliest_seq=8, tombstone=_gap(6, 7, "cap", 10)))
    check(api.diff(topic, 7), _page(topic, records, 10, earliest_seq=8))
    assert part(api.diff(topic), "tombstone")["missed_estimate"] == 7


def test_eviction_by_bytes_is_told_as_cap(api: Api, topic: str) -> None:
    api.put(topic, cap_bytes=1000)
    for _ in range(5):
        api.write(topic, "x" * 298)
    answer = api.diff(topic)
    assert seqs(answer) == [3, 4, 5]
    check(answer["tombstone"], _gap(1, 2, "cap", 5))
    assert whole(api.state(topic), "bytes") <= 1000


def test_expiry_is_told_as_ttl_and_counts_at_once(api: Api, topic: str) -> None:
    api.put(topic, ttl_ms=150)
    api.write(topic, 1, 2)
    assert seqs(api.diff(topic)) == [1, 2]
    eventually(lambda: api.state(topic)["count"] == 0)
    answer = api.diff(topic)
    check(answer, _page(topic, [], 2, earliest_seq=3, tombstone=_gap(1, 2, "ttl", 2)))
    check(api.diff(topic, 2), _page(topic, [], 2, earliest_seq=3))
    state = api.state(topic)
    assert (state["earliest_seq"], state["count"], state["bytes"]) == (3, 0, 0)


def test_cap_and_ttl_together_are_told_as_mixed(api: Api, topic: str) -> None:
    api.put(topic, ttl_ms=200, cap_records=2)
    api.write(topic, 1, 2, 3)
    eventually(lambda: api.state(topic)["count"] == 0)
    check(api.diff(topic)["tombstone"], _gap(1, 3, "mixed", 3))


def test_a_cursor_beyond_the_head_means_that_the_topic_was_made_again(api: Api, topic: str) -> None:
    api.write(topic, *range(5), status=201)
    api.ask("DELETE", f"/topics/{topic}")
    api.write(topic, "new", status=201)
    answer = api.diff(topic, 5)
    gap = {**_gap(1, 1, "recreated", 1), "earliest_seq": 1}
    check(answer, _page(topic, [record(1, "new")], 1, tombstone=gap))


def test_a_cursor_beyond_the_head_of_an_empty_topic(api: Api, topic: str) -> None:
    api.put(topic)
    gap = {**_gap(1, 0, "recreated", 0), "earliest_seq": 1}
    check(api.diff(topic, 5), _page(topic, [], 0, tombstone=gap))


def test_deletes_are_silent(api: Api, topic: str) -> None:
    api.write(topic, *range(1, 7), status=201)
    api.delete(topic, before_seq=4)
    check(api.diff(topic), _page(topic, [record(seq, seq) for seq in (4, 5, 6)], 6, earliest_seq=4))


def test_an_involuntary_loss_below_a_deleted_range_is_told_and_the_read_resumes_at_the_first_record(
    api: Api, topic: str
) -> None:
    api.put(topic, cap_records=4)
    api.write(topic, *range(1, 7))  # 1 and 2 are evicted
    api.delete(topic, before_seq=5)
    answer = api.diff(topic)
    assert seqs(answer) == [5, 6]
    gap = part(answer, "tombstone")
    assert (gap["gap_from"], gap["reason"], answer["earliest_seq"]) == (1, "cap", 5)
    assert gap["gap_to"] in (2, 4)
    assert gap["earliest_seq"] == whole(gap, "gap_to") + 1
    assert api.diff(topic, 2)["tombstone"] is None


def test_deleted_records_do_not_count_towards_the_cap(api: Api, topic: str) -> None:
    api.put(topic, cap_records=3)
    api.post(topic, {"data": 1}, {"data": 2, "tag": "t"}, {"data": 3})
    api.delete(topic, match="t")
    api.write(topic, 4)
    check(api.diff(topic)["tombstone"], None)
    assert seqs(api.diff(topic)) == [1, 3, 4]


def test_a_loosened_ttl_brings_nothing_back(api: Api, topic: str) -> None:
    api.put(topic, ttl_ms=100)
    api.write(topic, 1)
    eventually(lambda: api.state(topic)["count"] == 0)
    api.put(topic, 200, ttl_ms=0)
    assert seqs(api.diff(topic)) == []
    assert part(api.diff(topic), "tombstone")["reason"] == "ttl"
