"""Writing: what a query writes is there once, in a log or a queue, however often it is run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from esker.spark import foreach_batch, write_batch
from tests.spark.lake import Lake

NUMBERS = "cast(to_json(named_struct('n', id)) as binary) as value"


def test_a_batch_becomes_records(lake: Lake) -> None:
    rows = lake.spark.range(0, 1000, numPartitions=3).selectExpr(NUMBERS, "concat('tag', id % 2) as tag")
    lake.write(rows, topic="sink-log", type="log")
    assert sorted(lake.values("sink-log")) == list(range(1000))
    found = lake.read(subscribe="sink-log").orderBy("offset").first()
    assert found is not None
    assert (found.tag, bytes(found.key)) == ("tag0", b"tag0")


def test_a_batch_becomes_jobs(lake: Lake) -> None:
    rows = lake.spark.range(200).selectExpr(
        NUMBERS, "cast(id as string) as key", "cast(200 - id as int) as priority", "'t' as tag",
        "cast(if(id < 10, 3600000, 0) as int) as delay_ms",
    )  # fmt: skip
    lake.write(rows, topic="sink-queue", type="queue")
    jobs = lake.read(subscribe="sink-queue", table="jobs")
    assert {row.state: row["count"] for row in jobs.groupBy("state").count().collect()} == {"ready": 190, "delayed": 10}
    first = jobs.orderBy("priority").first()
    assert first is not None
    assert (json.loads(bytes(first.value)), first.priority, first.key, first.tag) == ({"n": 199}, 1, "199", "t")
    narrow = lake.read("priority bigint", subscribe="sink-queue", table="jobs", priorityMax="5", states="ready")
    assert sorted(row.priority for row in narrow.collect()) == [1, 2, 3, 4, 5]


def test_a_queue_can_be_looked_at_again_and_again(lake: Lake) -> None:
    """The broker keeps few snapshots; the reader lets go of its older ones."""
    lake.write(lake.spark.range(3).selectExpr(NUMBERS), topic="sink-looked-at", type="queue")
    assert [lake.read("offset bigint", subscribe="sink-looked-at", table="jobs").count() for _ in range(10)] == [3] * 10


def test_text_and_headers_of_kafka_are_taken(lake: Lake) -> None:
    rows = lake.spark.sql(
        "select 'sink-text' as topic, 'plain' as value, cast('k' as binary) as key, "
        "array(named_struct('key', 'h', 'value', cast('x' as binary))) as headers"
    )
    lake.write(rows, valueFormat="text", type="log")
    (found,) = lake.read(subscribe="sink-text").collect()
    assert (bytes(found.value), found.tag, json.loads(found.meta)) == (b'"plain"', "k", {"h": "x"})


def test_the_same_load_and_batch_are_written_once(lake: Lake) -> None:
    rows = lake.spark.range(50).selectExpr(NUMBERS)
    for batch in (0, 0, 1, 0, 1):
        write_batch(rows, "sink-once", endpoint=lake.broker.url, load="import-1", batch=batch, options={"type": "log"})
    assert sorted(lake.values("sink-once")) == sorted([*range(50)] * 2)


def test_a_topic_is_made_with_the_config_of_the_options(lake: Lake) -> None:
    rows = lake.spark.range(5).selectExpr(NUMBERS)
    lake.write(rows, topic="sink-config", type="log", **{"topic.ttl_ms": "3600000", "topic.durability": "fsync"})
    config = lake.broker.ask("GET", "/v0/topics/sink-config")
    assert '"ttl_ms": 3600000' in json.dumps(config)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["id as number"], {}, "the column value is missing; there are number"),
        ([NUMBERS, "id as offset"], {}, "column offset: not known to the sink"),
        (["id as value"], {}, "column value: bigint; it is binary or string"),
        ([NUMBERS, "'x' as priority"], {}, "column priority: string"),
        ([NUMBERS, "1 as priority"], {"type": "log"}, "column priority: only the jobs of a queue have it"),
        ([NUMBERS], {"topic": ""}, "option topic"),
        ([NUMBERS], {"subscribe": "t"}, "option subscribe: it is for reading"),
        ([NUMBERS], {"create": "false", "topic": "never-made"}, "never-made"),
        (["cast(null as binary) as value"], {}, "column value: it is null in 1 rows"),
        (["'no json' as value"], {"type": "log"}, "no JSON"),
        ([NUMBERS], {"endpoint": "127.0.0.1:1", "retryTimeoutMs": "300"}, "option endpoint: no broker answers"),
    ],
)
def test_a_bad_write_ends_in_one_line_and_writes_nothing(
    lake: Lake, columns: list[str], options: dict[str, str], said: str
) -> None:
    rows = lake.spark.range(1).selectExpr(*columns)
    with pytest.raises(PySparkException, match=re.escape(said)):
        lake.write(rows, **{"topic": "sink-bad", **options})
    assert lake.broker.plan("sink-bad", "never-made")["missing"] == ["sink-bad", "never-made"]


def test_overwriting_is_refused_with_a_reason(lake: Lake) -> None:
    rows = lake.spark.range(1).selectExpr(NUMBERS)
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        rows.write.format("esker").options(endpoint=lake.broker.url, topic="sink-over").mode("overwrite").save()


# -- streams


def test_a_stream_goes_from_log_to_log_once(lake: Lake, tmp_path: Path) -> None:
    lake.broker.fill("flow-in", 1000)
    source = lake.stream(subscribe="flow-in", startingOffsets="earliest", maxOffsetsPerTrigger="300")
    assert lake.drain(source.select("value", "tag"), tmp_path / "c", topic="flow-out", type="log") == [
        300,
        300,
        300,
        100,
    ]
    assert lake.values("flow-out") == list(range(1000))
    lake.broker.fill("flow-in", 10, first=1000)
    assert lake.drain(source.select("value", "tag"), tmp_path / "c", topic="flow-out", type="log") == [10]
    assert lake.values("flow-out") == list(range(1010))


def test_a_batch_that_is_run_again_appears_once(lake: Lake, tmp_path: Path) -> None:
    """The checkpoint forgets that the last batch was done, as after a crash between publication and Spark's note."""
    lake.broker.fill("again-in", 400)
    source = lake.stream(subscribe="again-in", startingOffsets="earliest", maxOffsetsPerTrigger="200").select("value")
    lake.drain(source, tmp_path / "c", topic="again-out", type="log")
    commits = tmp_path / "c" / "commits"
    for name in ("1", ".1.crc"):
        (commits / name).unlink(missing_ok=True)
    lake.drain(source, tmp_path / "c", topic="again-out", type="log")
    assert lake.values("again-out") == list(range(400))
    lake.broker.fill("again-in", 5, first=400)
    lake.drain(source, tmp_path / "c", topic="again-out", type="log")
    assert lake.values("again-out") == list(range(405))


