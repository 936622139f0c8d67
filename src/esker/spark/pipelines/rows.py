# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)
"""The history as the fold takes it: few columns, each partition in one task and in order.

Kinds and reasons become numbers and JSON is opened while the rows are still in the JVM, so that little is shuffled,
and Python does nothing but fold. Columns share their places where no row needs both: every one costs as much again
on its way to Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from esker.errors import SettingsError
from esker.spark.pipelines.codes import CODES, REASONS, AnyRow, Code, Reason
from esker.spark.pipelines.facts import FACT_KINDS, LAST, FactRow, Facts, facts_of

NEEDED: Final = (
    "position", "ordinal", "time", "kind", "topic", "topic_number", "partition", "seq", "priority", "attempts", "node",
    "lease", "reason", "due", "expires", "source_seq", "router", "detail",
)  # fmt: skip
FACTS_MAX: Final = 1_000_000  # rows about topics, routers and starts: they are held by every task

PLACE: Final = "place"  # a partition of a topic, as one number
_PARTITION_BITS: Final = 10
_REASON_BITS: Final = 4
_ROW: Final = ("position", "ordinal", "time_ms", "code", "seq", "number", "token", "due_ms", "extra", "expires_ms")


def check_columns(events: DataFrame) -> None:
    """Raises SettingsError for what is no history, or one of a format that tells too little."""
    missing = [name for name in NEEDED if name not in events.columns]
    if missing:
        raise SettingsError(
            f"the history has no column {', '.join(missing)}; it needs the events of Esker 0.3 or later "
            '(format("esker"), table=events, or the files under events/ of an archive)'
        )


def collect_facts(events: DataFrame) -> Facts:
    rows = (
        events.filter(sf.col("kind").isin(*FACT_KINDS))
        .select("position", "ordinal", _ms("time"), "kind", "topic_number", "topic", "router", "detail")
        .limit(FACTS_MAX + 1)
        .collect()
    )
    if len(rows) > FACTS_MAX:
        raise SettingsError(f"more than {FACTS_MAX} events make, change or delete topics; narrow the history by topics")
    return facts_of(FactRow(*row) for row in rows)


def fold_rows(
    events: DataFrame,
    live: DataFrame | None = None,
    tasks: int | None = None,
    holders: bool = False,
) -> DataFrame:
    """All rows that the fold looks at; each partition of a topic lies in one task, in the order of the journal.

    `live`: what a broker says (topic_number, partition, position, and `code`, `seq`, `number` as the fold takes them).
    `holders`: leases tell who holds them.
    """
    rows = _narrow(events, holders)
    if live is not None:
        rows = rows.unionByName(_rows_of_broker(live, holders))
    spread = rows.repartition(tasks, PLACE) if tasks else rows.repartition(PLACE)
    return spread.sortWithinPartitions(PLACE, "position", "ordinal")


def _narrow(events: DataFrame, holders: bool) -> DataFrame:
    kind, detail = sf.col("kind"), sf.col("detail")
    is_lease, is_copy = kind == "JobLeased", kind == "RecordsForwarded"
    not_derived = sf.when(is_copy & detail.contains('"derived":false'), sf.lit(int(Reason.NOT_DERIVED)))
    reason = sf.coalesce(_number_of("reason", REASONS), not_derived, sf.lit(0))
    number = sf.when(is_lease, sf.col("attempts")).when(is_copy, sf.col("router")).otherwise(sf.col("priority"))
    extra = (
        sf.when(is_copy, sf.col("source_seq"))
        .when(detail.isNull(), sf.lit(-1))
        .when(kind == "SeqsLost", sf.get_json_object(detail, "$.last").cast("long"))
        .when(detail.contains("max_deliveries"), sf.get_json_object(detail, "$.max_deliveries").cast("long"))
    )
    columns = [
        _place(sf.col("partition")).alias(PLACE),
        sf.col("position"),
        sf.col("ordinal"),
        sf.unix_millis("time").alias("time_ms"),
        (_number_of("kind", CODES) * (1 << _REASON_BITS) + reason).cast("int").alias("code"),
        _or("seq", sf.col("seq"), 0),
        _or("number", number, 0),
        sf.col("lease").alias("token"),
        _or("due_ms", sf.unix_millis("due"), 0),
        _or("extra", extra, -1),
        _or("expires_ms", sf.unix_millis("expires"), 0),
    ]
    if holders:
        columns.append(sf.when(is_lease, sf.col("node")).alias("holder"))
    return events.filter(kind.isin(*CODES) & sf.col("topic_number").isNotNull()).select(*columns)


def _rows_of_broker(live: DataFrame, holders: bool) -> DataFrame:
    nothing, none = sf.lit(0).cast("long"), sf.lit(None).cast("string")
    columns = [
        _place(sf.col("partition")).alias(PLACE),
        sf.col("position").cast("long").alias("position"),
        sf.lit(LAST - 1).cast("long").alias("ordinal"),  # behind all rows of the position, before the comparison
        nothing.alias("time_ms"),
        (sf.col("code").cast("int") * (1 << _REASON_BITS)).alias("code"),
        sf.col("seq").cast("long").alias("seq"),
        sf.col("number").cast("long").alias("number"),
        none.alias("token"),
        nothing.alias("due_ms"),
        sf.lit(-1).cast("long").alias("extra"),
        nothing.alias("expires_ms"),
    ]
    if holders:
        columns.append(none.alias("holder"))
    return live.select(*columns)


def _place(partition: Column) -> Column:
    number = sf.col("topic_number").cast("long") * (1 << _PARTITION_BITS)
    return number + sf.coalesce(partition.cast("long"), sf.lit(0))


def _number_of(column: str, numbers: Mapping[str, int]) -> Column:
    """Null for a text that has none. The commonest come first: each is a comparison."""
    found = sf.lit(None).cast("int")
    for text, number in reversed(list(numbers.items())):
        found = sf.when(sf.col(column) == text, sf.lit(int(number))).otherwise(found)
    return found


def _ms(name: str) -> Column:
    return sf.unix_millis(name).alias(f"{name}_ms")


def _or(name: str, value: Column, otherwise: int) -> Column:
    return sf.coalesce(value, sf.lit(otherwise)).alias(name)


def partitions_in(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[tuple[int, int], int, Iterator[AnyRow]]]:
    """The rows of each partition in turn: its topic and number, how many are of the history, and all as tuples.

    In pieces, as batches come: the same partition may come again.
    """
    for batch in batches:
        if not batch.num_rows:
            continue
        code = batch.column("code")
        reason = pc.bit_wise_and(code, pa.scalar((1 << _REASON_BITS) - 1, code.type))
        columns = [batch.column(name) for name in _ROW]
        columns[3] = pc.shift_right(code, pa.scalar(_REASON_BITS, code.type))
        told = pc.less(columns[3], pa.scalar(int(Code.LIVE), code.type))
        holders = batch.column("holder") if "holder" in batch.schema.names else None
        start = 0
        for stop in pc.run_end_encode(batch.column(PLACE)).run_ends.to_pylist():
            count = stop - start
            place = batch.column(PLACE)[start].as_py()
            values = [column.slice(start, count).to_pylist() for column in columns]
            held = repeat(None, count) if holders is None else holders.slice(start, count).to_pylist()
            *before, expires = values
            rows = zip(*before, reason.slice(start, count).to_pylist(), held, expires, strict=True)
            events = pc.sum(told.slice(start, count)).as_py()
            yield (place >> _PARTITION_BITS, place & (1 << _PARTITION_BITS) - 1), events, rows
            start = stop
