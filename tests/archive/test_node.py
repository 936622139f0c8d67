"""A real node with an archive: what its clients read, what lands in the archive, and what it needs to start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import duckdb
import httpx
import pyarrow.parquet as pq
import pytest
import redis
from websockets.sync.client import connect

from esker.archive.objects import ObjectArchive
from esker.testing.broker import Broker
from tests.fronts.http.streams.wire import Api, Events, eventually

Record = dict[str, object]


def _broker(tmp_path: Path, archive: str | None = None) -> Broker:
    where = str(tmp_path / "archive") if archive is None else archive
    return Broker(
        str(tmp_path / "data"), archive=where, archive_hot_blocks="1", archive_after_s="0", checkpoint_interval_s="1",
        segment_size="64kb",
    )  # fmt: skip


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with _broker(tmp_path) as running:
        yield running


def _write(broker: Broker, topic: str, count: int, start: int = 0) -> None:
    records = [
        {"data": {"n": n, "text": "ü" * (n % 5)}, "tag": f"t{n % 3}", "node": f"n{n % 2}", "meta": {"k": str(n)}}
        for n in range(start, start + count)
    ]
    answer = httpx.post(f"{broker.http_url}/v0/topics/{topic}", json={"records": records})
    assert answer.status_code in (200, 201), answer.text


def _diff_all(broker: Broker, topic: str, **fields: object) -> tuple[list[Record], int]:
    """All records, and how many files of the archive were read for them."""
    records: list[Record] = []
    cold = position = 0
    with httpx.Client(base_url=broker.http_url) as client:
        while True:
            body = {"from_seq": position, "limit": 300, "include_tags": True, **fields}
            answer = client.post(f"/v0/topics/{topic}/diff", json=body)
            assert answer.status_code == 200, answer.text
            found = answer.json()
            records += found["records"]
            cold += found["performance"].get("cold_segments_read", 0)
            position = found["next_from_seq"]
            if found["caught_up"]:
                return records, cold


def _files(tmp_path: Path, what: str = "records") -> list[Path]:
    folders = os.walk(tmp_path / "archive" / what)  # which, unlike rglob, minds no folder that goes meanwhile
    return sorted(Path(folder, name) for folder, _, names in folders for name in names if name.endswith(".parquet"))


def test_a_file_holds_exactly_what_diff_gives(tmp_path: Path, broker: Broker) -> None:
    _write(broker, "a", 1000)
    eventually(lambda: _files(tmp_path))
    (path,) = _files(tmp_path)
    records, cold = _diff_all(broker, "a")
    assert cold == 3
    assert [record["$seq"] for record in records] == list(range(1, 1001))
    wanted = [
        (r["$seq"], r["$ts"], r["$node"], r["$tag"], json.dumps(r["meta"]), json.dumps(r["data"]))
        for r in records[:768]
    ]
    rows = [
        (row["seq"], round(row["ts"].timestamp() * 1000), row["node"], row["tag"], *_spaced(row["meta"], row["data"]))
        for row in pq.ParquetFile(path).read().to_pylist()
    ]
    assert rows == wanted
    with duckdb.connect() as connection:
        query = f"select seq, epoch_ms(ts), node, tag, meta, data from '{path}'"
        by_duckdb = [(*row[:4], *_spaced(*row[4:])) for row in connection.execute(query).fetchall()]
    assert by_duckdb == wanted


def _spaced(*texts: str) -> list[str]:
    """JSON texts as Python would write them."""
    return [json.dumps(json.loads(text)) for text in texts]


def test_restarts_and_deletions_leave_readers_none_the_wiser(tmp_path: Path, broker: Broker) -> None:
    _write(broker, "a", 1000)
    eventually(lambda: _files(tmp_path))
    before, _ = _diff_all(broker, "a")
    broker.restart()
    after, cold = _diff_all(broker, "a")
    assert after == before
    assert cold
    answer = httpx.post(f"{broker.http_url}/v0/topics/a/delete", json={"match": ["tag", "Eq", "t1"]})
    assert answer.json()["deleted"] == sum(record["$tag"] == "t1" for record in before)
    left = [record for record in before if record["$tag"] != "t1"]
    assert _diff_all(broker, "a")[0] == left
    broker.restart()
    assert _diff_all(broker, "a", node="n1")[0] == [record for record in left if record["$node"] != "n1"]
    httpx.delete(f"{broker.http_url}/v0/topics/a")
    eventually(lambda: not _files(tmp_path))


def test_streams_read_through_the_archive(tmp_path: Path, broker: Broker) -> None:
    _write(broker, "a", 1000)
    eventually(lambda: _files(tmp_path))
    with Api(broker.http_port) as api:
        wid = api.watch({"a": {"from_seq": 10}})
        with Events(broker.http_port, f"/v0/watch/{wid}") as stream:
            assert stream.seqs(990) == list(range(11, 1001))
            assert stream.next().event == "caught-up"
            _write(broker, "a", 1, start=1000)
            assert stream.seqs(1) == [1001]
    with connect(f"ws://127.0.0.1:{broker.http_port}/v0/ws") as socket:
        socket.send(json.dumps({"op": "subscribe", "topic": "a", "from_seq": 500}))
        seqs: list[int] = []
        while len(seqs) < 501:
            message = json.loads(socket.recv(timeout=10))
            seqs += [record["$seq"] for record in message.get("records", [])]
        assert seqs == list(range(501, 1002))


def test_what_the_archive_did_is_among_the_facts_of_the_node(tmp_path: Path, broker: Broker) -> None:
    _write(broker, "a", 1000)
    with redis.Redis(port=broker.resp_port) as client:
        eventually(lambda: client.info()["records_moved"] == 768)
        assert client.info()["files_written"] == 1


def test_leftovers_of_a_crash_leave_when_the_node_starts(tmp_path: Path, broker: Broker) -> None:
    _write(broker, "a", 1000)
    eventually(lambda: _files(tmp_path))
    broker.stop()
    leftover = tmp_path / "archive/records/topic=b/epoch=9/p0-0000000000000001-0000000000000002.parquet"
    leftover.parent.mkdir(parents=True)
    leftover.write_bytes(b"half")
    broker.start()
    eventually(lambda: not leftover.exists())
    assert len(_diff_all(broker, "a")[0]) == 1000


def test_an_object_store_serves_as_well(tmp_path: Path) -> None:
    url = f"memory:///{uuid4().hex}"
    with _broker(tmp_path, url) as broker:
        _write(broker, "a", 600)
        eventually(lambda: list(ObjectArchive(url).names("records")))
        assert _diff_all(broker, "a")[1] > 0
        broker.restart()
        records, cold = _diff_all(broker, "a")
        assert len(records) == 600
        assert cold


def test_a_node_started_without_its_archive_says_so(tmp_path: Path) -> None:
    with _broker(tmp_path) as broker:
        _write(broker, "a", 1000)
        eventually(lambda: _files(tmp_path))
    with Broker(str(tmp_path / "data")) as broker:
        answer = httpx.post(f"{broker.http_url}/v0/topics/a/diff", json={"from_seq": 0})
        assert answer.status_code == 500
        assert "archive" in answer.json()["error"]["message"]
        assert httpx.post(f"{broker.http_url}/v0/topics/a/diff", json={"from_seq": 800}).status_code == 200


def test_the_history_of_a_node_goes_to_the_archive(tmp_path: Path, broker: Broker) -> None:
    for n in range(10):
        _write(broker, "a", 300, start=300 * n)
    eventually(lambda: _files(tmp_path, "events"))
    broker.stop()
    rows: list[dict[str, object]] = []
    for path in sorted(_files(tmp_path, "events"), key=lambda path: path.name):
        rows += pq.ParquetFile(path).read().to_pylist()
    appended = [row for row in rows if row["kind"] == "RecordsAppended"]
    assert [row["seq"] for row in appended] == list(range(1, len(appended) + 1))
    assert {row["topic"] for row in appended} == {"a"}


def test_a_node_without_an_archive_never_loads_pyarrow() -> None:
    code = (
        "import sys\n"
        "import esker.cli.main\n"
        "from esker.testing.broker import Broker\n"
        "with Broker():\n"
        "    pass\n"
        "print([name for name in ('pyarrow', 'obstore', 'numpy') if name in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert result.stdout == "[]\n", result.stderr
