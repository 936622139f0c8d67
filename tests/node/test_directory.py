"""The data directory: one owner, one format, one identity."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from esker.errors import DataDirectoryError
from esker.journal.disk import RealDisk
from esker.node.directory import FORMAT, DataDirectory


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_new_directory_is_made_with_a_format_and_an_identity(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "deep" / "data")
    assert (tmp_path / "deep" / "data" / "format").read_text() == str(FORMAT)
    assert len(bytes.fromhex(directory.node_id)) == 20
    assert (directory.journal.parent, directory.store.parent) == (directory.path, directory.path)
    directory.close()


def test_a_node_keeps_its_id_for_the_life_of_the_directory(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path)
    first.close()
    second = DataDirectory(tmp_path)
    assert second.node_id == first.node_id
    second.close()


def test_a_directory_in_use_names_its_owner(tmp_path: Path) -> None:
    owner = DataDirectory(tmp_path)
    with pytest.raises(DataDirectoryError, match=f"in use by process {os.getpid()}"):
        DataDirectory(tmp_path)
    owner.close()
    DataDirectory(tmp_path).close()


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"sea")
    with pytest.raises(DataDirectoryError, match="holds other files"):
        DataDirectory(tmp_path)
    assert snapshot(tmp_path) == {"holiday.jpg": b"sea", "lock": str(os.getpid()).encode()}


@pytest.mark.parametrize("text", [str(FORMAT + 1), "new", ""])
def test_a_newer_or_unreadable_format_is_refused_untouched(tmp_path: Path, text: str) -> None:
    DataDirectory(tmp_path).close()
    (tmp_path / "format").write_text(text)
    before = snapshot(tmp_path)
    with pytest.raises(DataDirectoryError, match="nothing was changed"):
        DataDirectory(tmp_path)
    assert snapshot(tmp_path) == before


def test_a_refused_directory_is_not_kept_locked(tmp_path: Path) -> None:
    DataDirectory(tmp_path).close()
    (tmp_path / "format").write_text("99")
    with pytest.raises(DataDirectoryError):
        DataDirectory(tmp_path)
    (tmp_path / "format").write_text(str(FORMAT))
    DataDirectory(tmp_path).close()


def test_a_path_that_cannot_be_a_directory_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(DataDirectoryError, match="choose another with --data"):
        DataDirectory(file / "data")


class _Watched(RealDisk):
    """Notes which directories were made, and which were synced after their last change."""

    def __init__(self) -> None:
        self.made: list[Path] = []
        self.unsynced: set[Path] = set()

    def mkdir(self, directory: Path) -> None:
        super().mkdir(directory)
        self.made.append(directory)
        self.unsynced.add(directory.parent)

    def sync_directory(self, directory: Path) -> None:
        super().sync_directory(directory)
        self.unsynced.discard(directory)


def test_the_entries_of_a_new_data_directory_its_parents_and_its_store_are_synced(tmp_path: Path) -> None:
    disk = _Watched()
    DataDirectory(tmp_path / "deep" / "data", disk).close()
    assert disk.made == [tmp_path / "deep", tmp_path / "deep" / "data", tmp_path / "deep" / "data" / "store"]
    assert not disk.unsynced
