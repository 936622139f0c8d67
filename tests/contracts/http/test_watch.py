"""Watches: sessions, frames, resuming, gaps, the end of topics, heartbeats."""

from __future__ import annotations

import re

import pytest

from tests.contracts.http.api import Api, data, part, rows, seqs, whole
from tests.contracts.http.events import Events, cursor_of, id_of
from tests.contracts.http.shapes import PERFORMANCE, Rule, check, record

WID = Rule(
    "wid_ and 16 bytes in base64url",
    lambda value: isinstance(value, str) and bool(re.fullmatch(r"wid_[A-Za-z0-9_-]{22}", value)),
)


def _watch(api: Api, topics: dict[str, dict[str, object]], **fields: object) -> str:
    answer = api.ask("POST", "/watch", {"topics": topics, **fields})
    return f"/watch/{answer['wid']}"


def test_a_session_is_told_with_exactly_the_agreed_fields(api: Api, topic: str) -> None:
    api.write(topic, 1, 2, status=201)
    api.put(f"{topic}.b")
    answer = api.ask("POST", "/watch", {"topics": {topic: {"from_seq": 1}, f"{topic}.b": {}}})
    check(
        answer,
        {
            "wid": WID, "stream_url": f"/v0/watch/{answer['wid']}", "session_ttl_ms": 300_000,
            "topics": {
                topic: {"from_seq": 1, "head_seq": 2, "earliest_seq": 1},
                f"{topic}.b": {"from_seq": 0, "head_seq": 0, "earliest_seq": 1},
            },
            "performance": PERFORMANCE,
        },
    )  # fmt: skip
    tail = api.ask("POST", "/watch", {"topics": {topic: {"tail": True}}})
    assert part(part(tail, "topics"), topic)["from_seq"] == 2


def test_a_stream_gives_the_backlog_then_says_caught_up_then_gives_live_records(api: Api, topic: str) -> None:
    api.write(topic, "a", "b", status=201)
    with Events(api, _watch(api, {topic: {}})) as events:
        response = events.response
        assert response.headers["content-type"].startswith("text/event-stream")
        assert (response.headers["cache-control"], response.headers["x-accel-buffering"]) == ("no-store", "no")
        first = events.any()
        assert first is not None
        assert first.text == "retry: 2000"
        backlog = events.next("record")
        wanted = {
            "topic": topic,
            "records": [record(1, "a"), record(2, "b")],
            "from_seq": 0,
            "to_seq": 2,
            "head_seq": 2,
        }
        check(backlog.data, wanted)
        assert cursor_of(backlog) == {topic: 2}
        caught = events.next("caught-up")
        check(caught.data, {"topic": topic, "head_seq": 2})
        assert cursor_of(caught) == {topic: 2}
        api.write(topic, "c")
        live = events.next("record")
        assert data(live.data) == ["c"]
        assert (live.data["head_seq"], live.data["to_seq"], cursor_of(live)) == (3, 3, {topic: 3})
        api.write(topic, "d")
        assert data(events.next("record").data) == ["d"]


def test_a_resumed_stream_does_not_replay_what_came_before_its_id(api: Api, topic: str) -> None:
    api.write(topic, 1, 2, status=201)
    path = _watch(api, {topic: {}})
    with Events(api, path) as events:
        first = events.next("record")
        assert seqs(first.data) == [1, 2]
    api.write(topic, 3)
    with Events(api, path, last_id=first.id) as again:
        assert again.records(1) == [3]


def test_a_session_remembers_its_place_without_an_id(api: Api, topic: str) -> None:
    api.write(topic, 1, 2, status=201)
    path = _watch(api, {topic: {}})
    with Events(api, path) as events:
        events.next("record")
        events.next("caught-up")
    api.write(topic, 3)
    with Events(api, path) as again:
        assert again.records(1) == [3]


def test_an_id_may_rewind_but_not_advance_and_nonsense_is_ignored(api: Api, topic: str) -> None:
    api.write(topic, *range(1, 6), status=201)
    path = _watch(api, {topic: {"from_seq": 3}})
    with Events(api, path) as events:
        assert events.records(2) == [4, 5]
        events.next("caught-up")
    with Events(api, path, last_id=id_of({topic: 1})) as rewound:
        assert rewound.records(4) == [2, 3, 4, 5]
        rewound.next("caught-up")
    api.write(topic, 6)
    with Events(api, path, last_id=id_of({topic: 99})) as ahead:
        assert ahead.records(1) == [6]
        ahead.next("caught-up")
    api.write(topic, 7)
    with Events(api, path, last_id="***") as nonsense:
        assert nonsense.records(1) == [7]


def test_several_topics_share_a_stream_and_every_id_tells_of_all(api: Api, topic: str) -> None:
    a, b = f"{topic}.a", f"{topic}.b"
    api.write(a, 1, status=201)
    api.write(b, 2, status=201)
    with Events(api, _watch(api, {a: {}, b: {"tail": True}})) as events:
        assert events.next("record").data["topic"] == a
        assert {events.next("caught-up").data["topic"] for _ in range(2)} == {a, b}
        api.write(b, 3)
        frame = events.next("record")
        assert (frame.data["topic"], data(frame.data)) == (b, [3])
        assert cursor_of(frame) == {a: 1, b: 2}


def test_a_reader_does_not_hear_itself_and_its_place_moves_on(api: Api, topic: str) -> None:
    api.post(topic, {"data": 1, "node": "me"}, {"data": 2, "node": "you"}, {"data": 3, "node": "me"}, status=201)
    with Events(api, _watch(api, {topic: {}}, node=["me"])) as events:
        frame = events.next("record")
        check(rows(frame.data, "records"), [record(2, 2, node="you")])
        assert frame.data["to_seq"] == 3
        assert cursor_of(frame) == {topic: 3}


