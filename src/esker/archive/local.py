"""The archive in a folder of this machine.

A file is written under a name of its own in `.incoming`, synced, and renamed into place; then the folder is synced.
So a crash leaves whole files, and leftovers only in `.incoming`, which is emptied when the archive is opened.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from esker.errors import ArchiveError

_INCOMING = ".incoming"


class LocalArchive:
    def __init__(self, folder: Path) -> None:
        """Makes the folder when it is missing."""
        self._folder = folder
        self._incoming = folder / _INCOMING
        try:
            self._incoming.mkdir(parents=True, exist_ok=True)
            for leftover in self._incoming.iterdir():
                leftover.unlink()
        except OSError as error:
            raise ArchiveError(f"{folder} cannot be used for an archive: {error.strerror or error}") from error

    @property
    def where(self) -> str:
        return str(self._folder)

    def put(self, name: str, data: bytes) -> None:
        path = self._folder / name
        incoming = self._incoming / secrets.token_hex(8)
        try:
            with incoming.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._make_folder(path.parent)
            incoming.replace(path)
            _sync_folder(path.parent)
        except OSError as error:
            incoming.unlink(missing_ok=True)
            raise ArchiveError(f"{path} could not be written: {error.strerror or error}") from error

    def get(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ArchiveError(f"{self._folder / name} could not be read: {error.strerror or error}") from error

    def names(self, prefix: str) -> Iterator[str]:
        for path in sorted((self._folder / prefix).rglob("*")):
            if path.is_file():
                yield path.relative_to(self._folder).as_posix()

    def delete(self, name: str) -> None:
        path = self._folder / name
        try:
            path.unlink(missing_ok=True)
            self._remove_empty(path.parent)
        except OSError as error:
            raise ArchiveError(f"{path} could not be removed: {error.strerror or error}") from error

    def _make_folder(self, folder: Path) -> None:
        """Makes a folder and its parents, each of them durable."""
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)

    def _remove_empty(self, folder: Path) -> None:
        while folder != self._folder and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
