"""The data directory: who has it, which format it has, and which node it belongs to.

lock       held by the process that has the directory open
format     the version of the layout
node       the id of this node: 40 hexadecimal characters, and 16 of its checksum where it was made with one
journal/   see journal/file.py
store/     see store/rocksdb.py
snapshots/ see node/snapshots.py; only of the process that runs
loads/     see node/staging.py
spool/     see node/spool.py; only of the process that runs
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from hashlib import sha256
from pathlib import Path
from typing import Final

from esker.errors import DataDirectoryError
from esker.journal.disk import Disk, RealDisk, make_directory

FREE_BYTES_MIN: Final = 1 << 30  # of the disk: whatever can wait leaves so much to the journal and the store

STORE_NAME: Final = "store"

_NODE_ID = re.compile(r"[0-9a-f]{40}")

FORMAT = 1
"""Version of the directory's layout. To change it: raise the number, upgrade in `_check_format`, write it last."""


class DataDirectory:
    """Opens a directory, making it when it is missing, and keeps every other process out until `close`."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path = path
        self._disk: Disk = RealDisk() if disk is None else disk
        try:
            make_directory(self._disk, path)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise DataDirectoryError(
                f"cannot use {path} as data directory: {error.strerror}; choose another with --data"
            ) from error
        try:
            self._take_lock()
            self._check_format()
            self.node_id = self._read_node_id()
            make_directory(self._disk, self.store)  # RocksDB would make it, and not sync its entry
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def journal(self) -> Path:
        return self.path / "journal"

    @property
    def store(self) -> Path:
        return self.path / STORE_NAME

    @property
    def loads(self) -> Path:
        return self.path / "loads"

    @property
    def snapshots(self) -> Path:
        return self.path / "snapshots"

    @property
    def clock(self) -> Path:
        return self.path / "clock"

    @property
    def spool(self) -> Path:
        return self.path / "spool"

    def close(self) -> None:
        os.close(self._lock)

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._lock, 32, 0).decode(errors="replace").strip()
            raise DataDirectoryError(
                f"{self.path} is in use by process {owner or 'unknown'}; stop it, or choose another with --data"
            ) from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)

    def _check_format(self) -> None:
        file = self.path / "format"
        if not file.exists():
            if any(entry.name not in ("lock",) for entry in self.path.iterdir()):
                raise DataDirectoryError(
                    f"{self.path} holds other files; choose an empty or a new directory with --data"
                )
            _write(file, str(FORMAT))
            return
        text = file.read_bytes().decode("ascii", "backslashreplace").strip()
        if not text.isdigit() or int(text) < 1:
            raise DataDirectoryError(f"{file} holds {text!r}, not a version; nothing was changed")
        if int(text) > FORMAT:
            raise DataDirectoryError(
                f"{self.path} has format {text}, this version of Esker knows up to {FORMAT}; nothing was changed: "
                "use a newer Esker"
            )

    def _read_node_id(self) -> str:
        file = self.path / "node"
        if not file.exists():
            made = secrets.token_hex(20)
            _write(file, f"{made} {_checksum(made)}")
        text = file.read_bytes().decode("ascii", "backslashreplace").strip()
        found, _, checksum = text.partition(" ")
        # One from before it had a checksum is the id alone.
        if _NODE_ID.fullmatch(found) is None or (text != found and checksum != _checksum(found)):
            raise DataDirectoryError(
                f"{file} is damaged: it holds {text[:80]!r}, which is no id of a node; restore it from a backup; "
                "nothing was changed"
            )
        return found


def _checksum(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def _write(file: Path, text: str) -> None:
    """All or nothing, and on disk when it returns."""
    fresh = file.with_suffix(".new")
    with fresh.open("w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    fresh.rename(file)
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
