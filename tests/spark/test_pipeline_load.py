"""`load`: every row of the files once, whatever happens on the way; and clear words for what cannot be loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from esker.errors import SettingsError
from esker.spark.pipelines import registry
from esker.spark.pipelines.load import InputFile, format_of, group_files, load_name
from esker.spark.pipelines.progress import QUIET, Progress, Quiet
from esker.spark.pipelines.registry import Result
from tests.spark.lake import Lake
from tests.spark.served import served


def _load(lake: Lake, given: Mapping[str, str], progress: Progress = QUIET) -> Result:
    return registry.run("load", lake.spark, given, endpoint=lake.broker.url, progress=progress)


def _csv(folder: Path, files: int, rows: int) -> Path:
    folder.mkdir()
    for file in range(files):
        numbers = range(file * rows, (file + 1) * rows)
        lines = ["id,urgency,body", *(f"{n},{n % 10},body {n}" for n in numbers)]
        (folder / f"part-{file}.csv").write_text("\n".join(lines))
    return folder


def _tags(lake: Lake, topic: str) -> dict[str, str]:
    records = lake.broker.ask("POST", f"/v0/topics/{topic}/diff", {"include_tags": True, "limit": 1000})["records"]
    return {record["data"]: record["$tag"] for record in records}


def _count(lake: Lake, topic: str) -> int:
    count: int = lake.broker.ask("GET", f"/v0/topics/{topic}")["count"]
    return count


class Interrupted(BaseException):
    """As if the driver was killed here."""


class Interrupting(Quiet):
    """Ends the run when so many rows are there."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def advance(self, done: int, total: int | None = None) -> None:
        if done >= self._rows:
            raise Interrupted


def test_rows_become_jobs_with_what_the_mapping_says(lake: Lake, tmp_path: Path) -> None:
    given = {"input": str(_csv(tmp_path / "in", 3, 100)), "topic": "load-jobs", "value": "body", "where": "id >= 10",
             "map.priority": "urgency", "map.tag": "concat('t', id)"}  # fmt: skip
    result = _load(lake, given)
    assert (result.facts["rows"], result.exit_code) == (290, 0)
    assert _tags(lake, "load-jobs") == {f"body {n}": f"t{n}" for n in range(10, 300)}
    assert [int(body.split()[1]) % 10 for body in served(lake.broker, "load-jobs")] == [n // 29 for n in range(290)]
    again = _load(lake, {**given, "share": "0.9"})
    assert again.facts["load"] == result.facts["load"]
    assert again.facts["batches_before"] == 1
    assert _count(lake, "load-jobs") == 290


def test_a_load_that_was_cut_off_goes_on_behind_what_is_there(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("esker.spark.pipelines.load.group_files", lambda files, most: [[file] for file in files])
    given = {"input": str(_csv(tmp_path / "in", 3, 100)), "topic": "load-cut", "value": "body"}
    with pytest.raises(Interrupted):
        _load(lake, given, Interrupting(100))
    assert _count(lake, "load-cut") < 300
    result = _load(lake, given)
    assert result.facts["batches_before"] in (1, 2)
    assert (result.facts["rows"], result.facts["rows_before"]) == (300, 100 * result.facts["batches_before"])
    again = _load(lake, given)
    assert (again.facts["rows"], again.facts["rows_before"], again.facts["batches_before"]) == (300, 300, 3)
    assert again.lines == ["300 rows of 3 files are in load-cut; 3 of 3 batches (300 rows) were there already"]
    assert sorted(served(lake.broker, "load-cut")) == sorted(b"body %d" % n for n in range(300))


def test_rows_without_a_value_go_to_a_log_as_json(lake: Lake, tmp_path: Path) -> None:
    for day, first in (("2026-01-31", 0), ("2026-02-01", 5)):
        frame = lake.spark.range(first, first + 5).selectExpr("id AS n", f"'{day}' AS day")
        frame.write.mode("append").partitionBy("day").parquet(str(tmp_path / "in"))
    result = _load(
        lake, {"input": str(tmp_path / "in"), "topic": "load-log", "type": "log", "map.tag": "cast(day AS string)"}
    )
    assert result.facts["rows"] == 10
    rows = lake.read(subscribe="load-log").collect()
    assert sorted((json.loads(bytes(row.value))["n"], row.tag) for row in rows) == [
        (n, "2026-01-31" if n < 5 else "2026-02-01") for n in range(10)
    ]


def test_a_column_says_the_topic_of_each_row(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text("\n".join(json.dumps({"n": n, "to": f"load-by-row-{n % 2}"}) for n in range(10)))
    result = _load(
        lake,
        {"input": str(tmp_path / "in.json"), "map.topic": "to", "type": "log", "value": "named_struct('n', n)"},
    )
    assert result.facts["rows"] == 10
    assert sorted(lake.values("load-by-row-0")) == [0, 2, 4, 6, 8]
    assert sorted(lake.values("load-by-row-1")) == [1, 3, 5, 7, 9]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "needs either topic or map.topic"),
        ({"topic": "t", "map.topic": "x"}, "needs either topic or map.topic"),
        ({"topic": "t", "map.priority": "urgencie"}, "map.priority: 'urgencie'"),
        ({"topic": "t", "map.priority": "1 +"}, "map.priority: '1 +'"),
        ({"topic": "t", "value": "bodie"}, "value: 'bodie'"),
        ({"topic": "t", "where": "id"}, "where: 'id' is no condition"),
        ({"topic": "t", "input": "missing/*.csv"}, "input 'missing/*.csv'"),
        ({"topic": "t", "format": "parquet"}, "is not a Parquet file"),
        ({"topic": "t", "load_id": "a/b"}, "load_id cannot be 'a/b'"),
    ],
)
def test_what_cannot_be_loaded_is_told_before_anything_is_staged(
    lake: Lake, tmp_path: Path, given: dict[str, str], told: str
) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's own errors are among them
        _load(lake, {"input": str(_csv(tmp_path / "in", 1, 3)), **given})
    assert told in str(caught.value)
    assert lake.broker.plan("t")["missing"] == ["t"]


