"""The WebSocket: every request and answer, every error, and one story with the event streams."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from esker.testing.broker import Broker
from tests.fronts.http.streams.wire import Api, Json

KEYS = "reader-1:r,writer-1:w,both-1:rw,narrow-1:rw:mine.,root-1"


class Socket:
    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def send(self, **message: object) -> None:
        self.connection.send(json.dumps(message))

    def receive(self, op: str | None = None) -> Json:
        text = self.connection.recv(timeout=20)
        assert isinstance(text, str)
        found: Json = json.loads(text)
        assert op is None or found["op"] == op, found
        return found

    def ask(self, **message: object) -> Json:
        self.send(**message)
        return self.receive()

    def silent(self, seconds: float = 0.2) -> bool:
        try:
            return self.connection.recv(timeout=seconds) == "never"
        except TimeoutError:
            return True


@pytest.fixture
def socket(api: Api) -> Iterator[Socket]:
    with connect(f"ws://127.0.0.1:{api.port}/v0/ws") as connection:
        yield Socket(connection)


def seqs(message: Json) -> list[object]:
    records = message["records"]
    assert isinstance(records, list)
    return [record["$seq"] for record in records if isinstance(record, dict)]


def test_nothing_is_delivered_before_its_subscribed(api: Api, topic: str, socket: Socket) -> None:
    api.write(topic, {"n": 1})
    for _ in range(20):
        socket.send(op="ping")
        socket.send(op="subscribe", topic=topic)
        assert [socket.receive()["op"] for _ in range(4)] == ["pong", "subscribed", "record", "caught_up"]
        assert socket.ask(op="unsubscribe", topic=topic)["op"] == "unsubscribed"


def test_follow_backlog_turning_point_and_live(api: Api, topic: str, socket: Socket) -> None:
    api.write(topic, {"n": 1}, {"n": 2}, node="n1")
    answer = socket.ask(op="subscribe", topic=topic, request_id={"any": ["json", 1]})
    assert answer == {
        "op": "subscribed",
        "request_id": {"any": ["json", 1]},
        "topics": {topic: {"from_seq": 0, "head_seq": 2, "earliest_seq": 1}},
    }
    batch = socket.receive("record")
    assert seqs(batch) == [1, 2]
    assert {name: batch[name] for name in ("topic", "from_seq", "to_seq", "head_seq")} == {
        "topic": topic, "from_seq": 0, "to_seq": 2, "head_seq": 2,
    }  # fmt: skip
    assert socket.receive("caught_up") == {"op": "caught_up", "topic": topic, "head_seq": 2}
    api.write(topic, {"n": 3})
    live = socket.receive("record")
    assert seqs(live) == [3]
    assert socket.silent()


def test_publish_is_answered_like_a_write(topic: str, socket: Socket) -> None:
    answer = socket.ask(op="publish", topic=topic, records=[{"data": 1}, {"data": 2, "tag": "t"}], request_id=7)
    assert answer.pop("performance")
    assert answer == {
        "op": "ack", "request_id": 7, "topic": topic, "first_seq": 1, "last_seq": 2, "seqs": [1, 2], "head_seq": 2,
        "count": 2, "created": True, "deduped": False,
    }  # fmt: skip
    again = [
        socket.ask(op="publish", topic=topic, records=[{"data": 3}], idempotency_key="k", return_seqs=False)
        for _ in range(2)
    ]
    assert [answer["deduped"] for answer in again] == [False, True]
    assert [answer["first_seq"] for answer in again] == [3, 3]
    assert "seqs" not in again[0]
    assert again[0]["request_id"] is None


def test_what_is_published_comes_back_to_who_follows(topic: str, socket: Socket) -> None:
    socket.ask(op="publish", topic=topic, records=[{"data": 0}], node="me")
    socket.ask(op="subscribe", topic=topic, tail=True, node="other")
    socket.receive("caught_up")
    socket.send(op="publish", topic=topic, records=[{"data": 1}], node="me")
    found = {str(message["op"]): message for message in (socket.receive(), socket.receive())}
    assert set(found) == {"ack", "record"}
    assert seqs(found["record"]) == [2]


def test_several_publishes_are_answered_in_order(topic: str, socket: Socket) -> None:
    for number in range(50):
        socket.send(op="publish", topic=topic, records=[{"data": number}], request_id=number, config={"durable": True})
    answers = [socket.receive("ack") for _ in range(50)]
    assert [answer["request_id"] for answer in answers] == list(range(50))
    assert [answer["first_seq"] for answer in answers] == list(range(1, 51))


def test_unsubscribe_stops_it(api: Api, topic: str, socket: Socket) -> None:
    other = f"{topic}.2"
    api.write(topic, 1)
    api.write(other, 1)
    socket.ask(op="subscribe", topics={topic: {"tail": True}, other: {"tail": True}})
    assert {socket.receive("caught_up")["topic"], socket.receive("caught_up")["topic"]} == {topic, other}
    answer = socket.ask(op="unsubscribe", topics=[topic, "never-followed"], request_id="r")
    assert answer == {"op": "unsubscribed", "request_id": "r", "topics": [topic]}
    api.write(topic, 2)
    api.write(other, 2)
    assert socket.receive("record")["topic"] == other
    assert socket.silent()


def test_a_gap_keeps_the_engines_reason(api: Api, topic: str, socket: Socket) -> None:
    api.put(topic, cap_records=1)
    api.write(topic, 1, 2, 3)
    socket.ask(op="subscribe", topic=topic)
    assert socket.receive("tombstone") == {
        "op": "tombstone", "topic": topic, "reason": "cap", "gap_from": 1, "gap_to": 2, "earliest_seq": 3,
        "head_seq": 3,
    }  # fmt: skip
    assert seqs(socket.receive("record")) == [3]


def test_a_deleted_topic_is_told_and_the_socket_goes_on(api: Api, topic: str, socket: Socket) -> None:
    api.write(topic, 1)
    socket.ask(op="subscribe", topic=topic)
    socket.receive("record")
    socket.receive("caught_up")
    api("DELETE", f"/v0/topics/{topic}")
    assert socket.receive() == {"op": "topic_deleted", "topic": topic, "head_seq": 1, "reason": "deleted"}
    assert socket.ask(op="ping", request_id=1) == {"op": "pong", "request_id": 1}
    api.write(topic, 1)
    assert socket.ask(op="subscribe", topic=topic)["op"] == "subscribed"
    assert seqs(socket.receive("record")) == [1]


def test_subscribing_again_begins_anew(api: Api, topic: str, socket: Socket) -> None:
    api.write(topic, 1, 2)
    for _ in range(2):
        socket.ask(op="subscribe", topic=topic)
        assert seqs(socket.receive("record")) == [1, 2]
        socket.receive("caught_up")


def test_lenient_leaves_out_what_is_not_there(api: Api, topic: str, socket: Socket) -> None:
    api.write(topic, 1)
    refused = socket.ask(op="subscribe", topics={topic: {}, "not-there": {}}, request_id=1)
    assert (refused["op"], refused["code"], refused["request_id"]) == ("error", "topic_not_found", 1)
    answer = socket.ask(op="subscribe", topics={topic: {}, "not-there": {}}, lenient=True)
    assert answer["topics"] == {topic: {"from_seq": 0, "head_seq": 1, "earliest_seq": 1}}


def test_what_is_wrong_with_a_message_is_said(topic: str, socket: Socket) -> None:
    socket.connection.send(b"\x00binary")
    assert socket.receive("error")["code"] == "unsupported_message"
    socket.connection.send("{not json")
    wrong = socket.receive("error")
    assert (wrong["code"], wrong["request_id"]) == ("invalid_json", None)
    assert wrong["message"]
    for message, code in (
        ({"op": "dance", "request_id": 5}, "invalid_request"),
        ({"request_id": 5}, "invalid_request"),
        ({"op": "subscribe", "request_id": 5}, "invalid_request"),
        ({"op": "subscribe", "topic": "!bad", "request_id": 5}, "invalid_request"),
        ({"op": "subscribe", "topic": topic, "from_seq": -1, "request_id": 5}, "invalid_request"),
        ({"op": "unsubscribe", "request_id": 5}, "invalid_request"),
        ({"op": "publish", "topic": topic, "records": [], "request_id": 5}, "invalid_request"),
        ({"op": "publish", "topic": topic, "records": [{}], "request_id": 5}, "invalid_request"),
        ({"op": "publish", "topic": topic, "records": [{"data": 1}], "create": False, "request_id": 5},
         "topic_not_found"),
        ({"op": "publish", "topic": topic, "records": [{"data": "x" * 1_100_000}], "request_id": 5},
         "record_too_large"),
    ):  # fmt: skip
        answer = socket.ask(**message)
        assert (answer["op"], answer["code"], answer["request_id"]) == ("error", code, 5), message
    assert socket.ask(op="ping") == {"op": "pong", "request_id": None}, "none of it ended the conversation"


def test_keys_and_scopes_hold_here_too() -> None:
    with Broker(api_keys=KEYS) as node:
        url = f"ws://127.0.0.1:{node.http_port}/v0/ws"
        with Api(node.http_port, "root-1") as root:
            root.write("mine.a", 1)
            root.write("yours.a", 1)
        for headers in ({}, {"authorization": "Bearer wrong"}):
            with pytest.raises(InvalidStatus) as refused, connect(url, additional_headers=headers):
                pass
            assert refused.value.response.status_code == 401

        def asked(key: str, **message: object) -> object:
            with connect(url, additional_headers={"authorization": f"Bearer {key}"}) as connection:
                answer = Socket(connection).ask(**message)
                return answer.get("code", answer["op"])

        publish = {"op": "publish", "records": [{"data": 1}]}
        assert asked("reader-1", op="subscribe", topic="mine.a") == "subscribed"
        assert asked("reader-1", topic="mine.a", **publish) == "forbidden"
        assert asked("writer-1", op="subscribe", topic="mine.a") == "forbidden"
        assert asked("writer-1", topic="mine.a", **publish) == "ack"
        assert asked("narrow-1", op="subscribe", topic="mine.a") == "subscribed"
        assert asked("narrow-1", op="subscribe", topics={"mine.a": {}, "yours.a": {}}) == "forbidden"
        assert asked("narrow-1", topic="yours.a", **publish) == "forbidden"
        assert asked("both-1", topic="mine.b", config={}, **publish) == "forbidden", "to make one with a config: admin"
        assert asked("root-1", topic="mine.b", config={}, **publish) == "ack"
