"""Writing from Python in one call, and from `foreachBatch`, which is how a query in update mode writes.

write_batch(df, "orders", endpoint=url, load="import-2026", batch=7)      run twice, written once

query = df.writeStream.outputMode("update").foreachBatch(foreach_batch("totals", endpoint=url)).start()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

from esker.spark.errors import EskerSparkError
from esker.spark.options import DEFAULT_ENDPOINT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY_ID = "sql.streaming.queryId"
_NO_QUERY_ID = (
    "foreach_batch: Spark does not say the id of the query (Spark Connect never does), and without it a batch that is "
    "run again is not known; give load=…, a name that stays the same as long as the checkpoint does"
)


def write_batch(
    df: DataFrame,
    topic: str | None,
    *,
    endpoint: str = DEFAULT_ENDPOINT,
    api_key: str | None = None,
    load: str | None = None,
    batch: int | None = None,
    options: Mapping[str, str] | None = None,
) -> None:
    """Writes all rows, or none. `topic` None: the rows have a column. The same `load` and `batch` are written once, so
    numbers must rise; without them every call writes. Returns when the rows can be read."""
    given = {"endpoint": endpoint, **(options or {})}
    for name, value in (("topic", topic), ("apiKey", api_key), ("loadId", load), ("batchId", batch)):
        if value is not None:
            given[name] = str(value)
    df.write.format("esker").options(**given).mode("append").save()


def foreach_batch(
    topic: str | None,
    *,
    endpoint: str = DEFAULT_ENDPOINT,
    api_key: str | None = None,
    load: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Callable[[DataFrame, int], None]:
    """A function for `writeStream.foreachBatch` that writes each batch of the query once, however often it is run.

    `load` None: the id of the query, with the topic, so that two of these in one query do not take each other's batches
    for their own. Spark Connect does not say the id, so there `load` must be given: a name that stays as long as the
    checkpoint does. Raises EskerSparkError where it is missing.
    """
    if load is None and _is_connect():
        raise EskerSparkError(_NO_QUERY_ID)

    def write(df: DataFrame, batch_id: int) -> None:
        name = _load_of_query(df, topic) if load is None else load
        write_batch(df, topic, endpoint=endpoint, api_key=api_key, load=name, batch=batch_id, options=options)

    return write


def _is_connect() -> bool:
    from pyspark.sql.utils import is_remote

    return is_remote()


def _load_of_query(df: DataFrame, topic: str | None) -> str:
    query = df.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if not query:
        raise EskerSparkError(_NO_QUERY_ID)
    return f"{query}-{sha256((topic or '').encode()).hexdigest()[:12]}"
