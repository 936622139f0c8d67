"""Damage to something that was promised is never passed over: opening refuses it, repair names its price first."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from esker.errors import DataDirectoryError, JournalCorrupt
from esker.journal.disk import RealDisk
from esker.journal.file import FileJournal
from esker.journal.frame import FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, VERSION
from esker.journal.repair import Loss, inspect, repair
from esker.journal.segment import segment_path
from tests.journal.answers import append_and_wait, append_at_once, without_marks

SEGMENT_BYTES = 4096
BATCH_BYTES = 900  # four to a segment: segments begin at 1, 5, 9
FRAME_BYTES = FRAME_HEADER_BYTES + BATCH_BYTES


def batch(position: int) -> bytes:
    return bytes([position]) * BATCH_BYTES


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Positions 1 to 10 in three segments, closed in order."""
    path = tmp_path / "journal"
    journal = FileJournal(path, segment_bytes=SEGMENT_BYTES)
    append_and_wait(journal, *map(batch, range(1, 11)))
    journal.close()
    return path


def frame_start(index: int) -> int:
    return SEGMENT_HEADER_BYTES + index * FRAME_BYTES


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x10
    path.write_bytes(content)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def refusal(directory: Path) -> str:
    """Opens, expects a refusal that changed nothing, and gives its message."""
    before = contents(directory)
    with pytest.raises(JournalCorrupt) as caught:
        FileJournal(directory, segment_bytes=SEGMENT_BYTES)
    assert contents(directory) == before
    return str(caught.value)


@pytest.mark.parametrize("within", [0, 5, 9, 17, 25, 40, FRAME_BYTES - 1])
def test_a_bad_frame_before_good_ones_is_refused_with_its_place_and_the_way_out(directory: Path, within: int) -> None:
    path = segment_path(directory, 9)
    flip(path, frame_start(0) + within)
    message = refusal(directory)
    assert f"{path} is damaged at offset {frame_start(0)}" in message
    assert f"esker journal repair {directory}" in message


def test_a_bad_last_frame_of_a_segment_with_another_behind_it_is_refused(directory: Path) -> None:
    flip(segment_path(directory, 5), frame_start(3) + 100)
    assert f"damaged at offset {frame_start(3)}: position 8 should be here" in refusal(directory)


def test_a_bad_last_frame_of_a_sealed_journal_is_refused(directory: Path) -> None:
    flip(segment_path(directory, 9), frame_start(1) + 100)
    assert "position 10 was on disk" in refusal(directory)


def test_a_zeroed_stretch_before_good_frames_is_refused(directory: Path) -> None:
    path = segment_path(directory, 1)
    content = bytearray(path.read_bytes())
    content[frame_start(1) : frame_start(2)] = bytes(FRAME_BYTES)
    path.write_bytes(content)
    assert "position 2 should be here" in refusal(directory)


def test_a_missing_segment_in_the_middle_is_refused(directory: Path) -> None:
    segment_path(directory, 5).unlink()
    assert "positions 5 to 8 should be here" in refusal(directory)


def test_a_damaged_segment_header_is_refused(directory: Path) -> None:
    flip(segment_path(directory, 5), 20)
    assert "offset 0: the segment header is damaged" in refusal(directory)


def test_a_segment_under_the_name_of_another_is_refused(directory: Path) -> None:
    segment_path(directory, 1).rename(segment_path(directory, 3))
    assert "the header begins at position 1, the name at 3" in refusal(directory)


def test_a_newer_format_is_refused_untouched(directory: Path) -> None:
    path = segment_path(directory, 9)
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, 8, VERSION + 1)
    path.write_bytes(content)
    before = contents(directory)
    with pytest.raises(DataDirectoryError, match=f"journal format {VERSION + 1}"):
        FileJournal(directory, segment_bytes=SEGMENT_BYTES)
    with pytest.raises(DataDirectoryError, match=f"journal format {VERSION + 1}"):
        repair(directory)
    assert contents(directory) == before


def test_inspecting_a_sound_journal_finds_its_segments_and_no_loss(directory: Path) -> None:
    report = inspect(directory)
    assert [(s.first_position, s.last_position) for s in report.segments] == [(1, 4), (5, 8), (9, 10)]
    assert report.sound
    assert report.damage == ()
    assert report.kept_upto == 10


