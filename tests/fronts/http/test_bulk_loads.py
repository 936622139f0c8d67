"""Bulk loads over HTTP: what is taken, in which form, what is refused, and that nothing is half applied."""

from __future__ import annotations

import itertools
import json
import socket
import struct
from collections.abc import Iterator

import httpx
import pyarrow as pa
import pytest
import redis

from esker.fronts.http.table import ROUTES
from esker.testing.broker import Broker
from tests.fronts.http.web import KEYS
from tests.loads import Loader, error, stream

_names = itertools.count(1)


@pytest.fixture
def loader(shared_broker: Broker) -> Iterator[Loader]:
    with Loader(shared_broker.http_url, f"load.{next(_names)}") as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"bulk-{next(_names)}"


def _records(loader: Loader, topic: str) -> list[dict[str, object]]:
    fields = {"limit": 1000, "include_tags": True}
    answer = loader.client.post(f"/v0/topics/{topic}/diff", json=fields)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["records"])


def _exists(loader: Loader, topic: str) -> bool:
    return loader.client.get(f"/v0/topics/{topic}").status_code == 200


# -- what is taken


def test_a_log_is_made_and_gets_the_rows_in_order(loader: Loader, topic: str) -> None:
    values = [json.dumps({"n": n}) for n in range(2500)]
    state = loader.run({"value": values}, topic=topic)
    assert state == {"state": "done", "rows": 2500, "published": 2500, "message": None, "duplicate": False}
    found = _records(loader, topic)
    assert [record["data"] for record in found] == [{"n": n} for n in range(1000)]
    config = loader.client.get(f"/v0/topics/{topic}").json()
    assert (config["count"], config["config"]["type"], config["config"]["durability"]) == (2500, "log", "disk")


def test_all_columns_of_a_log(loader: Loader, topic: str) -> None:
    columns = {
        "value": [b'{"a": 1}', b"2", b'"x"'],
        "tag": ["t1", None, ""],
        "node": [None, "n2", "n3"],
        "meta": ['{"m": 1}', None, "{}"],
    }
    loader.run(columns, topic=topic, type="log")
    found = _records(loader, topic)
    assert [(record["data"], record.get("$tag")) for record in found] == [({"a": 1}, "t1"), (2, None), ("x", None)]
    assert [(record.get("$node"), record.get("meta")) for record in found] == [
        (None, {"m": 1}),
        ("n2", None),
        ("n3", {}),
    ]


def test_a_key_is_the_tag_of_a_record_without_one(loader: Loader, topic: str) -> None:
    loader.run({"value": ["1", "2"], "key": [b"k1", None]}, topic=topic)
    assert [record.get("$tag") for record in _records(loader, topic)] == ["k1", None]


def test_all_columns_of_a_queue(loader: Loader, topic: str, shared_broker: Broker) -> None:
    columns = {
        "value": [b"\xff\x00raw", b"two", b"three", b"two again"],
        "priority": pa.array([5, -3, None, 7], pa.int32()),
        "tag": [None, "t", None, None],
        "meta": [None, '{"m":1}', None, None],
        "key": [None, "once", None, "once"],
        "delay_ms": pa.array([None, None, 3_600_000, None], pa.int64()),
        "ttl_ms": pa.array([None, 60_000, None, None], pa.int64()),
        "retry_ms": pa.array([7000, None, 0, None], pa.int64()),
        "max_deliveries": pa.array([None, 2, None, None], pa.int16()),
    }
    state = loader.run(columns, topic=topic, type="queue")
    assert state["published"] == 4
    with redis.Redis(port=shared_broker.resp_port, protocol=2) as client:
        jobs = client.execute_command("GETJOB", "NOHANG", "COUNT", 10, "WITHCOUNTERS", "FROM", topic)
        assert [job[2] for job in jobs] == [b"two", b"\xff\x00raw"], "by priority; one is delayed, one was known"
        first = client.execute_command("SHOW", jobs[0][1])
        shown = dict(zip(first[::2], first[1::2], strict=True))
        assert 0 < shown[b"ttl"] <= 60
        assert shown[b"retry"] == 30
        assert client.execute_command("QLEN", topic) == 0
    config = loader.client.get(f"/v0/topics/{topic}").json()
    assert (config["count"], config["config"]["durability"]) == (3, "fsync")


def test_rows_go_where_their_column_says(loader: Loader, topic: str) -> None:
    one, two = f"{topic}-1", f"{topic}-2"
    names = [one if n % 3 else two for n in range(3000)]
    loader.commit([loader.stage({"value": [str(n) for n in range(3000)], "topic": names})])
    assert loader.ended()["published"] == 3000
    assert [record["data"] for record in _records(loader, two)] == list(range(0, 3000, 3))
    assert [record["data"] for record in _records(loader, one)] == [n for n in range(3000) if n % 3][:1000]


