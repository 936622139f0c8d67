"""The archive in an object store (S3, Google Cloud, Azure, or memory for tests), through obstore.

Keys and regions come from where the store's own tools look for them: the environment. A put is whole or not at all by
the nature of such stores.
"""

from __future__ import annotations

from collections.abc import Iterator

import obstore
from obstore.store import MemoryStore, from_url

from esker.errors import ArchiveError

# What `memory:///name` stands for: kept for the life of the process, so that a node can be restarted on it.
_in_memory: dict[str, MemoryStore] = {}


class ObjectArchive:
    def __init__(self, url: str) -> None:
        self._url = url
        try:
            self._store = _in_memory.setdefault(url, MemoryStore()) if url.startswith("memory:") else from_url(url)
        except Exception as error:  # obstore's errors have no common class of their own
            raise ArchiveError(f"{url} cannot be used for an archive: {error}") from error

    @property
    def where(self) -> str:
        return self._url

    def put(self, name: str, data: bytes) -> None:
        try:
            obstore.put(self._store, name, data)
        except Exception as error:
            raise ArchiveError(f"{self._url}/{name} could not be written: {error}") from error

    def get(self, name: str) -> bytes | None:
        try:
            return obstore.get(self._store, name).bytes().to_bytes()
        except FileNotFoundError:
            return None
        except Exception as error:
            raise ArchiveError(f"{self._url}/{name} could not be read: {error}") from error

    def names(self, prefix: str) -> Iterator[str]:
        try:
            for page in obstore.list(self._store, prefix):
                yield from (entry["path"] for entry in page)
        except Exception as error:
            raise ArchiveError(f"{self._url}/{prefix} could not be listed: {error}") from error

    def delete(self, name: str) -> None:
        try:
            obstore.delete(self._store, name)
        except FileNotFoundError:
            return
        except Exception as error:
            raise ArchiveError(f"{self._url}/{name} could not be removed: {error}") from error
