"""Appending in tests: keeps the answers in the order they came, and waits for them without a clock of its own."""

from __future__ import annotations

from pathlib import Path
from threading import Condition

from esker.journal.frame import END, HEADER_SYNCED_OFFSET, SEGMENT_HEADER_BYTES
from esker.journal.interface import Journal

ANSWER_SECONDS_MAX = 30.0


class Answers:
    """`order` holds (position, error) as answered."""

    def __init__(self) -> None:
        self.order: list[tuple[int, BaseException | None]] = []
        self._came = Condition()
        self._asked = 0

    def append(self, journal: Journal, batch: bytes, sync: bool = True) -> int:
        self._asked += 1
        number = journal.last_position + 1

        def done(error: BaseException | None) -> None:
            with self._came:
                self.order.append((number, error))
                self._came.notify_all()

        position = journal.append(batch, sync, done)
        assert position == number
        return position

    def wait(self, count: int | None = None) -> None:
        """Returns when `count` answers came; all that were asked for if not given."""
        wanted = self._asked if count is None else count
        with self._came:
            assert self._came.wait_for(lambda: len(self.order) >= wanted, ANSWER_SECONDS_MAX), "no answer came"

    @property
    def errors(self) -> list[BaseException | None]:
        return [error for _, error in self.order]


def append_and_wait(journal: Journal, *batches: bytes, sync: bool = True) -> list[BaseException | None]:
    """Appends one after the other, each after the answer to the last, so that each is synced before the next."""
    answers = Answers()
    for batch in batches:
        answers.append(journal, batch, sync)
        answers.wait()
    return answers.errors


def append_at_once(journal: Journal, *batches: bytes, sync: bool = True) -> list[BaseException | None]:
    answers = Answers()
    for batch in batches:
        answers.append(journal, batch, sync)
    answers.wait()
    return answers.errors


def without_marks(path: Path, end: int) -> None:
    """Takes away what a segment notes of its syncs, as if the power had gone before any of it was on disk."""
    content = bytearray(path.read_bytes())
    content[end : end + len(END)] = END
    content[HEADER_SYNCED_OFFSET:SEGMENT_HEADER_BYTES] = bytes(SEGMENT_HEADER_BYTES - HEADER_SYNCED_OFFSET)
    path.write_bytes(content)
