"""Files that the broker hands over to tasks on its machine, and what happens where it cannot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from esker.node import ranges
from esker.node import spool as spool_module
from esker.spark import handed, jobs, records
from esker.spark.client import Client, client
from esker.spark.errors import DataLoss, EskerSparkError, Refused
from esker.spark.options import Connection, read_options
from esker.spark.plan import Slice, ask_plan, slices
from esker.testing.broker import Broker

RECORDS = 1000
COLUMNS = ("offset", "timestamp", "value", "tag", "node", "meta")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with pytest.MonkeyPatch.context() as patched, Broker() as broker:
        patched.setattr(ranges, "CHUNK_ROWS", 64)
        with httpx.Client(base_url=broker.http_url) as http:
            http.put("/v0/topics/queue", json={"type": "queue"}).raise_for_status()
            rows = [{"data": n, "tag": f"t{n % 7}"} for n in range(RECORDS)]
            for topic in ("log", "queue"):
                http.post(f"/v0/topics/{topic}", json={"records": rows}).raise_for_status()
        yield broker


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of streams that are asked for."""
    asked: list[str] = []
    stream = Client.stream

    def watched(self: Client, path: str, query: object = None) -> object:
        asked.append(path)
        return stream(self, path, query)  # type: ignore[arg-type]

    monkeypatch.setattr(Client, "stream", watched)
    return asked


def _options(broker: Broker, topic: str, **more: str) -> dict[str, str]:
    return {"endpoint": broker.http_url, "subscribe": topic, **more}


def _offsets(broker: Broker, **more: str) -> list[int]:
    options = read_options(_options(broker, "log", **more), False)
    found = [batch for part in _slices(broker) for batch in records.read_records(part, COLUMNS, options)]
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


def _slices(broker: Broker) -> list[Slice]:
    options = read_options(_options(broker, "log", minPartitions="3"), False)
    plan = ask_plan(client(options.connection), options.choice)
    parts = plan.partitions(options.choice)
    return slices(plan, parts, {spot: (part.earliest, part.next) for spot, part in parts.items()}, options)


def _values(broker: Broker, **more: str) -> list[bytes]:
    options = read_options(_options(broker, "queue", table="jobs", **more), False)
    reading = client(options.connection)
    plan = ask_plan(reading, options.choice, files=False)
    parts = jobs.snapshots(reading, plan, ["queue"], ["value"], options)
    return [
        value
        for part in parts
        for batch in jobs.read_jobs(part, options)
        for value in batch.column("value").to_pylist()
    ]


def test_on_the_brokers_machine_nothing_is_streamed(broker: Broker, streamed: list[str]) -> None:
    assert _offsets(broker) == list(range(1, RECORDS + 1))
    assert sorted(map(json.loads, _values(broker))) == list(range(RECORDS))
    assert streamed == []


def test_who_wants_no_files_gets_the_same_by_streams(broker: Broker, streamed: list[str]) -> None:
    assert _offsets(broker, direct="false") == _offsets(broker)
    assert _values(broker, direct="false") == _values(broker)
    assert set(streamed) == {path for path in streamed if path.endswith("/records") or "/snapshots/" in path}


def test_a_spool_that_is_out_of_reach_is_not_asked_for(
    broker: Broker, streamed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on another machine: the folder is not there."""
    monkeypatch.setattr("os.access", lambda *_: False)
    assert _offsets(broker) == list(range(1, RECORDS + 1))
    assert streamed


def test_a_file_that_is_gone_when_it_is_opened_is_streamed(
    broker: Broker, streamed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = handed.ask_file

    def removed(*asked: object) -> dict[str, object]:
        answer = ask(*asked)  # type: ignore[arg-type]
        if len(streamed) % 2 == 0:
            Path(str(answer["path"])).unlink()
        return answer

    monkeypatch.setattr(records, "ask_file", removed)
    assert _offsets(broker) == list(range(1, RECORDS + 1))
    assert streamed
    monkeypatch.setattr(records, "ask_file", ask)
    streamed.clear()
    assert _offsets(broker) == list(range(1, RECORDS + 1))
    assert streamed == [], "the node makes it anew"


def test_a_full_disk_makes_it_a_stream(broker: Broker, streamed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "FREE_BYTES_MIN", 1 << 60)
    assert len(_offsets(broker, tagPrefix="t3")) == len(range(3, RECORDS, 7))
    assert streamed


def test_an_older_broker_streams() -> None:
    class Older(Client):
        def ask(self, *_: object, **__: object) -> object:  # type: ignore[override]
            raise Refused("no such path", 404, "not_found")

    with pytest.raises(handed.NotHanded):
        handed.ask_file(Older(Connection()), "/v0/topics/t/records/file")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    damaged = tmp_path / "1.arrow"
    damaged.write_bytes(b"\xff\xff\xff\xff\x10\x00\x00\x00 not arrow")
    with pytest.raises(EskerSparkError, match=r"1\.arrow"):
        list(handed.batches_in(damaged))


def test_records_that_went_since_the_plan_are_told(broker: Broker) -> None:
    with httpx.Client(base_url=broker.http_url) as http:
        http.put("/v0/topics/short", json={"cap_records": 5}).raise_for_status()
        http.post("/v0/topics/short", json={"records": [{"data": n} for n in range(20)]}).raise_for_status()
    options = read_options(_options(broker, "short"), False)
    plan = ask_plan(client(options.connection), options.choice)
    part = Slice("short", 0, plan.topics[0].epoch, 1, 21, 1, (), None, plan.node, plan.spool)
    with pytest.raises(DataLoss):
        list(records.read_records(part, COLUMNS, options))
    lenient = read_options(_options(broker, "short", failOnDataLoss="false"), False)
    (batch,) = records.read_records(part, COLUMNS, lenient)
    assert batch.column("offset").to_pylist() == [16, 17, 18, 19, 20]
