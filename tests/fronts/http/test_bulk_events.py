"""The history of events as an Arrow stream over HTTP: row by row, in order, from journal and archive alike."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
import redis

from esker.columns.arrow import END
from esker.columns.eventwish import COLUMNS
from esker.testing.broker import Broker
from tests.crash.process import NodeProcess
from tests.fronts.http.streams.wire import eventually
from tests.fronts.http.web import KEYS, Refused, Web

ARROW = "application/vnd.apache.arrow.stream"


def _get(web: Web, **query: object) -> httpx.Response:
    return web.client.get("/v0/events", params={name.rstrip("_"): str(value) for name, value in query.items()})


def _table(web: Web, **query: object) -> pa.Table:  # type: ignore[no-any-unimported]
    response = _get(web, **query)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == ARROW
    return _whole(response.content)


def _whole(data: bytes) -> pa.Table:  # type: ignore[no-any-unimported]
    assert data.endswith(END), "cut"
    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all()
    table.validate(full=True)
    return table


def _rows(web: Web, **query: object) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = _table(web, **query).to_pylist()
    return rows


def _refused(web: Web, status: int, **query: object) -> Refused:
    response = _get(web, **query)
    assert response.status_code == status, response.text
    return Refused(response.json())


def _next(web: Web) -> int:
    """Behind the newest event."""
    return int(_get(web, kinds="TopicDeleted").headers["esker-to"])


def _run_jobs(client: redis.Redis, queue: str, count: int) -> None:
    def ask(*words: object) -> object:
        answer: object = client.execute_command(*words)  # type: ignore[no-untyped-call]
        return answer

    for number in range(count):
        ask("ADDJOB", queue, f"job-{number}-{'x' * 100}", 0)
        if number % 2:
            leased = ask("GETJOB", "FROM", queue)
            assert isinstance(leased, list)
            ask("ACKJOB", leased[0][1])


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Broker]:
    """With an archive, and segments so small that they retire while a test looks."""
    data, archive = str(tmp_path / "data"), str(tmp_path / "archive")
    with Broker(data, archive=archive, segment_size="16kb", checkpoint_interval_s="1") as broker:
        yield broker


def _archived(tmp_path: Path) -> int:
    return len(list((tmp_path / "archive").rglob("events/**/*.parquet")))


# -- what rows tell


def test_a_known_story_row_by_row(one: Web, topic: str) -> None:
    start = _next(one)
    one.put(topic, type="queue", max_deliveries=3, dead_letter=f"{topic}.dead")
    one.write(topic, "a", "b")
    one.claim(topic, "worker", max=1, lease_ms=60_000)
    one.ask("POST", f"/v0/topics/{topic}/extend", {"node": "worker", "seqs": [1], "lease_ms": 90_000})
    one.ask("POST", f"/v0/topics/{topic}/nack", {"node": "worker", "seqs": [1], "delay_ms": 5000})
    one.claim(topic, "worker", max=1)
    one.ask("POST", f"/v0/topics/{topic}/ack", {"node": "worker", "seqs": [2]})
    rows = _rows(one, from_=start, topics=topic)
    told = [(row["kind"], row["seq"]) for row in rows if row["kind"] != "SeqReserved"]
    assert told == [
        ("TopicCreated", None), ("Enqueued", 1), ("Enqueued", 2), ("JobLeased", 1), ("LeaseExtended", 1),
        ("JobReturned", 1), ("JobLeased", 2), ("JobAcked", 2),
    ]  # fmt: skip
    created, first, second, leased, extended, returned, again, acked = (
        row for row in rows if row["kind"] != "SeqReserved"
    )
    facts = json.loads(str(created["detail"]))
    assert (facts["type"], facts["mode"], facts["max_deliveries"], facts["lazy"]) == ("queue", "min", 3, False)
    assert facts["dead_letter"] == f"{topic}.dead"
    assert first["message_id"] == leased["message_id"] != second["message_id"]
    assert (leased["node"], leased["attempts"], leased["reason"]) == ("worker", 1, None)
    assert leased["due"] < extended["due"]  # type: ignore[operator]
    assert returned["reason"] == "nacked"
    assert (returned["due"] - returned["time"]).total_seconds() == 5  # type: ignore[operator]
    assert acked["lease"] == again["lease"] != leased["lease"]
    assert {row["topic"] for row in rows} == {topic}


def test_an_ack_by_id_alone_has_no_lease(one: Web, shared_broker: Broker, topic: str) -> None:
    start = _next(one)
    with redis.Redis(port=shared_broker.resp_port) as client:
        _run_jobs(client, topic, 2)
    (acked,) = _rows(one, from_=start, topics=topic, kinds="JobAcked")
    assert acked["lease"] is None


def test_copies_name_their_originals(one: Web, topic: str) -> None:
    start = _next(one)
    for name, kind in ((topic, "log"), (f"{topic}.log", "log"), (f"{topic}.queue", "queue")):
        one.put(name, type=kind)
    one.ask("PUT", f"/v0/routers/{topic}.a", {"source": topic, "dest": f"{topic}.log"}, 201)
    one.ask("PUT", f"/v0/routers/{topic}.b", {"source": topic, "dest": f"{topic}.queue"}, 201)
    one.write(topic, 1, 2, 3)
    one.diff(f"{topic}.log")
    one.diff(f"{topic}.queue")
    copies = _rows(one, from_=start, kinds="RecordsForwarded")
    by_router = {str(row["reason"]): [] for row in copies}  # type: dict[str, list[tuple[object, object, object]]]
    for row in copies:
        by_router[str(row["reason"])].append((row["topic"], row["seq"], row["source_seq"]))
    assert by_router[f"{topic}.a"] == [(f"{topic}.log", seq, seq) for seq in (1, 2, 3)]
    assert by_router[f"{topic}.b"] == [(f"{topic}.queue", seq, seq) for seq in (1, 2, 3)]
    told = {str(row["reason"]): json.loads(str(row["detail"])) for row in copies if row["source_seq"] == 3}
    assert told[f"{topic}.a"].get("derived", True)
    assert not told[f"{topic}.b"].get("derived", True)
    put = _rows(one, from_=start, kinds="RouterPut")
    assert {row["router"] for row in put} == {row["router"] for row in copies}
    assert json.loads(str(put[0]["detail"]))["dest"] == f"{topic}.log"


def test_rows_are_in_order_and_none_is_there_twice(web: Web, topic: str) -> None:
    web.put(topic)
    web.write(topic, *range(500))
    table = _table(web, columns="position,ordinal")
    places = list(zip(table["position"].to_pylist(), table["ordinal"].to_pylist(), strict=True))
    assert places == sorted(set(places))


def test_the_types_of_columns_are_the_same_for_nothing_and_for_much(one: Web) -> None:
    end = _next(one)
    nothing, much = _table(one, from_=end, to=end), _table(one)
    assert nothing.num_rows == 0 < much.num_rows
    assert nothing.schema == much.schema
    assert nothing.schema.names == list(COLUMNS)
    assert nothing.schema.field("time") == pa.field("time", pa.timestamp("us", "UTC"), nullable=False)


def test_batches_larger_than_any_window_are_read(one: Web, topic: str) -> None:
    start = _next(one)
    one.put(topic)
    for size in (900_000, 10, 900_000):
        one.write(topic, *(["x" * size] * 6))
    rows = _rows(one, from_=start, topics=topic, kinds="RecordsAppended", columns="seq,position")
    assert [row["seq"] for row in rows] == list(range(1, 19))
    assert len({row["position"] for row in rows}) == 3


# -- what can be asked for


def test_columns_kinds_and_topics_narrow_it(one: Web, topic: str) -> None:
    start = _next(one)
    for name in (topic, f"{topic}.2"):
        one.put(name)
        one.write(name, 1, 2)
    rows = _rows(one, from_=start, columns="seq,kind", kinds="RecordsAppended,TopicCreated", topics=topic)
    assert rows == [
        {"seq": None, "kind": "TopicCreated"}, {"seq": 1, "kind": "RecordsAppended"},
        {"seq": 2, "kind": "RecordsAppended"},
    ]  # fmt: skip


def test_a_range_begins_and_ends_where_it_is_told(one: Web, topic: str) -> None:
    one.put(topic)
    begin = _next(one)
    for number in range(10):
        one.write(topic, number)
    end = _next(one)
    response = _get(one, from_=begin, to=end)
    assert (response.headers["esker-from"], response.headers["esker-to"]) == (str(begin), str(end))
    whole = _whole(response.content).to_pylist()
    parts = [row for position in range(begin, end) for row in _rows(one, from_=position, to=position + 1)]
    assert parts == whole
    assert [row["seq"] for row in whole if row["kind"] == "RecordsAppended"] == list(range(1, 11))


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ({"from_": "0"}, "from"), ({"from_": "x"}, "from"), ({"to": "-1"}, "to"), ({"to": 1 << 62}, "to"),
        ({"from_": 1 << 62}, "from"), ({"columns": "kind,nonsense"}, "nonsense"), ({"columns": "kind,kind"}, "twice"),
        ({"kinds": "JobLost"}, "JobLost"), ({"topics": "a,,b"}, "topics"), ({"topics": "/"}, "topics"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_by_name(one: Web, query: dict[str, object], word: str) -> None:
    refused = _refused(one, 400, **query)
    assert refused.code == "invalid_request"
    assert word in str(refused.message)


def test_a_client_that_wants_something_else_is_told(one: Web) -> None:
    response = one.client.get("/v0/events", headers={"accept": "text/html"})
    assert response.status_code == 406
    assert one.client.get("/v0/events?kinds=NodeStarted", headers={"accept": "*/*"}).status_code == 200


def test_a_key_sees_the_topics_it_reaches(guarded: httpx.Client) -> None:
    everybody = {"authorization": f"Bearer {KEYS['all']}"}
    team = {"authorization": "Bearer k-team"}
    for name in ("team-a.log", "other.log"):
        for _ in range(2):
            answer = guarded.post(f"/v0/topics/{name}", json={"records": [{"data": 1}]}, headers=everybody)
            assert answer.status_code in (200, 201)
    routed = {"source": "other.log", "dest": "team-a.log"}
    assert guarded.put("/v0/routers/team-a.r", json=routed, headers=everybody).status_code == 201
    rows = _whole(guarded.get("/v0/events", headers=team).content).to_pylist()
    topics = {str(row["topic"]) for row in rows}  # other tests of this node have topics of the team, too
    assert "team-a.log" in topics
    assert all(topic.startswith(("team-a", "team-b")) for topic in topics)
    assert "RouterPut" not in {row["kind"] for row in rows}
    all_rows = _whole(guarded.get("/v0/events", headers=everybody).content).to_pylist()
    assert {"team-a.log", "other.log", None} <= {row["topic"] for row in all_rows}
    assert guarded.get("/v0/events?topics=other.log", headers=team).status_code == 403
    assert guarded.get("/v0/events", headers={"authorization": "Bearer k-write"}).status_code == 403
    assert guarded.get("/v0/events").status_code == 401


# -- journal and archive


def test_journal_and_archive_tell_the_same_without_a_seam(small: Broker, tmp_path: Path) -> None:
    with Web(small.http_url) as web, redis.Redis(port=small.resp_port) as client:
        _run_jobs(client, "q", 300)
        end = _next(web)
        before = _table(web, to=end)
        some = before.num_rows // 2
        eventually(lambda: _archived(tmp_path) >= 3)
        after = _table(web, to=end)
        assert after.equals(before)
        middle = before["position"][some].as_py()
        cut = [row for row in before.to_pylist() if row["position"] >= middle]
        assert _rows(web, from_=middle, to=end) == cut
        kinds, wanted = "JobAcked,JobLeased", ("seq", "kind", "message_id")
        narrow = _table(web, to=end, kinds=kinds, columns=",".join(wanted), topics="q").to_pylist()
        assert narrow == [
            {name: row[name] for name in wanted} for row in before.to_pylist() if row["kind"] in kinds.split(",")
        ]


def test_a_reader_misses_nothing_while_segments_retire(small: Broker, tmp_path: Path) -> None:
    """Every read is whole and continues the one before it, however much moved to the archive meanwhile."""
    with Web(small.http_url) as web, redis.Redis(port=small.resp_port) as client:
        writer = threading.Thread(target=_run_jobs, args=(client, "q", 1500))
        writer.start()
        position, seen = 1, []
        while writer.is_alive() or _archived(tmp_path) < 4:
            response = _get(web, from_=position, columns="position,ordinal,kind,seq")
            position = int(response.headers["esker-to"])
            seen += _whole(response.content).to_pylist()
        writer.join()
        end = _next(web)
        seen += _rows(web, from_=position, to=end, columns="position,ordinal,kind,seq")
        assert seen == _rows(web, to=end, columns="position,ordinal,kind,seq")
        made = [row["seq"] for row in seen if row["kind"] in ("Enqueued", "JobsEnqueued")]
        assert made == list(range(1, 1501))


def test_events_that_are_nowhere_are_data_loss(tmp_path: Path) -> None:
    short_lived = Broker(str(tmp_path / "data"), segment_size="16kb", checkpoint_interval_s="1")
    with short_lived as broker, Web(broker.http_url) as web:
        with redis.Redis(port=broker.resp_port) as client:
            _run_jobs(client, "q", 300)
        eventually(lambda: len(list((tmp_path / "data" / "journal").glob("*.segment"))) == 1)
        refused = _refused(web, 410, from_=1)
        assert refused.code == "data_loss"
        assert refused.detail is not None
        (gap,) = refused.detail["gaps"]
        assert gap["first"] == 1
        oldest = int(refused.detail["first"])
        assert gap["last"] == oldest - 1
        rows = _rows(web, from_=oldest)
        assert rows == _rows(web, from_=oldest)
        assert int(_get(web).headers["esker-from"]) >= oldest


def test_a_file_cut_in_half_cuts_the_stream_and_a_missing_one_is_data_loss(small: Broker, tmp_path: Path) -> None:
    with Web(small.http_url) as web, redis.Redis(port=small.resp_port) as client:
        _run_jobs(client, "q", 300)
        eventually(lambda: _archived(tmp_path) >= 3)
        files = sorted((tmp_path / "archive" / "events").rglob("*.parquet"), key=lambda path: path.name)
        files[1].write_bytes(files[1].read_bytes()[:-100])
        try:
            ended = _get(web).content.endswith(END)
        except httpx.RemoteProtocolError:
            ended = False
        assert not ended
        first, last = (int(part) for part in files[1].stem.split("-"))
        files[1].unlink()
        refused = _refused(web, 410, from_=1)
        assert refused.detail is not None
        assert refused.detail["gaps"] == [{"first": first, "last": last}]
        assert int(_get(web).headers["esker-from"]) == last + 1


# -- the worker


def _workers(of: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            if b"esker.node.eventworker" in words and parent == of:
                found.append(int(entry.name))
    return found


def test_a_worker_that_was_killed_is_started_again_and_ends_with_the_node(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node, Web(f"http://127.0.0.1:{node.http_port}") as web:
        web.put("a")
        web.write("a", *range(100))
        before = _rows(web, topics="a")
        assert len(before) > 100
        for _ in range(2):
            (pid,) = _workers(node.pid)
            os.kill(pid, signal.SIGKILL)
            assert _rows(web, topics="a") == before
            assert _workers(node.pid) != [pid]
        (pid,) = _workers(node.pid)
        assert node.stop() == 0
        assert not Path(f"/proc/{pid}").exists()


def test_a_killed_node_leaves_no_worker_behind_and_the_next_start_is_told(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data")
    for starts in (1, 2):
        with node, Web(f"http://127.0.0.1:{node.http_port}") as web:
            assert len(_rows(web, kinds="NodeStarted")) == starts
            (pid,) = _workers(node.pid)
            node.kill()
        eventually(lambda pid=pid: not Path(f"/proc/{pid}").exists())
