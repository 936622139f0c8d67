"""Logs as tables: what is read is what was written, from the broker and from its archive."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from esker.spark import read
from esker.spark.errors import EskerSparkError
from tests.spark.lake import ARCHIVES_SOON, Broker, Lake, archived


def test_records_come_back_as_they_were_written(lake: Lake) -> None:
    lake.broker.fill("written", 5)
    rows = lake.read(subscribe="written", includeHeaders="true").orderBy("offset").collect()
    assert [(row.offset, json.loads(bytes(row.value))) for row in rows] == [(n + 1, {"n": n}) for n in range(5)]
    assert [(row.topic, row.partition, row.timestampType) for row in rows] == [("written", 0, 1)] * 5
    assert [(bytes(row.key), row.tag, row.node) for row in rows[:2]] == [(b"t0", "t0", None), (b"t1", "t1", "ann")]
    assert rows[0].headers is None
    assert [(one.key, bytes(one.value)) for one in rows[1].headers] == [("k", b"v"), ("n", b"1")]
    assert (rows[0].meta, json.loads(rows[1].meta)) == (None, {"k": "v", "n": 1})


def test_a_schema_prunes_in_any_order(lake: Lake) -> None:
    lake.broker.fill("pruned", 3)
    found = lake.read("topic string, offset bigint, value binary", subscribe="pruned")
    assert found.columns == ["topic", "offset", "value"]
    assert sorted((row.topic, row.offset, bytes(row.value)) for row in found.collect()) == [
        ("pruned", n + 1, b'{"n":%d}' % n) for n in range(3)
    ]


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        ("value string", {}, "column value: the schema says string, it is binary"),
        ("value binary, size int", {}, "column size: the table records has no such column"),
        ("tag string not null", {}, "column tag: the schema says NOT NULL"),
        ("headers array<struct<key:string,value:binary>>", {}, "includeHeaders"),
        (None, {"subscribe": "nowhere"}, "option subscribe: no topic 'nowhere'"),
        (None, {"startingOffsets": '{"wrong":{"0":99}}'}, "lies behind its end 4"),
        (None, {"startingOffsets": '{"wrong":{"0":1},"$epochs":{"wrong":999999}}'}, "deleted and made again"),
        (None, {"startingTimestamp": "4000000000000"}, "startingOffsetsByTimestampStrategy=latest"),
        (None, {"subscrib": "x"}, "did you mean subscribe"),
        (None, {"endpoint": "127.0.0.1:1", "retryTimeoutMs": "300"}, "option endpoint: no broker answers at http"),
    ],
)
def test_a_bad_read_ends_in_one_line_that_names_the_option(
    lake: Lake, schema: str | None, options: dict[str, str], said: str
) -> None:
    if lake.broker.plan("wrong")["missing"]:
        lake.broker.fill("wrong", 3)
    with pytest.raises(PySparkException, match=re.escape(said)):
        lake.read(schema, **{"subscribe": "wrong", **options}).collect()


def test_ranges_by_offset_and_by_time(lake: Lake) -> None:
    lake.broker.fill("ranged", 10)
    now_ms = lake.broker.plan("ranged")["now_ms"]
    options = {"subscribe": "ranged", "startingOffsets": '{"ranged":{"0":3}}', "endingOffsets": '{"ranged":{"0":6}}'}
    assert sorted(row.offset for row in lake.read(**options).collect()) == [3, 4, 5]
    assert lake.read(subscribe="ranged", startingTimestamp="0", endingTimestamp=str(now_ms + 60_000)).count() == 10
    by_time = json.dumps({"ranged": {"0": now_ms + 60_000}})
    assert lake.read(subscribe="ranged", startingOffsetsByTimestamp=by_time,
                     startingOffsetsByTimestampStrategy="latest").count() == 0  # fmt: skip
    assert lake.read(subscribe="ranged", tagPrefix="t1", until=str(now_ms + 60_000)).count() == 3
    assert lake.read(subscribe="ranged", since=str(now_ms + 60_000)).count() == 0


def test_partitions_follow_the_options(lake: Lake) -> None:
    lake.broker.fill("split", 40)
    assert lake.read(subscribe="split").rdd.getNumPartitions() == 1
    wide = lake.read(subscribe="split", minPartitions="4")
    assert wide.rdd.getNumPartitions() == 4
    assert lake.read(subscribe="split", maxRecordsPerPartition="15").rdd.getNumPartitions() == 3
    assert sorted(row.offset for row in wide.select("offset").collect()) == list(range(1, 41))


def test_several_topics_by_pattern_and_by_partition(lake: Lake) -> None:
    for name in ("many-a", "many-b", "much"):
        lake.broker.fill(name, 2)
    assert {row.topic for row in lake.read(subscribePattern="many-.*").collect()} == {"many-a", "many-b"}
    assert lake.read(assign='{"much":[0]}').count() == 2
    with pytest.raises(PySparkException, match="option assign: topic 'much' has no partition 7"):
        lake.read(assign='{"much":[7]}').count()


def test_an_empty_log_is_an_empty_table(lake: Lake) -> None:
    lake.broker.ask("PUT", "/v0/topics/empty", {"type": "log"})
    assert lake.read(subscribe="empty").collect() == []


def test_a_queue_is_refused_with_where_its_jobs_are(lake: Lake) -> None:
    lake.broker.ask("PUT", "/v0/topics/a-queue", {"type": "queue"})
    with pytest.raises(PySparkException, match=r'its jobs are .option."table", "jobs"'):
        lake.read(subscribe="a-queue").collect()


def test_a_catalog_table_works_without_registration(lake: Lake) -> None:
    lake.broker.fill("by-sql", 3)
    lake.spark.sql(
        f"create or replace temporary view by_sql using esker options "
        f"(endpoint '{lake.broker.url}', subscribe 'by-sql')"
    )
    assert lake.spark.sql("select max(offset) as top from by_sql").collect()[0].top == 3


def test_an_unknown_key_is_told_and_not_shown(lake: Lake, another: Callable[..., Broker]) -> None:
    broker = another("--set", "api_keys=right:read+write+admin")
    broker.key = "right"
    broker.fill("private", 3)
    own = Lake(lake.spark, broker)
    assert own.read(subscribe="private", apiKey="right").count() == 3
    with pytest.raises(PySparkException, match=r"option apiKey: .* does not know the key") as refused:
        own.read(subscribe="private", apiKey="wrong-secret").count()
    assert "wrong-secret" not in str(refused.value)


def test_records_that_are_gone_fail_the_query_or_are_passed_over(lake: Lake) -> None:
    lake.broker.ask("PUT", "/v0/topics/capped", {"type": "log", "cap_records": 300})
    lake.broker.fill("capped", 2000)
    earliest = lake.broker.plan("capped")["topics"][0]["partitions"][0]["earliest"]
    assert earliest > 1
    start = {"subscribe": "capped", "startingOffsets": '{"capped":{"0":1}}'}
    with pytest.raises(PySparkException, match="records of topic 'capped', partition 0 are gone: offsets 1 to"):
        lake.read(**start).count()
    assert lake.read(**start, failOnDataLoss="false").count() == 2001 - earliest
    assert lake.read(subscribe="capped").count() == 2001 - earliest


# -- the archive


def test_the_archive_and_the_broker_give_the_same_table(lake: Lake) -> None:
    lake.broker.fill("aged", 3000)
    files = archived(lake.broker, "aged")
    lake.broker.ask("POST", "/v0/topics/aged/delete", {"match": "t2"})
    told = sorted(lake.read(subscribe="aged", direct="false").collect(), key=lambda row: row.offset)
    assert [row.offset for row in told] == [n + 1 for n in range(3000) if n % 3 != 2]
    assert sorted(lake.read(subscribe="aged", direct="true").collect(), key=lambda row: row.offset) == told
    assert sorted(read(lake.spark, "aged", endpoint=lake.broker.url).collect(), key=lambda row: row.offset) == told
    slim = read(lake.spark, "aged", endpoint=lake.broker.url, columns=["offset"])
    assert [row.offset for row in slim.orderBy("offset").collect()] == [row.offset for row in told]
    narrow = {"subscribe": "aged", "startingOffsets": '{"aged":{"0":100}}', "endingOffsets": '{"aged":{"0":200}}'}
    assert lake.read(**narrow, direct="true", tagPrefix="t1").count() == 33
    assert files[0].is_file()


def test_a_file_that_is_cut_in_half_is_named(lake: Lake, another: Callable[..., Broker]) -> None:
    broker = another(*ARCHIVES_SOON)
    broker.fill("torn", 3000)
    file = archived(broker, "torn")[0]
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    own = Lake(lake.spark, broker)
    with pytest.raises(PySparkException, match=f"file .*{file.name} of the archive: it is damaged"):
        own.read(subscribe="torn", direct="true").count()


def test_another_archive_under_the_same_path_is_not_read(lake: Lake, another: Callable[..., Broker]) -> None:
    broker = another(*ARCHIVES_SOON)
    broker.fill("moved", 3000)
    archived(broker, "moved")
    owner: Path = broker.archive / "archive.json"
    mine = owner.read_text()
    owner.write_text(json.dumps({"format": 1, "node": "somebody else"}))
    own = Lake(lake.spark, broker)
    assert own.read(subscribe="moved").count() == 3000, "through the broker"
    with pytest.raises(PySparkException, match=r"option direct: .* belongs to another broker"):
        own.read(subscribe="moved", direct="true").count()
    owner.write_text(mine)


def test_reading_by_the_helper_tells_what_is_wrong(lake: Lake) -> None:
    with pytest.raises(EskerSparkError, match="no topic 'absent'"):
        read(lake.spark, "absent", endpoint=lake.broker.url)
    with pytest.raises(EskerSparkError, match="columns: no column size"):
        read(lake.spark, "absent", endpoint=lake.broker.url, columns=["size"])
    with pytest.raises(EskerSparkError, match=r"option tagPrefix: read takes .*narrow with a filter"):
        read(lake.spark, "absent", endpoint=lake.broker.url, options={"tagPrefix": "x"})
