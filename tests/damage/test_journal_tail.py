"""What was synced when a process was killed is known to be missing, wherever in the tail it is damaged."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from time import monotonic, sleep

import pytest
from xxhash import xxh3_64_intdigest

from esker.errors import JournalCorrupt
from esker.journal import writer
from esker.journal.file import FileJournal
from esker.journal.frame import FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES
from esker.journal.repair import inspect, repair
from esker.journal.segment import segment_path
from tests.journal.answers import append_and_wait, append_at_once, without_marks

SEGMENT_BYTES = 4096
BATCHES = [b"first batch", b"second batch", b"the last one that was acknowledged"]
LAST_START = SEGMENT_HEADER_BYTES + sum(FRAME_HEADER_BYTES + len(batch) for batch in BATCHES[:-1])
LAST_END = LAST_START + FRAME_HEADER_BYTES + len(BATCHES[-1])


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A journal whose process was killed: everything was acknowledged as synced, nothing was closed."""
    directory, killed = tmp_path / "running", tmp_path / "killed"
    journal = FileJournal(directory, segment_bytes=SEGMENT_BYTES)
    append_and_wait(journal, *BATCHES)
    shutil.copytree(directory, killed)
    journal.close()
    return killed


def test_a_journal_left_by_a_killed_process_opens_without_a_note(killed: Path) -> None:
    journal = FileJournal(killed, segment_bytes=SEGMENT_BYTES)
    assert list(journal.read(0)) == list(enumerate(BATCHES, 1))
    assert list(journal.notes) == []
    append_and_wait(journal, b"goes on")
    journal.close()
    assert inspect(killed).kept_upto == 4


@pytest.mark.parametrize("place", range(LAST_START, LAST_END, 7))
def test_a_flipped_bit_in_the_last_synced_frame_is_refused_and_repair_says_what_is_lost(
    killed: Path, place: int
) -> None:
    path = segment_path(killed, 1)
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)
    with pytest.raises(JournalCorrupt, match="position 3 was on disk and cannot be read"):
        FileJournal(killed, segment_bytes=SEGMENT_BYTES)
    report = inspect(killed)
    assert report.loss is not None
    assert (report.loss.first_position, report.loss.last_position) == (3, 3)
    repair(killed)
    journal = FileJournal(killed, segment_bytes=SEGMENT_BYTES)
    assert list(journal.read(0)) == list(enumerate(BATCHES[:-1], 1))
    journal.close()


@pytest.mark.parametrize("place", range(LAST_END, LAST_END + FRAME_HEADER_BYTES, 5))
def test_a_damaged_mark_costs_nothing_that_was_appended(killed: Path, place: int) -> None:
    path = segment_path(killed, 1)
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)
    journal = FileJournal(killed, segment_bytes=SEGMENT_BYTES)
    assert list(journal.read(0)) == list(enumerate(BATCHES, 1))
    journal.close()


@pytest.mark.parametrize("damage", ["zeros", "cut"])
def test_a_tail_that_goes_with_its_mark_is_missed_by_the_segment_header(tmp_path: Path, damage: str) -> None:
    """A close notes it there at once; a running writer does within a second."""
    journal = FileJournal(tmp_path, segment_bytes=SEGMENT_BYTES)
    append_and_wait(journal, *BATCHES)
    journal.close()
    path = segment_path(tmp_path, 1)
    content = path.read_bytes()[:LAST_START]
    path.write_bytes(content if damage == "cut" else content.ljust(SEGMENT_BYTES, b"\0"))
    with pytest.raises(JournalCorrupt, match="position 3 was on disk and cannot be read"):
        FileJournal(tmp_path, segment_bytes=SEGMENT_BYTES)
    repair(tmp_path)
    journal = FileJournal(tmp_path, segment_bytes=SEGMENT_BYTES)
    assert journal.last_position == 2
    journal.close()


