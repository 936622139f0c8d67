"""What every place of an archive promises, and whom an archive belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

from esker.archive.interface import ArchiveStore
from esker.archive.local import LocalArchive
from esker.archive.opening import OWNER, open_archive
from esker.archive.paths import events_path, quoted, records_path
from esker.errors import ArchiveError, SettingsError


def test_what_was_put_is_there_whole_and_can_be_replaced(archive: ArchiveStore) -> None:
    archive.put("records/topic=a:b%20c/epoch=1/p0-1-2.parquet", b"one")
    archive.put("records/topic=a:b%20c/epoch=1/p0-3-4.parquet", b"")
    archive.put("records/topic=a:b%20c/epoch=1/p0-1-2.parquet", b"two")
    assert archive.get("records/topic=a:b%20c/epoch=1/p0-1-2.parquet") == b"two"
    assert sorted(archive.names("records")) == [
        "records/topic=a:b%20c/epoch=1/p0-1-2.parquet",
        "records/topic=a:b%20c/epoch=1/p0-3-4.parquet",
    ]
    assert list(archive.names("events")) == []


def test_deleting_is_for_good_and_twice_is_harmless(archive: ArchiveStore) -> None:
    archive.put("records/topic=a/x", b"one")
    archive.delete("records/topic=a/x")
    archive.delete("records/topic=a/x")
    assert archive.get("records/topic=a/x") is None
    assert list(archive.names("records")) == []


def test_a_folder_that_became_empty_leaves_with_its_last_file(tmp_path: Path) -> None:
    archive = LocalArchive(tmp_path / "a")
    archive.put("records/topic=a/epoch=1/x", b"one")
    archive.delete("records/topic=a/epoch=1/x")
    assert not (tmp_path / "a" / "records").exists()


def test_what_a_crash_left_unfinished_is_cleared_when_opened(tmp_path: Path) -> None:
    LocalArchive(tmp_path).put("records/x", b"one")
    (tmp_path / ".incoming" / "half").write_bytes(b"o")
    archive = LocalArchive(tmp_path)
    assert list((tmp_path / ".incoming").iterdir()) == []
    assert list(archive.names("records")) == ["records/x"]


def test_a_failed_put_leaves_nothing_behind(tmp_path: Path) -> None:
    archive = LocalArchive(tmp_path)
    (tmp_path / "records").write_bytes(b"a file where a folder should be")
    with pytest.raises(ArchiveError, match="records"):
        archive.put("records/x", b"one")
    assert list((tmp_path / ".incoming").iterdir()) == []


def test_an_archive_belongs_to_one_node(tmp_path: Path) -> None:
    open_archive(str(tmp_path), "a" * 40)
    open_archive(str(tmp_path), "a" * 40)
    with pytest.raises(SettingsError, match="belongs to node aaaaaaaa"):
        open_archive(str(tmp_path), "b" * 40)


def test_an_archive_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / OWNER).write_text('{"format":2,"node":"a"}')
    with pytest.raises(SettingsError, match="format 2"):
        open_archive(str(tmp_path), "a")


def test_a_place_that_cannot_be_used_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for where in (str(tmp_path / "file"), "gopher://somewhere/else"):
        with pytest.raises(SettingsError, match="setting archive"):
            open_archive(where, "a")


def test_names_sort_as_they_count_and_fit_every_file_system() -> None:
    assert records_path(b"a", 7, 0, 9, 10) < records_path(b"a", 7, 0, 11, 200)
    assert records_path(b"render:a", 7, 0, 1, 2) == (
        "records/topic=render:a/epoch=7/p0-0000000000000001-0000000000000002.parquet"
    )
    assert events_path(1_750_000_000_000, 1, 2).startswith("events/day=2025-06-15/")
    assert quoted(b"\xff/..") == "%FF%2F.."
    long, longer = quoted(b"x" * 254), quoted(b"x" * 255)
    assert long != longer
    assert len(f"topic={longer}") <= 255
