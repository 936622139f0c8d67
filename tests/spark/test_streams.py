"""Streams of records and events: where they start, how far they go at a time, and what stops them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.streaming.query import StreamingQuery

from esker.spark import LagListener, stream
from esker.spark.client import Client
from esker.spark.listener import consumer_name, reached_by
from esker.spark.options import Choice, read_options
from esker.spark.plan import Plan, Slice, ask_plan
from esker.spark.schemas import RECORDS
from esker.spark.stream import RecordsStreamReader
from tests.spark.lake import ARCHIVES_SOON, Broker, Lake, eventually


def _collect(lake: Lake, name: str, checkpoint: Path, **options: str) -> StreamingQuery:
    query = (
        lake.stream(**options)
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    return query


def test_several_topics_share_the_limit_and_progress_names_them(lake: Lake, tmp_path: Path) -> None:
    lake.broker.fill("share-a", 90)
    lake.broker.fill("share-b", 10)
    query = _collect(
        lake,
        "shared",
        tmp_path / "c",
        subscribe="share-a,share-b",
        startingOffsets="earliest",
        maxOffsetsPerTrigger="50",
    )
    first, second = (progress.sources[0] for progress in query.recentProgress)
    assert (first.numInputRows, second.numInputRows) == (50, 50)
    offset = json.loads(first.endOffset)
    assert (offset["share-a"], offset["share-b"]) == ({"0": 46}, {"0": 6})
    assert json.loads(second.latestOffset)["share-a"] == {"0": 91}
    assert lake.spark.table("shared").count() == 100


def test_a_stream_starts_at_the_end_unless_told(lake: Lake, tmp_path: Path) -> None:
    lake.broker.fill("tail", 10)
    _collect(lake, "tail_1", tmp_path / "c", subscribe="tail")
    assert lake.spark.table("tail_1").count() == 0
    lake.broker.fill("tail", 3, first=10)
    _collect(lake, "tail_2", tmp_path / "d", subscribe="tail", startingOffsets='{"tail":{"0":12}}')
    assert sorted(row.offset for row in lake.spark.table("tail_2").collect()) == [12, 13]


def test_a_topic_that_is_made_again_stops_the_stream(lake: Lake, tmp_path: Path) -> None:
    lake.broker.fill("reborn", 10)
    options = {"subscribe": "reborn", "startingOffsets": "earliest"}
    _drain(lake, tmp_path, "reborn-out", **options)
    lake.broker.ask("DELETE", "/v0/topics/reborn")
    lake.broker.fill("reborn", 20)
    with pytest.raises(PySparkException, match="topic 'reborn' was deleted and made again"):
        _drain(lake, tmp_path, "reborn-out", **options)
    assert lake.broker.next("reborn-out") == 11


def test_lost_records_stop_the_stream_or_are_passed_over(lake: Lake, tmp_path: Path) -> None:
    lake.broker.ask("PUT", "/v0/topics/leaky", {"type": "log", "cap_records": 300})
    lake.broker.fill("leaky", 100)
    options = {"subscribe": "leaky", "startingOffsets": "earliest"}
    _drain(lake, tmp_path, "leaky-out", **options)
    lake.broker.fill("leaky", 2000, first=100)
    earliest = lake.broker.plan("leaky")["topics"][0]["partitions"][0]["earliest"]
    assert earliest > 101
    with pytest.raises(PySparkException, match="records of topic 'leaky', partition 0 are gone: offsets 1"):
        _drain(lake, tmp_path, "leaky-out", **options)
    _drain(lake, tmp_path, "leaky-out", **options, failOnDataLoss="false", consumer="leaky-reader")
    assert lake.values("leaky-out") == [*range(100), *range(earliest - 1, 2100)]
    told = {one["consumer"]: one["info"] for one in lake.broker.ask("GET", "/v0/consumers")["consumers"]}
    assert told["leaky-reader"] == {"lost": earliest - 101}


def test_a_new_topic_of_the_pattern_comes_along_from_its_start(lake: Lake, tmp_path: Path) -> None:
    lake.broker.fill("grow-1", 5)
    options = {"subscribePattern": "grow-[0-9]", "startingOffsets": "latest"}
    _drain(lake, tmp_path, "growth", **options)
    lake.broker.fill("grow-2", 5, first=100)
    lake.broker.fill("grow-1", 5, first=5)
    _drain(lake, tmp_path, "growth", **options)
    assert sorted(lake.values("growth")) == [*range(5, 10), *range(100, 105)]


def test_a_query_survives_a_restart_of_the_broker(lake: Lake, another: Callable[..., Broker], tmp_path: Path) -> None:
    """The ports change with the restart, so the second endpoint of the list is where it is found again."""
    broker = another()
    broker.ask("PUT", "/v0/topics/moving", {"type": "log", "durability": "fsync"})
    broker.fill("moving", 50)
    own = Lake(lake.spark, broker)
    _drain(own, tmp_path, "moved-to", subscribe="moving", startingOffsets="earliest")
    gone = broker.url
    broker.process.kill()
    broker.process.start()
    broker.fill("moving", 50, first=50)
    both = f"{gone},{broker.url}"
    query = (
        own.spark.readStream.format("esker").options(endpoint=both, subscribe="moving").load().select("value")
        .writeStream.format("esker").options(endpoint=both, topic="moved-to", type="log")
        .option("checkpointLocation", str(tmp_path / "moved-to")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(60)
    assert own.values("moved-to") == list(range(100))


def test_the_broker_knows_how_far_queries_are_behind(lake: Lake, tmp_path: Path) -> None:
    lake.broker.fill("lagging", 10)
    listener = LagListener(lake.broker.url)
    lake.spark.streams.addListener(listener)
    try:
        _collect(
            lake, "lag_query", tmp_path / "c", subscribe="lagging", startingOffsets="earliest", consumer="reader-1"
        )
        lake.broker.fill("lagging", 5, first=10)

        def lags() -> dict[str, int]:
            told = lake.broker.ask("GET", "/v0/consumers")["consumers"]
            return {one["consumer"]: one["partitions"][0]["lag"] for one in told if one["partitions"]}

        eventually(lambda: lags().get("lag_query") == 5, "the report of the listener")
        assert "reader-1" in lags()
    finally:
        lake.spark.streams.removeListener(listener)


def test_what_a_listener_takes_from_other_sources_is_nothing() -> None:
    assert reached_by(["7", "null", '{"t":{"0":1}}', "no json", '{"$events":{"0":5}}', '{"$epochs":3}']) is None
    found = reached_by(['{"t":{"0":7},"$epochs":{"t":1}}', '{"u":{"0":2},"$epochs":{"u":1}}'])
    assert found is not None
    assert found.offsets == {("t", 0): 7, ("u", 0): 2}
    assert consumer_name("my query/1", "id") == "my-query-1"
    assert consumer_name(None, "id") == consumer_name("…", "id") == "id"


# -- the history


def test_events_are_a_table_and_a_stream(lake: Lake, tmp_path: Path) -> None:
    lake.broker.ask("PUT", "/v0/topics/told-queue", {"type": "queue"})
    lake.write(
        lake.spark.range(20).selectExpr("cast(id as string) as value", "cast(id as int) as priority"),
        topic="told-queue",
        type="queue",
    )
    jobs = lake.broker.ask("POST", "/v0/topics/told-queue/claim", {"node": "ann", "max": 5})
    assert jobs
    table = lake.read(table="events", subscribe="told-queue")
    kinds = {row.kind: row["count"] for row in table.groupBy("kind").count().collect()}
    assert kinds["JobLeased"] == 5
    rows = lake.read("position bigint, ordinal bigint", table="events").collect()
    assert len(set(rows)) == len(rows), "a row for each place"
    assert lake.read(table="events", kinds="JobLeased", subscribePattern="told-.*").count() == 5
    third = str(lake.broker.ask("POST", "/v0/bulk/plan", {"topics": [], "events": True})["events"]["next"] // 3)
    options = {"table": "events", "subscribe": "told-queue", "startingOffsets": "earliest"}
    query = _collect(lake, "told", tmp_path / "c", **options, maxOffsetsPerTrigger=third)
    assert len(query.recentProgress) > 1
    streamed = lake.spark.table("told").groupBy("kind").count().collect()
    assert {row.kind: row["count"] for row in streamed} == kinds


def test_a_stream_asks_for_files_only_where_it_reads_them(
    another: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = another(*ARCHIVES_SOON, "--set", "archive_after_s=0", "--set", "checkpoint_interval_s=1")
    broker.fill("t", 3000)
    eventually(lambda: broker.plan("t")["topics"][0]["partitions"][0]["files"], "a file in the archive")
    told = {"endpoint": broker.url, "subscribe": "t", "startingoffsets": "earliest"}
    asked: list[bool] = []

    def ask(
        broker: Client, choice: Choice, times: Sequence[int] = (), *, lenient: bool = False, files: bool = True
    ) -> Plan:
        asked.append(files)
        return ask_plan(broker, choice, times, lenient=lenient, files=files)

    monkeypatch.setattr(stream, "ask_plan", ask)
    reader = RecordsStreamReader(read_options(told, streaming=True), RECORDS)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert asked == [False, False]
    cold = reader.partitions(start, end)
    assert asked == [False, False, True]
    assert any(part.files for part in cold if isinstance(part, Slice))
    broker.fill("t", 10)
    newer = reader.latestOffset(end, ReadAllAvailable())
    hot = reader.partitions(end, newer)
    assert asked == [False, False, True, False]
    assert [(part.start, part.end, part.files) for part in hot if isinstance(part, Slice)] == [(3001, 3011, ())]


def test_old_events_come_from_the_archive_and_from_the_broker_alike(lake: Lake, another: Callable[..., Broker]) -> None:
    broker = another(*ARCHIVES_SOON, "--set", "segment_size=64kb")
    own = Lake(lake.spark, broker)

    def files() -> list[object]:
        broker.fill("busy", 500)
        found: list[object] = broker.ask("POST", "/v0/bulk/plan", {"topics": [], "events": True})["events"]["files"]
        return found

    eventually(files, "a file of events in the archive")
    end = broker.ask("POST", "/v0/bulk/plan", {"topics": [], "events": True})["events"]["next"]
    options = {"table": "events", "endingOffsets": json.dumps({"$events": {"0": end}})}
    by_broker = sorted(own.read(**options, direct="false").collect())
    assert sorted(own.read(**options, direct="true").collect()) == by_broker
    assert len(by_broker) > 500
    narrow = own.read("kind string", **options, direct="true", kinds="TopicCreated", subscribe="busy").collect()
    assert [row.kind for row in narrow] == ["TopicCreated"]


def test_dead_letters_tell_where_they_came_from(lake: Lake) -> None:
    for queue, grave, kind in (("dl-one", "dl-log", "log"), ("dl-two", "dl-queue", "queue")):
        lake.broker.ask("PUT", f"/v0/topics/{grave}", {"type": kind})
        lake.broker.ask(
            "PUT", f"/v0/topics/{queue}", {"type": "queue", "max_deliveries": 1, "dead_letter": grave, "lease_ms": 1000}
        )
        value = "cast(to_json(named_struct('n', id)) as binary) as value"
        lake.write(lake.spark.range(3).selectExpr(value, "cast(7 as int) as priority", "'t' as tag"), topic=queue)
        claimed = lake.broker.ask("POST", f"/v0/topics/{queue}/claim", {"node": "ann", "max": 3})["claimed"]
        lake.broker.ask("POST", f"/v0/topics/{queue}/nack", {"node": "ann", "seqs": [job["$seq"] for job in claimed]})
        lake.broker.ask("POST", f"/v0/topics/{queue}/claim", {"node": "ann", "max": 3})
        eventually(partial(_holds, lake.broker, grave, 3), f"three letters in {grave}")
    rows = lake.read(table="deadletters", subscribe="dl-log,dl-queue").collect()
    assert sorted((row.topic, row.source_topic, row.source_seq) for row in rows) == [
        *(("dl-log", "dl-one", seq) for seq in (1, 2, 3)), *(("dl-queue", "dl-two", seq) for seq in (1, 2, 3)),
    ]  # fmt: skip
    assert {(row.reason, row.attempts, row.priority, row.tag) for row in rows} == {("max_deliveries", 1, 7, "t")}
    assert all(row.died is not None and row.source_id for row in rows)
    slim = lake.read("source_seq bigint, value binary", table="deadletters", subscribe="dl-log").collect()
    assert sorted((row.source_seq, json.loads(bytes(row.value))["n"]) for row in slim) == [(1, 0), (2, 1), (3, 2)]


def _holds(broker: Broker, topic: str, records: int) -> bool:
    found: int = broker.plan(topic)["topics"][0]["partitions"][0]["records"]
    return found == records


def _drain(lake: Lake, folder: Path, topic: str, **options: str) -> None:
    durable = {"topic.durability": "fsync"}  # else a broker that was killed tells of records that it may have lost
    lake.drain(lake.stream(**options).select("value"), folder / topic, topic=topic, type="log", **durable)