def test_text_is_stored_as_a_json_string(loader: Loader, topic: str) -> None:
    values = ['say "hi"\n', "\u00e9\u2028", ""]
    loader.run({"value": values}, topic=topic, type="log", value_format="text")
    assert [record["data"] for record in _records(loader, topic)] == values


def test_json_over_several_lines_is_stored_on_one(loader: Loader, topic: str) -> None:
    loader.run({"value": ['{\n  "a": [1,\r\n 2]\n}', " 3 "]}, topic=topic)
    answer = loader.client.post(f"/v0/topics/{topic}/diff", json={})
    assert b'"data":{"a":[1,2]}' in answer.content


def test_a_topic_is_made_with_the_config_that_is_given(loader: Loader, topic: str) -> None:
    loader.run({"value": ["1"]}, topic=topic, type="queue", config={"durability": "memory", "lease_ms": 1234})
    config = loader.client.get(f"/v0/topics/{topic}").json()["config"]
    assert (config["type"], config["durability"], config["lease_ms"]) == ("queue", "memory", 1234)


@pytest.mark.parametrize("kind", ["large_binary", "large_string", "binary", "string"])
def test_values_of_every_width_and_of_many_blocks(loader: Loader, topic: str, kind: str) -> None:
    values = pa.array([b"%d" % n for n in range(700)], pa.binary()).cast(kind)
    body = stream({"value": values}, rows_a_batch=64)
    assert loader.put(body).status_code == 201
    loader.commit(["0-a1"], topic=topic)
    loader.ended()
    assert [record["data"] for record in _records(loader, topic)] == list(range(700))


def test_parts_are_published_in_the_order_of_the_commit(loader: Loader, topic: str) -> None:
    names = [loader.stage({"value": [str(10 * part + n) for n in range(3)]}, part=part) for part in range(4)]
    loader.commit([names[2], names[0], names[3]], topic=topic)
    assert loader.ended()["rows"] == 9
    assert [record["data"] for record in _records(loader, topic)] == [20, 21, 22, 0, 1, 2, 30, 31, 32]


def test_a_load_of_nothing_is_done_at_once(loader: Loader, topic: str) -> None:
    loader.commit([], topic=topic)
    assert loader.ended()["rows"] == 0
    loader.run({"value": pa.array([], pa.string())}, batch=1, topic=topic)
    assert loader.commit([], topic=topic)["duplicate"] is True


# -- exactly once


def test_a_batch_that_is_committed_again_with_other_parts_is_a_duplicate(loader: Loader, topic: str) -> None:
    loader.run({"value": ["1", "2"]}, topic=topic)
    again = loader.stage({"value": ["1", "2", "3"]}, attempt="b2")
    told = loader.commit([again], topic=topic)
    assert (told["state"], told["duplicate"], told["rows"], told["published"]) == ("done", True, 2, 2)
    assert loader.state()["rows"] == 2
    assert "is not staged" in str(error(loader.try_commit([again], batch=1, topic=topic), 400)["message"])
    assert len(_records(loader, topic)) == 2


def test_a_batch_below_the_last_one_is_a_duplicate(loader: Loader, topic: str) -> None:
    loader.run({"value": ["1"]}, batch=5, topic=topic)
    late = loader.stage({"value": ["2"]}, batch=4)
    assert loader.commit([late], batch=4, topic=topic)["duplicate"] is True
    assert loader.state(4)["state"] == "done"
    assert len(_records(loader, topic)) == 1


def test_only_the_attempts_that_are_named_are_published(loader: Loader, topic: str) -> None:
    loader.stage({"value": ["1"]}, attempt="dead")
    good = loader.stage({"value": ["2"]}, attempt="beef")
    loader.commit([good], topic=topic)
    loader.ended()
    assert [record["data"] for record in _records(loader, topic)] == [2]


def test_an_aborted_batch_is_gone_and_may_come_again(loader: Loader, topic: str) -> None:
    name = loader.stage({"value": ["1"]})
    assert loader.state() == {"state": "staged", "rows": 1, "published": 0, "message": None, "duplicate": False}
    assert loader.client.delete(f"/v0/loads/{loader.load}/0").json()["dropped"] == 1
    assert loader.state()["state"] == "unknown"
    assert error(loader.try_commit([name], topic=topic), 400)["code"] == "invalid_request"
    assert not _exists(loader, topic)
    loader.run({"value": ["1"]}, topic=topic)
    refusal = error(loader.client.delete(f"/v0/loads/{loader.load}/0"), 409)
    assert refusal["code"] == "load_committed"