def test_a_parquet_file_cut_in_half_leaves_nothing(lake: Lake, tmp_path: Path) -> None:
    lake.spark.range(1000).selectExpr("cast(id AS string) AS value").repartition(2).write.parquet(str(tmp_path / "in"))
    victim = sorted((tmp_path / "in").glob("*.parquet"))[1]
    victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
    with pytest.raises(Exception, match=victim.name):
        _load(lake, {"input": str(tmp_path / "in"), "topic": "load-half"})
    assert lake.broker.plan("load-half")["missing"] == ["load-half"]


# -- without Spark


def _files(*sizes: int) -> list[InputFile]:
    return [InputFile(f"file:/in/{number}.csv", size, 7) for number, size in enumerate(sizes)]


def test_groups_keep_the_order_and_the_size() -> None:
    files = _files(10, 20, 80, 5, 300, 1, 1)
    groups = group_files(files, 100)
    assert [[file.size for file in group] for group in groups] == [[10, 20], [80, 5], [300], [1, 1]]
    assert [file for group in groups for file in group] == files


def _name(files: list[InputFile], **given: str) -> str:
    named = {"input": "in", "topic": "t", **given}
    return load_name(files, registry.make_order(registry.find("load"), named).values)


def test_the_same_files_and_rows_are_the_same_load_and_others_are_not() -> None:
    files = _files(10, 20)
    assert _name(files) == _name(files, share="0.9", create="false")
    others = [_name(_files(10, 21)), _name(files[:1]), _name(files, topic="u"), _name(files, value="x"),
              _name(files, batch_mb="1"), _name([files[0], files[1]._replace(changed_us=8)])]  # fmt: skip
    assert len({_name(files), *others}) == 7


def test_the_format_is_known_by_the_names() -> None:
    assert format_of([InputFile("a.csv.gz", 1, 1), InputFile("b.CSV", 1, 1)]) == "csv"
    assert format_of([InputFile("a.ndjson", 1, 1)]) == "json"
    for wrong in (["a.csv", "b.json"], ["a"], ["a.xml"]):
        with pytest.raises(SettingsError, match="name the format"):
            format_of([InputFile(path, 1, 1) for path in wrong])