def test_a_torn_tail_is_reported_and_is_no_loss(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path, segment_bytes=SEGMENT_BYTES)
    append_and_wait(journal, b"one")
    append_at_once(journal, b"two")
    journal.close()
    path = segment_path(tmp_path, 1)
    without_marks(path, SEGMENT_HEADER_BYTES + 2 * (FRAME_HEADER_BYTES + 3))
    content = path.read_bytes()
    path.write_bytes(content[: SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES + 3 + 10])
    report = inspect(tmp_path)
    assert report.sound
    assert [damage.torn for damage in report.damage] == [True]
    assert repair(tmp_path).set_aside == ()


def test_inspecting_names_all_that_a_repair_would_lose(directory: Path) -> None:
    flip(segment_path(directory, 5), frame_start(1) + 100)
    before = contents(directory)
    report = inspect(directory)
    assert contents(directory) == before
    assert [(damage.path, damage.offset) for damage in report.damage] == [(segment_path(directory, 5), frame_start(1))]
    assert report.kept_upto == 5
    # Position 6 is damaged; 7 to 10 are good and have to go with it.
    assert report.loss == Loss(6, 10, 4, 4 * FRAME_BYTES)


def test_repair_keeps_what_comes_before_and_sets_the_rest_aside(directory: Path) -> None:
    flip(segment_path(directory, 5), frame_start(1) + 100)
    before = contents(directory)
    result = repair(directory)
    assert [path.name for path in result.set_aside] == [
        "00000000000000000005.segment.damaged",
        "00000000000000000009.segment.damaged",
    ]
    for path in result.set_aside:
        assert path.read_bytes() == before[path.name.removesuffix(".damaged")]
    journal = FileJournal(directory, segment_bytes=SEGMENT_BYTES)
    assert list(journal.read(0)) == [(n, batch(n)) for n in range(1, 6)]
    assert list(journal.notes) == []
    append_and_wait(journal, b"goes on")
    journal.close()
    assert inspect(directory).sound
    assert inspect(directory).kept_upto == 6


def test_repair_of_a_missing_segment_keeps_what_comes_before_the_gap(directory: Path) -> None:
    segment_path(directory, 5).unlink()
    assert inspect(directory).loss == Loss(5, 10, 2, 2 * FRAME_BYTES)
    assert [path.name for path in repair(directory).set_aside] == ["00000000000000000009.segment.damaged"]
    journal = FileJournal(directory, segment_bytes=SEGMENT_BYTES)
    assert journal.last_position == 4
    journal.close()


def test_repair_of_a_damaged_header_lets_positions_go_on(directory: Path) -> None:
    flip(segment_path(directory, 1), 20)
    assert inspect(directory).loss == Loss(1, 10, 6, 6 * FRAME_BYTES)
    repair(directory)
    journal = FileJournal(directory, segment_bytes=SEGMENT_BYTES)
    assert (journal.first_position, journal.last_position) == (1, 0)
    journal.close()


def test_repair_after_retirement_never_gives_a_position_twice(directory: Path) -> None:
    journal = FileJournal(directory, segment_bytes=SEGMENT_BYTES)
    journal.retire(8)
    journal.close()
    flip(segment_path(directory, 9), 20)
    repair(directory)
    journal = FileJournal(directory, segment_bytes=SEGMENT_BYTES)
    assert (journal.first_position, journal.last_position) == (9, 8)
    append_and_wait(journal, b"nine")
    journal.close()
    journal = FileJournal(directory, segment_bytes=SEGMENT_BYTES)
    assert list(journal.read(0)) == [(9, b"nine")]
    journal.close()


def test_what_was_set_aside_earlier_is_never_overwritten(directory: Path) -> None:
    flip(segment_path(directory, 5), frame_start(1) + 100)
    first = repair(directory).set_aside[0].read_bytes()
    journal = FileJournal(directory, segment_bytes=SEGMENT_BYTES)
    append_and_wait(journal, *[b"x" * 900] * 5)
    journal.close()
    flip(segment_path(directory, 5), frame_start(0) + 100)
    names = {path.name for path in repair(directory).set_aside}
    assert "00000000000000000005.segment.2.damaged" in names
    assert (directory / "00000000000000000005.segment.damaged").read_bytes() == first