# -- what is refused


def _bad_streams() -> dict[str, tuple[bytes, str]]:
    whole = stream({"value": ["1", "2"]})
    huge = bytearray(whole)
    place = whole.index(b"\xff\xff\xff\xff", 8)
    struct.pack_into("<i", huge, place + 4, 1 << 30)
    bent = bytearray(whole)
    bent[place + 8 : place + 40] = b"\xee" * 32
    offsets = bytearray(whole)
    spot = whole.rindex(struct.pack("<3i", 0, 1, 2))
    struct.pack_into("<3i", offsets, spot, 0, 1 << 30, 2)
    other = stream({"value": ["3"]})
    return {
        "nothing": (b"", "no end mark"),
        "junk": (b"GET / HTTP/1.1\r\n" * 10, "no Arrow stream"),
        "a file instead of a stream": (b"ARROW1\0\0" + whole, "no Arrow stream"),
        "cut in the middle": (whole[: len(whole) // 2], "cut"),
        "no end mark": (whole[:-8], "no end mark"),
        "two streams": (whole + other, "follow the end"),
        "absurd metadata": (bytes(huge), "bytes of metadata"),
        "bent metadata": (bytes(bent), "Arrow"),
        "offsets beyond the data": (bytes(offsets), "damaged"),
        "compressed": (stream({"value": ["a" * 1000]}, compression="zstd"), "compressed"),
        "unknown columns": (stream({"value": ["1"], "colour": ["red"]}), "unknown columns: 'colour'"),
        "no value": (stream({"tag": ["1"]}), "value is missing"),
        "a wrong type": (stream({"value": pa.array([1, 2])}), "column value is of type int64"),
        "a dictionary": (stream({"value": pa.array(["1"]).dictionary_encode()}), "Arrow message"),
        "a wrong type of number": (stream({"value": ["1"], "priority": [0.5]}), "column priority is of type double"),
        "a null": (stream({"value": ["1", "2", None]}), "row 2: value is null"),
        "a null topic": (stream({"value": ["1", "2"], "topic": ["a", None]}), "row 1: topic is null"),
        "no topic name": (stream({"value": ["1"], "topic": ["../x"]}), "is no topic name"),
        "a delay": (stream({"value": ["1", "2"], "delay_ms": pa.array([0, -5])}), "row 1: delay_ms is -5"),
        "a long tag": (stream({"value": ["1"], "tag": ["x" * 257]}), "row 0: tag has 257 bytes; at most 256"),
        "a long key": (stream({"value": ["1"], "key": ["x" * 1025]}), "row 0: key has 1025 bytes"),
        "no meta": (stream({"value": ["1"] * 3, "meta": ["{}", None, "[1]"]}), "row 2: meta is not a JSON object"),
    }


@pytest.mark.parametrize("what", list(_bad_streams()))
def test_a_bad_part_is_refused_in_words_and_leaves_nothing(loader: Loader, what: str) -> None:
    body, words = _bad_streams()[what]
    refusal = error(loader.put(body), 400)
    assert refusal["code"] == "invalid_request"
    assert words in str(refusal["message"])
    assert loader.state()["state"] == "unknown"


def test_values_are_checked_for_their_topic_when_they_are_staged_or_when_they_are_committed(
    loader: Loader, topic: str
) -> None:
    values = ["1"] * 1500 + ["{oops"]
    refusal = error(loader.put(stream({"value": values}), type="log"), 400)
    assert "part 0-a1: row 1500: the value is no JSON text" in str(refusal["message"])
    assert refusal["detail"] == {"part": "0-a1", "row": 1500}
    assert loader.state()["state"] == "unknown"
    name = loader.stage({"value": values})
    refusal = error(loader.try_commit([name], topic=topic, type="log"), 400)
    assert "part 0-a1, row 1500: the value is no JSON text" in str(refusal["message"])
    assert refusal["detail"] == {"part": "0-a1", "row": 1500}
    assert error(loader.try_commit([name], topic=topic, type="queue", value_format="json"), 400)
    assert not _exists(loader, topic)
    assert loader.state()["state"] == "staged"
    loader.commit([name], topic=topic, type="queue")
    assert loader.ended()["published"] == 1501


def test_a_record_of_one_byte_too_many_is_refused_with_its_row(loader: Loader, topic: str) -> None:
    large = '"' + "x" * (1024 * 1024 - 1) + '"'
    columns = {"value": ["1", large]}
    refusal = error(loader.put(stream(columns), type="log"), 400)
    assert "row 1: value and meta have 1048577 bytes" in str(refusal["message"])
    name = loader.stage(columns)
    assert error(loader.try_commit([name], topic=topic), 400)["detail"] == {"part": "0-a1", "row": 1}
    assert not _exists(loader, topic)
    fits = {"value": ["1", large[:-2] + '"']}
    assert loader.run(fits, batch=1, topic=topic)["published"] == 2


def test_text_is_checked_as_text(loader: Loader, topic: str) -> None:
    name = loader.stage({"value": [b"fine", b"\xff\xfe"]})
    refusal = error(loader.try_commit([name], topic=topic, value_format="text"), 400)
    assert "row 1: the value is not UTF-8" in str(refusal["message"])
    swollen = loader.put(stream({"value": ["\x01" * 200_000]}), part=1, type="log", value_format="text")
    assert "1200002 bytes as JSON" in str(error(swollen, 400)["message"])


def test_what_was_staged_for_other_values_is_not_believed(loader: Loader, topic: str) -> None:
    assert loader.put(stream({"value": ["{oops"]}), type="queue").status_code == 201
    refusal = error(loader.try_commit(["0-a1"], topic=topic, type="log"), 400)
    assert "nobody has looked" in str(refusal["message"])


def test_columns_for_queues_are_refused_for_a_log(loader: Loader, topic: str) -> None:
    name = loader.stage({"value": ["1"], "priority": pa.array([1])})
    refusal = error(loader.try_commit([name], topic=topic), 400)
    assert "columns for queues only: priority" in str(refusal["message"])
    assert not _exists(loader, topic)


def test_a_topic_of_the_wrong_type_and_a_missing_one_are_refused(loader: Loader, topic: str) -> None:
    loader.client.put(f"/v0/topics/{topic}", json={"type": "queue"})
    name = loader.stage({"value": ["1"]})
    assert error(loader.try_commit([name], topic=topic, type="log"), 409)["code"] == "topic_exists_incompatible"
    refusal = error(loader.try_commit([name], topic=f"{topic}-x", create=False), 404)
    assert refusal["code"] == "topic_not_found"
    assert loader.state()["state"] == "staged"


def test_topic_and_column_exclude_each_other(loader: Loader, topic: str) -> None:
    name = loader.stage({"value": ["1"], "topic": [topic]})
    assert "has a column topic" in str(error(loader.try_commit([name], topic=topic), 400)["message"])
    name = loader.stage({"value": ["1"]}, batch=1)
    assert "topic is not given" in str(error(loader.try_commit([name], batch=1), 400)["message"])


@pytest.mark.parametrize(
    "path",
    [
        "/v0/loads/..%2f..%2fetc/0/0", "/v0/loads/%2e%2e%2f/0/0", "/v0/loads/a%00b/0/0", f"/v0/loads/{'x' * 129}/0/0",
        "/v0/loads/l/-1/0", "/v0/loads/l/0/x", "/v0/loads/l/0/1e3", "/v0/loads/l/9999999999999999999/0",
        "/v0/loads/l/%D9%A3/0",
    ],
)  # fmt: skip
def test_hostile_names_are_refused(loader: Loader, path: str) -> None:
    answer = loader.client.put(f"{path}?attempt=a", content=stream({"value": ["1"]}))
    assert answer.status_code in (400, 404), answer.text


@pytest.mark.parametrize("attempt", ["", "xyz", "../a", "a" * 65, "A"])
def test_an_attempt_is_of_hexadecimal_digits(loader: Loader, attempt: str) -> None:
    refusal = error(loader.put(stream({"value": ["1"]}), attempt=attempt), 400)
    assert "attempt is" in str(refusal["message"])


@pytest.mark.parametrize("name", [".", "..", "...", "-", "a.b_c-D"])
def test_odd_names_stay_where_they_belong(shared_broker: Broker, name: str, topic: str) -> None:
    with Loader(shared_broker.http_url, name) as loader:
        if set(name) == {"."} and len(name) < 3:  # clients take these out of a path
            path = f"/v0/loads/{'%2e' * len(name)}/0/0?attempt=a1"
            status = _raw(shared_broker, f"PUT {path}", stream({"value": ["1"]}))
            assert status in (201, 400, 404)
            return
        loader.run({"value": ["1"]}, topic=topic)


def _raw(broker: Broker, line: str, body: bytes) -> int:
    with socket.create_connection(("127.0.0.1", broker.http_port)) as connection:
        head = f"{line} HTTP/1.1\r\nHost: localhost\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        connection.sendall(head.encode() + body)
        return int(connection.makefile("rb").readline().split()[1])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"parts": ["../../x"]}, "is no name that staging gave"),
        ({"parts": ["0-a", "0-b"]}, "part 0 twice"),
        ({"parts": ["7-a1"]}, "part 7-a1 of this batch is not staged"),
        ({"parts": []}, ""),
        ({"parts": [], "share": 0.01}, "share"),
        ({"parts": [], "share": 2}, "share"),
        ({"parts": [], "type": "kv"}, "type"),
        ({"parts": [], "value_format": "xml"}, "value_format"),
        ({"parts": [], "topic": "a/b"}, "is no topic name"),
        ({"parts": [], "type": "log", "config": {"type": "queue"}}, "config.type is queue"),
        ({}, "parts"),
    ],
)
def test_a_bad_commit_is_refused_in_words(loader: Loader, fields: dict[str, object], words: str) -> None:
    answer = loader.client.post(f"/v0/loads/{loader.load}/0/commit", json={"topic": "t", **fields})
    if words:
        assert words in str(error(answer, 400)["message"])
    else:
        assert answer.status_code == 202


