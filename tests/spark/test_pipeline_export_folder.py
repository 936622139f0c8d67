"""The folder of an export: a change is made whole, whenever the process that makes it ends."""

# mypy: disable-error-code="no-any-unimported"

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from esker.errors import EskerError, SettingsError
from esker.spark.pipelines.compact import compact, small_groups
from esker.spark.pipelines.exportfolder import Change, ExportFolder, staged_moves
from esker.spark.pipelines.progress import QUIET


def _stage(folder: ExportFolder, batch: int, *days: str, rows: int = 10) -> dict[str, str]:
    place = folder.staging(f"batch-{batch}")
    for number, day in enumerate(days):
        (place / f"day={day}").mkdir(parents=True)
        first = batch * 1000 + number * rows
        table = pa.table({"offset": pa.array(range(first, first + rows), pa.int64()), "value": ["x"] * rows})
        pq.write_table(table, place / f"day={day}" / f"part-{number}.parquet")
    return staged_moves(folder, place, batch)


def _offsets(root: Path) -> list[int]:
    return sorted(
        offset
        for path in root.glob("day=*/*.parquet")
        for offset in pq.ParquetFile(path).read().column("offset").to_pylist()
    )


class Killed(BaseException):
    """As if the process ended here."""


def _killed_at(moment: int, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> bool:
    """Runs `act` and ends it before its n-th move, removal or writing down. False: it had fewer steps."""
    left = [moment]

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def step(self: Path, *arguments: object, **named: object) -> object:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return real(self, *arguments, **named)

        return step

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", counted(Path.replace))
        patch.setattr(Path, "unlink", counted(Path.unlink))
        try:
            act()
        except Killed:
            return True
    return False


def test_a_batch_is_there_once_wherever_it_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for moment in range(20):
        root = tmp_path / str(moment)

        def take(root: Path = root) -> None:
            folder = ExportFolder(root)
            with folder.hold("t", "parquet"):
                for batch in (0, 1):
                    if not folder.has("q", batch):
                        folder.make(Change("q", batch, _stage(folder, batch, "2026-01-31", "2026-02-01")))

        cut = _killed_at(moment, monkeypatch, take)
        take()
        assert _offsets(root) == [*range(20), *range(1000, 1020)]
        if not cut:
            assert moment > 5
            return
    pytest.fail("it never came to its end")


def test_compaction_keeps_every_record_wherever_it_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for moment in range(40):
        root = tmp_path / str(moment)
        folder = ExportFolder(root)
        with folder.hold("t", "parquet"):
            for batch in range(4):
                folder.make(Change("q", batch, _stage(folder, batch, "2026-01-31", "2026-02-01")))
            wanted = _offsets(root)
            cut = _killed_at(moment, monkeypatch, partial(compact, folder, 1 << 20, QUIET))
        again = ExportFolder(root)
        with again.hold("t", "parquet"):
            assert _offsets(root) == wanted
            compact(again, 1 << 20, QUIET)
            assert _offsets(root) == wanted
            assert [len(files) for _, files in again.data_files()] == [1, 1]
            assert again.has("q", 3)
            assert not again.has("q", 4)
        if not cut:
            assert moment > 5
            return
    pytest.fail("it never came to its end")


def test_compacted_records_are_in_order(tmp_path: Path) -> None:
    folder = ExportFolder(tmp_path / "out")
    with folder.hold("t", "parquet"):
        for batch in range(3):
            folder.make(Change("q", batch, _stage(folder, batch, "2026-01-31")))
        assert compact(folder, 1 << 20, QUIET) == (3, 1, 30)
        ((_, (path,)),) = folder.data_files()
        assert pq.read_table(path, columns=["offset"]).column("offset").to_pylist() == _offsets(folder.root)


def test_large_files_and_single_ones_stay_as_they_are() -> None:
    files = [(Path(name), size) for name, size in (("a", 10), ("b", 60), ("c", 20), ("d", 30), ("e", 49), ("f", 5))]
    assert list(small_groups(files, 100)) == [[Path("a"), Path("c"), Path("d")], [Path("e"), Path("f")]]
    assert list(small_groups([(Path("a"), 10)], 100)) == []


def test_a_folder_of_another_kind_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "archive.json").write_text("{}")
    with pytest.raises(SettingsError, match="node's archive"), ExportFolder(tmp_path).hold("t", "parquet"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["archive.json"]
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("x")
    with pytest.raises(SettingsError, match="holds other things"), ExportFolder(mine).hold("t", "parquet"):
        pass


def test_a_folder_belongs_to_one_topic_one_stream_and_one_process(tmp_path: Path) -> None:
    folder = ExportFolder(tmp_path / "out")
    with folder.hold("t", "parquet"):
        folder.make(Change("q", 0, _stage(folder, 0, "2026-01-31")))
        with (
            pytest.raises(SettingsError, match="another export is at it"),
            ExportFolder(folder.root).hold("t", "parquet"),
        ):
            pass
        with pytest.raises(EskerError, match="another checkpoint"):
            folder.has("other", 1)
    with pytest.raises(SettingsError, match="export of topic 't'"), ExportFolder(folder.root).hold("u", "parquet"):
        pass


def test_a_damaged_note_is_named(tmp_path: Path) -> None:
    folder = ExportFolder(tmp_path / "out")
    with folder.hold("t", "parquet"):
        folder.make(Change("q", 0, _stage(folder, 0, "2026-01-31")))
    (folder.root / "_export" / "change.json").write_text('{"query": ')
    with pytest.raises(EskerError, match=r"change\.json is damaged"), ExportFolder(folder.root).hold("t", "parquet"):
        pass
