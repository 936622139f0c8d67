"""A disk that fails or fills up stops the journal: what was answered stays, what failed leaves nothing."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from time import monotonic, sleep

import pytest

from esker.errors import JournalError, JournalFull, SyncFailed
from esker.journal.file import FileJournal
from esker.journal.patience import Patience
from esker.journal.segment import segment_path
from esker.testing.faults import FaultyDisk
from tests.journal.answers import Answers, append_and_wait

SEGMENT_BYTES = 4096
BIG_BYTES = 3960  # nearly a segment: no other frame fits beside it
NEVER_MS = 3_600_000  # longer than any test: nothing happens by the clock


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def journal(tmp_path: Path, disk: FaultyDisk) -> Iterator[FileJournal]:
    """One synced batch in its first segment, a spare in hand."""
    opened = open_journal(tmp_path, disk)
    append_and_wait(opened, b"before")
    opened.settle()
    yield opened
    opened.close()


def open_journal(
    directory: Path, disk: FaultyDisk, sync_interval_ms: int = NEVER_MS, patience: Patience | None = None
) -> FileJournal:
    return FileJournal(
        directory,
        segment_bytes=SEGMENT_BYTES,
        sync_interval_ms=sync_interval_ms,
        reserve_bytes=0,
        space_check_ms=NEVER_MS,
        disk=disk,
        patience=Patience(seconds=0) if patience is None else patience,
    )


def kept(directory: Path) -> list[bytes]:
    journal = FileJournal(directory, segment_bytes=SEGMENT_BYTES)
    try:
        return [batch for _, batch in journal.read(0)]
    finally:
        journal.close()


def test_a_failed_sync_stops_the_journal_and_is_never_tried_again(
    tmp_path: Path, journal: FileJournal, disk: FaultyDisk
) -> None:
    disk.fail_sync()
    first, *later = append_and_wait(journal, b"failed", b"later", b"last")
    assert isinstance(first, SyncFailed)
    assert isinstance(first.__cause__, OSError)
    for error in later:
        assert isinstance(error, SyncFailed)
        assert error.__cause__ is first
    syncs, writes = disk.syncs, disk.writes
    append_and_wait(journal, b"more", sync=False)
    journal.close()
    assert (disk.syncs, disk.writes) == (syncs, writes)
    assert kept(tmp_path) == [b"before"]


def test_all_appends_of_a_write_whose_sync_failed_are_answered_with_it(
    tmp_path: Path, journal: FileJournal, disk: FaultyDisk
) -> None:
    answers = Answers()
    with disk.hold_syncs() as held:
        answers.append(journal, b"in flight")
        held.wait_begun()
        for _ in range(5):
            answers.append(journal, b"gathered")
        disk.fail_sync()
    answers.wait()
    assert [position for position, _ in answers.order] == [2, 3, 4, 5, 6, 7]
    assert answers.errors[0] is None
    assert all(isinstance(error, SyncFailed) for error in answers.errors[1:])
    journal.close()
    assert kept(tmp_path) == [b"before", b"in flight"]


def test_what_gathers_behind_a_slow_sync_shares_one_write_and_one_sync(journal: FileJournal, disk: FaultyDisk) -> None:
    answers = Answers()
    with disk.hold_syncs() as held:
        answers.append(journal, b"slow")
        held.wait_begun()
        syncs, writes = disk.syncs, disk.writes
        for number in range(20):
            answers.append(journal, b"x", sync=number % 2 == 0)
        assert answers.order == []
        held.release()
        answers.wait()
    # Three: the mark behind what was held, the frames, and their mark.
    assert (disk.syncs, disk.writes) == (syncs + 1, writes + 3)
    assert answers.errors == [None] * 21


def test_an_append_without_sync_is_answered_while_the_disk_is_slow_to_sync(tmp_path: Path, disk: FaultyDisk) -> None:
    journal = open_journal(tmp_path, disk, sync_interval_ms=1)
    append_and_wait(journal, b"before")
    journal.settle()
    with disk.hold_syncs() as held:
        assert append_and_wait(journal, b"unsynced", sync=False) == [None]
        # And the sync comes by itself.
        held.wait_begun()
    journal.close()


def test_a_sync_nobody_waits_for_that_fails_is_told_to_the_next_append(tmp_path: Path, disk: FaultyDisk) -> None:
    journal = open_journal(tmp_path, disk, sync_interval_ms=1)
    append_and_wait(journal, b"before")
    journal.settle()
    with disk.hold_syncs() as held:
        disk.fail_sync()
        assert append_and_wait(journal, b"answered", sync=False) == [None]
        held.wait_begun()
    (error,) = append_and_wait(journal, b"next")
    assert isinstance(error, SyncFailed)
    journal.close()
    assert kept(tmp_path) == [b"before", b"answered"]


@pytest.mark.parametrize("keep_bytes", [0, 1, 31, 32, 35])
def test_a_write_that_fails_half_way_leaves_nothing(
    tmp_path: Path, journal: FileJournal, disk: FaultyDisk, keep_bytes: int
) -> None:
    disk.tear_write(keep_bytes)
    (error,) = append_and_wait(journal, b"half of this")
    assert type(error) is JournalError
    journal.close()
    reopened = FileJournal(tmp_path, segment_bytes=SEGMENT_BYTES)
    assert list(reopened.read(0)) == [(1, b"before")]
    assert list(reopened.notes) == []  # it was cut at once, not left for now
    reopened.close()


def test_a_full_disk_is_foretold_while_appends_still_succeed(
    tmp_path: Path, journal: FileJournal, disk: FaultyDisk
) -> None:
    disk.limit_space(0)
    journal.settle()
    assert journal.has_room()  # one spare is in hand, and no reserve is asked for
    assert append_and_wait(journal, b"x" * 3000) == [None]  # fits in the segment there is
    assert append_and_wait(journal, b"y" * 3000) == [None]  # takes the spare
    journal.settle()
    assert not journal.has_room()
    assert append_and_wait(journal, b"z" * 100) == [None]


def test_an_append_without_any_space_is_refused_and_earlier_ones_stay(
    tmp_path: Path, journal: FileJournal, disk: FaultyDisk
) -> None:
    disk.limit_space(100)
    big = b"x" * BIG_BYTES
    first, second, third, fourth = append_and_wait(journal, big, big, big, b"small")
    assert (first, isinstance(second, JournalFull)) == (None, True)
    assert isinstance(third, JournalFull)
    assert isinstance(fourth, JournalFull)
    assert third.__cause__ is second
    journal.close()
    disk.limit_space(None)
    assert kept(tmp_path) == [b"before", big]


def test_an_append_that_needs_a_new_segment_waits_until_there_is_space_for_one(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    patience = Patience(pause_s=0.001)
    journal = open_journal(tmp_path, disk, patience=patience)
    big = b"x" * BIG_BYTES
    append_and_wait(journal, big)
    journal.settle()
    disk.limit_space(0)
    append_and_wait(journal, big)  # in the spare
    answers = Answers()
    answers.append(journal, big)
    answers.append(journal, b"behind it")
    _until_it_waits(journal, "left for a new journal segment")
    assert not answers.order, "nothing is answered before it is on disk"
    disk.limit_space(None)
    answers.wait()
    assert answers.errors == [None, None]
    assert journal.waits_for is None
    journal.close()
    assert kept(tmp_path) == [big, big, big, b"behind it"]


def test_a_new_segment_waits_until_there_is_a_file_descriptor_for_it(tmp_path: Path, disk: FaultyDisk) -> None:
    journal = open_journal(tmp_path, disk, patience=Patience(pause_s=0.001))
    big = b"x" * BIG_BYTES
    append_and_wait(journal, big)
    journal.settle()
    disk.deny_descriptors()
    answers = Answers()
    answers.append(journal, big)
    _until_it_waits(journal, "Too many open files")
    assert not answers.order
    disk.deny_descriptors(denied=False)
    answers.wait()
    assert answers.errors == [None]
    journal.close()
    assert kept(tmp_path) == [big, big]


class _LosesDescriptors(FaultyDisk):
    """Others take the last descriptors just when a spare has got the name of a segment."""

    def __init__(self, segment: Path) -> None:
        super().__init__()
        self._segment = segment

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        if new == self._segment:
            self.deny_descriptors()


def test_a_new_segment_waits_until_there_is_a_file_descriptor_for_its_directory(tmp_path: Path) -> None:
    disk = _LosesDescriptors(segment_path(tmp_path, 2))
    journal = open_journal(tmp_path, disk, patience=Patience(pause_s=0.001))
    big = b"x" * BIG_BYTES
    append_and_wait(journal, big)
    journal.settle()
    answers = Answers()
    answers.append(journal, big)
    _until_it_waits(journal, "Too many open files")
    assert not answers.order, "nothing is answered before the entry of its segment is on disk"
    disk.deny_descriptors(denied=False)
    answers.wait()
    assert answers.errors == [None]
    journal.close()
    assert kept(tmp_path) == [big, big]


def test_a_journal_that_is_closed_waits_for_nothing(tmp_path: Path, disk: FaultyDisk) -> None:
    journal = open_journal(tmp_path, disk, patience=Patience(seconds=3600, pause_s=3600))
    append_and_wait(journal, b"x" * BIG_BYTES)
    journal.settle()
    disk.deny_descriptors()
    answers = Answers()
    answers.append(journal, b"x" * BIG_BYTES)
    _until_it_waits(journal, "Too many open files")
    journal.close()
    answers.wait()
    assert isinstance(answers.errors[0], JournalError)
    disk.deny_descriptors(denied=False)
    assert kept(tmp_path) == [b"x" * BIG_BYTES]


def test_a_failed_sync_of_a_new_segment_is_not_tried_again_however_patient_the_journal_is(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    journal = open_journal(tmp_path, disk, patience=Patience(seconds=3600, pause_s=3600))
    append_and_wait(journal, b"x" * BIG_BYTES)
    journal.settle()
    disk.fail_sync(of=".spare", error=errno.ENOSPC)
    (error,) = append_and_wait(journal, b"x" * BIG_BYTES)
    assert isinstance(error, SyncFailed)
    journal.close()


def _until_it_waits(journal: FileJournal, why: str) -> None:
    deadline = monotonic() + 30
    while why not in (journal.waits_for or ""):
        assert monotonic() < deadline, "it never waited"
        sleep(0.001)  # what the journal says of itself is the only sign


def test_a_frame_too_big_for_the_disk_is_refused_as_full(
    tmp_path: Path, journal: FileJournal, disk: FaultyDisk
) -> None:
    disk.limit_space(10 * SEGMENT_BYTES)
    (error,) = append_and_wait(journal, b"x" * 20 * SEGMENT_BYTES)
    assert isinstance(error, JournalFull)
    assert disk.free_bytes(tmp_path) == 10 * SEGMENT_BYTES  # what was filled so far was given back
    journal.close()
    disk.limit_space(None)
    assert kept(tmp_path) == [b"before"]


def test_room_returns_when_space_does(journal: FileJournal, disk: FaultyDisk) -> None:
    disk.limit_space(0)
    append_and_wait(journal, b"x" * BIG_BYTES)
    journal.settle()
    assert not journal.has_room()
    disk.limit_space(None)
    journal.settle()
    assert journal.has_room()


def test_room_returns_when_segments_retire(journal: FileJournal, disk: FaultyDisk) -> None:
    append_and_wait(journal, *[b"x" * BIG_BYTES] * 3)
    journal.settle()
    disk.limit_space(0)
    append_and_wait(journal, b"x" * BIG_BYTES)
    journal.settle()
    assert not journal.has_room()
    journal.retire(4)
    journal.settle()
    assert journal.has_room()
    assert append_and_wait(journal, b"x" * BIG_BYTES, b"x" * BIG_BYTES) == [None, None]


def test_a_disk_below_the_reserve_has_no_room_although_a_spare_is_there(tmp_path: Path, disk: FaultyDisk) -> None:
    journal = FileJournal(
        tmp_path, segment_bytes=SEGMENT_BYTES, reserve_bytes=100_000, space_check_ms=NEVER_MS, disk=disk
    )
    journal.settle()
    assert journal.has_room()
    disk.limit_space(99_999)
    journal.settle()
    assert not journal.has_room()
    # The reserve is for the appends that must go on.
    assert append_and_wait(journal, *[b"x" * BIG_BYTES] * 8) == [None] * 8
    journal.close()


def test_a_disk_that_cannot_sync_a_new_segment_stops_the_journal(
    tmp_path: Path, journal: FileJournal, disk: FaultyDisk
) -> None:
    disk.fail_sync(of=".spare")  # its header is synced before it gets its name
    (error,) = append_and_wait(journal, b"x" * BIG_BYTES)
    assert isinstance(error, SyncFailed)
    journal.close()
    assert kept(tmp_path) == [b"before"]


def test_a_callback_that_raises_stops_the_journal_instead_of_hanging_it(tmp_path: Path, journal: FileJournal) -> None:
    called = Event()

    def broken(error: BaseException | None) -> None:
        called.set()
        raise RuntimeError("the loop is closed")

    journal.append(b"kept", True, broken)
    assert called.wait(30)
    (error,) = append_and_wait(journal, b"later")
    assert isinstance(error, JournalError)
    assert "the loop is closed" in str(error)
    journal.close()
    assert kept(tmp_path) == [b"before", b"kept"]
