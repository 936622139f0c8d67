"""What has left memory, read back from the store (engine/logs/cold.py says what is asked for)."""

from __future__ import annotations

from esker.engine.logs.block import Content, Outline
from esker.store.interface import Store
from esker.store.jobs import cold_payload
from esker.store.logs import stored_content, stored_outline


class ColdStore:
    def __init__(self, store: Store) -> None:
        self._store = store

    def payload(self, topic: int, partition: int, seq: int) -> bytes:
        return cold_payload(self._store, topic, partition, seq)

    def block(self, topic: int, partition: int, first_seq: int) -> Content:
        return stored_content(self._store, topic, partition, first_seq)

    def outline(self, topic: int, partition: int, first_seq: int) -> Outline | None:
        return stored_outline(self._store, topic, partition, first_seq)
