"""The WebSocket: subscribe, unsubscribe, publish, ping, and its errors."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.contracts.http.api import Api, Json, data, part, rows, seqs
from tests.contracts.http.shapes import PERFORMANCE, TEXT, check, record


class Socket:
    def __init__(self, connection: ClientConnection) -> None:
        self.raw = connection

    def send(self, **message: object) -> None:
        self.raw.send(json.dumps(message))

    def next(self, op: str) -> Json:
        message = self.raw.recv(timeout=5)
        assert isinstance(message, str)
        found = json.loads(message)
        assert isinstance(found, dict)
        assert found["op"] == op, found
        return found

    def ask(self, answer: str, /, **message: object) -> Json:
        """Sends a message; the next one to come must be this answer."""
        self.send(**message)
        return self.next(answer)


@pytest.fixture
def ws(one: Api) -> Iterator[Socket]:
    with connect(f"ws://127.0.0.1:{one.port}/v0/ws") as connection:
        yield Socket(connection)


def test_a_ping_is_answered_and_the_request_id_is_echoed_whatever_it_is(ws: Socket) -> None:
    for given in (1, "a", None, {"x": [1]}, [1, 2], True):
        check(ws.ask("pong", op="ping", request_id=given), {"op": "pong", "request_id": given})
    check(ws.ask("pong", op="ping"), {"op": "pong", "request_id": None})


def test_a_subscriber_gets_the_backlog_then_caught_up_then_live_records(one: Api, ws: Socket, topic: str) -> None:
    one.write(topic, "a", "b", status=201)
    answer = ws.ask("subscribed", op="subscribe", topic=topic, request_id=7)
    place = {topic: {"from_seq": 0, "head_seq": 2, "earliest_seq": 1}}
    check(answer, {"op": "subscribed", "request_id": 7, "topics": place})
    backlog = {"records": [record(1, "a"), record(2, "b")], "from_seq": 0, "to_seq": 2, "head_seq": 2}
    check(ws.next("record"), {"op": "record", "topic": topic, **backlog})
    check(ws.next("caught_up"), {"op": "caught_up", "topic": topic, "head_seq": 2})
    one.write(topic, "c")
    assert data(ws.next("record")) == ["c"]


def test_a_map_of_topics_is_subscribed_to_at_once(one: Api, ws: Socket, topic: str) -> None:
    a, b = f"{topic}.a", f"{topic}.b"
    one.write(a, 1, 2, status=201)
    one.write(b, 1, status=201)
    answer = ws.ask("subscribed", op="subscribe", topics={a: {"from_seq": 1}, b: {"tail": True}})
    assert {name: part(part(answer, "topics"), name)["from_seq"] for name in (a, b)} == {a: 1, b: 1}
    assert answer["request_id"] is None
    assert seqs(ws.next("record")) == [2]
    assert {ws.next("caught_up")["topic"] for _ in range(2)} == {a, b}


def test_the_options_of_a_subscription_shape_its_records(one: Api, ws: Socket, topic: str) -> None:
    one.post(topic, {"data": 1, "node": "me"}, {"data": 2, "node": "you", "tag": "t", "meta": {"k": "v"}}, status=201)
    options: dict[str, object] = {"include_data": False, "include_tags": True, "include_meta": False}
    ws.ask("subscribed", op="subscribe", topic=topic, node="me", **options)
    (found,) = rows(ws.next("record"), "records")
    assert {name: found[name] for name in found if name != "$ts"} == {"$seq": 2, "$node": "you", "$tag": "t"}


def test_a_publish_is_acknowledged_with_exactly_the_agreed_fields(one: Api, ws: Socket, topic: str) -> None:
    wanted: Json = {
        "op": "ack", "request_id": "r", "topic": topic, "first_seq": 1, "last_seq": 2, "seqs": [1, 2], "head_seq": 2,
        "count": 2, "created": True, "deduped": False, "performance": PERFORMANCE,
    }  # fmt: skip
    body: dict[str, object] = {
        "op": "publish", "topic": topic, "records": [{"data": 1, "tag": "t"}, {"data": 2}], "node": "n",
        "idempotency_key": "k", "request_id": "r", "config": {"cap_records": 9},
    }  # fmt: skip
    check(ws.ask("ack", **body), wanted)
    check(ws.ask("ack", **body), {**wanted, "created": False, "deduped": True})
    found = one.diff(topic, include_tags=True)
    check(found["records"], [record(1, 1, node="n", tag="t"), record(2, 2, node="n")])
    assert part(one.state(topic), "config")["cap_records"] == 9


def test_seqs_of_a_publish_are_left_out_on_request(ws: Socket, topic: str) -> None:
    answer = ws.ask("ack", op="publish", topic=topic, records=[{"data": 1}], return_seqs=False)
    assert "seqs" not in answer


def test_an_unsubscribed_topic_is_silent(one: Api, ws: Socket, topic: str) -> None:
    a, b = f"{topic}.a", f"{topic}.b"
    for name in (a, b):
        one.put(name)
    ws.ask("subscribed", op="subscribe", topics={a: {}, b: {}})
    ws.next("caught_up")
    ws.next("caught_up")
    answer = ws.ask("unsubscribed", op="unsubscribe", topic=a, request_id=2)
    check(answer, {"op": "unsubscribed", "request_id": 2, "topics": [a]})
    one.write(a, 1)
    one.write(b, 2)
    assert ws.next("record")["topic"] == b
    check(ws.ask("unsubscribed", op="unsubscribe", topics=[b])["topics"], [b])


def test_a_gap_keeps_its_reason(one: Api, ws: Socket, topic: str) -> None:
    one.put(topic, cap_records=1)
    one.write(topic, 1, 2, 3)
    ws.ask("subscribed", op="subscribe", topic=topic)
    check(
        ws.next("tombstone"),
        {
            "op": "tombstone", "topic": topic, "reason": "cap", "gap_from": 1, "gap_to": 2, "earliest_seq": 3,
            "head_seq": 3,
        },
    )  # fmt: skip
    assert seqs(ws.next("record")) == [3]


def test_a_deleted_topic_is_told(one: Api, ws: Socket, topic: str) -> None:
    one.put(topic)
    ws.ask("subscribed", op="subscribe", topic=topic)
    ws.next("caught_up")
    one.ask("DELETE", f"/topics/{topic}")
    gone = ws.next("topic_deleted")
    assert (gone["topic"], gone["reason"]) == (topic, "deleted")
    ws.ask("pong", op="ping")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", "invalid_json"),
        ("nonsense", "invalid_json"),
        (b"\x00\x01", "unsupported_message"),
        ('{"op":"subscribe"}', "invalid_request"),
        ('{"op":"subscribe","topic":"no-such-topic"}', "topic_not_found"),
        ('{"op":"publish","topic":"bad name","records":[{"data":1}]}', "invalid_request"),
        ('{"op":"publish","topic":"ok","records":[]}', "invalid_request"),
        ('{"op":"publish","topic":"absent","records":[{"data":1}],"create":false}', "topic_not_found"),
    ],
)
def test_a_bad_message_is_refused_and_the_socket_lives_on(ws: Socket, message: str | bytes, code: str) -> None:
    ws.raw.send(message)
    check(ws.next("error"), {"op": "error", "request_id": None, "code": code, "message": TEXT})
    ws.ask("pong", op="ping")


def test_an_error_echoes_the_request_id_and_an_unknown_op_is_one(ws: Socket) -> None:
    assert ws.ask("error", op="dance", request_id=5)["request_id"] == 5
    assert ws.ask("error", op="subscribe", topic="no-such-topic", request_id=6)["request_id"] == 6


def test_a_lenient_subscription_drops_unknown_topics(one: Api, ws: Socket, topic: str) -> None:
    one.put(topic)
    answer = ws.ask("subscribed", op="subscribe", topics={topic: {}, "no-such-topic": {}}, lenient=True)
    assert part(answer, "topics").keys() == {topic}
