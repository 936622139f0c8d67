"""A driver to be killed: moves a log into a queue by a stream, and the queue into a log by batches, each row once.

    python -m tests.spark.relay ENDPOINT FOLDER ROWS

It goes on where the last run was ended, prints a line for each step, and ends with 0 when everything has arrived. A
queue is a state and cannot be streamed; but its jobs have rising offsets, so ranges of them are the batches of the
second leg: noted before they are written, and written under their number.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from esker.spark import session, write_batch
from esker.spark.client import Client
from esker.spark.options import Choice, Connection
from esker.spark.plan import ask_plan
from esker.spark.session import quiet_options

SOURCE, QUEUE, TARGET = "relay-in", "relay-queue", "relay-out"
PATIENCE = {"retryTimeoutMs": "60000"}
STEPS = 8  # of the stream
BATCHES = 4  # of the second leg: each takes a snapshot of the queue, and a broker keeps few


def main(endpoint: str, folder: Path, rows: int) -> None:
    quick = {"spark.driver.extraJavaOptions": f"{quiet_options()} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
    spark = session("relay", config={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2", **quick})
    spark.sparkContext.setLogLevel("OFF")
    step = -(-rows // STEPS)
    _log_to_queue(spark, endpoint, folder, step)
    _queue_to_log(spark, endpoint, folder, step)
    spark.stop()


def _log_to_queue(spark: SparkSession, endpoint: str, folder: Path, step: int) -> None:
    options = {"endpoint": endpoint, **PATIENCE}
    source = spark.readStream.format("esker").options(**options, subscribe=SOURCE, startingOffsets="earliest")
    query = (
        source.option("maxOffsetsPerTrigger", str(step)).option("minPartitions", "2").load().select("value")
        .writeStream.format("esker").options(**options, topic=QUEUE, type="queue")
        .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    told = 0
    while not query.awaitTermination(1):
        if len(query.recentProgress) > told:
            told = len(query.recentProgress)
            _say(f"queue {told}")


def _queue_to_log(spark: SparkSession, endpoint: str, folder: Path, step: int) -> None:
    client = Client(Connection((endpoint,), retry_ms=60_000))
    end = ask_plan(client, Choice(names=(QUEUE,))).topics[0].partitions[0].next
    step = max(step, -(-(end - 1) // BATCHES))
    number, low = 0, 1
    while low < end:
        note = folder / f"range-{number}.json"
        if not note.exists():
            draft = note.with_suffix(".draft")
            draft.write_text(json.dumps([low, min(low + step, end)]))
            draft.replace(note)
        low, high = json.loads(note.read_text())
        if note.with_suffix(".done").exists():
            number, low = number + 1, high
            continue
        jobs = spark.read.format("esker").options(endpoint=endpoint, **PATIENCE, subscribe=QUEUE, table="jobs")
        rows = jobs.schema("offset bigint, value binary").load().where(f"offset >= {low} and offset < {high}")
        options = {"type": "log", "topic.durability": "fsync", **PATIENCE}
        write_batch(rows.select("value"), TARGET, endpoint=endpoint, load="relay", batch=number, options=options)
        note.with_suffix(".done").touch()
        _say(f"log {number}")
        number, low = number + 1, high


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
