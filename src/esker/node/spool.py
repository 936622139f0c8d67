"""Columns as files, for readers on the same machine: they map what they would else be sent.

A file is made when it is asked for and stays for whoever asks for the same again: what a key stands for never changes.
As a whole the files are bounded; when that is passed, those go that nobody has asked for the longest. A reader that has
a file open keeps it.

The folder has a secret name and is for the node's own user alone. Who can look into it is on this machine and has a
right to the data directory, and nobody has to compare names of hosts. Nothing here survives the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from itertools import count
from pathlib import Path
from typing import Final

from esker.errors import EskerError
from esker.node.directory import FREE_BYTES_MIN

BYTES_MAX: Final = 1 << 30
UNUSED_S: Final = 15 * 60.0  # then a file goes
_LOOK_S: Final = 60.0


class NoFile(EskerError):
    """It cannot be made: the disk is full, or fails."""


class _File:
    """Made, or being made."""

    __slots__ = ("making", "path", "size", "used_at")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.making: asyncio.Task[None] | None = None
        self.size = 0
        self.used_at = 0.0


class Spool:
    """Lives on the loop; files are made in `pool`."""

    def __init__(self, directory: Path, pool: Executor) -> None:
        if directory.exists():
            shutil.rmtree(directory)
        self.folder = directory.absolute() / secrets.token_hex(16)
        self.folder.mkdir(mode=0o700, parents=True)
        self._pool = pool
        self._numbers = count(1)
        self._files: OrderedDict[Hashable, _File] = OrderedDict()  # the one used last is last
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    async def get(self, key: Hashable, make: Callable[[Path], None]) -> Path:
        """The file of this key, which `make` writes in a thread if there is none. Raises NoFile, and what it raises."""
        loop = asyncio.get_running_loop()
        file = self._files.get(key)
        if file is not None and file.making is None and not file.path.exists():  # somebody has tidied up
            self._remove(key)
            file = None
        if file is None:
            file = self._files[key] = _File(self.folder / f"{next(self._numbers)}.arrow")
            file.making = loop.create_task(self._make(key, file, make), name=f"columns for {file.path.name}")
        self._files.move_to_end(key)
        file.used_at = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(_LOOK_S, self._look)
        if file.making is not None:
            await asyncio.shield(file.making)  # others may wait for it too
        return file.path

    async def _make(self, key: Hashable, file: _File, make: Callable[[Path], None]) -> None:
        try:
            size = await asyncio.get_running_loop().run_in_executor(self._pool, _written, file.path, make)
        except BaseException:
            del self._files[key]
            raise
        file.making = None
        file.size = size
        self._bytes += size
        self._drop(lambda _: self._bytes > BYTES_MAX)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() - UNUSED_S
        self._drop(lambda file: file.used_at <= until)
        self._timer = loop.call_later(_LOOK_S, self._look) if self._files else None

    def _drop(self, unwanted: Callable[[_File], bool]) -> None:
        """The longest unused first, until one is wanted."""
        for key, file in list(self._files.items()):
            if not unwanted(file):
                return
            if file.making is None:
                self._remove(key)

    def _remove(self, key: Hashable) -> None:
        file = self._files.pop(key)
        self._bytes -= file.size
        file.path.unlink(missing_ok=True)

    def close(self) -> None:
        """After the pool: nothing is made any more."""
        if self._timer is not None:
            self._timer.cancel()
        shutil.rmtree(self.folder.parent, ignore_errors=True)


def _written(path: Path, make: Callable[[Path], None]) -> int:
    """Runs in a thread. Returns how large it is. What goes wrong leaves no file."""
    try:
        free = shutil.disk_usage(path.parent).free
        if free < FREE_BYTES_MIN:
            raise NoFile(f"the disk has {free} bytes left, and {FREE_BYTES_MIN} are for others")
        make(path)
        return path.stat().st_size
    except BaseException as error:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise NoFile(f"cannot write to {path.parent}: {error}") from error
        raise