def test_a_running_writer_notes_in_the_segment_header_what_is_synced(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "running", segment_bytes=SEGMENT_BYTES)
    append_and_wait(journal, *BATCHES)  # the first commit is noted there before the second is begun
    shutil.copytree(tmp_path / "running", tmp_path / "killed")
    journal.close()
    path = segment_path(tmp_path / "killed", 1)
    path.write_bytes(path.read_bytes()[:SEGMENT_HEADER_BYTES].ljust(SEGMENT_BYTES, b"\0"))
    with pytest.raises(JournalCorrupt, match="position 1 was on disk and cannot be read"):
        FileJournal(tmp_path / "killed", segment_bytes=SEGMENT_BYTES)


def test_a_sync_that_nobody_asked_for_is_marked_behind_the_last_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_HEADER_MARK_S", 3600.0)  # the header does not tell of it
    journal = FileJournal(tmp_path / "running", segment_bytes=SEGMENT_BYTES, sync_interval_ms=10)
    append_and_wait(journal, *BATCHES[:-1])
    append_at_once(journal, BATCHES[-1], sync=False)
    path = segment_path(tmp_path / "running", 1)
    deadline = monotonic() + 10
    while not any(path.read_bytes()[LAST_END : LAST_END + FRAME_HEADER_BYTES]):
        assert monotonic() < deadline, "it was never marked"
        sleep(0.005)
    shutil.copytree(tmp_path / "running", tmp_path / "killed")
    journal.close()
    path = segment_path(tmp_path / "killed", 1)
    content = bytearray(path.read_bytes())
    content[LAST_END - 1] ^= 4
    path.write_bytes(content)
    with pytest.raises(JournalCorrupt, match="position 3 was on disk and cannot be read"):
        FileJournal(tmp_path / "killed", segment_bytes=SEGMENT_BYTES)


def test_a_frame_beyond_a_mark_that_was_not_overwritten_does_not_come_back(tmp_path: Path) -> None:
    """After a loss of power the place of a frame may still hold the mark of the sync before it."""
    journal = FileJournal(tmp_path / "running", segment_bytes=SEGMENT_BYTES, sync_interval_ms=3_600_000)
    append_and_wait(journal, b"safe")
    path = segment_path(tmp_path / "running", 1)
    start = SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES + len(b"safe")
    mark = path.read_bytes()[start : start + FRAME_HEADER_BYTES]
    append_at_once(journal, b"lost" * 10, b"whole but unsynced", sync=False)
    shutil.copytree(tmp_path / "running", tmp_path / "crashed")
    journal.close()
    path = segment_path(tmp_path / "crashed", 1)
    content = bytearray(path.read_bytes())
    content[start : start + FRAME_HEADER_BYTES] = mark
    path.write_bytes(content)
    for appended in (b"Lost" * 10, None):
        journal = FileJournal(tmp_path / "crashed", segment_bytes=SEGMENT_BYTES)
        if appended is not None:
            assert list(journal.read(0)) == [(1, b"safe")]
            append_and_wait(journal, appended)
        else:
            assert list(journal.read(0)) == [(1, b"safe"), (2, b"Lost" * 10)]
        journal.close()


def test_a_segment_of_format_1_is_read_and_what_comes_goes_into_a_new_one(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path, segment_bytes=SEGMENT_BYTES)
    append_and_wait(journal, *BATCHES)
    journal.close()
    path = segment_path(tmp_path, 1)
    without_marks(path, LAST_END)
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, 8, 1)
    struct.pack_into("<Q", content, 32, xxh3_64_intdigest(bytes(content[:32])))
    path.write_bytes(content)
    for appended in (b"by a newer Esker", b"and again"):
        journal = FileJournal(tmp_path, segment_bytes=SEGMENT_BYTES)
        append_and_wait(journal, appended)
        journal.close()
    assert path.read_bytes() == content, "a format 1 segment was changed"
    journal = FileJournal(tmp_path, segment_bytes=SEGMENT_BYTES)
    assert [batch for _, batch in journal.read(0)] == [*BATCHES, b"by a newer Esker", b"and again"]
    assert list(journal.notes) == []
    journal.close()
