"""Progress of streams, told to the broker: how far a query is behind shows in its metrics and in `/v0/consumers`.

A report is a courtesy. It is sent at most once a second, is never tried twice, and never fails a query.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from esker.spark.client import client, name_in_path
from esker.spark.errors import EskerSparkError
from esker.spark.offsets import Progress
from esker.spark.options import Connection

INTERVAL_S: Final = 1.0

_log = logging.getLogger("esker.spark")


class Reporter:
    """Reports under the name of a consumer; without one, not at all."""

    def __init__(self, connection: Connection, consumer: str | None) -> None:
        self._connection = connection
        self._consumer = consumer
        self._reported_at = 0.0
        self._lost = 0  # offsets that were passed over since they are gone

    def lose(self, count: int) -> None:
        """Counts what is gone; the next report is not held back."""
        self._lost += count
        self._reported_at = 0.0

    def report(self, progress: Progress) -> None:
        if self._consumer is None or time.monotonic() - self._reported_at < INTERVAL_S:
            return
        self._reported_at = time.monotonic()
        post(self._connection, self._consumer, progress, 0, {"lost": self._lost})


def post(
    connection: Connection, consumer: str, progress: Progress, rows: int, info: Mapping[str, str | int | float]
) -> bool:
    """Whether the broker took it."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in progress.offsets.items():
        topics.setdefault(topic, {})[str(partition)] = max(0, offset)
    body = {"topics": topics, "rows": rows, "info": dict(info)}
    try:
        client(replace(connection, retry_ms=0)).ask("POST", f"/v0/consumers/{name_in_path(consumer)}", body=body)
    except EskerSparkError as error:
        _log.warning("the progress of %s was not reported: %s", consumer, error)
        return False
    return True
