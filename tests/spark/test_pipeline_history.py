"""`audit` and `lifecycle` over a real broker and over the files of its archive."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from esker.archive.history import events_files
from esker.columns.eventnames import Names
from esker.engine import events as events_of_journal
from esker.errors import SettingsError
from esker.spark.pipelines import registry
from tests.spark.lake import Broker, Lake
from tests.spark.served import served


def _work(broker: Broker, jobs: int) -> None:
    """Jobs of which a third is done, a third held and a third waits."""
    with broker.process.client() as client:
        execute: Callable[..., object] = client.execute_command
        for number in range(jobs):
            execute("ADDJOB", "work", json.dumps(number), 0, "PRIORITY", number % 3)
        ids = execute("GETJOB", "NOHANG", "COUNT", jobs // 3, "FROM", "work")
        assert isinstance(ids, list)
        execute("ACKJOB", *(job[1] for job in ids))
    served(broker, "work", jobs // 3)


def test_an_honest_broker_passes_and_its_jobs_are_told(
    lake: Lake, another: Callable[..., Broker], tmp_path: Path
) -> None:
    broker = another()
    _work(broker, 30)
    found = registry.run("audit", lake.spark, {}, endpoint=broker.url)
    assert (found.exit_code, found.facts["broken"], found.facts["living"]) == (0, {}, 20)
    told = registry.run("lifecycle", lake.spark, {}, endpoint=broker.url, output=str(tmp_path / "out"))
    assert (told.facts["enqueued"], told.facts["delivered"], told.facts["acked"]) == (30, 20, 10)
    assert "<svg" in (tmp_path / "out" / "report.html").read_text()
    assert all(Path(path).exists() for path in told.paths)


def test_a_history_in_files_is_checked_and_a_lie_in_it_found(
    lake: Lake, another: Callable[..., Broker], tmp_path: Path
) -> None:
    broker = another()
    _work(broker, 30)
    events = Lake(lake.spark, broker).read(table="events").orderBy("position", "ordinal").toArrow()
    enqueued = events.column("kind").to_pylist().index("Enqueued")
    lie = pa.concat_tables([events.slice(0, enqueued), events.slice(enqueued + 1)])
    for name, rows, code in (("honest", events, 0), ("lie", lie, 1)):
        folder = tmp_path / name / "events" / "day=2026-01-31"
        folder.mkdir(parents=True)
        last = rows.column("position")[-1].as_py()
        pq.write_table(rows, folder / f"{1:020}-{last:020}.parquet")
        found = registry.run("audit", lake.spark, {"archive": str(tmp_path / name)})
        assert (found.exit_code, bool(found.facts["broken"])) == (code, code == 1), found.lines
        assert any("at position" in line for line in found.lines) == (code == 1), "the evidence is told"


def test_a_damaged_file_of_an_archive_is_named_and_not_read(lake: Lake, tmp_path: Path) -> None:
    happened = events_of_journal.encode_batch([events_of_journal.NodeStarted(1_750_000_000_000)])
    (sound,) = events_files([(1, happened)], Names())
    path = tmp_path / sound.name
    path.parent.mkdir(parents=True)
    path.write_bytes(sound.data)
    assert registry.run("audit", lake.spark, {"archive": str(tmp_path)}).exit_code == 0
    data = bytearray(sound.data)
    data[data.index(b"esker.first_position") + 21] ^= 1  # of the footer: no reader of Parquet minds
    path.write_bytes(data)
    with pytest.raises(SettingsError, match=rf"{path.name}.*checksum does not match"):
        registry.run("audit", lake.spark, {"archive": str(tmp_path)})


def test_an_archive_that_is_not_there_is_named(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nowhere"):
        registry.run("audit", lake.spark, {"archive": str(tmp_path / "nowhere")})
