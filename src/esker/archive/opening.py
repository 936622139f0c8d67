"""From the setting `archive` to the place it names. Nothing here is imported by a node that has no archive."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from esker.archive.interface import ArchiveStore
from esker.archive.local import LocalArchive
from esker.errors import ArchiveError, SettingsError

OWNER = "archive.json"
FORMAT = 1
_NEEDED = ("pyarrow", "obstore", "numpy")


class Owner(msgspec.Struct, frozen=True):
    """Whose archive it is. Files that the owner does not know are leftovers of a crash, and it removes them."""

    format: int
    node: str


def check_installed() -> None:
    """Raises SettingsError when the packages of an archive are missing. Call it before anything imports them."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise SettingsError(f"setting archive needs {' and '.join(missing)}: pip install 'esker[server,archive]'")


def open_archive(where: str, node: str) -> ArchiveStore:
    """Opens the archive of a node. Raises SettingsError when it cannot be used, or belongs to another node."""
    try:
        store = _open(where)
        _own(store, node)
    except ArchiveError as error:
        raise SettingsError(f"setting archive: {error}") from error
    return store


def _open(where: str) -> ArchiveStore:
    parts = urlsplit(where)
    if "://" not in where:
        return LocalArchive(Path(where))
    if parts.scheme == "file":
        return LocalArchive(Path(unquote(parts.path)))
    from esker.archive.objects import ObjectArchive

    return ObjectArchive(where.rstrip("/") if parts.scheme != "memory" else where)


def _own(store: ArchiveStore, node: str) -> None:
    stored = store.get(OWNER)
    if stored is None:
        store.put(OWNER, msgspec.json.encode(Owner(FORMAT, node)))
        return
    try:
        owner = msgspec.json.decode(stored, type=Owner)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArchiveError(f"{store.where}/{OWNER} is damaged: {error}") from error
    if owner.format > FORMAT:
        raise ArchiveError(f"{store.where} has format {owner.format}, this version of Esker knows up to {FORMAT}")
    if owner.node != node:
        raise ArchiveError(
            f"{store.where} belongs to node {owner.node[:8]}, this one is {node[:8]}; give each data directory an "
            "archive of its own"
        )
