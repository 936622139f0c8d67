"""`export`: each record once, run by run, as Parquet and as a Delta table; also when a batch runs twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from esker.errors import SettingsError
from esker.spark.pipelines import registry
from esker.spark.pipelines.registry import Result
from tests.spark.lake import Lake


def _export(lake: Lake, output: Path, topic: str, **given: str) -> Result:
    named = {"topic": topic, "batch_rows": "4", **given}
    return registry.run("export", lake.spark, named, endpoint=lake.broker.url, output=str(output))


def _exported(lake: Lake, output: Path, format: str) -> list[tuple[int, str, str]]:
    if format == "delta":
        rows = DeltaTable(str(output)).to_pyarrow_table().to_pylist()
        return sorted((row["offset"], row["value"], row["day"]) for row in rows)
    found = lake.spark.read.parquet(str(output)).collect()
    return sorted((row.offset, row.value, row.day.isoformat()) for row in found)


def _wanted(lake: Lake, topic: str) -> list[tuple[int, str, str]]:
    rows = lake.read(subscribe=topic).collect()
    return sorted((row.offset, bytes(row.value).decode(), row.timestamp.date().isoformat()) for row in rows)


def _forget_last_commit(output: Path) -> None:
    """As if the driver had died after the batch, before Spark noted it."""
    commits = output / "_export" / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_each_run_adds_what_is_new_and_a_batch_that_runs_twice_counts_once(
    lake: Lake, tmp_path: Path, format: str
) -> None:
    topic, output = f"export-{format}", tmp_path / "out"
    lake.broker.fill(topic, 10)
    assert _export(lake, output, topic, format=format).facts == {"rows": 10, "batches": 3}
    _forget_last_commit(output)
    _export(lake, output, topic, format=format)
    assert _exported(lake, output, format) == _wanted(lake, topic)
    lake.broker.fill(topic, 3, first=10)
    result = _export(lake, output, topic, format=format, compact="true")
    assert result.facts["rows"] == 3
    assert _exported(lake, output, format) == _wanted(lake, topic)
    lake.broker.fill(topic, 1, first=13)
    _export(lake, output, topic, format=format, compact="true")
    assert _exported(lake, output, format) == _wanted(lake, topic)
    assert len(_exported(lake, output, format)) == 14
    if format == "parquet":
        assert len(list(output.glob("day=*/*.parquet"))) == len(list(output.glob("day=*")))


def test_an_output_of_another_topic_or_format_is_refused(lake: Lake, tmp_path: Path) -> None:
    lake.broker.fill("export-one", 1)
    _export(lake, tmp_path / "out", "export-one")
    for topic, format in (("export-two", "parquet"), ("export-one", "delta")):
        with pytest.raises(SettingsError, match="holds an export of topic 'export-one' as parquet"):
            _export(lake, tmp_path / "out", topic, format=format)
    with pytest.raises(SettingsError, match="--output s3://"):
        registry.run("export", lake.spark, {"topic": "t"}, endpoint=lake.broker.url, output="s3://bucket/x")
    with pytest.raises(SettingsError, match="--output DIR"):
        registry.run("export", lake.spark, {"topic": "t"}, endpoint=lake.broker.url)


def test_a_new_checkpoint_does_not_bring_everything_again(lake: Lake, tmp_path: Path) -> None:
    lake.broker.fill("export-lost", 3)
    _export(lake, tmp_path / "out", "export-lost")
    before = _exported(lake, tmp_path / "out", "parquet")
    with pytest.raises(Exception, match="filled with another checkpoint"):
        registry.run("export", lake.spark, {"topic": "export-lost"}, endpoint=lake.broker.url,
                     output=str(tmp_path / "out"), checkpoint=str(tmp_path / "new"))  # fmt: skip
    assert _exported(lake, tmp_path / "out", "parquet") == before


def test_a_topic_that_is_missing_is_named(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="nowhere"):
        _export(lake, tmp_path / "out", "nowhere")