def test_a_directory_without_a_journal_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryError, match="holds no journal segments"):
        inspect(tmp_path)
    with pytest.raises(DataDirectoryError, match="cannot be read"):
        inspect(tmp_path / "missing")


# -- damage that a checkpoint covers


def opened(directory: Path) -> tuple[int, list[tuple[int, bytes]]]:
    """The first position and all batches of a journal that opens without a complaint."""
    journal = FileJournal(directory, segment_bytes=SEGMENT_BYTES)
    try:
        assert list(journal.notes) == []
        return journal.first_position, list(journal.read(0))
    finally:
        journal.close()


@pytest.mark.parametrize("covered", [6, 7, 8, 9, 10])
def test_damage_that_a_checkpoint_covers_costs_nothing(directory: Path, covered: int) -> None:
    flip(segment_path(directory, 5), frame_start(1) + 100)  # position 6
    report = inspect(directory, covered)
    assert (report.sound, report.kept_upto, report.loss) == (False, 10, None)
    repair(directory, covered)
    assert opened(directory) == (covered + 1, [(n, batch(n)) for n in range(covered + 1, 11)])
    assert inspect(directory, covered).sound


def test_damage_that_begins_before_a_checkpoint_and_ends_behind_it_costs_what_is_behind(directory: Path) -> None:
    for index in (1, 2, 3):  # positions 6 to 8
        flip(segment_path(directory, 5), frame_start(index) + 100)
    assert inspect(directory, 7).loss == Loss(8, 10, 2, 2 * FRAME_BYTES)
    assert inspect(directory, 7).kept_upto == 7
    repair(directory, 7)
    assert opened(directory) == (8, [])


def test_behind_a_checkpoint_everything_is_kept_up_to_the_next_damage(directory: Path) -> None:
    flip(segment_path(directory, 1), frame_start(1) + 100)  # position 2
    flip(segment_path(directory, 9), frame_start(0) + 100)  # position 9
    assert inspect(directory, 3).loss == Loss(9, 10, 1, FRAME_BYTES)
    repair(directory, 3)
    assert opened(directory) == (4, [(n, batch(n)) for n in range(4, 9)])


def test_a_segment_without_a_header_that_a_checkpoint_covers_costs_nothing(directory: Path) -> None:
    flip(segment_path(directory, 5), 20)
    assert inspect(directory, 8).loss is None
    before = contents(directory)
    for path in repair(directory, 8).set_aside:
        assert path.read_bytes() == before[path.name.removesuffix(".damaged")]
    assert opened(directory) == (9, [(9, batch(9)), (10, batch(10))])


def test_damage_behind_a_checkpoint_costs_what_it_does_without_one(directory: Path) -> None:
    flip(segment_path(directory, 5), frame_start(1) + 100)
    assert inspect(directory, 5) == inspect(directory)
    repair(directory, 5)
    assert opened(directory) == (1, [(n, batch(n)) for n in range(1, 6)])


def test_a_journal_that_begins_behind_a_checkpoint_goes_on_from_there(directory: Path) -> None:
    flip(segment_path(directory, 9), 20)
    repair(directory, 10)
    journal = FileJournal(directory, segment_bytes=SEGMENT_BYTES)
    append_and_wait(journal, b"eleven")
    journal.close()
    assert opened(directory) == (11, [(11, b"eleven")])


class BreakingDisk(RealDisk):
    """Fails with the first change behind so many."""

    def __init__(self, changes: int) -> None:
        self.left = changes

    def _change(self) -> None:
        if not self.left:
            raise OSError("the power went")
        self.left -= 1

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        self._change()
        return super().write(fd, data, offset)

    def rename(self, old: Path, new: Path) -> None:
        self._change()
        super().rename(old, new)

    def link(self, old: Path, new: Path) -> None:
        self._change()
        super().link(old, new)


@pytest.mark.parametrize("covered", [0, 6, 8])
@pytest.mark.parametrize("changes", range(7))
def test_a_repair_that_was_cut_short_can_be_repeated(directory: Path, covered: int, changes: int) -> None:
    flip(segment_path(directory, 5), frame_start(1) + 100)
    try:
        repair(directory, covered, BreakingDisk(changes))
    except OSError:
        assert not inspect(directory, covered).sound
        repair(directory, covered)
    kept = range(covered + 1, 11) if covered else range(1, 6)
    assert opened(directory) == (kept[0], [(n, batch(n)) for n in kept])
