"""Tells the broker how far the streaming queries of a session are behind.

    spark.streams.addListener(LagListener("http://127.0.0.1:4000"))

What it tells shows in `GET /v0/consumers` and in the metrics, under the name of the query, or its id.
"""

from __future__ import annotations

import json
import re

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from esker.spark.consumers import post
from esker.spark.offsets import EPOCHS, Progress
from esker.spark.options import DEFAULT_ENDPOINT, Connection, parse_endpoints


class LagListener(StreamingQueryListener):
    """Runs on the driver, beside the queries: a broker that does not answer costs a warning and nothing else."""

    def __init__(self, endpoint: str = DEFAULT_ENDPOINT, api_key: str | None = None) -> None:
        self._connection = Connection(parse_endpoints(endpoint), api_key, retry_ms=0)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        reached = reached_by([source.endOffset for source in progress.sources])
        if reached is not None:
            info = {"batch": progress.batchId, "rows_per_second": round(progress.processedRowsPerSecond or 0.0, 1)}
            name = consumer_name(progress.name, str(progress.id))
            post(self._connection, name, reached, progress.numInputRows, info)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """It has read all there was, which its last progress told."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The broker forgets a consumer that is silent."""


def reached_by(offsets: list[str]) -> Progress | None:
    """How far sources have got, all together; None where none of them is a stream of our records."""
    found: dict[tuple[str, int], int] = {}
    epochs: dict[str, int] = {}
    for text in offsets:
        try:
            told = json.loads(text)
            if isinstance(told, dict) and EPOCHS in told:
                progress = Progress.from_json(told)
                found.update(progress.offsets)
                epochs.update(progress.epochs)
        except (ValueError, TypeError, AttributeError):
            continue  # the offset of another source, in a form of its own
    return Progress(found, epochs) if found else None


def consumer_name(name: str | None, query: str) -> str:
    """A name that the broker takes."""
    return re.sub(r"[^A-Za-z0-9._:-]", "-", name or query).lstrip("._:-")[:128] or query
