"""A crash in the middle of an append costs that append and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from esker.journal.file import FileJournal
from esker.journal.frame import FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES
from esker.journal.segment import segment_path
from tests.journal.answers import append_and_wait, append_at_once, without_marks

SEGMENT_BYTES = 4096
BATCHES = [b"first", b"second", b"the one that tears"]
LAST_START = SEGMENT_HEADER_BYTES + sum(FRAME_HEADER_BYTES + len(batch) for batch in BATCHES[:-1])
LAST_END = LAST_START + FRAME_HEADER_BYTES + len(BATCHES[-1])


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A journal as a loss of power leaves it during its last append: all of it written, by chance, and none noted."""
    directory = tmp_path / "journal"
    journal = FileJournal(directory, segment_bytes=SEGMENT_BYTES)
    append_and_wait(journal, *BATCHES)
    journal.close()
    without_marks(segment_path(directory, 1), LAST_END)
    return directory


def test_a_journal_whose_last_append_was_not_noted_opens_without_a_note(crashed: Path) -> None:
    journal = FileJournal(crashed, segment_bytes=SEGMENT_BYTES)
    assert list(journal.read(0)) == list(enumerate(BATCHES, 1))
    assert list(journal.notes) == []
    journal.close()


@pytest.mark.parametrize("kept", range(1, LAST_END - LAST_START))
@pytest.mark.parametrize("behind", [b"\0", b"\xaa"], ids=["zeros", "old bytes"])
def test_a_last_frame_torn_at_any_byte_is_cut_and_noted(crashed: Path, kept: int, behind: bytes) -> None:
    path = segment_path(crashed, 1)
    content = path.read_bytes()
    path.write_bytes(content[: LAST_START + kept] + behind * (len(content) - LAST_START - kept))
    journal = FileJournal(crashed, segment_bytes=SEGMENT_BYTES)
    assert list(journal.read(0)) == [(1, b"first"), (2, b"second")]
    (note,) = journal.notes
    assert str(path) in note
    assert f"offset {LAST_START}" in note
    assert append_and_wait(journal, b"instead") == [None]
    journal.close()
    journal = FileJournal(crashed, segment_bytes=SEGMENT_BYTES)
    assert list(journal.read(0)) == [(1, b"first"), (2, b"second"), (3, b"instead")]
    assert list(journal.notes) == []
    journal.close()


def test_a_torn_tail_is_noted_once_even_if_nothing_is_appended(crashed: Path) -> None:
    path = segment_path(crashed, 1)
    content = path.read_bytes()
    path.write_bytes(content[: LAST_END - 1] + b"?" + content[LAST_END:])
    for notes in (1, 0):
        journal = FileJournal(crashed, segment_bytes=SEGMENT_BYTES)
        assert (journal.last_position, len(journal.notes)) == (2, notes)
        journal.close()


def test_the_note_counts_the_bytes_that_were_cut(crashed: Path) -> None:
    path = segment_path(crashed, 1)
    content = path.read_bytes()
    torn = content[: LAST_END - 5] + bytes(len(content) - LAST_END + 5)
    path.write_bytes(torn)
    journal = FileJournal(crashed, segment_bytes=SEGMENT_BYTES)
    assert f"{LAST_END - LAST_START} bytes were cut" in journal.notes[0]
    journal.close()


@pytest.mark.parametrize("size", [LAST_START + 1, LAST_START + 20, LAST_END - 1])
def test_a_file_that_ends_within_the_last_frame_is_a_torn_tail(crashed: Path, size: int) -> None:
    path = segment_path(crashed, 1)
    path.write_bytes(path.read_bytes()[:size])
    journal = FileJournal(crashed, segment_bytes=SEGMENT_BYTES)
    assert journal.last_position == 2
    assert len(journal.notes) == 1
    journal.close()


def test_a_lost_first_part_of_an_unsynced_write_is_a_torn_tail_although_good_frames_follow(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    journal = FileJournal(directory, segment_bytes=SEGMENT_BYTES, sync_interval_ms=3_600_000)
    append_and_wait(journal, b"safe")
    append_at_once(journal, b"lost" * 10, b"whole but unsynced", b"so is this", sync=False)
    crash = tmp_path / "crash"
    shutil.copytree(directory, crash)
    journal.close()
    start = SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES + len(b"safe")
    path = segment_path(crash, 1)
    content = bytearray(path.read_bytes())
    content[start : start + FRAME_HEADER_BYTES + 40] = bytes(FRAME_HEADER_BYTES + 40)
    path.write_bytes(content)
    journal = FileJournal(crash, segment_bytes=SEGMENT_BYTES)
    assert list(journal.read(0)) == [(1, b"safe")]
    assert len(journal.notes) == 1
    # The same lengths again: what was cut must not come back as the continuation.
    append_and_wait(journal, b"Lost" * 10)
    journal.close()
    journal = FileJournal(crash, segment_bytes=SEGMENT_BYTES)
    assert list(journal.read(0)) == [(1, b"safe"), (2, b"Lost" * 10)]
    journal.close()


def test_a_segment_whose_only_frame_is_torn_makes_way_for_a_new_one(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    journal = FileJournal(directory, segment_bytes=SEGMENT_BYTES)
    append_and_wait(journal, b"a" * 3900, b"b" * 3900)
    journal.close()
    path = segment_path(directory, 2)
    without_marks(path, SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES + 3900)
    content = path.read_bytes()
    path.write_bytes(content[:1000] + bytes(len(content) - 1000))
    journal = FileJournal(directory, segment_bytes=SEGMENT_BYTES)
    assert (journal.last_position, len(journal.notes)) == (1, 1)
    append_and_wait(journal, b"c", b"d")
    assert (journal.first_position, journal.last_position) == (1, 3)
    journal.close()
    journal = FileJournal(directory, segment_bytes=SEGMENT_BYTES)
    assert list(journal.read(1)) == [(2, b"c"), (3, b"d")]
    journal.close()
