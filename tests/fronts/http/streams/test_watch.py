"""Watching topics: backlog, turning point, live records; resume; gaps; the end of a topic."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode

import httpx

from tests.fronts.http.streams.conftest import Opener
from tests.fronts.http.streams.wire import Api, seqs_of


def position(event_id: str | None) -> dict[str, int]:
    assert event_id is not None
    assert "=" not in event_id
    found: dict[str, int] = json.loads(urlsafe_b64decode(event_id + "=" * (-len(event_id) % 4)))
    return found


def test_a_session_says_where_each_topic_stands(api: Api, topic: str) -> None:
    api.write(topic, 1, 2, 3)
    made = api("POST", "/v0/watch", {"topics": {topic: {"from_seq": 2}}})
    assert str(made["wid"]).startswith("wid_")
    assert made["stream_url"] == f"/v0/watch/{made['wid']}"
    assert made["session_ttl_ms"] == 300_000
    assert made["topics"] == {topic: {"from_seq": 2, "head_seq": 3, "earliest_seq": 1}}
    assert "performance" in made


def test_backlog_then_caught_up_then_live(api: Api, topic: str, follow: Opener) -> None:
    api.write(topic, {"n": 1}, {"n": 2})
    stream = follow(api.watch({topic: {}}))
    assert stream.status == 200
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.headers["cache-control"] == "no-store"
    assert stream.headers["x-accel-buffering"] == "no"
    first = stream.frame()
    assert first is not None
    assert first.text == "retry: 2000"
    backlog = stream.next("record")
    assert backlog.data["topic"] == topic
    assert (backlog.data["from_seq"], backlog.data["to_seq"], backlog.data["head_seq"]) == (0, 2, 2)
    assert seqs_of(backlog) == [1, 2]
    assert position(backlog.id) == {topic: 2}
    turning = stream.next("caught-up")
    assert turning.data == {"topic": topic, "head_seq": 2}
    assert position(turning.id) == {topic: 2}
    api.write(topic, {"n": 3})
    live = stream.next("record")
    assert seqs_of(live) == [3]
    assert live.data["from_seq"] == 2
    assert stream.silent(), "caught up is told once"


def test_records_look_as_the_session_asked(api: Api, topic: str, follow: Opener) -> None:
    body = {"records": [{"data": {"a": [1, None]}, "tag": "t:1", "node": "n1", "meta": {"k": "v"}}]}
    api("POST", f"/v0/topics/{topic}", body, status=201)

    def shown(**flags: bool) -> dict[str, object]:
        records = follow(api.watch({topic: {}}, **flags)).next("record").data["records"]
        assert isinstance(records, list)
        record = records[0]
        assert isinstance(record, dict)
        assert isinstance(record.pop("$ts"), int)
        return dict(record)

    assert shown() == {"$seq": 1, "$node": "n1", "meta": {"k": "v"}, "data": {"a": [1, None]}}
    assert shown(include_tags=True, include_meta=False) == {
        "$seq": 1, "$node": "n1", "$tag": "t:1", "data": {"a": [1, None]},
    }  # fmt: skip
    assert shown(include_data=False) == {"$seq": 1, "$node": "n1", "meta": {"k": "v"}}


def test_a_reader_does_not_get_its_own_records(api: Api, topic: str, follow: Opener) -> None:
    api.write(topic, 1, node="me")
    api.write(topic, 2, node="you")
    api.write(topic, 3, node="me")
    stream = follow(api.watch({topic: {}}, node=["me", "other"]))
    frame = stream.next("record")
    assert seqs_of(frame) == [2]
    assert position(frame.id) == {topic: 3}, "what was left out is behind it, too"
    stream.next("caught-up")
    api.write(topic, 4, node="me")
    api.write(topic, 5)
    assert stream.seqs(1) == [5]


def test_tail_begins_with_what_comes(api: Api, topic: str, follow: Opener) -> None:
    api.write(topic, 1, 2)
    stream = follow(api.watch({topic: {"tail": True, "from_seq": 1}}))
    assert stream.next("caught-up").data["head_seq"] == 2
    api.write(topic, 3)
    assert stream.seqs(1) == [3]


def test_a_frame_has_no_more_records_than_asked(api: Api, topic: str, follow: Opener) -> None:
    api.write(topic, *range(10))
    stream = follow(api.watch({topic: {}}, limit=4))
    sizes = [len(seqs_of(stream.next("record"))) for _ in range(3)]
    assert sizes == [4, 4, 2]
    stream.next("caught-up")


def test_a_frame_has_no_more_bytes_than_asked_but_always_a_record(api: Api, topic: str, follow: Opener) -> None:
    api.write(topic, *["x" * 5000] * 4)
    stream = follow(api.watch({topic: {}}, max_batch_bytes=1000))
    assert [seqs_of(stream.next("record")) for _ in range(4)] == [[1], [2], [3], [4]]


def test_line_breaks_in_payloads_do_not_break_frames(api: Api, topic: str, follow: Opener) -> None:
    text = b'{"records":[{"data":{\n  "a":\r\n 1, "text": "one\\ntwo"\n}}]}'
    response = api._client.post(f"/v0/topics/{topic}", content=text, headers={"content-type": "application/json"})
    assert response.status_code == 201
    record = follow(api.watch({topic: {}})).next("record").data["records"]
    assert isinstance(record, list)
    assert isinstance(record[0], dict)
    assert record[0]["data"] == {"a": 1, "text": "one\ntwo"}


def test_several_topics_share_a_stream_and_its_ids(api: Api, topic: str, follow: Opener) -> None:
    one, two = f"{topic}.1", f"{topic}.2"
    api.write(one, 1)
    api.write(two, 1, 2)
    stream = follow(api.watch({one: {}, two: {"from_seq": 1}}))
    seen: dict[str, list[int]] = {one: [], two: []}
    turned = 0
    last: dict[str, int] = {}
    while turned < 2:
        frame = stream.next()
        assert set(position(frame.id)) == {one, two}
        last = position(frame.id)
        if frame.event == "record":
            seen[str(frame.data["topic"])] += seqs_of(frame)
        else:
            turned += frame.event == "caught-up"
    assert seen == {one: [1], two: [2]}
    assert last == {one: 1, two: 2}


def test_the_session_goes_on_where_it_was(api: Api, topic: str, follow: Opener) -> None:
    api.write(topic, 1, 2)
    wid = api.watch({topic: {}})
    first = follow(wid)
    assert first.seqs(2) == [1, 2]
    first.next("caught-up")
    first.close()
    api.write(topic, 3)
    assert follow(wid).seqs(1) == [3]


def test_an_id_resumes_without_replay(api: Api, topic: str, follow: Opener) -> None:
    api.write(topic, 1, 2)
    wid = api.watch({topic: {}}, limit=2)
    first = follow(wid)
    event_id = first.next("record").id
    first.close()
    api.write(topic, 3)
    assert follow(wid, event_id).seqs(1) == [3]


def test_an_id_takes_the_session_back_but_never_forward(api: Api, topic: str, follow: Opener) -> None:
    api.write(topic, 1, 2, 3, 4)
    wid = api.watch({topic: {}}, limit=1)
    first = follow(wid)
    ids = [first.next("record").id for _ in range(4)]
    first.next("caught-up")
    first.close()
    second = follow(wid, ids[1])
    assert second.seqs(2) == [3, 4]
    second.next("caught-up")
    second.close()
    api.write(topic, 5)
    ahead = "eyJ0b3BpYyI6OTl9"  # another topic, and far ahead
    assert follow(wid, ahead).seqs(1) == [5]


def test_an_id_that_is_none_is_ignored(api: Api, topic: str, follow: Opener) -> None:
    api.write(topic, 1)
    for number, nonsense in enumerate(("%%%", "eyJ", "bm90IGpzb24", "W10", "eyJhIjotMX0")):
        stream = follow(api.watch({topic: {}}), nonsense)
        assert stream.seqs(1) == [1], number


def test_a_gap_at_connect_is_told_before_the_records(api: Api, topic: str, follow: Opener) -> None:
    api.put(topic, cap_records=2)
    api.write(topic, 1, 2, 3, 4, 5)
    stream = follow(api.watch({topic: {}}))
    gap = stream.next("tombstone")
    assert gap.data == {
        "topic": topic, "reason": "from_seq_too_old", "gap_from": 1, "gap_to": 3, "earliest_seq": 4, "head_seq": 5,
    }  # fmt: skip
    assert position(gap.id) == {topic: 3}
    batch = stream.next("record")
    assert seqs_of(batch) == [4, 5]
    assert batch.data["from_seq"] == 3


def test_a_recreated_topic_is_told_at_connect(api: Api, topic: str, follow: Opener) -> None:
    api.write(topic, *range(5))
    wid = api.watch({topic: {"from_seq": 5}})
    api("DELETE", f"/v0/topics/{topic}")
    api.write(topic, 1, 2)
    stream = follow(wid)
    gap = stream.next("tombstone")
    assert gap.data["reason"] == "recreated"
    assert stream.seqs(2) == [1, 2]


def test_a_deleted_topic_ends_its_part_and_in_the_end_the_stream(api: Api, topic: str, follow: Opener) -> None:
    one, two = f"{topic}.1", f"{topic}.2"
    api.write(one, 1, 2)
    api.write(two, 1)
    wid = api.watch({one: {}, two: {}})
    stream = follow(wid)
    events = [stream.next().event for _ in range(4)]
    assert sorted(events) == ["caught-up", "caught-up", "record", "record"]
    api("DELETE", f"/v0/topics/{one}")
    gone = stream.next("topic-deleted")
    assert gone.data == {"topic": one, "head_seq": 2, "reason": "deleted"}
    api.write(two, 2)
    assert stream.seqs(1) == [2]
    api.write(one, 1)
    assert stream.silent(), "another topic of the same name is not followed"
    api("DELETE", f"/v0/topics/{two}")
    assert stream.next("topic-deleted").data["topic"] == two
    assert stream.ended()
    assert follow(wid).status == 404, "there is nothing left to follow"


def test_a_topic_made_again_at_once_is_another_topic(api: Api, topic: str, follow: Opener) -> None:
    api.write(topic, 1)
    stream = follow(api.watch({topic: {}}))
    stream.next("record")
    stream.next("caught-up")
    api("DELETE", f"/v0/topics/{topic}")
    api.write(topic, 1, 2, 3)
    assert stream.next("topic-deleted").data["topic"] == topic
    assert stream.ended()


def test_deleted_records_are_left_out_silently(api: Api, topic: str, follow: Opener) -> None:
    api.write(topic, 1, 2, 3)
    api("POST", f"/v0/topics/{topic}/delete", {"before_seq": 3})
    stream = follow(api.watch({topic: {}}))
    assert seqs_of(stream.next("record")) == [3]


def test_a_queue_can_be_watched_without_claiming(api: Api, topic: str, follow: Opener) -> None:
    api.put(topic, type="queue")
    api.write(topic, {"job": 1})
    stream = follow(api.watch({topic: {}}))
    assert seqs_of(stream.next("record")) == [1]
    stream.next("caught-up")
    api.write(topic, {"job": 2})
    assert stream.seqs(1) == [2]
    assert api.state(topic)["queue"] == {"ready": 2, "in_flight": 0, "dead_lettered": 0}


def test_copies_of_a_router_are_pushed(api: Api, topic: str, follow: Opener) -> None:
    api.write(topic, 0)
    api("PUT", f"/v0/routers/{topic}-copy", {"source": topic, "dest": f"{topic}.copy"}, status=201)
    stream = follow(api.watch({f"{topic}.copy": {}}))
    stream.next("caught-up")
    api.write(topic, 1, 2)
    assert stream.seqs(2) == [1, 2]


def test_an_idle_stream_beats(api: Api, topic: str, follow: Opener) -> None:
    api.write(topic, 1)
    stream = follow(api.watch({topic: {}}, heartbeat_ms=100))
    stream.next("record")
    stream.next("caught-up")
    for _ in range(2):
        beat = stream.frame()
        assert beat is not None
        assert beat.text.startswith(": hb ")
        assert int(beat.text.split()[2]) > 1_600_000_000_000
    api.write(topic, 2)
    assert stream.seqs(1) == [2]


def test_streams_share_one_connection_of_http_2(api: Api, topic: str) -> None:
    api.write(topic, 1)
    paths = [f"/v0/watch/{api.watch({topic: {}})}" for _ in range(2)]
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{api.port}", http1=False, http2=True, timeout=20) as client,
        client.stream("GET", paths[0]) as one,
        client.stream("GET", paths[1]) as two,
    ):
        lines = [one.iter_lines(), two.iter_lines()]
        assert one.http_version == "HTTP/2"
        for number in range(2, 5):
            for stream in lines:
                assert any(f'"$seq":{number - 1},' in line for line in stream)
            client.post(f"/v0/topics/{topic}", json={"records": [{"data": number}]})
