"""A large batch is checksummed and written by the journal's thread: who appends it does not wait."""

from __future__ import annotations

import threading
from pathlib import Path

from esker.journal.file import INLINE_BYTES_MAX, FileJournal


def test_only_small_batches_are_written_by_their_caller(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path, inline=True)
    journal.settle()
    try:
        assert _writer_of(journal, INLINE_BYTES_MAX + 1) != threading.get_ident()
        journal.settle()
        while _writer_of(journal, 100) != threading.get_ident():
            journal.settle()  # a disk that was slow just now is the thread's for a moment
    finally:
        journal.close()


def _writer_of(journal: FileJournal, size: int) -> int:
    """The thread that has written a batch of so many bytes."""
    writers: list[int] = []
    done = threading.Event()

    def answer(error: BaseException | None) -> None:
        assert error is None
        writers.append(threading.get_ident())
        done.set()

    journal.append(b"x" * size, True, answer)
    assert done.wait(10)
    return writers[0]
