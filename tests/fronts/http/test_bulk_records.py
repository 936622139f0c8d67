"""Ranges of logs as Arrow streams over HTTP, and the plan that says where they are."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from esker.testing.broker import Broker
from tests.columns.streams import whole
from tests.crash.process import NodeProcess
from tests.fronts.http.streams.wire import eventually
from tests.fronts.http.unsynced import read_once_synced
from tests.fronts.http.web import KEYS, Refused, Web, listed

ARROW = "application/vnd.apache.arrow.stream"


def _get(web: Web, topic: str, **query: object) -> httpx.Response:
    named = {name.rstrip("_"): str(value) for name, value in query.items()}
    return web.client.get(f"/v0/topics/{topic}/records", params=named)


def _rows(web: Web, topic: str, **query: object) -> list[dict[str, object]]:
    response = _get(web, topic, **query)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == ARROW
    return whole(response.content)


def _plan(web: Web, **body: object) -> dict[str, object]:
    return web.ask("POST", "/v0/bulk/plan", body)


def _partition(web: Web, topic: str, **body: object) -> dict[str, object]:
    (planned,) = listed(_plan(web, topics=[topic], **body), "topics")
    (partition,) = listed(planned, "partitions")
    return partition


def _offsets(rows: list[dict[str, object]]) -> list[object]:
    return [row["offset"] for row in rows]


# -- records


def test_a_range_comes_as_an_arrow_stream(web: Web, topic: str) -> None:
    records = [{"data": {"n": n}, "tag": f"t{n}", "node": "n", "meta": {"k": "ü"}} for n in range(10)]
    web.ask("POST", f"/v0/topics/{topic}", {"records": [*records, {"data": "bare"}]}, 201)
    response = _get(web, topic)
    rows = whole(response.content)
    assert (response.headers["esker-to"], response.headers["content-type"]) == ("12", ARROW)
    assert "esker-gaps" not in response.headers
    diffed = listed(web.diff(topic, include_tags=True), "records")
    assert [json.loads(bytes(row["value"])) for row in rows] == [record["data"] for record in diffed]  # type: ignore[call-overload]
    assert [round(row["timestamp"].timestamp() * 1000) for row in rows] == [  # type: ignore[attr-defined]
        record["$ts"] for record in diffed
    ]
    assert {name: rows[3][name] for name in ("offset", "tag", "node", "meta")} == {
        "offset": 4, "tag": "t3", "node": "n", "meta": '{"k":"ü"}',
    }  # fmt: skip
    assert [rows[10][name] for name in ("tag", "node", "meta")] == [None, None, None]


def test_the_types_of_columns_do_not_depend_on_what_is_there(one: Web, topic: str) -> None:
    one.put(topic)
    wanted = pa.schema([
        pa.field("offset", pa.int64(), False), pa.field("timestamp", pa.timestamp("us", "UTC"), False),
        pa.field("value", pa.binary(), False), pa.field("tag", pa.string()), pa.field("node", pa.string()),
        pa.field("meta", pa.string()),
    ])  # fmt: skip
    for _ in range(2):
        with pa.ipc.open_stream(_get(one, topic).content) as reader:
            assert reader.schema == wanted
            assert all(batch.schema == wanted for batch in reader)
        one.write(topic, 1)


def test_a_range_read_twice_is_the_same_to_the_byte(one: Web, topic: str) -> None:
    for start in range(0, 3000, 1000):
        one.write(topic, *range(start, start + 1000), status=200 if start else 201)
    first = _get(one, topic, from_=10, to=2500).content
    one.write(topic, *range(500))
    assert _get(one, topic, from_=10, to=2500).content == first
    assert _offsets(whole(first)) == list(range(10, 2500))


def test_columns_tags_and_times_narrow_it(one: Web, topic: str) -> None:
    one.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": n, "tag": f"t{n % 3}"} for n in range(30)]}, 201)
    assert _rows(one, topic, from_=2, to=4, columns="value,offset") == [
        {"value": b"1", "offset": 2}, {"value": b"2", "offset": 3},
    ]  # fmt: skip
    assert _offsets(_rows(one, topic, tag_prefix="t1", columns="offset")) == list(range(2, 31, 3))
    at = listed(one.diff(topic), "records")[0]["$ts"]
    assert isinstance(at, int)
    assert len(_rows(one, topic, since_ms=at)) == 30
    assert _rows(one, topic, since_ms=at + 1) == _rows(one, topic, until_ms=at) == []


def test_deleted_records_are_left_out(one: Web, topic: str) -> None:
    one.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": n, "tag": f"t{n % 3}"} for n in range(30)]}, 201)
    one.ask("POST", f"/v0/topics/{topic}/delete", {"match": "t1"})
    response = _get(one, topic)
    assert _offsets(whole(response.content)) == [n + 1 for n in range(30) if n % 3 != 1]
    assert "esker-gaps" not in response.headers


def test_lost_records_are_refused_or_told(one: Web, topic: str) -> None:
    one.put(topic, cap_records=100)
    one.write(topic, *range(300))
    gap = {"first": 1, "last": 200, "reason": "cap"}
    refused = one.refused("GET", f"/v0/topics/{topic}/records", status=410)
    assert (refused.code, refused.detail) == ("data_loss", {"topic": topic, "gaps": [gap]})
    response = _get(one, topic, on_gap="skip")
    assert json.loads(response.headers["esker-gaps"]) == [gap]
    assert _offsets(whole(response.content)) == list(range(201, 301))
    assert len(_rows(one, topic, from_=201)) == 100
    assert _partition(one, topic)["gaps"] == [gap]


def test_a_topic_that_was_made_again_is_another(one: Web, topic: str) -> None:
    one.put(topic)
    epoch = int(_get(one, topic).headers["esker-epoch"])
    one.ask("DELETE", f"/v0/topics/{topic}")
    one.put(topic)
    refused = one.refused("GET", f"/v0/topics/{topic}/records?epoch={epoch}", status=409)
    assert refused.code == "stale_epoch"


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("from=0", "from"), ("from=x", "from"), ("from=-1", "from"), ("from=3&to=2", "from"), ("to=99", "to"),
        ("to=99999999999999999999", "to"), ("epoch=1.5", "epoch"), ("columns=nope", "columns"),
        ("columns=value,value", "columns"), ("columns=value,", "columns"), (f"columns={'x' * 1001}", "columns"),
        ("on_gap=maybe", "on_gap"), ("since_ms=now", "since_ms"), ("until_ms=x", "until_ms"),
        (f"tag_prefix={'t' * 257}", "tag_prefix"),
    ],
)  # fmt: skip
def test_a_bad_range_is_refused_by_name(one: Web, topic: str, query: str, names: str) -> None:
    one.write(topic, 1, 2, 3, status=201)
    refused = one.refused("GET", f"/v0/topics/{topic}/records?{query}", status=400)
    assert refused.code == "invalid_request"
    assert names in str(refused.message)


def test_only_logs_have_ranges(one: Web, topic: str) -> None:
    one.put(topic, type="queue")
    assert one.refused("GET", f"/v0/topics/{topic}/records", status=409).code == "wrong_type"
    assert one.refused("GET", f"/v0/topics/{topic}.no/records", status=404).code == "topic_not_found"


def test_a_client_that_takes_no_arrow_is_told(one: Web, topic: str) -> None:
    one.put(topic)
    path = f"/v0/topics/{topic}/records"
    assert one.refused("GET", path, status=406, accept="application/json").code == "not_acceptable"
    for accept in ("*/*", ARROW, f"text/html, {ARROW};q=0.5"):
        assert one.client.get(path, headers={"accept": accept}).status_code == 200


def test_keys_bound_what_is_read_and_planned(guarded: httpx.Client) -> None:
    def ask(key: str, method: str, path: str, **more: object) -> httpx.Response:
        secret = KEYS[key].partition(":")[0]
        return guarded.request(method, path, headers={"authorization": f"Bearer {secret}"}, **more)  # type: ignore[arg-type]

    for name in ("team-a.log", "other.log"):
        assert ask("all", "PUT", f"/v0/topics/{name}").status_code in (200, 201)
    assert guarded.get("/v0/topics/other.log/records").status_code == 401
    assert ask("write", "GET", "/v0/topics/other.log/records").status_code == 403
    assert ask("team", "GET", "/v0/topics/other.log/records").status_code == 403
    assert ask("team", "GET", "/v0/topics/team-a.log/records").status_code == 200
    assert ask("write", "POST", "/v0/bulk/plan").status_code == 403
    assert ask("team", "POST", "/v0/bulk/plan", json={"topics": ["other.log"]}).status_code == 403
    planned = ask("team", "POST", "/v0/bulk/plan", json={"pattern": ".*log"}).json()
    assert [topic["topic"] for topic in planned["topics"]] == ["team-a.log"]


# -- one block by diff


def test_a_diff_gives_a_block_to_who_asks_for_arrow(web: Web, topic: str) -> None:
    web.write(topic, *range(1000), status=201)
    response = web.client.post(
        f"/v0/topics/{topic}/diff", json={"from_seq": 10, "limit": 700}, headers={"accept": ARROW}
    )
    assert (response.status_code, response.headers["content-type"]) == (200, ARROW)
    assert _offsets(whole(response.content)) == list(range(11, 711))
    assert (response.headers["esker-next"], response.headers["esker-head"]) == ("711", "1000")
    assert web.diff(topic)["head_seq"] == 1000, "who takes anything gets JSON"


def test_a_block_leaves_out_nodes_and_tells_gaps(one: Web, topic: str) -> None:
    one.put(topic, cap_records=20)
    one.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": n, "node": f"n{n % 2}"} for n in range(30)]})
    response = one.client.post(f"/v0/topics/{topic}/diff", json={"node": "n0"}, headers={"accept": ARROW})
    assert _offsets(whole(response.content)) == list(range(12, 31, 2))
    assert json.loads(response.headers["esker-gaps"]) == [{"first": 1, "last": 10, "reason": "cap"}]


def test_a_block_is_waited_for(one: Web, topic: str) -> None:
    one.put(topic)
    response = one.client.post(f"/v0/topics/{topic}/diff", json={"wait_ms": 20}, headers={"accept": ARROW})
    assert whole(response.content) == []
    one.write(topic, 1)
    response = one.client.post(f"/v0/topics/{topic}/diff", json={"wait_ms": 20_000}, headers={"accept": ARROW})
    assert len(whole(response.content)) == 1


# -- the plan


def test_a_plan_tells_how_far_topics_reach(one: Web, topic: str) -> None:
    one.write(topic, *range(10), status=201)
    one.ask("POST", f"/v0/topics/{topic}/delete", {"before_seq": 4})
    one.put(f"{topic}.q", type="queue", dead_letter=f"{topic}.dead")
    one.write(f"{topic}.q", 1, 2)
    plan = _plan(one, topics=[topic, f"{topic}.q", f"{topic}.no", topic])
    assert plan["missing"] == [f"{topic}.no"]
    assert plan["archive"] is plan["events"] is None
    assert isinstance(plan["position"], int)
    log, queue = listed(plan, "topics")
    assert (log["topic"], log["type"], log["dead_letter"]) == (topic, "log", None)
    assert (queue["type"], queue["dead_letter"]) == ("queue", f"{topic}.dead")
    (partition,) = listed(log, "partitions")
    del partition["bytes"]
    earliest = int(str(partition["earliest"]))
    assert partition == {
        "partition": 0, "earliest": earliest, "next": 11, "records": 11 - earliest, "at": [], "hot_from": earliest,
        "files": [], "gaps": [],
    }  # fmt: skip
    assert earliest in (4, 5)
    (jobs,) = listed(queue, "partitions")
    assert (jobs["earliest"], jobs["next"], jobs["records"], jobs["hot_from"]) == (1, 3, 2, 1)


def test_a_plan_finds_offsets_by_time(one: Web, topic: str) -> None:
    one.write(topic, *range(10), status=201)
    one.ask("POST", f"/v0/topics/{topic}/delete", {"before_seq": 4})
    at = listed(one.diff(topic), "records")[0]["$ts"]
    assert isinstance(at, int)
    partition = _partition(one, topic, at_ms=[0, at, at + 100_000])
    assert partition["at"] == [partition["earliest"], partition["earliest"], 11]


def test_a_pattern_matches_whole_names(one: Web, topic: str) -> None:
    for name in (f"{topic}.a", f"{topic}.b", f"x{topic}.a"):
        one.put(name)
    found = listed(_plan(one, pattern=rf"{topic}\.[ab]"), "topics")
    assert [each["topic"] for each in found] == [f"{topic}.a", f"{topic}.b"]
    assert _plan(one, pattern=f"{topic}|nothing")["topics"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"pattern": "("}, {"pattern": "a)(b"}, {"pattern": "(?=a)"}, {"pattern": "a" * 1001}, {"pattern": 1},
        {"topics": ["a"], "pattern": "a"}, {"topics": ["no name"]}, {"topics": "a"}, {"topics": ["a"] * 10_001},
        {"at_ms": [1] * 17}, {"at_ms": [-1]}, {"at_ms": ["now"]}, {"events": 1},
    ],
)  # fmt: skip
def test_a_bad_plan_is_refused(one: Web, body: dict[str, object]) -> None:
    assert one.refused("POST", "/v0/bulk/plan", body, status=400).code == "invalid_request"


def test_a_pattern_made_to_take_for_ever_does_not(one: Web, topic: str) -> None:
    one.put(f"{topic}{'a' * 200}")
    assert _plan(one, pattern=rf"{topic}(a+)+(a*)*(a|a)*b")["topics"] == []


def test_a_plan_tells_what_there_is_of_events(one: Web, topic: str) -> None:
    one.write(topic, 1, status=201)
    events = _plan(one, events=True, topics=[])["events"]
    assert isinstance(events, dict)
    assert 1 <= events["first"] == events["hot_from"] < events["next"]
    assert events["files"] == []


# -- every tier


@pytest.fixture
def tiers(tmp_path: Path) -> Iterator[Web]:
    """A node that moves its records to an archive as soon as it can, and keeps next to nothing in memory."""
    broker = Broker(
        str(tmp_path / "data"), archive=str(tmp_path / "archive"), archive_hot_blocks="2", archive_after_s="0",
        checkpoint_interval_s="1", segment_size="64kb", hot_payloads="1kb",
    )  # fmt: skip
    with broker, Web(broker.http_url) as web:
        yield web


def test_a_plan_and_the_node_cover_every_record_once(tmp_path: Path, tiers: Web) -> None:
    def write(start: int) -> None:
        records = [{"data": {"n": n}, "tag": f"t{n % 5}"} for n in range(start, start + 1000)]
        tiers.ask("POST", "/v0/topics/log", {"records": records}, 200 if start else 201)

    write(0)
    eventually(lambda: _partition(tiers, "log")["files"])
    write(1000)
    tiers.ask("POST", "/v0/topics/log/delete", {"match": "t1"})
    tiers.ask("POST", "/v0/topics/log/delete", {"before_seq": 8})
    plan = _plan(tiers, topics=["log"])
    assert plan["archive"] == str(tmp_path / "archive")
    partition = _partition(tiers, "log")
    hot_from = int(str(partition["hot_from"]))
    cold: list[object] = []
    for file in listed(partition, "files"):
        runs = file["dead"]
        assert isinstance(runs, list)
        dead = {seq for first, count in zip(runs[::2], runs[1::2], strict=True) for seq in range(first, first + count)}
        seqs = pq.read_table(tmp_path / "archive" / str(file["path"])).column("seq").to_pylist()
        living = [seq for seq in seqs if seq not in dead]
        assert len(living) == file["rows"]
        cold += living
    hot = _offsets(_rows(tiers, "log", from_=hot_from))
    wanted = [n + 1 for n in range(2000) if n % 5 != 1 and n + 1 >= int(str(partition["earliest"]))]
    assert cold + hot == wanted
    assert cold
    assert hot
    assert _offsets(_rows(tiers, "log")) == wanted, "and the node reads files as well"
    assert partition["records"] == len(wanted)
    assert _partition(tiers, "log", files=False) == {**partition, "files": []}


def test_a_range_in_the_archive_survives_a_restart(tmp_path: Path) -> None:
    broker = Broker(
        str(tmp_path / "data"), archive=str(tmp_path / "archive"), archive_hot_blocks="1", archive_after_s="0",
        checkpoint_interval_s="1",
    )  # fmt: skip
    with broker:
        with Web(broker.http_url) as web:
            web.write("log", *range(2000), status=201)
            eventually(lambda: _partition(web, "log")["files"])
            before = _rows(web, "log")
        broker.restart()
        with Web(broker.http_url) as web:
            assert _rows(web, "log") == before
            events = _plan(web, events=True)["events"]
            assert isinstance(events, dict)


def test_without_arrow_it_says_what_to_install(one: Web, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one.put(topic)
    monkeypatch.setattr("esker.fronts.http.streams.columns.find_spec", lambda name: None)
    monkeypatch.setattr("esker.fronts.http.streams.columns._LIBRARY", "esker.columns.nothing")
    refused = one.refused("GET", f"/v0/topics/{topic}/records", status=501)
    assert refused.code == "not_available"
    assert "esker[archive]" in str(refused.message)
    asked = one.client.post(f"/v0/topics/{topic}/diff", headers={"accept": ARROW})
    assert (asked.status_code, Refused(asked.json()).code) == (501, "not_available")


# -- the disk


def test_nothing_is_streamed_before_it_is_durable() -> None:
    assert _offsets(read_once_synced(_rows)) == [1]


def test_a_stream_goes_on_after_a_kill_where_it_was_cut(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data").start()
    with Web(f"http://127.0.0.1:{node.http_port}") as web:
        web.put("log", durable=True)
        for start in range(0, 2000, 500):
            web.write("log", *(f"{n:010}" + "x" * 10_000 for n in range(start, start + 500)))
        got = bytearray()
        with pytest.raises(httpx.HTTPError):
            _read_and_kill(web, node, got)
    rows = _whole_batches(got)
    assert 0 < len(rows) < 2000
    with node, Web(f"http://127.0.0.1:{node.http_port}") as web:
        rows += _rows(web, "log", from_=len(rows) + 1, columns="offset,value")
    assert _offsets(rows) == list(range(1, 2001))
    assert all(bytes(row["value"])[1:11] == b"%010d" % n for n, row in enumerate(rows))  # type: ignore[call-overload]


def test_readers_that_take_nothing_do_not_hold_up_a_stop(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node, contextlib.ExitStack() as deaf:
        with Web(f"http://127.0.0.1:{node.http_port}") as web:
            web.put("log")
            for _ in range(3):
                web.write("log", *["x" * 1000] * 8000)
            for path in ("/v0/topics/log/records", "/v0/events", "/v0/topics/log/records?columns=value"):
                connection = deaf.enter_context(socket.create_connection(("127.0.0.1", node.http_port)))
                connection.sendall(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
                assert connection.recv(15) == b"HTTP/1.1 200 OK"
        assert node.stop(within_s=10) == 0  # requests under way would have that long


def _read_and_kill(web: Web, node: NodeProcess, got: bytearray) -> None:
    """Kills the node when half of it was read, and reads on."""
    killed = False
    with web.client.stream("GET", "/v0/topics/log/records?columns=offset,value") as response:
        for piece in response.iter_bytes(1 << 20):
            got += piece
            if len(got) > 9 << 20 and not killed:
                killed = True
                node.kill()


def _whole_batches(got: bytearray) -> list[dict[str, object]]:
    """Of a stream that was cut."""
    rows: list[dict[str, object]] = []
    with pa.ipc.open_stream(bytes(got)) as reader:
        try:
            for batch in reader:
                rows += batch.to_pylist()
        except (pa.ArrowInvalid, OSError):
            return rows
    return rows
