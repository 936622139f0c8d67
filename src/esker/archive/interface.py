"""Where the archive keeps its files: a folder, or an object store.

Files are small enough to be written and read whole. What an adapter promises:
* After `put` returns, the file is there whole under its name and survives any crash. Before, nothing is there under
  that name, or the file that was there before. Putting the same name again replaces it.
* `names` lists whole files only.
* `delete` of a file that is not there does nothing.

All of it may take long: it is called in threads, several at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class ArchiveStore(Protocol):
    @property
    def where(self) -> str:
        """The folder or URL, for people."""

    def put(self, name: str, data: bytes) -> None:
        """Raises ArchiveError, as all of these do."""

    def get(self, name: str) -> bytes | None:
        """None: there is no such file."""

    def names(self, prefix: str) -> Iterator[str]:
        """The files below a folder (`records`, `events/day=2026-05-01`), in no promised order."""

    def delete(self, name: str) -> None: ...
