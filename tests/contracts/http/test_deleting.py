"""Deletion of records: by seq, by tag, by both; permanent and silent."""

from __future__ import annotations

import pytest

from tests.contracts.http.api import Api, data, seqs
from tests.contracts.http.shapes import INT, PERFORMANCE, check

TAGS = ["a", "a:1", "a:2", "b", None, "a*", ""]


def _fill(api: Api, topic: str) -> None:
    api.post(topic, *({"data": tag} if tag is None else {"data": tag, "tag": tag} for tag in TAGS[:6]), status=201)


def test_a_delete_answers_exactly_the_agreed_fields(api: Api, topic: str) -> None:
    _fill(api, topic)
    wanted = {
        "topic": topic, "deleted": 2, "earliest_seq": 3, "head_seq": 6, "count": 4, "bytes": INT,
        "performance": PERFORMANCE,
    }  # fmt: skip
    check(api.delete(topic, before_seq=3), wanted)
    check(api.delete(topic, before_seq=3), {**wanted, "deleted": 0})


@pytest.mark.parametrize(
    ("selector", "left"),
    [
        ({"match": ["tag", "Eq", "a"]}, ["a:1", "a:2", "b", None, "a*"]),
        ({"match": "a"}, ["a:1", "a:2", "b", None, "a*"]),
        ({"match": ["tag", "Glob", "a:*"]}, ["a", "b", None, "a*"]),
        ({"match": ["tag", "Glob", "a*"]}, ["b", None]),
        ({"match": ["tag", "Glob", "*"]}, [None]),
        ({"match": ["tag", "Eq", "a*"]}, ["a", "a:1", "a:2", "b", None]),
        ({"match": "a:*"}, ["a", "b", None, "a*"]),
        ({"match": ["tag", "Glob", "a*"], "before_seq": 3}, ["a:2", "b", None, "a*"]),
        ({"before_seq": 99}, []),
        ({"before_seq": 0}, ["a", "a:1", "a:2", "b", None, "a*"]),
        ({"match": "none such"}, ["a", "a:1", "a:2", "b", None, "a*"]),
    ],
)
def test_a_selector_removes_what_it_names(
    api: Api, topic: str, selector: dict[str, object], left: list[object]
) -> None:
    _fill(api, topic)
    answer = api.delete(topic, **selector)
    assert answer["deleted"] == 6 - len(left)
    assert answer["count"] == len(left)
    page = api.diff(topic)
    assert data(page) == left
    assert (page["tombstone"], page["head_seq"]) == (None, 6)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"match": None},
        {"match": ["tag", "Glob", "a"]},
        {"match": ["tag", "Glob", "*a*"]},
        {"match": ["tag", "Glob", "a**"]},
        {"match": ["tag", "Like", "a"]},
        {"match": ["node", "Eq", "a"]},
        {"match": ["tag", "Eq"]},
        {"match": ["tag", "Eq", 5]},
        {"match": 5},
        {"before_seq": -1},
        {"before_seq": "3"},
    ],
)
def test_a_bad_selector_is_refused(api: Api, topic: str, body: dict[str, object]) -> None:
    _fill(api, topic)
    api.refused("POST", f"/topics/{topic}/delete", body, status=400, code="invalid_request")
    assert api.state(topic)["count"] == 6


def test_a_delete_in_an_absent_topic_is_not_found(api: Api, topic: str) -> None:
    body = {"before_seq": 1}
    api.refused("POST", f"/topics/{topic}/delete", body, status=404, code="topic_not_found", detail={"topic": topic})


def test_a_match_reaches_only_what_exists(api: Api, topic: str) -> None:
    _fill(api, topic)
    api.delete(topic, match="b")
    api.post(topic, {"data": "later", "tag": "b"})
    assert data(api.diff(topic))[-1] == "later"
    api.delete(topic, before_seq=1000)
    api.write(topic, "after")
    assert data(api.diff(topic)) == ["after"]


def test_the_earliest_seq_moves_over_what_is_deleted(api: Api, topic: str) -> None:
    _fill(api, topic)
    assert api.delete(topic, match="a:1")["earliest_seq"] == 1
    assert api.delete(topic, match="a")["earliest_seq"] == 3
    answer = api.delete(topic, before_seq=7)
    assert (answer["earliest_seq"], answer["count"], answer["bytes"]) == (7, 0, 0)
    assert api.write(topic, "next")["seqs"] == [7]


def test_deletes_do_not_pass_routers(api: Api, topic: str) -> None:
    api.router(topic, f"{topic}.a", f"{topic}.b")
    api.post(f"{topic}.a", {"data": 1, "tag": "t"}, {"data": 2})
    assert seqs(api.diff(f"{topic}.b")) == [1, 2]
    api.delete(f"{topic}.a", match="t")
    assert data(api.diff(f"{topic}.b")) == [1, 2]
    api.delete(f"{topic}.b", match="t")
    assert data(api.diff(f"{topic}.b")) == [2]
