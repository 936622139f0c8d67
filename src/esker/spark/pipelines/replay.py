"""Dead letters, or old records of a log, back into a queue: chosen by SQL, shown first, done with apply=true.

Dead letters go back where they came from. Spark chooses them; the broker moves each in one step, gone here and back
there, under its old seq and priority, with a fresh count of deliveries. A letter that was moved is no letter any more,
so a run that was cut off is simply run again: nothing is lost and nothing is there twice.

With `target`, copies go to another queue and the originals stay where they are; that is the way for records of a log,
which have no queue to go back to. The copies are one load, named after what was chosen, the end of the source (`upto`)
included: the same run again adds nothing, and one that failed is told how to be the same run. Each copy has the place
of its original as its key, too, so that within its idempotency window a queue takes it once whatever the run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from esker.errors import EskerError, SettingsError
from esker.spark.client import client, name_in_path
from esker.spark.pipelines.mapping import only_where, to_topic_columns
from esker.spark.pipelines.parameters import Values
from esker.spark.pipelines.progress import Progress
from esker.spark.pipelines.registry import Order, Result

_AT_A_TIME: Final = 1000  # letters of one request
_SHOWN: Final = 100  # characters of a payload in the sample
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def run(spark: SparkSession, order: Order, progress: Progress) -> Result:
    values = order.values
    letters = values.text("table") == "deadletters"
    _check(values, letters)
    epoch, end = _place(order)
    upto = end if values.optional("upto") is None else values.integer("upto")
    progress.stage(f"choosing from {values.text('source')}")
    chosen = only_where(_read(spark, order).where(F.col("offset") < upto), values.optional("where")).cache()
    try:
        counts = chosen.groupBy(*(["source_topic", "reason"] if letters else ["topic"])).count().collect()
        total = sum(row["count"] for row in counts)
        lines = _told(counts, letters)
        facts: dict[str, object] = {"chosen": total, "applied": False, "upto": upto}
        if not values.switch("apply"):
            lines += _sample(chosen, values.integer("sample"))
            lines.append(f"{total:,} would go; with --set apply=true they do")
            return Result(lines, facts)
        progress.stage("sending them back" if values.optional("target") is None else "copying", total)
        if values.optional("target") is None:
            done, missed = _send_back(order, epoch, chosen, total, progress)
            lines.append(f"{done:,} of {total:,} went back")
            if missed:
                lines.append(
                    f"{missed:,} did not: they are gone, or their topic is gone, full, or not told by the letter"
                )
            return Result(lines, {**facts, "applied": True, "replayed": done, "missed": missed}, exit_code=0)
        progress.note(f"should this fail, the same run again is: --set upto={upto}")
        load = _copy(order, epoch, upto, chosen)
        lines.append(f"{total:,} copies are in {values.text('target')}; the originals stay")
        return Result(lines, {**facts, "applied": True, "copied": total, "load": load})
    finally:
        chosen.unpersist()


def letter_id(died_ms: int, epoch: int, partition: int, seq: int) -> str:
    """The id of a message is its place, so it can be made from the row: see docs/glossary.md."""
    number = died_ms << 80 | epoch << 56 | partition << 46 | seq
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def _check(values: Values, letters: bool) -> None:
    target = values.optional("target")
    if not letters and target is None:
        raise SettingsError("pipeline replay: records of a log have no queue to go back to; name one: --set target=…")
    if target is None and values.family("map"):
        raise SettingsError("pipeline replay: map.* shapes copies; without target, letters go back as they were")
    if target == values.text("source"):
        raise SettingsError("pipeline replay: target and source are the same topic")
    if "topic" in values.family("map"):
        raise SettingsError("pipeline replay: target says the queue; map.topic has no place here")


def _place(order: Order) -> tuple[int, int]:
    """The epoch of the source, and its end now. Everything is read up to there, so that counting, showing and doing are
    about the same rows."""
    source = order.values.text("source")
    plan = client(order.connection()).ask("POST", "/v0/bulk/plan", body={"topics": [source]}).body
    for topic in _dicts(plan.get("topics")):
        if topic.get("topic") == source:
            ends = [int(str(each["next"])) for each in _dicts(topic.get("partitions"))]
            return int(str(topic["epoch"])), max(ends, default=0)
    raise SettingsError(f"source: there is no topic {source!r}")


def _dicts(found: object) -> Iterator[dict[str, object]]:
    if isinstance(found, list):
        yield from (each for each in found if isinstance(each, dict))


def _read(spark: SparkSession, order: Order) -> DataFrame:
    reader = spark.read.format("esker").options(**order.source_options())
    return reader.option("table", order.values.text("table")).option("subscribe", order.values.text("source")).load()


def _send_back(order: Order, epoch: int, chosen: DataFrame, total: int, progress: Progress) -> tuple[int, int]:
    path = f"/v0/topics/{name_in_path(order.values.text('source'))}/replay"
    rows = chosen.select("offset", "partition", (F.unix_millis("died")).alias("died")).toLocalIterator()
    done = missed = 0
    while page := list(islice(rows, _AT_A_TIME)):
        ids = [letter_id(row["died"], epoch, row["partition"], row["offset"]) for row in page]
        answer = client(order.connection()).ask("POST", path, body={"ids": ids}).body
        replayed, left = answer.get("replayed"), answer.get("missed")
        if not isinstance(replayed, int) or not isinstance(left, list):
            raise EskerError(f"POST {path}: the answer tells nothing: {answer}")
        done += replayed
        missed += len(left)
        progress.advance(done + missed, total)
    return done, missed


def _copy(order: Order, epoch: int, upto: int, chosen: DataFrame) -> str:
    values = order.values
    source = values.text("source")
    told = [
        source,
        epoch,
        upto,
        *(values.optional(name) for name in ("where", "target", "table")),
        values.family("map"),
    ]
    load = "replay-" + hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:40]
    mapped = {name: name for name in ("tag", "node", "meta")}
    mapped["key"] = f"concat('{epoch}:', partition, ':', offset)"
    if values.text("table") == "deadletters":
        mapped["priority"] = "priority"
    rows = to_topic_columns(chosen, None, {**mapped, **values.family("map")})
    rows.write.format("esker").options(
        **order.source_options(),
        topic=values.text("target"),
        type="queue",
        share=str(values.number("share")),
        loadId=load,
        batchId="0",
    ).mode("append").save()
    return load


def _told(counts: Sequence[Row], letters: bool) -> list[str]:
    if not counts:
        return ["nothing fits"]
    ordered = sorted(counts, key=lambda row: -row["count"])
    if not letters:
        return [f"{row['count']:>12,}  {row['topic']}" for row in ordered]
    return [f"{row['count']:>12,}  {row['source_topic'] or '(unknown)'}: {row['reason'] or 'died'}" for row in ordered]


def _sample(chosen: DataFrame, most: int) -> list[str]:
    if not most:
        return []
    shown = chosen.select("offset", F.col("value").cast("string").alias("value")).orderBy("offset").take(most)
    return [f"    {row['offset']}: {(row['value'] or '')[:_SHOWN]}" for row in shown]