def test_batches_of_a_load_are_committed_in_order(shared_broker: Broker, loader: Loader, topic: str) -> None:
    loader.client.put(f"/v0/topics/{topic}", json={"type": "queue"})
    with redis.Redis(port=shared_broker.resp_port, protocol=2) as client:
        client.execute_command("PAUSE", topic, "in")
        loader.commit([loader.stage({"value": ["1"]}, batch=2)], batch=2, topic=topic)
        early = loader.stage({"value": ["1"]}, batch=1)
        refusal = error(loader.try_commit([early], batch=1, topic=topic), 400)
        assert "batch 2" in str(refusal["message"])
        client.execute_command("PAUSE", topic, "none")
    assert loader.ended(2)["published"] == 1


# -- large bodies


def test_a_body_beyond_the_limit_of_other_requests_is_taken(loader: Loader, topic: str) -> None:
    values = [b"x" * 1_000_000] * 70
    body = stream({"value": values}, rows_a_batch=8)
    assert len(body) > 64 * 1024 * 1024
    answer = loader.put(body, type="queue")
    assert answer.status_code == 201, answer.text
    assert answer.json()["bytes"] == 70_000_000
    loader.commit(["0-a1"], topic=topic, type="queue", share=1)
    assert loader.ended()["published"] == 70