def test_a_task_whose_worker_dies_is_run_again_and_writes_once(lake: Lake, tmp_path: Path) -> None:
    marker = str(tmp_path / "died")

    def dying(batches: object) -> object:
        import os
        from pathlib import Path

        for batch in batches:  # type: ignore[attr-defined]
            yield batch
            if not Path(marker).exists():
                Path(marker).touch()
                os._exit(7)

    lake.broker.fill("dying-in", 100)
    source = lake.stream(subscribe="dying-in", startingOffsets="earliest").select("value")
    source = source.mapInArrow(dying, "value binary")  # type: ignore[arg-type]
    lake.drain(source, tmp_path / "c", topic="dying-out", type="log")
    assert Path(marker).exists()
    assert sorted(lake.values("dying-out")) == list(range(100))


def test_update_mode_writes_through_foreach_batch(lake: Lake, tmp_path: Path) -> None:
    lake.broker.fill("update-in", 30)
    totals = lake.stream(subscribe="update-in", startingOffsets="earliest").groupBy("tag").count()
    result = totals.select(f.to_json(f.struct("tag", "count")).alias("value"))
    write = foreach_batch("update-out", endpoint=lake.broker.url, options={"type": "log"})
    for _ in range(2):  # the second run repeats the only batch
        query = (
            result.writeStream.outputMode("update").foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(60)
        for name in ("0", ".0.crc"):
            (tmp_path / "c" / "commits" / name).unlink(missing_ok=True)
    rows = [json.loads(bytes(row.value)) for row in lake.read(subscribe="update-out").collect()]
    assert sorted((row["tag"], row["count"]) for row in rows) == [("t0", 10), ("t1", 10), ("t2", 10)]


def test_a_failed_query_leaves_nothing(lake: Lake, tmp_path: Path) -> None:
    lake.broker.fill("failing-in", 20)
    source = lake.stream(subscribe="failing-in", startingOffsets="earliest")
    broken = source.select(
        f.when(f.col("offset") < 15, f.col("value")).otherwise(f.raise_error(f.lit("oh"))).alias("value")
    )
    with pytest.raises(PySparkException, match="oh"):
        lake.drain(broken, tmp_path / "c", topic="failing-out", type="log")
    assert lake.broker.plan("failing-out")["missing"] == ["failing-out"]
