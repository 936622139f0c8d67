"""Segments are made ahead, used one after the other, and go or come back as spares when they are no longer needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from esker.journal.file import FileJournal
from esker.journal.frame import SEGMENT_HEADER_BYTES, SegmentHeader, decode_segment_header
from esker.testing.faults import FaultyDisk
from tests.journal.answers import append_and_wait, append_at_once

SEGMENT_BYTES = 4096
BIG = b"x" * 3900  # one to a segment


def open_journal(directory: Path) -> FileJournal:
    return FileJournal(directory, segment_bytes=SEGMENT_BYTES)


def names(directory: Path, suffix: str) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.suffix == suffix)


def test_a_spare_of_full_size_is_ready_before_it_is_needed(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.settle()
    (spare,) = names(tmp_path, ".spare")
    assert (tmp_path / spare).read_bytes() == bytes(SEGMENT_BYTES)
    journal.close()


def test_an_append_into_a_segment_never_makes_it_grow(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    append_and_wait(journal, *[b"x" * 500] * 20)
    journal.close()
    assert {path.stat().st_size for path in tmp_path.glob("*.segment")} == {SEGMENT_BYTES}


def test_segments_are_named_after_their_first_position(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    append_and_wait(journal, BIG, BIG, b"small", BIG)
    journal.close()
    assert names(tmp_path, ".segment") == [f"{first:020d}.segment" for first in (1, 2, 4)]


def test_a_frame_bigger_than_a_segment_gets_one_of_its_own_size(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    huge = bytes(range(256)) * 400
    append_at_once(journal, b"before", huge, b"after")
    journal.close()
    assert (tmp_path / f"{2:020d}.segment").stat().st_size > len(huge)
    assert (tmp_path / f"{3:020d}.segment").stat().st_size == SEGMENT_BYTES
    journal = open_journal(tmp_path)
    assert [batch for _, batch in journal.read(0)] == [b"before", huge, b"after"]
    journal.close()


@pytest.mark.parametrize("size", range(SEGMENT_BYTES - 64 - 32 - 40, SEGMENT_BYTES - 64 - 32 + 8))
def test_frames_around_the_size_of_a_segment_are_kept(tmp_path: Path, size: int) -> None:
    journal = open_journal(tmp_path)
    append_at_once(journal, b"a" * size, b"b" * size, b"c")
    journal.close()
    journal = open_journal(tmp_path)
    assert [len(batch) for _, batch in journal.read(0)] == [size, size, 1]
    assert list(journal.notes) == []
    journal.close()


def test_retired_segments_go_and_at_most_two_stay_as_spares(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    append_and_wait(journal, *[BIG] * 8)
    journal.retire(6)
    assert journal.first_position == 7
    journal.settle()
    assert names(tmp_path, ".segment") == [f"{first:020d}.segment" for first in (7, 8)]
    assert len(names(tmp_path, ".spare")) == 2
    journal.close()


def test_the_newest_segment_stays_even_when_all_of_it_is_retired(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    append_and_wait(journal, BIG, BIG)
    journal.retire(2)
    journal.settle()
    assert names(tmp_path, ".segment") == [f"{2:020d}.segment"]
    assert (journal.first_position, journal.last_position) == (2, 2)
    journal.close()


def test_a_recycled_segment_has_a_new_identity_and_its_old_frames_never_come_back(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    seen: list[SegmentHeader] = []
    for number in range(1, 60):
        # Equal sizes, so that old frames lie exactly where the walk would look for the next one.
        append_and_wait(journal, *[bytes([number]) * 800] * 3)
        journal.retire(journal.last_position - 3)
        journal.settle()
        for path in tmp_path.glob("*.segment"):
            header = decode_segment_header(path.read_bytes()[:SEGMENT_HEADER_BYTES], path.name)
            assert header is not None
            header = SegmentHeader(header.segment_id, header.first_position)
            if header not in seen:
                seen.append(header)
        journal.close()
        journal = open_journal(tmp_path)
        assert list(journal.notes) == []
        assert journal.last_position == 3 * number
        assert [batch for _, batch in journal.read(3 * number - 3)] == [bytes([number]) * 800] * 3
    journal.close()
    assert len({header.segment_id for header in seen}) == len(seen) > 40


def test_the_retire_callback_sees_each_segment_whole_and_oldest_first(tmp_path: Path) -> None:
    seen: list[tuple[str, bool]] = []

    def on_retire(path: Path) -> None:
        seen.append((path.name, BIG in path.read_bytes()))

    journal = FileJournal(tmp_path, segment_bytes=SEGMENT_BYTES, on_retire=on_retire)
    append_and_wait(journal, *[BIG] * 5)
    journal.retire(2)
    journal.retire(4)
    journal.close()
    assert seen == [(f"{first:020d}.segment", True) for first in (1, 2, 3, 4)]


def test_a_retire_callback_that_fails_keeps_its_segment_and_all_behind_it(tmp_path: Path) -> None:
    refuse = True

    def on_retire(path: Path) -> None:
        if refuse and path.name.endswith("2.segment"):
            raise OSError("the archive is away")

    journal = FileJournal(tmp_path, segment_bytes=SEGMENT_BYTES, on_retire=on_retire)
    append_and_wait(journal, *[BIG] * 5)
    journal.retire(4)
    journal.settle()
    journal.settle()
    assert names(tmp_path, ".segment") == [f"{first:020d}.segment" for first in (2, 3, 4, 5)]
    (note,) = journal.notes
    assert "the archive is away" in note
    refuse = False
    journal.settle()
    assert names(tmp_path, ".segment") == [f"{5:020d}.segment"]
    journal.close()


def test_half_made_and_odd_sized_spares_are_thrown_away_when_opening(tmp_path: Path) -> None:
    (tmp_path / "0007.filling").write_bytes(b"\0" * 100)
    (tmp_path / "0008.spare").write_bytes(b"\0" * 100)
    (tmp_path / "notes.txt").write_text("not ours")
    journal = open_journal(tmp_path)
    journal.settle()
    assert names(tmp_path, ".filling") == []
    assert [(tmp_path / name).stat().st_size for name in names(tmp_path, ".spare")] == [SEGMENT_BYTES]
    assert (tmp_path / "notes.txt").read_text() == "not ours"
    journal.close()


def test_a_spare_with_old_content_from_before_a_restart_is_used_safely(tmp_path: Path) -> None:
    (tmp_path / "0001.spare").write_bytes(b"\xff" * SEGMENT_BYTES)
    journal = open_journal(tmp_path)
    append_and_wait(journal, b"one", b"two")
    crash = {path.name: path.read_bytes() for path in tmp_path.glob("*.segment")}
    journal.close()
    for name, content in crash.items():  # as a killed process leaves it: without a seal
        (tmp_path / name).write_bytes(content)
    journal = open_journal(tmp_path)
    assert [batch for _, batch in journal.read(0)] == [b"one", b"two"]
    assert list(journal.notes) == []
    journal.close()


def test_a_spare_is_made_while_appends_go_on(tmp_path: Path) -> None:
    disk = FaultyDisk()
    journal = FileJournal(tmp_path, segment_bytes=SEGMENT_BYTES, sync_interval_ms=3_600_000, disk=disk)
    append_and_wait(journal, b"before" * 20)
    journal.settle()
    append_and_wait(journal, BIG, sync=False)  # takes the spare; the next one is being made
    with disk.hold_syncs():
        assert append_and_wait(journal, b"meanwhile", sync=False) == [None]
    journal.close()
