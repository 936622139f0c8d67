"""`esker journal` tells the operator what is lost before anything is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from esker.cli.journal import app
from esker.journal.file import FileJournal
from esker.journal.frame import SEGMENT_HEADER_BYTES
from esker.journal.segment import segment_path
from tests.journal.answers import append_and_wait

runner = CliRunner()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    journal = FileJournal(tmp_path, segment_bytes=4096)
    append_and_wait(journal, *[b"x" * 900] * 6)
    journal.close()
    return tmp_path


@pytest.fixture
def damaged(directory: Path) -> Path:
    """Position 2 of 6 cannot be read."""
    path = segment_path(directory, 1)
    content = bytearray(path.read_bytes())
    content[SEGMENT_HEADER_BYTES + 932 + 100] ^= 1
    path.write_bytes(content)
    return directory


def words(text: str) -> str:
    return " ".join(text.split())


def test_checking_a_sound_journal_succeeds(directory: Path) -> None:
    result = runner.invoke(app, ["check", str(directory)])
    assert result.exit_code == 0
    assert "sound up to position 6" in words(result.output)


def test_checking_a_damaged_journal_fails_and_says_where_what_and_the_way_out(damaged: Path) -> None:
    result = runner.invoke(app, ["check", str(damaged)])
    assert result.exit_code == 1
    said = words(result.output)
    assert f"{segment_path(damaged, 1)} at offset {SEGMENT_HEADER_BYTES + 932}" in said
    assert "Lost: positions 2 to 6, among them 4 batches (3728 bytes)" in said
    assert f"esker journal repair {damaged}" in said


def test_repair_asks_first_and_changes_nothing_when_declined(damaged: Path) -> None:
    before = {path.name: path.read_bytes() for path in damaged.iterdir()}
    result = runner.invoke(app, ["repair", str(damaged)], input="n\n")
    assert result.exit_code == 1
    assert "positions 2 to 6" in words(result.output)
    assert {path.name: path.read_bytes() for path in damaged.iterdir()} == before


def test_a_repaired_journal_opens(damaged: Path) -> None:
    result = runner.invoke(app, ["repair", str(damaged), "--yes"])
    assert result.exit_code == 0
    assert "now ends with position 1" in words(result.output)
    assert words(result.output).count("set aside:") == 2
    journal = FileJournal(damaged, segment_bytes=4096)
    assert journal.last_position == 1
    journal.close()


def test_repairing_a_sound_journal_does_nothing(directory: Path) -> None:
    result = runner.invoke(app, ["repair", str(directory)])
    assert result.exit_code == 0
    assert "Nothing to repair." in result.output


def test_a_directory_without_a_journal_is_an_error_of_use(tmp_path: Path) -> None:
    result = runner.invoke(app, ["check", str(tmp_path / "nothing")])
    assert result.exit_code == 2
    assert "cannot be read" in words(result.output)
