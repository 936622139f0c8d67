"""On Spark, the audit says what the fold says, of histories of any number of topics; and a real node is honest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from esker.archive.paths import events_path
from esker.columns.events import SCHEMA
from esker.errors import SettingsError
from esker.spark.pipelines import registry
from esker.spark.pipelines.audit import Head, Live, audit
from esker.spark.pipelines.codes import CODES, Bound
from tests.engine.rig import START_MS
from tests.spark.histories import LIES, EventRow, Life, LiveJob, changed, examine, plain_life, random_life
from tests.spark.lake import Broker

_FAR = 1000  # between the topics of one history and the next


def table(spark: SparkSession, folder: Path, rows: list[EventRow], name: str = "events") -> DataFrame:
    """A history in two files, without the names that an archive gives them."""
    (folder / name).mkdir()
    for part, some in enumerate((rows[: len(rows) // 2], rows[len(rows) // 2 :])):
        pq.write_table(pa.Table.from_pylist(some, SCHEMA), folder / name / f"{part}.parquet")
    return spark.read.parquet(str(folder / name))


def archive(folder: Path, life: Life, files: int) -> list[Path]:
    """A history in so many files, as an archive has it."""
    positions = sorted(life.batches_at)
    rows, step = life.rows(), -(-len(positions) // files)
    paths = []
    for at in range(0, len(positions), step):
        first, last = positions[at], positions[min(at + step, len(positions)) - 1]
        path = folder / events_path(START_MS, first, last)
        path.parent.mkdir(parents=True, exist_ok=True)
        some = [row for row in rows if first <= int(str(row["position"])) <= last]
        pq.write_table(pa.Table.from_pylist(some, SCHEMA), path)
        paths.append(path)
    return paths


def living(spark: SparkSession, life: Life, alive: set[LiveJob]) -> Live:
    jobs = spark.createDataFrame(sorted(alive), "topic_number long, partition int, seq long")
    last = max(life.batches_at)
    heads = [Head(*place, last, seq, bound) for place, seq in life.heads().items() for bound in Bound]
    return Live(jobs, dict.fromkeys(life.queues, last), heads)


def test_the_audit_says_what_the_fold_says(spark: SparkSession, tmp_path: Path) -> None:
    life = random_life(7)
    rows = life.rows()
    found = audit(table(spark, tmp_path, rows), living(spark, life, life.alive()))
    alone = examine(rows, life.alive(), life.queues)
    assert found.honest
    assert found.rows == sum(row["kind"] in CODES for row in rows)
    assert found.evidence == []
    assert dict(found.notes) == dict(alone.notes)
    keyed = next(number for number, name in found.names.items() if name == "keyed")
    ends = ("acked", "expired", "deleted", "dead_lettered", "evicted", "purged", "alive")
    balance = found.balance[keyed]
    assert balance["came"] + balance.get("replayed", 0) == sum(balance.get(end, 0) for end in ends)


def test_every_lie_is_found_in_one_pass_over_many_topics(spark: SparkSession, tmp_path: Path) -> None:
    """The same short history for each lie, under topic numbers of its own; one is left honest."""
    rows: list[EventRow] = []
    for number, (tell, _, _) in enumerate(LIES.values()):
        rows += [_moved(row, number * _FAR) for row in tell(plain_life().rows())]
    rows += [_moved(row, len(LIES) * _FAR) for row in plain_life().rows()]
    found = audit(table(spark, tmp_path, rows), tasks=3)
    rules: dict[int, set[str]] = {}
    for each in found.evidence:
        rules.setdefault(each.topic_number // _FAR, set()).add(each.rule)
    assert rules == {number: {rule} for number, (_, rule, _) in enumerate(LIES.values())}
    assert sum(found.broken.values()) == len(found.evidence)
    skipped = next(each for each in found.evidence if each.rule == "contiguous_seqs" and each.topic == "q")
    assert (skipped.expected, skipped.found) == ("seq 6", "seq 7")
    assert f"seq 7 at position {skipped.position}.0: expected seq 6; found seq 7" in str(skipped)


def _moved(row: EventRow, by: int) -> EventRow:
    """A row of another topic."""
    moved = dict(row)
    if isinstance(row["topic_number"], int):
        moved["topic_number"] = row["topic_number"] + by
    if isinstance(row["router"], int):
        moved["router"] = row["router"] + by
    if row["kind"] == "RouterPut":
        detail = json.loads(str(row["detail"]))
        moved["detail"] = json.dumps({**detail, "dest_number": detail["dest_number"] + by})
    return moved


def test_what_lives_is_compared_both_ways(spark: SparkSession, tmp_path: Path) -> None:
    life = plain_life()
    alive = life.alive()
    queue, _, lost = max(alive)
    lie = (alive - {(queue, 0, lost)}) | {(queue, 0, 2)}  # one that was lost, and one that was acked
    found = audit(table(spark, tmp_path, life.rows()), living(spark, life, lie))
    assert [(each.rule, each.seq) for each in found.evidence] == [("conservation", 2), ("conservation", lost)]
    assert found.broken == {"conservation": 2}


def test_a_file_that_is_missing_is_a_violation_and_the_only_one(spark: SparkSession, tmp_path: Path) -> None:
    """For `audit` and for `lifecycle`, which has nothing else to say of it."""
    paths = archive(tmp_path, random_life(7, rounds=3), 5)
    given, output = {"archive": str(tmp_path)}, str(tmp_path / "out")
    first, last = (int(part) for part in paths[2].stem.split("-"))
    paths[2].unlink()
    found = registry.run("audit", spark, given)
    assert (found.exit_code, found.facts["broken"]) == (1, {"continuous_positions": 1})
    assert f"the events of positions {first} to {last}; found they are missing" in found.lines[2]
    told = registry.run("lifecycle", spark, given, output=output)
    assert (told.exit_code, told.facts["holes"]) == (1, [[first, last]])
    assert f"positions {first:,} to {last:,} are missing" in told.lines
    assert "are missing" in (tmp_path / "out" / "report.html").read_text()
    for path in paths[:2]:
        path.unlink()
    late = registry.run("audit", spark, given)
    assert (late.exit_code, late.facts["broken"]) == (0, {})
    assert any(line.startswith(f"history begins at position {last + 1:,}") for line in late.lines)


def test_a_file_that_does_not_say_its_positions_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (path,) = archive(tmp_path, plain_life(), 1)
    path.rename(path.with_name("copy.parquet"))
    with pytest.raises(SettingsError, match=r"copy\.parquet is no events file"):
        registry.run("audit", spark, {"archive": str(tmp_path)})


def test_a_dead_letter_that_never_came_is_found(spark: SparkSession, tmp_path: Path) -> None:
    rows = plain_life().rows()
    at = next(at for at, row in enumerate(rows) if row["kind"] == "RecordsAppended" and row["topic"] == "grave")
    found = audit(table(spark, tmp_path, rows[:at] + rows[at + 1 :]))
    assert found.broken == {"conservation": 1}
    (each,) = found.evidence
    assert (each.topic, each.position) == ("q", rows[at]["position"])
    assert "dead letters in grave" in each.expected


def test_a_table_that_is_no_history_is_refused_by_its_columns(spark: SparkSession) -> None:
    old = spark.createDataFrame([(1, 0)], "position long, ordinal long")
    with pytest.raises(SettingsError, match=r"no column time, kind, .*due"):
        audit(old)


def test_events_of_an_old_format_are_refused_with_the_way_out(spark: SparkSession, tmp_path: Path) -> None:
    rows = plain_life().rows()
    at = next(at for at, row in enumerate(rows) if row["kind"] == "TopicCreated" and row["topic"] == "q")
    with pytest.raises(SettingsError, match=rf"position > {rows[at]['position']}"):
        audit(table(spark, tmp_path, changed(rows, at, detail=None)))


def test_an_empty_history_is_honest(spark: SparkSession, tmp_path: Path) -> None:
    found = audit(table(spark, tmp_path, []))
    assert (found.rows, found.honest, found.evidence) == (0, True, [])


def test_a_real_node_that_was_killed_has_kept_its_promises(spark: SparkSession, another: Callable[..., Broker]) -> None:
    """Jobs over both protocols, some leased when the node is killed; then the rest of the work."""
    broker = another("--set", "segment_size=1mb", "--set", "checkpoint_interval_s=1")
    with broker.process.client() as redis:
        for number in range(60):
            redis.execute_command("ADDJOB", "lazy", f"job {number}", 0, "RETRY", 5)
        for got in redis.execute_command("GETJOB", "NOHANG", "COUNT", 20, "FROM", "lazy"):
            redis.execute_command("ACKJOB", got[1])
        redis.execute_command("GETJOB", "NOHANG", "COUNT", 10, "FROM", "lazy")
    broker.ask("PUT", "/v0/topics/strict", {"type": "queue"})
    broker.write("strict", [{"data": number} for number in range(50)])
    assert broker.ask("POST", "/v0/topics/strict/claim", {"node": "w1", "max": 10})["claimed"]
    broker.process.kill()
    broker.process.start()
    again = broker.ask("POST", "/v0/topics/strict/claim", {"node": "w2", "max": 10})
    seqs = [job["$seq"] for job in again["claimed"]]
    assert seqs == list(range(1, 11))  # the leases of w1 ended with the node
    broker.ask("POST", "/v0/topics/strict/ack", {"node": "w2", "seqs": seqs})
    result = registry.run("audit", spark, {}, endpoint=broker.url)
    assert result.exit_code == 0, result.lines
    assert result.facts["broken"] == {}