def test_frames_hold_no_more_than_asked_and_only_the_asked_fields(api: Api, topic: str) -> None:
    api.post(topic, *({"data": n, "tag": "t", "meta": {"k": "v"}} for n in range(5)), status=201)
    options: dict[str, object] = {"include_data": False, "include_meta": False, "include_tags": True}
    with Events(api, _watch(api, {topic: {}}, limit=2, **options)) as events:
        frames = [events.next("record") for _ in range(3)]
        assert [seqs(frame.data) for frame in frames] == [[1, 2], [3, 4], [5]]
        assert [(whole(frame.data, "from_seq"), whole(frame.data, "to_seq")) for frame in frames][:2] == [
            (0, 2),
            (2, 4),
        ]
        for one in rows(frames[0].data, "records"):
            assert one.keys() == {"$seq", "$ts", "$tag"}
        events.next("caught-up")


def test_frames_are_bounded_by_bytes_and_hold_at_least_a_record(api: Api, topic: str) -> None:
    api.write(topic, *["x" * 1000] * 3, status=201)
    with Events(api, _watch(api, {topic: {}}, max_batch_bytes=1)) as events:
        assert [seqs(events.next("record").data) for _ in range(3)] == [[1], [2], [3]]


def test_a_gap_at_the_start_is_told_as_too_old_and_a_later_one_by_its_reason(api: Api, topic: str) -> None:
    api.put(topic, cap_records=2)
    api.write(topic, *range(1, 6))
    with Events(api, _watch(api, {topic: {}})) as events:
        gap = events.next("tombstone")
        wanted = {
            "topic": topic, "reason": "from_seq_too_old", "gap_from": 1, "gap_to": 3, "earliest_seq": 4, "head_seq": 5
        }  # fmt: skip
        check(gap.data, wanted)
        assert cursor_of(gap) == {topic: 3}
        assert events.records(2) == [4, 5]
        events.next("caught-up")
        api.write(topic, *range(6, 16))  # eight of them are gone before anybody can read them
        later = events.next("tombstone")
        assert (later.data["reason"], later.data["gap_from"], later.data["gap_to"]) == ("cap", 6, 13)
        assert events.records(2) == [14, 15]


def test_a_deleted_topic_ends_its_part_and_the_last_one_ends_the_stream(api: Api, topic: str) -> None:
    a, b = f"{topic}.a", f"{topic}.b"
    for name in (a, b):
        api.put(name)
    with Events(api, _watch(api, {a: {}, b: {}})) as events:
        events.next("caught-up")
        events.next("caught-up")
        api.ask("DELETE", f"/topics/{a}")
        gone = events.next("topic-deleted")
        assert gone.data.keys() == {"topic", "head_seq", "reason"}
        assert (gone.data["topic"], gone.data["reason"]) == (a, "deleted")
        assert gone.id is not None
        api.write(b, "still here")
        assert data(events.next("record").data) == ["still here"]
        api.ask("DELETE", f"/topics/{b}")
        assert events.next("topic-deleted").data["topic"] == b
        assert events.ends()


def test_deletes_are_silent_for_watchers(api: Api, topic: str) -> None:
    api.write(topic, 1, 2, 3, status=201)
    api.delete(topic, before_seq=3)
    with Events(api, _watch(api, {topic: {}})) as events:
        assert events.records(1) == [3]


def test_an_idle_stream_has_a_heartbeat(api: Api, topic: str) -> None:
    api.put(topic)
    with Events(api, _watch(api, {topic: {}}, heartbeat_ms=100)) as events:
        events.next("caught-up")
        for _ in range(2):
            beat = events.any()
            assert beat is not None
            assert beat.text.startswith(": hb")
            assert beat.id is None


def test_caught_up_is_told_once_for_each_backlog(api: Api, topic: str) -> None:
    api.put(topic)
    with Events(api, _watch(api, {topic: {}})) as events:
        events.next("caught-up")
        for number in range(3):
            api.write(topic, number)
            assert data(events.next("record").data) == [number]


def test_the_watcher_of_a_router_destination_gets_its_copies(api: Api, topic: str) -> None:
    api.router(topic, f"{topic}.a", f"{topic}.b")
    with Events(api, _watch(api, {f"{topic}.b": {}})) as events:
        events.next("caught-up")
        api.write(f"{topic}.a", "copied")
        assert data(events.next("record").data) == ["copied"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topics": {}},
        {"topics": []},
        {"topics": {f"t{n}": {} for n in range(257)}},
        {"topics": {"-bad": {}}},
        {"topics": {"a": {"from_seq": -1}}},
        {"topics": {"a": 5}},
        {"topics": {"a": {}}, "heartbeat_ms": "often"},
        {"topics": {"a": {}}, "node": 5},
        {"topics": {"a": {}}, "consistency": "perfect"},
    ],
)
def test_a_bad_watch_is_refused(api: Api, body: dict[str, object]) -> None:
    api.refused("POST", "/watch", body, status=400, code="invalid_request")


def test_an_unknown_topic_refuses_the_watch_unless_it_is_lenient(api: Api, topic: str) -> None:
    api.put(topic)
    body: dict[str, object] = {"topics": {topic: {}, f"{topic}.none": {}}, "consistency": "strong"}
    api.refused("POST", "/watch", body, status=404, code="topic_not_found", detail={"topic": f"{topic}.none"})
    assert part(api.ask("POST", "/watch?lenient=true", body), "topics").keys() == {topic}


def test_an_unknown_session_is_not_found(api: Api) -> None:
    with Events(api, "/watch/wid_AAAAAAAAAAAAAAAAAAAAAA") as events:
        assert part(events.refused(404), "error")["code"] == "not_found"
