"""A broker as a real process, Spark in front of it, and waiting with a bound."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import urllib3
from pyspark.sql import DataFrame, SparkSession

from tests.crash.process import NodeProcess

WAIT_S = 60.0
ARCHIVES_SOON = (
    "--set", "archive_hot_blocks=1", "--set", "archive_after_s=1", "--set", "checkpoint_interval_s=2",
)  # fmt: skip

T = TypeVar("T")


class Broker:
    """A node, and the few things tests do with it over HTTP."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.archive = folder / "archive"
        self.process = NodeProcess(folder / "data", "--archive", str(self.archive), *options)
        self._pool = urllib3.PoolManager(retries=False, timeout=WAIT_S)
        self.key: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.process.http_port}"

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        headers = {} if self.key is None else {"authorization": f"Bearer {self.key}"}
        response = self._pool.request(method, self.url + path, json=body, headers=headers)
        assert response.status < 300, response.data
        found: dict[str, Any] = json.loads(response.data)
        return found

    def write(self, topic: str, records: Sequence[Mapping[str, object]]) -> None:
        for start in range(0, len(records), 500):
            self.ask("POST", f"/v0/topics/{topic}", {"records": records[start : start + 500], "create": True})

    def fill(self, topic: str, count: int, first: int = 0) -> None:
        """Records {"n": 0} … with a tag, a node and a meta here and there."""
        self.write(
            topic,
            [
                {"data": {"n": n}, "tag": f"t{n % 3}", **({"node": "ann", "meta": {"k": "v", "n": n}} if n % 2 else {})}
                for n in range(first, first + count)
            ],
        )

    def plan(self, *topics: str) -> dict[str, Any]:
        return self.ask("POST", "/v0/bulk/plan", {"topics": list(topics)})

    def next(self, topic: str) -> int:
        found: int = self.plan(topic)["topics"][0]["partitions"][0]["next"]
        return found


class Lake:
    """The session with a broker in its options."""

    def __init__(self, spark: SparkSession, broker: Broker) -> None:
        self.spark = spark
        self.broker = broker

    def read(self, schema: str | None = None, **options: str) -> DataFrame:
        reader = self.spark.read.format("esker").options(**{"endpoint": self.broker.url, **options})
        return (reader if schema is None else reader.schema(schema)).load()

    def stream(self, **options: str) -> DataFrame:
        return self.spark.readStream.format("esker").options(endpoint=self.broker.url, **options).load()

    def write(self, df: DataFrame, **options: str) -> None:
        df.write.format("esker").options(**{"endpoint": self.broker.url, **options}).mode("append").save()

    def drain(self, df: DataFrame, checkpoint: Path, mode: str = "append", **options: str) -> list[int]:
        """Runs a stream into a topic until it has written what there is; the rows of each batch."""
        query = (
            df.writeStream.format("esker")
            .options(endpoint=self.broker.url, checkpointLocation=str(checkpoint), **options)
            .outputMode(mode)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(int(WAIT_S))
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    def values(self, topic: str) -> list[int]:
        """The numbers in a log of {"n": …}, in the order of their offsets."""
        rows = self.read(subscribe=topic).orderBy("offset").collect()
        return [json.loads(bytes(row.value))["n"] for row in rows]


def eventually(look: Callable[[], T], what: str) -> T:
    """The first true thing that `look` gives. The broker tells nobody when it is done, so it is asked."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what} did not happen in {WAIT_S} s"
        time.sleep(0.1)


def archived(broker: Broker, topic: str) -> list[Path]:
    """The files of a log, once there are some."""

    def look() -> list[Path]:
        files = broker.plan(topic)["topics"][0]["partitions"][0]["files"]
        return [broker.archive / file["path"] for file in files]

    return eventually(look, f"a file of {topic} in the archive")