def test_a_block_that_is_too_large_is_refused(loader: Loader) -> None:
    refusal = error(loader.put(stream({"value": [b"x" * 1_000_000] * 70})), 400)
    assert "at most 67108864" in str(refusal["message"])


# -- keys


def test_loads_need_the_write_scope_and_topics_that_the_key_reaches(guarded_broker: Broker) -> None:
    url = guarded_broker.http_url
    secrets = {name: key.partition(":")[0] for name, key in KEYS.items()}
    with Loader(url, "scoped", secrets["read"]) as reader:
        assert error(reader.put(stream({"value": ["1"]})), 403)
        assert error(reader.try_commit([], topic="t"), 403)
    with Loader(url, "team", secrets["team"]) as team:
        refusal = error(team.put(stream({"value": ["1", "2"], "topic": ["team-a", "private"]})), 403)
        assert "private" in str(refusal["message"])
        assert team.state()["state"] == "unknown"
        name = team.stage({"value": ["1"]})
        assert error(team.try_commit([name], topic="private"), 403)
        team.commit([name], topic="team-a-x")
        team.ended()
    with Loader(url, "sneaky", secrets["write"]) as writer:
        name = writer.stage({"value": ["1"], "topic": ["private"]})
        team_client = httpx.Client(base_url=url, headers={"authorization": f"Bearer {secrets['team']}"})
        with team_client:
            answer = team_client.post("/v0/loads/sneaky/0/commit", json={"parts": [name]})
            assert "is not staged" in str(error(answer, 400)["message"])  # the team's load of this name is another
        refusal = error(writer.try_commit([name], config={"durability": "fsync"}), 403)
        assert "admin" in str(refusal["message"])


def test_the_routes_of_loads_are_in_the_documents() -> None:
    paths = {route.path for route in ROUTES if route.path.startswith("/v0/loads")}
    assert paths == {
        "/v0/loads/{load}/{batch}",
        "/v0/loads/{load}/{batch}/{part}",
        "/v0/loads/{load}/{batch}/commit",
    }
