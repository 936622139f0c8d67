"""One Spark session for all tests, and brokers as real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from esker.spark import session
from esker.spark.session import quiet_options
from tests.spark.lake import ARCHIVES_SOON, Broker, Lake


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    found = session(
        "tests",
        master="local[2,2]",
        config={
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": f"{quiet_options()} -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.minBatchesToRetain": "2",
        },
        warehouse=tmp_path_factory.mktemp("warehouse"),
    )
    found.sparkContext.setLogLevel("OFF")  # tests fail queries on purpose
    yield found
    found.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Shared: each test has topics of its own."""
    found = Broker(tmp_path_factory.mktemp("broker"), *ARCHIVES_SOON)
    with found.process:
        yield found


@pytest.fixture
def lake(spark: SparkSession, broker: Broker) -> Lake:
    return Lake(spark, broker)


@pytest.fixture
def another(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Starts brokers for one test."""
    started: list[Broker] = []

    def start(*options: str) -> Broker:
        found = Broker(tmp_path / f"broker-{len(started)}", *options)
        found.folder.mkdir()
        found.process.start()
        started.append(found)
        return found

    yield start
    for found in started:
        found.process.__exit__()
