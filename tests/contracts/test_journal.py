"""What every journal adapter promises (see esker.journal.interface), held on each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from esker.errors import JournalError
from esker.journal.file import FileJournal
from esker.journal.interface import Journal
from esker.journal.memory import MemoryJournal
from tests.journal.answers import Answers, append_and_wait, append_at_once

SEGMENT_BYTES = 4096


class Subject:
    """A journal that can be restarted: closed and opened again over what it kept."""

    def __init__(self, journal: Journal, again: Callable[[Journal], Journal]) -> None:
        self.journal = journal
        self._again = again

    def restart(self) -> Journal:
        self.journal = self._again(self.journal)
        return self.journal


def memory_subject(directory: Path) -> Subject:
    def again(journal: Journal) -> Journal:
        assert isinstance(journal, MemoryJournal)
        return journal.reopen()

    return Subject(MemoryJournal(), again)


def file_subject(directory: Path) -> Subject:
    def again(journal: Journal) -> Journal:
        journal.close()
        return FileJournal(directory, segment_bytes=SEGMENT_BYTES)

    return Subject(FileJournal(directory, segment_bytes=SEGMENT_BYTES), again)


@pytest.fixture(params=[memory_subject, file_subject], ids=["memory", "file"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    build: Callable[[Path], Subject] = request.param
    built = build(tmp_path / "journal")
    yield built
    built.journal.close()


def test_a_new_journal_is_empty(subject: Subject) -> None:
    assert subject.journal.first_position == 1
    assert subject.journal.last_position == 0
    assert list(subject.journal.read(0)) == []
    assert subject.journal.has_room()
    assert list(subject.journal.notes) == []


def test_positions_begin_at_one_and_have_no_holes(subject: Subject) -> None:
    answers = Answers()
    assert [answers.append(subject.journal, b"x") for _ in range(5)] == [1, 2, 3, 4, 5]
    assert subject.journal.last_position == 5
    answers.wait()


@pytest.mark.parametrize("sync", [True, False])
def test_batches_come_back_in_order_after_a_restart(subject: Subject, sync: bool) -> None:
    batches = [b"one", b"", b"\0" * 100, b"four"]
    assert append_and_wait(subject.journal, *batches, sync=sync) == [None] * 4
    journal = subject.restart()
    assert list(journal.read(0)) == list(enumerate(batches, 1))
    assert (journal.first_position, journal.last_position) == (1, 4)
    assert list(journal.notes) == []


def test_reading_begins_behind_the_given_position(subject: Subject) -> None:
    batches = [bytes([n]) * 700 for n in range(30)]
    append_at_once(subject.journal, *batches)
    journal = subject.restart()
    for after in (0, 1, 13, 29, 30, 31):
        assert list(journal.read(after)) == list(enumerate(batches, 1))[after:]


def test_positions_go_on_after_a_restart(subject: Subject) -> None:
    append_and_wait(subject.journal, b"one", b"two")
    append_and_wait(subject.restart(), b"three")
    assert list(subject.restart().read(0)) == [(1, b"one"), (2, b"two"), (3, b"three")]


def test_an_append_may_be_given_before_the_last_has_answered_and_answers_come_in_order(subject: Subject) -> None:
    answers = Answers()
    batches = [f"batch {n}".encode() * (n % 37) for n in range(2000)]
    for number, batch in enumerate(batches):
        answers.append(subject.journal, batch, sync=number % 3 == 0)
    answers.wait()
    assert answers.order == [(n, None) for n in range(1, 2001)]
    assert [batch for _, batch in subject.restart().read(0)] == batches


def test_a_batch_of_any_size_is_kept(subject: Subject) -> None:
    batches = [b"a" * size for size in (1, SEGMENT_BYTES - 1, SEGMENT_BYTES, 10 * SEGMENT_BYTES, 1)]
    assert append_and_wait(subject.journal, *batches) == [None] * 5
    assert [batch for _, batch in subject.restart().read(0)] == batches


def test_done_is_called_exactly_once_for_each_append(subject: Subject) -> None:
    calls: list[BaseException | None] = []
    finished = threading.Event()
    subject.journal.append(b"x", True, calls.append)
    subject.journal.append(b"y", True, lambda error: finished.set())
    assert finished.wait(30)
    subject.journal.close()
    assert calls == [None]


def test_retiring_forgets_nothing_behind_the_position(subject: Subject) -> None:
    batches = [bytes([n]) * 900 for n in range(40)]
    append_at_once(subject.journal, *batches)
    subject.journal.retire(25)
    assert 1 < subject.journal.first_position <= 26
    journal = subject.restart()
    assert 1 < journal.first_position <= 26
    assert journal.last_position == 40
    assert list(journal.read(25)) == list(enumerate(batches, 1))[25:]


def test_retiring_everything_keeps_the_last_position(subject: Subject) -> None:
    append_at_once(subject.journal, *[b"z" * 900] * 20)
    subject.journal.retire(20)
    journal = subject.restart()
    assert journal.last_position == 20
    assert append_and_wait(journal, b"next") == [None]
    assert list(subject.restart().read(20)) == [(21, b"next")]


def test_retiring_twice_or_a_position_of_the_future_does_no_harm(subject: Subject) -> None:
    append_at_once(subject.journal, *[b"z" * 900] * 20)
    for upto in (0, 7, 7, 3, 1000):
        subject.journal.retire(upto)
    assert list(subject.restart().read(19)) == [(20, b"z" * 900)]


def test_closing_finishes_what_was_accepted(subject: Subject) -> None:
    answers = Answers()
    for number in range(100):
        answers.append(subject.journal, b"%d" % number, sync=False)
    subject.journal.close()
    assert answers.errors == [None] * 100
    assert len(list(subject.restart().read(0))) == 100


def test_closing_twice_is_fine_and_a_closed_journal_takes_no_append(subject: Subject) -> None:
    subject.journal.close()
    subject.journal.close()
    with pytest.raises(JournalError, match="closed"):
        subject.journal.append(b"late", True, lambda error: None)
